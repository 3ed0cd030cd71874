"""Launches of Triton kernels at little host time: compiled kernels are launched from C."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ... import _torch_compat

_launch: Any
try:  # compiled at install, as the CPU's kernels are
    from . import _launch  # type: ignore[attr-defined, no-redef]
except ImportError:
    _launch = None

OPTIONS = ("num_warps", "maxnreg")  # of the compiler; all else in ``meta`` is constexpr arguments
INTEGERS = {"i32": 4, "u32": 4, "i64": 8, "u64": 8}  # Triton's types of sizes, in bytes
POINTER = 8  # bytes
SCRATCH = 2  # pointers to scratch memory that a kernel may take, and ours do not use


class Launch:
    """A kernel with a fixed grid and fixed arguments but for its tensors.

    Triton's own launch looks up the compiled code, at more host time than a small tensor takes on
    the GPU. What it looks at is the same whenever sizes, dtypes, device and the alignment of
    pointers are, so that code is cached for these and launched from C, as a launch plan.
    """

    def __init__(self, kernel, grid: tuple[int, int, int], sizes: tuple[int, ...], meta: dict):
        self.kernel, self.grid, self.sizes, self.meta = kernel, grid, sizes, meta
        self.plans: dict[tuple, Any] = {}

    def __call__(
        self, key: tuple, *tensors: Tensor | None, out: Sequence[Tensor | None] = ()
    ) -> None:
        """Launches the kernel.

        Args:
            key: Device and dtypes of the tensors.
            tensors: The first arguments of the kernel, in its order.
            out: The next ones, tensors that need not be aligned.
        """
        device = key[0]
        if device >= 0 and device != _torch_compat.current_device():
            with torch.cuda.device(device):
                return self(key, *tensors, out=out)
        plan = self.plans.get(key)
        stream = 0 if plan is None else _torch_compat.current_stream(device)
        if plan is not None and _launch.launch(plan, stream, *tensors, *out):
            return None
        compiled = self.kernel[self.grid](*tensors, *out, *self.sizes, **self.meta)
        aligned = all(t is None or t.data_ptr() % 16 == 0 for t in tensors)
        if key not in self.plans and aligned and compiled is not None:  # None: interpreted
            self.plans[key] = self._plan(compiled, len(tensors), len(out))
        return None

    def _plan(self, compiled: Any, aligned: int, out: int) -> Any:
        """The launch as one call of the driver; None where its arguments are not known exactly."""
        driver = _driver()
        if driver is None:
            return None
        launch, parameters = driver
        try:
            signature, metadata = compiled.src.signature, compiled.metadata
            types = [signature[name] for name in self.kernel.arg_names]
            plain = (
                metadata.num_ctas == 1
                and not (metadata.global_scratch_size or metadata.profile_scratch_size)
                and not metadata.launch_cooperative_grid
            )
            block = 32 * metadata.num_warps, metadata.shared
        except (AttributeError, KeyError):  # a newer Triton
            return None
        packed = arguments(types, aligned + out, self.sizes)
        if not plain or packed is None:
            return None
        bytes_, places, values = packed
        found = parameters(compiled.function)
        if found[: len(bytes_)] != bytes_ or found[len(bytes_) :] not in _SCRATCHES:
            return None
        scratch = len(found) - len(bytes_)
        places, values = (*places, *(-1,) * scratch), (*values, *(0,) * scratch)
        return _launch.plan(launch, compiled.function, self.grid, *block, aligned, places, values)


_SCRATCHES = [(POINTER,) * n for n in range(SCRATCH + 1)]


def arguments(
    types: Sequence[str], tensors: int, sizes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """The arguments of a compiled kernel: bytes, index of the tensor (-1: none), integer.

    Triton drops what it specialises on: tensors that are None, sizes of 1.
    """
    found = []
    for place, kind in enumerate(types):
        if kind == "constexpr":
            continue
        if kind.startswith("*") and place < tensors:
            found.append((POINTER, place, 0))
        elif kind in INTEGERS and tensors <= place < tensors + len(sizes):
            found.append((INTEGERS[kind], -1, sizes[place - tensors]))
        else:
            return None
    bytes_, places, values = zip(*found, strict=True)
    return bytes_, places, values


def unavailable_reason() -> str | None:
    """Why kernels are not launched from C on this machine's GPU; None if they are."""
    if torch.version.hip is not None:
        return "only NVIDIA's driver is known"
    if _launch is None:
        return (
            "native/launch.c is not compiled; install torch-srelu again where there is a compiler"
        )
    return None if _driver() is not None else "the CUDA driver is older than 12.4"


@functools.cache
def _driver() -> tuple[int, Callable[[int], tuple[int, ...]]] | None:
    """The address of cuLaunchKernel, and a function for the bytes of a kernel's parameters."""
    if _launch is None:
        return None
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        launch = ctypes.cast(cuda.cuLaunchKernel, ctypes.c_void_p).value
        info = cuda.cuFuncGetParamInfo
    except (OSError, AttributeError):  # no driver, or one before CUDA 12.4
        return None
    info.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.POINTER(ctypes.c_size_t)] * 2]

    def parameters(function: int) -> tuple[int, ...]:
        offset, size, found = ctypes.c_size_t(), ctypes.c_size_t(), []
        while info(function, len(found), ctypes.byref(offset), ctypes.byref(size)) == 0:
            found.append(size.value)
        return tuple(found)

    return (launch, parameters) if launch else None
