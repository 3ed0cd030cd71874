"""Defines, on import, operators without which torchvision fails to import with a CPU-only torch."""

from importlib.util import find_spec
from pathlib import Path

import torch


def define_missing_operators() -> torch.library.Library | None:
    """Lets torchvision, as built for CUDA, be imported with a torch without CUDA.

    It fails on two operators of its compiled part. Its models and transforms use neither, so it is
    enough that their schemas exist, which they do as long as the returned library.
    """
    found = find_spec("torchvision")
    if found is None or found.origin is None:
        return None
    try:
        for compiled in Path(found.origin).parent.glob("_C*.so"):
            torch.ops.load_library(compiled)
        return None
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library


_operators = define_missing_operators()
