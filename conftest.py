"""What tests and doctests need before anything is imported."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

# Without the library there is nothing to integrate with.
collect_ignore = [
    f"src/torch_srelu/integrations/{name}.py"
    for name in ("lightning", "timm", "transformers")
    if find_spec(name) is None
]


def define_missing_operators() -> torch.library.Library | None:
    """Lets torchvision, as built for CUDA, be imported beside a torch without CUDA.

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


@pytest.fixture(scope="module")
def one_thread():
    """For tensors so small that threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
