"""SReLU in timm: ``timm.create_model("resnet18", act_layer="srelu")`` once this is imported."""

from __future__ import annotations

from timm.layers import create_act

from .channel_inference import UnsizedSReLU


class SReLULayer(UnsizedSReLU):
    """What timm builds for ``act_layer="srelu"``; the class itself serves as ``act_layer`` too.

    It becomes an `SReLU` with the channels, and in the dimension, of the layer that feeds it.

    Args:
        inplace: timm's wish; SReLU needs its input for the backward pass and never overwrites it.

    Example:
        >>> import timm
        >>> import torch_srelu.integrations.timm
        >>> timm.create_model("resnet18", act_layer="srelu").act1
        SReLU(64, dim=1)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


create_act._ACT_LAYER_DEFAULT["srelu"] = SReLULayer  # type: ignore[assignment]
