"""Selects the backend of a tensor: the reference, the native CPU kernels, or Triton."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import warnings
from collections.abc import Iterator
from types import ModuleType

import torch
from torch import Tensor

from .._text import counted
from .cpu import cpu_backend as cpu
from .triton import triton_launch

NAMES = ("reference", "cpu", "triton")

forced: str | None = None  # by `use_backend`


def backends() -> dict[str, str]:
    """The backend of each kind of device on this machine, and why.

    Example:
        >>> import torch_srelu
        >>> sorted(torch_srelu.backends())
        ['cpu', 'cuda', 'other']
    """
    table = {"other": "reference (plain torch): there is no kernel for other devices"}
    reason, threads = cpu.unavailable_reason(), counted(torch.get_num_threads(), "thread")
    table["cpu"] = (
        f"cpu (C, {cpu.isa()}; float32, float64, bfloat16; {threads})"
        if reason is None
        else f"reference (plain torch): {reason}"
    )
    reason = _triton_unavailable_reason()
    has_cuda = torch.cuda.is_available()
    launched = triton_launch.unavailable_reason() if has_cuda else None
    table["cuda"] = (
        f"triton (launched {'in C' if launched is None else f'by Triton: {launched}'})"
        if reason is None
        else f"reference (plain torch): {reason}"
    )
    if not has_cuda:
        table["cuda"] = f"none: torch sees no CUDA device; with one, {table['cuda']}"
    if forced is not None:
        table = {device: f"{forced}: forced by use_backend" for device in table}
    return table


def use_backend(name: str) -> contextlib.AbstractContextManager[None]:
    """Compute with one backend, "reference", "cpu" or "triton", inside this context.

    For comparisons and tests: by default the device decides. "triton" takes CPU tensors only under
    Triton's interpreter (``TRITON_INTERPRET=1``).

    Example:
        >>> import torch_srelu
        >>> with torch_srelu.use_backend("reference"):
        ...     torch_srelu.backends()["cpu"]
        'reference: forced by use_backend'
    """
    if name not in NAMES:
        raise ValueError(f"backend must be one of {', '.join(NAMES)}, got {name!r}")
    reasons = {"cpu": cpu.unavailable_reason, "triton": _triton_unavailable_reason}
    reason = reasons[name]() if name in reasons else None
    if reason is not None:
        raise RuntimeError(f"the backend {name!r} cannot be used here: {reason}")
    return _forcing(name)


@contextlib.contextmanager
def _forcing(name: str) -> Iterator[None]:
    global forced
    before, forced = forced, name
    try:
        yield
    finally:
        forced = before


def select(x: Tensor) -> ModuleType | None:
    """The module whose ``forward`` and ``backward`` compute SReLU of ``x``; None: `reference`."""
    if forced is None and x.is_cuda:
        return _cuda()
    device = x.device.type
    if forced == "reference":
        return None
    if forced == "cpu":
        if device != "cpu":
            raise ValueError(f'use_backend("cpu") cannot compute a tensor on {x.device}')
        return cpu if x.dtype in cpu.DTYPES else None
    if forced == "triton":
        if not (x.is_cuda or _interpreted()):
            raise ValueError(
                f'use_backend("triton") cannot compute a tensor on {x.device}, except under '
                "Triton's interpreter: set TRITON_INTERPRET=1 before Python starts"
            )
        return _triton()
    if device == "cpu" and x.dtype in cpu.DTYPES:
        return cpu if cpu.unavailable_reason() is None else _notice(cpu.unavailable_reason())
    return None


@functools.cache
def _cuda() -> ModuleType | None:
    reason = _triton_unavailable_reason()
    return _triton() if reason is None else _notice(reason)


@functools.cache
def _triton_unavailable_reason() -> str | None:
    found = importlib.util.find_spec("triton")
    return "Triton is not installed; run: pip install triton" if found is None else None


@functools.cache
def _triton() -> ModuleType:
    from .triton import triton_backend  # late: importing torch_srelu must not import Triton

    return triton_backend


@functools.cache
def _interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, which is decided when they are imported."""
    from triton import JITFunction

    from .triton.triton_forward_kernels import forward_runs

    return not isinstance(forward_runs, JITFunction)


@functools.cache
def _notice(reason: str | None) -> None:
    """Warns once that a device runs on the reference."""
    warnings.warn(
        f"torch_srelu runs on its plain-torch reference, which is right but slow: {reason}. "
        "torch_srelu.backends() shows what is in use.",
        RuntimeWarning,
        stacklevel=2,
    )
