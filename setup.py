"""Compiles what is not Python; everything else is in pyproject.toml.

- The CPU kernels, and launches on a GPU that cost little host time: C, no torch needed, seconds.
- Eager calls on a GPU without Python: C++ with torch's headers, half a minute, and only where torch
  is there when the package is built (``pip install --no-build-isolation .``), for that torch alone.

All are ``optional``: where there is no compiler the package installs without them, and
``torch_srelu.backends()`` tells what is in use.
"""

import sys
from pathlib import Path

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
        depends=sources("triton", "launch.h"),
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-O2", "-std=gnu11"],
        py_limited_api=True,
        optional=True,
    ),
]
options = {"bdist_wheel": {"py_limited_api": "cp311"}}

# What an earlier build left for another torch would be taken along, or not compiled anew.
build = Path(__file__).parent / "build"
for stale in (*build.glob("*/**/_eager_torch*"), *build.glob("*/**/eager.o")):
    stale.unlink(missing_ok=True)

try:
    import torch
    from torch.utils import cpp_extension
except ImportError:  # the usual build, in an environment of its own
    torch = None

if torch is not None and sys.platform == "linux":
    name = "_eager_torch" + "_".join(torch.__version__.split(".")[:2])  # as ops/cpp.py looks for it
    extensions.append(
        Extension(
            f"torch_srelu.ops.{name}",
            sources=sources("cpu", "eager.cpp"),
            depends=sources("cpu", "calls.h", "kept.h", "launch.h", "unit.h"),
            include_dirs=cpp_extension.include_paths(),
            library_dirs=cpp_extension.library_paths(),
            libraries=["c10", "torch", "torch_cpu", "torch_python"],
            define_macros=[("TORCH_EXTENSION_NAME", name)],
            extra_compile_args=["-O2", "-std=c++20", "-g0"],
            language="c++",
            optional=True,
        )
    )
    options = {}  # a wheel for this Python and this torch

setup(ext_modules=extensions, options=options)
