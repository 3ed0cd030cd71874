"""Finds activations that torch may compute in a fused kernel, which would bypass a unit."""

from __future__ import annotations

from torch import nn

_ENCODER = (
    "in evaluation mode a fused kernel with a ReLU of its own may run instead; "
    "build the layer with activation=SReLU(dim_feedforward, dim=-1)"
)
# Of modules such as ConvReLU2d.
_QUANTIZED = "part of a fused module, in which quantization would replace the unit by its own ReLU"


def bypassed_modules(model: nn.Module) -> dict[nn.Module, str]:
    """The modules whose calls of an activation may be bypassed: {module: why}."""
    found = {}
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and _may_be_fused(module):
            found[module] = _ENCODER
            if isinstance(module.activation, nn.Module):  # a ReLU with a class of its own
                found |= dict.fromkeys(module.activation.modules(), _ENCODER)
        # By name, because torch is about to remove the package that they are in.
        elif any(c.__module__.startswith("torch.ao.nn.intrinsic.") for c in type(module).__mro__):
            found[module] = _QUANTIZED
    return found


def activations_in_kernels(model: nn.Module) -> dict[tuple[nn.Module, str], str]:
    """The activations that nothing calls, because a kernel has them: {(module, what): why}."""
    return {
        (module, "ReLU"): "it is in torch's kernel of a recurrent layer"
        for module in model.modules()
        if isinstance(module, (nn.RNN, nn.RNNCell)) and module.nonlinearity == "relu"
    }


def _may_be_fused(layer: nn.TransformerEncoderLayer) -> bool:
    """Whether torch may run one kernel instead of the layer's own forward pass.

    The layer stores when it is built which activation its kernel has, and never checks again. One
    of an old pickle, or with an attention of its own, may lack this, and has no such kernel.
    """
    batch_first = getattr(layer.self_attn, "batch_first", False)
    return batch_first and getattr(layer, "activation_relu_or_gelu", 0) != 0
