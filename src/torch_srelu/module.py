"""The layers `SReLU` and `LazySReLU`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import Parameter, UninitializedParameter, is_lazy

from . import functional
from ._torch_compat import own_parameters

NAMES = ("t_r", "a_r", "t_l", "a_l")


def check_is_module(model: object, advice: str = "") -> None:
    """Raises an error unless ``model`` is a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}{advice}")


class SReLU(nn.Module):
    """S-shaped rectified linear unit with four learnable numbers per channel.

        h(x) = x + (a_r - 1) * max(x - t_r, 0) + (1 - a_l) * max(t_l - x, 0)

    Slope ``a_r`` right of the threshold ``t_r``, ``a_l`` left of ``t_l``, the identity between.
    The defaults are the paper's starting point, a leaky ReLU of slope 0.2: with ``a_r = 1`` the
    value of ``t_r`` has no effect yet. Exclude the parameters from weight decay, as the paper does.

    Args:
        num_channels: Size of the channel dimension; 1 means one set of parameters for all channels.
        dim: The channel dimension of the input; -1 for transformers.
        t_r: Initial right threshold.
        a_r: Initial slope beyond the right threshold.
        t_l: Initial left threshold.
        a_l: Initial slope beyond the left threshold.
        device: Where the parameters live.
        dtype: Their dtype; float32 parameters serve inputs of every dtype.

    Shape:
        Input and output: any shape with ``num_channels`` in ``dim``; any shape at all for
        ``num_channels=1``. The output has the dtype and memory layout of the input.

    Example:
        >>> import torch
        >>> from torch_srelu import SReLU
        >>> act = SReLU(64)
        >>> act
        SReLU(64, dim=1)
        >>> act(torch.randn(8, 64, 32, 32)).shape
        torch.Size([8, 64, 32, 32])
        >>> sum(p.numel() for p in act.parameters())
        256
    """

    _version = 1  # of the state_dict: four 1-D tensors under the paper's names

    frozen = False  # True: the four parameters get gradients of zero (the paper's first phase)

    t_r: Parameter
    a_r: Parameter
    t_l: Parameter
    a_l: Parameter

    def __init__(
        self,
        num_channels: int,
        dim: int = 1,
        *,
        t_r: float = 1.0,
        a_r: float = 1.0,
        t_l: float = 0.0,
        a_l: float = 0.2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in {"num_channels": num_channels, "dim": dim}.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an int, got {type(value).__name__}")
        if num_channels < 1:
            raise ValueError(f"num_channels must be at least 1, got {num_channels}")
        self.initial = {"t_r": t_r, "a_r": a_r, "t_l": t_l, "a_l": a_l}
        for name, value in self.initial.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{name} must be a number, got {type(value).__name__}")
            if not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value}; for no bend, make a slope 1")
            size = torch.empty(num_channels, device=device, dtype=dtype)
            self.register_parameter(name, Parameter(size))
        self.num_channels, self.dim = num_channels, dim
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets all four parameters back to their initial values."""
        with torch.no_grad():
            for name in NAMES:
                getattr(self, name).fill_(self.initial[name])

    def forward(self, x: Tensor) -> Tensor:
        t_r, a_r, t_l, a_l = self.tensors()
        return functional.srelu(x, t_r, a_r, t_l, a_l, self.dim, frozen=self.frozen)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``t_r``, ``a_r``, ``t_l`` and ``a_l``, as `srelu` takes them.

        As attributes of nn.Module, each would take a tenth of the time of a call.
        """
        own = own_parameters(self)
        try:
            return own["t_r"], own["a_r"], own["t_l"], own["a_l"]
        except KeyError:  # one of them is computed: torch.nn.utils.parametrize
            return self.t_r, self.a_r, self.t_l, self.a_l

    def extra_repr(self) -> str:
        where = "channel-shared" if self.num_channels == 1 else f"dim={self.dim}"
        return f"{self.num_channels}, {where}{', frozen' if self.frozen else ''}"

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args: Any) -> None:  # type: ignore[override]
        version = local_metadata.get("version", self._version)
        if version > self._version:
            raise RuntimeError(
                f"the state_dict of {prefix.rstrip('.') or 'SReLU'} has version {version}, "
                f"this torch_srelu supports {self._version}: install a newer torch-srelu to load it"
            )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        if not is_lazy(self.t_r):
            self.num_channels = self.t_r.shape[0]  # 0 before, if it was lazy


class LazySReLU(LazyModuleMixin, SReLU):  # type: ignore[misc]
    """An `SReLU` that takes its number of channels from the first input.

    Give the size to `SReLU` where it is known: until the first forward pass, lazy parameters cannot
    be counted, given to an optimizer or loaded by every tool.

    Args:
        dim: The channel dimension of the input.
        t_r: As in `SReLU`, and so are the others.

    Example:
        >>> import torch
        >>> from torch_srelu import LazySReLU
        >>> act = LazySReLU(dim=-1)
        >>> _ = act(torch.randn(2, 10, 48))
        >>> act
        SReLU(48, dim=-1)
    """

    cls_to_become = SReLU  # type: ignore[assignment]

    def __init__(
        self,
        dim: int = 1,
        *,
        t_r: float = 1.0,
        a_r: float = 1.0,
        t_l: float = 0.0,
        a_l: float = 0.2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        # 1 channel until the parameters are replaced by uninitialized ones.
        super().__init__(1, dim, t_r=t_r, a_r=a_r, t_l=t_l, a_l=a_l, device=device, dtype=dtype)  # type: ignore[misc]
        for name in NAMES:
            setattr(self, name, UninitializedParameter(device=device, dtype=dtype))  # type: ignore[call-arg]
        self.num_channels = 0

    def reset_parameters(self) -> None:
        """Sets the parameters to their initial values, if they are initialized."""
        if not self.has_uninitialized_params():  # type: ignore[misc]
            super().reset_parameters()

    def initialize_parameters(self, x: Tensor) -> None:  # type: ignore[override]
        """Takes the number of channels from the first input."""
        if not self.has_uninitialized_params():  # type: ignore[misc]
            return  # they came from a state_dict
        if not -x.dim() <= self.dim < x.dim():
            raise ValueError(
                f"dim={self.dim} does not exist in the first input, of shape {tuple(x.shape)}: "
                "give the one that holds the channels, such as LazySReLU(dim=-1) for the last"
            )
        self.num_channels = x.shape[self.dim]
        for name in NAMES:
            getattr(self, name).materialize((self.num_channels,))
        self.reset_parameters()
