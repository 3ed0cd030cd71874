"""Rectifiers that torch computes without calling them: a unit in their place would be passed by."""

from __future__ import annotations

from torch import nn

_ENCODER = (
    "in evaluation mode a fused kernel with a ReLU of its own may run instead; "
    "build the layer with activation=SReLU(dim_feedforward, dim=-1)"
)
_QUANTIZED = (
    "part of a fused module, and quantization would put its own ReLU in the place of the unit"
)


def bypassed(model: nn.Module) -> dict[nn.Module, str]:
    """The modules that call a rectifier which something else may stand in for: {module: why}."""
    found = {}
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and _may_be_fused(module):
            found[module] = _ENCODER
            if isinstance(module.activation, nn.Module):  # a ReLU with a class of its own
                found |= dict.fromkeys(module.activation.modules(), _ENCODER)
        elif _is_fused_for_quantization(type(module)):
            found[module] = _QUANTIZED
    return found


def in_kernels(model: nn.Module) -> dict[tuple[nn.Module, str], str]:
    """The rectifiers that nothing calls, because they are in a kernel: {(module, what): why}."""
    return {
        (module, "ReLU"): "it is in torch's kernel of a recurrent layer"
        for module in model.modules()
        if isinstance(module, (nn.RNN, nn.RNNCell)) and module.nonlinearity == "relu"
    }


def _may_be_fused(layer: nn.TransformerEncoderLayer) -> bool:
    """Whether torch may run one kernel in place of the layer's own forward pass.

    The layer notes when it is built which rectifier its kernel has, and never looks again. One of
    an old pickle, or with an attention of its own, may lack the notes, and has no such kernel.
    """
    batch_first = getattr(layer.self_attn, "batch_first", False)
    return batch_first and getattr(layer, "activation_relu_or_gelu", 0) != 0


def _is_fused_for_quantization(cls: type) -> bool:
    """Whether modules of the class are such as ConvReLU2d, that quantization swaps as a whole.

    Told by name, because torch is about to give up the package that they are in.
    """
    return any(base.__module__.startswith("torch.ao.nn.intrinsic.") for base in cls.__mro__)
