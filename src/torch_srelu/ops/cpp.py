"""``native/eager.cpp``: eager calls on a GPU without Python, if it was compiled for this torch."""

from __future__ import annotations

import importlib
from typing import Any

import torch

# C++ code fits one torch only, so its file is named after it.
NAME = "_eager_torch" + "_".join(torch.__version__.split(".")[:2])

eager: Any
try:
    eager = importlib.import_module(f".{NAME}", __package__)
except ImportError:
    eager = None


def why_not() -> str | None:
    """Why Python is needed for eager calls; None if it is not."""
    if eager is not None:
        return None
    return "to compile them: pip install --no-build-isolation, from a clone, with torch installed"
