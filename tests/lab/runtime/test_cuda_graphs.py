"""Work as a CUDA graph."""

from itertools import count
from threading import Thread

import pytest
import torch

from torch_srelu.lab.runtime.cuda_graphs import capture_graph


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_other_threads_may_ask_for_memory_meanwhile():
    """As the one does that brings streamed images."""
    x, sizes = torch.zeros(4, device="cuda"), count(20)

    def pin() -> None:  # more each time, so that the driver is asked
        torch.empty(1 << next(sizes), dtype=torch.uint8).pin_memory()

    def work() -> None:
        other = Thread(target=pin)
        other.start()
        other.join()
        x.add_(1)

    graph = capture_graph(work)
    before = x.clone()
    graph.replay()
    assert torch.equal(x, before + 1)
