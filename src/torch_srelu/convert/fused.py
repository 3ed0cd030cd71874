"""Rectifiers that torch computes without calling them: a unit in their place would be passed by."""

from __future__ import annotations

from torch import nn

_ENCODER = (
    "in evaluation mode a fused kernel with a ReLU of its own may run instead; "
    "build the layer with activation=SReLU(dim_feedforward, dim=-1)"
)


def bypassed(model: nn.Module) -> dict[nn.Module, str]:
    """The modules whose rectifiers something else may stand in for: {module: why}.

    The module is the rectifier itself, or the one whose method calls it.
    """
    found = {}
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and _may_be_fused(module):
            found[module] = _ENCODER
            if isinstance(module.activation, nn.Module):
                found |= dict.fromkeys(module.activation.modules(), _ENCODER)
    return found


def _may_be_fused(layer: nn.TransformerEncoderLayer) -> bool:
    """Whether torch may run one kernel in place of the layer's own forward pass.

    The layer notes when it is built which rectifier its kernel has, and never looks again.
    """
    return layer.self_attn.batch_first and layer.activation_relu_or_gelu != 0
