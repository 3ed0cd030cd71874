"""``native/eager.cpp``: eager calls on a GPU without Python, if it was compiled for this torch."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

_PREFIX = "_eager_torch"  # C++ code fits one torch only, so its file is named after it
_VERSION = ".".join(torch.__version__.split(".")[:2])

_SOURCES = 8  # what eager.cpp calls itself; a file that was left from others does not fit

compiled: Any = None
_problem: ImportError | None = None
try:
    _found = importlib.import_module(f".{_PREFIX}{_VERSION.replace('.', '_')}", __package__)
    if getattr(_found, "SOURCES", 1) != _SOURCES:
        raise ImportError("it was compiled from other sources; install again")
    compiled = _found
except ImportError as error:
    _problem = error


def why_not() -> str | None:
    """Why Python is needed for eager calls on a GPU; None if it is not."""
    if compiled is not None:
        return None
    if not isinstance(_problem, ModuleNotFoundError):
        return f"the C++ for them cannot be loaded: {_problem}"
    again = "pip install --no-build-isolation, in a clone, with torch there (-v shows errors)"
    found = sorted(p.name.split(".")[0] for p in Path(__file__).parent.glob(f"{_PREFIX}*.so"))
    if found:
        versions = ", ".join(name.removeprefix(_PREFIX).replace("_", ".") for name in found)
        return f"the C++ for them was compiled for torch {versions}, this is {_VERSION}; {again}"
    return f"the C++ for them is not compiled; {again}"
