"""Work for a GPU as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_WARM_UP = 3  # calls before a capture, in which libraries choose their kernels


def capture_graph(
    work: Callable[[], object],
    warm_up: Callable[[], object] | None = None,
    generators: Sequence[torch.Generator] = (),
    pool: Any = None,
) -> torch.cuda.CUDAGraph:
    """Records ``work`` on the current device, to be replayed without Python.

    Args:
        work: Launches kernels, and waits for none of them.
        warm_up: What is called a few times before; by default ``work``.
        generators: Whatever ``work`` draws from, other than the device's own generator.
        pool: Memory shared with other graphs that never run at the same time; own by default.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            (warm_up or work)()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    # Other threads go on meanwhile: those that bring photographs ask the driver for memory.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    return graph
