"""Compiles what is not Python; everything else is in pyproject.toml.

Kernels for CPUs, and launches of kernels on a GPU at little host time: C without torch, compiled in
seconds. Both are ``optional``: where there is no compiler the package installs without them, and
``torch_srelu.backends()`` tells what is in use.
"""

from setuptools import Extension, setup


def sources(backend: str, *names: str) -> list[str]:
    return [f"src/torch_srelu/ops/{backend}/native/{name}" for name in names]


extensions = [
    Extension(
        "torch_srelu.ops.cpu._native",
        sources=sources("cpu", "srelu.c", "key_statistics.c"),
        depends=sources(
            "cpu", "key_statistics_kernels.h", "srelu_dtypes.h", "srelu_kernels.h", "srelu_loops.h"
        ),
        # Not -ffast-math: NaN and infinity must come out right. Contraction is off so that
        # the forward pass has the reference's bits on every instruction set.
        extra_compile_args=[
            "-O3",
            "-std=gnu11",
            "-fopenmp",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-fno-trapping-math",
        ],
        extra_link_args=["-fopenmp"],
        py_limited_api=True,  # it uses no Python API at all: one file for every Python
        optional=True,
    ),
    Extension(
        "torch_srelu.ops.triton._launch",
        sources=sources("triton", "launch.c"),
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-O2", "-std=gnu11"],
        py_limited_api=True,
        optional=True,
    ),
]
setup(ext_modules=extensions, options={"bdist_wheel": {"py_limited_api": "cp311"}})
