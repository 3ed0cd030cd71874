"""Makes up inputs that fit a network, from the sizes of its first layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .._torch_compat import CONVOLUTIONS

# Edge lengths of images, clips and signals, the usual ones first. Which one fits does not matter
# for the number of channels, only that one does: some networks flatten at a fixed size.
SIZES = (224, 32, 28, 64, 96, 128, 256, 299, 384, 512, 16, 8)
BATCH = 2  # batch normalization refuses to train on one
TOKENS = 16


def candidates(model: nn.Module) -> Iterator[Tensor]:
    """Tensors of zeros, of shapes that the first known layer takes."""
    for layer in model.modules():
        if shapes := _shapes(layer):
            weight = next(layer.parameters(recurse=False))
            integer = isinstance(layer, (nn.Embedding, nn.EmbeddingBag))
            dtype = torch.long if integer else weight.dtype
            yield from (torch.zeros(shape, dtype=dtype, device=weight.device) for shape in shapes)
            return


def _shapes(layer: Any) -> list[tuple[int, ...]]:
    """Shapes of inputs that ``layer`` takes; empty if it is not one of the layers known here."""
    parameters = list(layer.parameters(recurse=False))
    if not parameters or any(is_lazy(p) for p in parameters):
        return []
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        return [(BATCH, TOKENS)]
    if isinstance(layer, CONVOLUTIONS):
        rank = len(layer.kernel_size)  # not that of the weight, which may be computed
        return [(BATCH, layer.in_channels, *[size] * rank) for size in SIZES]
    if isinstance(layer, (nn.BatchNorm2d, nn.BatchNorm3d)):
        rank = 2 if isinstance(layer, nn.BatchNorm2d) else 3
        return [(BATCH, layer.num_features, *[size] * rank) for size in SIZES]
    features = getattr(layer, "in_features", getattr(layer, "nx", None))  # nx: GPT-2's linear layer
    if isinstance(layer, nn.BatchNorm1d):
        features = layer.num_features
    if isinstance(layer, nn.LayerNorm):
        features = layer.normalized_shape[-1]
    return [(BATCH, features), (BATCH, TOKENS, features)] if isinstance(features, int) else []
