"""Fixtures for more than one file."""

import sys

import pytest
import torch


@pytest.fixture(scope="session")
def vision():
    """torchvision.models, beside a torch without its compiled operators too."""
    try:
        import torchvision.models as models
    except RuntimeError:  # its build for another torch: the operators that it looks for are missing
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        models = pytest.importorskip("torchvision.models")
        models._operators = library  # they exist as long as this does
    return models


@pytest.fixture(scope="session")
def timm(vision):
    """timm, which imports torchvision."""
    return pytest.importorskip("timm")
