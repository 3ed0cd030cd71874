"""SReLU in timm: ``timm.create_model("resnet18", act_layer="srelu")`` once this is imported."""

from __future__ import annotations

import warnings

from timm.layers import create_act

from .channel_inference import UnsizedSReLU


class SReLULayer(UnsizedSReLU):
    """The ``act_layer="srelu"`` of timm; the class itself serves as ``act_layer`` too.

    It becomes an `SReLU` with the channels, and in the dimension, of the layer that feeds it.

    Args:
        inplace: Passed by timm and ignored; SReLU needs its input for the backward pass.

    Example:
        >>> import timm
        >>> import torch_srelu.integrations.timm
        >>> timm.create_model("resnet18", act_layer="srelu").act1
        SReLU(64, dim=1)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


try:
    create_act._ACT_LAYER_DEFAULT["srelu"] = SReLULayer  # type: ignore[assignment]
except AttributeError:
    warnings.warn(
        'act_layer="srelu" cannot be registered in this version of timm: pass the class, '
        "act_layer=torch_srelu.integrations.timm.SReLULayer",
        stacklevel=2,
    )
