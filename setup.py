"""Compiles the native CPU kernels: two C files, no torch needed, a few seconds.

``optional``: where there is no compiler the package installs without them and says so when used.
Everything else is in pyproject.toml.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "torch_srelu.ops._native",
            sources=[
                "src/torch_srelu/ops/native/srelu.c",
                "src/torch_srelu/ops/native/scan.c",
            ],
            depends=[
                "src/torch_srelu/ops/native/scan_kernels.h",
                "src/torch_srelu/ops/native/srelu_dtypes.h",
                "src/torch_srelu/ops/native/srelu_kernels.h",
                "src/torch_srelu/ops/native/srelu_loops.h",
            ],
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
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
