"""The time of SReLU and its rivals on one tensor.

Times are medians over rounds in which every provider takes its turn, so that a slow moment of the
machine affects all equally; read the ratios, which come from one run. The byte floor is the time of
negating the same tensor in the same rounds, which reads and writes it once (forward: one read, one
write; backward: two reads, one write).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import SReLU, srelu
from ...ops import reference
from ..runtime.cuda_graphs import capture_graph

FLOOR = "byte floor"
PASSES = {"forward": 1.0, "forward+backward": 2.5}  # bytes, in those of a negation


class Case(NamedTuple):
    """Shape, dtype and layout of the timed tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str  # "contiguous" or "channels_last"

    @property
    def mebibytes(self) -> float:
        return torch.Size(self.shape).numel() * self.dtype.itemsize / 2**20

    def tensor(self, device: str) -> Tensor:
        x = torch.randn(self.shape, dtype=self.dtype, device=device)
        return x.to(memory_format=torch.channels_last) if self.layout == "channels_last" else x


class Timing(NamedTuple):
    """One row of the result; times in seconds of one call."""

    provider: str
    case: Case
    which: str  # a key of PASSES
    clock: str  # "gpu": in a captured graph; "wall": eager, as the caller sees it
    median: float
    p20: float
    p80: float
    rounds: int


Provider = tuple[Callable[[Tensor], Tensor], Sequence[Tensor]]


def _prelu(x: Tensor) -> Provider:
    weight = nn.PReLU(x.shape[1], device=x.device, dtype=x.dtype).weight
    return partial(F.prelu, weight=weight), [weight]


def _srelu(x: Tensor, form: str) -> Provider:
    unit = SReLU(x.shape[1], t_r=0.5, a_r=0.7, t_l=-0.5, a_l=0.1, device=x.device)
    params = (unit.t_r, unit.a_r, unit.t_l, unit.a_l)
    if form == "fused":
        return lambda x: srelu(x, *params), params  # a function, like its rivals

    def plain(x: Tensor) -> Tensor:
        return reference.srelu(x, *params, 1)

    return torch.compile(plain, dynamic=False) if form == "compiled" else plain, params


PROVIDERS: dict[str, Callable[[Tensor], Provider]] = {
    "relu": lambda x: (F.relu, []),
    "leaky_relu": lambda x: (partial(F.leaky_relu, negative_slope=0.2), []),
    "prelu": _prelu,
    "gelu": lambda x: (F.gelu, []),
    **{f"srelu {f}": partial(_srelu, form=f) for f in ("reference", "compiled", "fused")},
}


def measure(
    case: Case, providers: Iterable[str] = tuple(PROVIDERS), rounds: int = 20, device: str = "cpu"
) -> Iterator[Timing]:
    """Times every provider on ``case``; yields rows as they are ready, the byte floor included."""
    torch.compiler.reset()  # torch stops compiling a function after too many shapes
    x, grad = case.tensor(device).requires_grad_(), case.tensor(device)

    def forward_backward(function: Callable[[Tensor], Tensor], params: Sequence[Tensor]) -> None:
        torch.autograd.grad(function(x), [x, *params], grad)

    passes: dict[str, dict[str, Callable[[], object]]] = {which: {} for which in PASSES}
    for name in providers:
        function, params = PROVIDERS[name](x)
        passes["forward"][name] = partial(function, x)
        passes["forward+backward"][name] = partial(forward_backward, function, params)
        forward_backward(function, params)  # as after the first step of a training
    for which, calls in passes.items():
        clocks: dict[str, Callable] = {"wall": _wall}
        if device == "cuda":
            flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
            clocks = {"gpu": partial(_replay, flush), "wall": _wall_cuda}
        for clock, timer in clocks.items():
            negate = partial(torch.neg, x.detach(), out=torch.empty_like(x).detach())
            ready = {name: timer(call) for name, call in ({FLOOR: negate} | calls).items()}
            found = [{name: timed() for name, timed in ready.items()} for _ in range(rounds)]
            for name in ready:
                scale = PASSES[which] if name == FLOOR else 1.0
                times = [scale * seconds[name] for seconds in found]
                tenths = statistics.quantiles(times, n=10, method="inclusive")
                yield Timing(name, case, which, clock, tenths[4], tenths[1], tenths[7], rounds)


def _wall(call: Callable) -> Callable[[], float]:
    """One call, right after another of the same, which has the allocator's memory ready."""
    call()

    def timed() -> float:
        call()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return timed


def _wall_cuda(call: Callable) -> Callable[[], float]:
    """The mean over ten calls, as in a training loop."""

    def timed() -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / 10

    timed()  # a warm-up
    return timed


def _replay(flush: Tensor, call: Callable) -> Callable[[], float]:
    """Times a call by replaying it as a CUDA graph, which excludes launches from Python.

    The buffer ``flush``, larger than the cache, is written before each replay, so that the tensors
    are read from memory.
    """
    graph = capture_graph(call)

    def timed() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return timed
