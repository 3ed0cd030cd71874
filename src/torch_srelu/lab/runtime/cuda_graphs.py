"""Capture of CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_WARM_UP = 3  # calls before a capture, in which libraries select their kernels


def capture_graph(
    work: Callable[[], object],
    warm_up: Callable[[], object] | None = None,
    generators: Sequence[torch.Generator] = (),
    pool: Any = None,
) -> torch.cuda.CUDAGraph:
    """Captures ``work`` on the current device, to be replayed without Python.

    Args:
        work: Launches kernels and does not synchronize.
        warm_up: Called a few times before the capture; by default ``work``.
        generators: The generators that ``work`` uses, other than the device's default.
        pool: Memory pool shared with graphs that never run at the same time; own by default.
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
    # Other threads may call the driver meanwhile: those that load photographs allocate memory.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    return graph
