"""The CPU backend: ``native/srelu.c``, compiled at install and called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..arguments import Needs, Parameters
from ..call_cache import PreparedCall
from ..layout import ChannelView
from ..reference import compute_dtype

ISAS = ("portable", "avx2", "avx512")
# Whether its kernels add a bias and a second gradient, and compute a `BatchNormInput`'s sums.
FUSES = False
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}  # indices of the C tables

ABI = 3  # version of the C functions, as in srelu.c

_isa: int | None = None  # an index of ISAS; None: the best of this machine


@functools.cache
def _library() -> ctypes.CDLL | OSError:
    """The compiled kernels, or the reason why there are none."""
    folder = Path(__file__).parent
    found = sorted(p for p in folder.glob("_native.*") if p.suffix in {".so", ".pyd", ".dylib"})
    if not found:
        return OSError(
            "the native CPU kernels were not compiled (no C compiler at install, or run without an "
            "install); with a compiler at hand, install torch-srelu again to compile them"
        )
    try:
        library = ctypes.CDLL(str(found[0]))
    except OSError as error:
        return OSError(f"the native CPU kernels in {found[0].name} could not be loaded: {error}")
    if not hasattr(library, "srelu_abi") or library.srelu_abi() != ABI:
        return OSError(
            f"the native CPU kernels in {found[0].name} belong to another version of torch_srelu; "
            "install it again to compile them anew"
        )
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    head, shape = [ctypes.c_int] * 3, [size] * 3
    library.srelu_forward.argtypes = [*head, *[pointer] * 3, *shape]
    library.srelu_backward.argtypes = [*head, *[pointer] * 5, *shape]
    return library


def unavailable_reason() -> str | None:
    """Why the native kernels are unavailable; None if they are not."""
    library = _library()
    return str(library) if isinstance(library, OSError) else None


@functools.cache
def isas() -> tuple[str, ...]:
    """The instruction sets that this machine can run, the best last."""
    library = _library()
    return () if isinstance(library, OSError) else ISAS[: library.srelu_best_isa() + 1]


def set_isa(name: str | None) -> None:
    """Use one of `isas` instead of the best (None). For tests and benchmarks."""
    global _isa
    if name is not None and name not in isas():
        raise ValueError(f"isa must be one of {', '.join(isas())} on this machine, got {name!r}")
    _isa = None if name is None else ISAS.index(name)


def isa() -> str:
    """The instruction set in use."""
    return isas()[-1 if _isa is None else _isa]


def forward(x: Tensor, params: Parameters, view: ChannelView, bias: Tensor | None = None) -> Tensor:
    """SReLU of the dense tensor ``x``; ``bias`` is None, as FUSES says."""
    y = torch.empty_like(x)
    # `native` must live until the call returns: C gets only its addresses.
    native = _in_dtype(params, compute_dtype(x))
    _call("srelu_forward", x, x.data_ptr(), y.data_ptr(), _addresses(native), *view)
    return y


def backward(
    grad: Tensor, x: Tensor, params: Parameters, view: ChannelView, needs: Needs, bias: None = None
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the dense ``x`` (``grad`` has its layout) and, as (4, C), of the parameters."""
    native = _in_dtype(params, compute_dtype(x))
    grad_x = torch.empty_like(x) if needs.input else None
    grads = x.new_empty((4, view.channels), dtype=compute_dtype(x)) if needs.params else None
    to_x = None if grad_x is None else grad_x.data_ptr()
    to_params = None if grads is None else grads.data_ptr()
    addresses = (grad.data_ptr(), x.data_ptr(), to_x, _addresses(native), to_params)
    _call("srelu_backward", x, *addresses, *view)
    return grad_x, grads


class PreparedCpuCall(PreparedCall):
    """A `PreparedCall` for the native kernels."""

    def forward(self, x: Tensor, *per_channel: Tensor | None) -> Tensor:
        return forward(x, Parameters(*per_channel[:4]), self._view)  # type: ignore[arg-type]

    def backward(self, grad: Tensor, x: Tensor, *params: Tensor) -> tuple[Tensor, ...]:
        """The gradients of ``x`` and of its four parameters."""
        grad_x, rows = backward(grad, x, Parameters(*params), self._view, Needs(True, True))
        assert grad_x is not None
        assert rows is not None
        return grad_x, *rows.unbind()


prepare = PreparedCpuCall  # as every backend names it


def _call(function: str, x: Tensor, *arguments) -> None:
    library = _library()
    assert not isinstance(library, OSError), library
    head = (ISAS.index(isa()), DTYPES[x.dtype], torch.get_num_threads())
    if getattr(library, function)(*head, *arguments) != 0:
        raise MemoryError("SReLU on the CPU: no memory left for its table of parameters")


def _in_dtype(params: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    if all(p.dtype == dtype and p.is_contiguous() for p in params):
        return params
    return [p.detach().to(dtype).contiguous() for p in params]


def _addresses(params: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return _FourPointers(*[p.data_ptr() for p in params])


_FourPointers = ctypes.c_void_p * 4
