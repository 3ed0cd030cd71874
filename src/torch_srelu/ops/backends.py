"""Which execution runs where, and why."""

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
    """What computes SReLU on each kind of device here, and why.

    Example:
        >>> import torch_srelu
        >>> sorted(torch_srelu.backends())
        ['cpu', 'cuda', 'other']
    """
    table = {"other": "reference (plain torch): there is no kernel for other devices"}
    reason, threads = cpu.why_not(), counted(torch.get_num_threads(), "thread")
    table["cpu"] = (
        f"cpu (C, {cpu.isa()}; float32, float64, bfloat16; {threads})"
        if reason is None
        else f"reference (plain torch): {reason}"
    )
    reason = _no_triton()
    here = torch.cuda.is_available()
    launched = triton_launch.why_not() if here else None
    table["cuda"] = (
        f"triton (launched {'in C' if launched is None else f'by Triton: {launched}'})"
        if reason is None
        else f"reference (plain torch): {reason}"
    )
    if not here:
        table["cuda"] = f"none: torch sees no CUDA device; with one, {table['cuda']}"
    if forced is not None:
        table = {device: f"{forced}: forced by use_backend" for device in table}
    return table


def use_backend(name: str) -> contextlib.AbstractContextManager[None]:
    """Compute with one execution, "reference", "cpu" or "triton", inside this context.

    For comparisons and tests: the choice is made for you otherwise. "triton" takes CPU tensors only
    under Triton's interpreter (``TRITON_INTERPRET=1``).

    Example:
        >>> import torch_srelu
        >>> with torch_srelu.use_backend("reference"):
        ...     torch_srelu.backends()["cpu"]
        'reference: forced by use_backend'
    """
    if name not in NAMES:
        raise ValueError(f"backend must be one of {', '.join(NAMES)}, got {name!r}")
    reason = cpu.why_not() if name == "cpu" else _no_triton() if name == "triton" else None
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


def kernels(x: Tensor) -> ModuleType | None:
    """The module whose ``forward`` and ``backward`` compute SReLU of ``x``; None: the reference."""
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
        return cpu if cpu.why_not() is None else _notice(cpu.why_not())
    return None


@functools.cache
def _cuda() -> ModuleType | None:
    return _triton() if _no_triton() is None else _notice(_no_triton())


@functools.cache
def _no_triton() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; run: pip install triton"
    return None


@functools.cache
def _triton() -> ModuleType | None:
    if _no_triton() is not None:
        return None
    from .triton import (
        triton_backend as triton,  # late: importing torch_srelu must not import Triton
    )

    return triton


@functools.cache
def _interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, which was decided when they were imported."""
    from triton import JITFunction

    from .triton.triton_forward_kernels import forward_runs

    return not isinstance(forward_runs, JITFunction)


@functools.cache
def _notice(reason: str | None) -> None:
    """Says once, clearly, that a device runs on the reference."""
    warnings.warn(
        f"torch_srelu runs on its plain-torch reference, which is right but slow: {reason}. "
        "torch_srelu.backends() shows what is in use.",
        RuntimeWarning,
        stacklevel=2,
    )
