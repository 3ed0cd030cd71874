"""A cache of eager calls: what shapes, strides, dtypes and devices decide is worked out once.

Kernels finish a small tensor sooner than Python works out how to launch them. So each backend has a
`PreparedCall`, which holds all of that for one signature, and torch.compile's guards, in C++, say
whether a call has a signature that was seen before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from .. import _torch_compat
from . import backends, layout
from .arguments import Parameters
from .reference import compute_dtype
from .tracing import is_readable

if TYPE_CHECKING:
    from .cpu.cpu_backend import PreparedCpuCall
    from .triton.triton_backend import PreparedTritonCall

    AnyPreparedCall = PreparedCpuCall | PreparedTritonCall

MAX_SHAPES = 4096  # shapes of x (with dim and device) that are cached
MAX_SIGNATURES = 16  # signatures that share such a shape


class PreparedCall:
    """SReLU of tensors of one signature; a backend adds ``forward`` and ``backward``.

    Args:
        x: A dense tensor of this signature.
        params: Its parameters, contiguous.
        view: Of ``x``.
        bias: As long as the parameters, contiguous; None if calls of this signature have none.
    """

    def __init__(
        self, x: Tensor, params: Parameters, view: layout.ChannelView, bias: Tensor | None
    ) -> None:
        self._view = view
        self._metadata_of_x = _metadata(x)
        self._metadata_of_params = (params.t_r.shape, (1,), compute_dtype(x), x.device)
        self._guard: Any = None

    def takes(self, *tensors: Tensor) -> bool:
        """Whether ``backward`` can read these: a gradient, the input, its parameters and bias.

        All are looked at again, since ``p.data = ...`` can replace them after the forward pass.
        """
        if self._guard is not None and self._guard.check(*tensors):
            return True
        if not (is_readable(*tensors) and self.fits(*tensors)):
            return False
        self._guard = _torch_compat.tensor_guards(*tensors)
        return True

    def fits(self, grad: Tensor, x: Tensor, *per_channel: Tensor) -> bool:
        """Whether memory layouts are as expected and no result needs a conversion."""
        return all(_metadata(t) == self._metadata_of_x for t in (grad, x)) and all(
            _metadata(t) == self._metadata_of_params for t in per_channel
        )


def _metadata(t: Tensor) -> tuple:
    return t.shape, t.stride(), t.dtype, t.device


_calls: dict[tuple, list[tuple[Any, AnyPreparedCall]]] = {}


def lookup(x: Tensor, params: Parameters, dim: int, bias: Tensor | None) -> AnyPreparedCall | None:
    """The prepared call of this signature, whose arguments fit; None if there is none."""
    try:
        calls = _calls.get(
            (backends.forced, x.get_device(), x.shape, type(dim), dim, bias is None), ()
        )
    except (AttributeError, TypeError, RuntimeError):  # x is no tensor or nested, or dim no number
        return None
    for guard, call in calls:
        if guard.check(x, *params) if bias is None else guard.check(x, *params, bias):
            return call
    return None


def add(x: Tensor, params: Parameters, dim: int, bias: Tensor | None) -> AnyPreparedCall | None:
    """Prepares a call whose arguments fit; None where its backend needs other tensors."""
    tensors = (x, *params) if bias is None else (x, *params, bias)
    kernels = backends.select(x)
    if kernels is None or not x.numel() or not is_readable(*tensors):
        return None
    contiguous = all(t.is_contiguous() for t in tensors[1:])
    if not contiguous or (bias is not None and not kernels.FUSES):
        return None
    view, guard = layout.view(x, params.t_r.shape[0], dim), _torch_compat.tensor_guards(*tensors)
    if view is None or guard is None:
        return None
    if len(_calls) >= MAX_SHAPES:
        _calls.clear()
    key = (backends.forced, x.get_device(), x.shape, type(dim), dim, bias is None)
    calls = _calls.setdefault(key, [])
    call = kernels.prepare(x, params, view, bias)
    calls.append((guard, call))
    del calls[:-MAX_SIGNATURES]
    return call
