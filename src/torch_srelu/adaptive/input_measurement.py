"""Passes of training data through a network, to measure the inputs of its SReLU units."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from .. import _data_parallel as parallel
from .._torch_compat import force_eager, tree_map_only
from ..module import SReLU
from .loader_replay import RandomState, fresh_workers
from .quantile_search import ChangedStreamError, EmptyStreamError, QuantileSearch

Forward = Callable[[nn.Module, Any], Any]
_Observer = Callable[[QuantileSearch, Tensor, int], None]

_ADVICE = {
    EmptyStreamError: ". Either the batches are empty, or the network does not call that unit in "
    "evaluation mode, like a head that is there for training alone: leave it as it was (convert "
    "has skip), or call it in the forward that adapt is given",
    ChangedStreamError: ". The data must be the same each time the loader is read. The generators "
    "of torch, Python, NumPy and the DataLoader are replayed; a data set or transform with a "
    "generator of its own must seed it anew each time, and a loader that can be read only once "
    "will not do",
}


@dataclass
class InputMeasurement:
    """Feeds the inputs of units to their quantile searches, in as many passes as those need.

    The network runs in eval mode and without torch.compile, whose graphs call no hooks. Each pass
    starts from the same random state, which is also the state afterwards.

    Args:
        model: The network, wrapped or not.
        searches: The search for the inputs of each unit, by the name of the unit.
        units: The units of each name: several where they share their parameters.
        loader: The data, which can be read more than once.
        forward: Runs the network on a batch.
        group: The processes that take part, each with its own share of the data.
    """

    model: nn.Module
    searches: Mapping[str, QuantileSearch]
    units: Mapping[str, list[SReLU]]
    loader: Iterable[Any]
    forward: Forward
    group: dist.ProcessGroup | None
    _observer: _Observer | None = None

    def run(self) -> None:
        """Passes over the data until every search is done."""
        random = RandomState(self.loader)
        with contextlib.ExitStack() as stack:
            stack.callback(random.restore)
            parallel.broadcast_buffers(self.model)
            stack.enter_context(training_modes({m: m.training for m in self.model.modules()}))
            self.model.eval()
            for module in parallel.fsdp_modules(self.model):
                stack.callback(module.reshard)  # a forward pass leaves some parameters gathered
            stack.enter_context(force_eager())
            for name, units in self.units.items():
                for unit in units:
                    observe = functools.partial(self._observe, name)
                    hook = unit.register_forward_pre_hook(observe, with_kwargs=True)
                    stack.callback(hook.remove)
            for number in itertools.count(1):
                random.restore()
                with fresh_workers(self.loader):
                    self._pass(number)
                if all(search.done for search in self.searches.values()):
                    return

    def _pass(self, number: int) -> None:
        shown = self.group is None or dist.get_rank(self.group) == 0
        source = _progress(self._batches(), f"adapt, pass {number}", self.loader, shown)
        with contextlib.closing(source):
            batches = self._probe(source) if number == 1 else source
            with parallel.raise_on_all_ranks(self.group):
                for batch, counts in batches:
                    self._run(batch, QuantileSearch.update if counts else None)
        for name, search in self.searches.items():
            with _errors_about(name):
                search.finish_pass()

    def _probe(self, batches: Iterator[tuple[Any, bool]]) -> Iterator[tuple[Any, bool]]:
        """Gives the first batch to the searches as a sample; returns all batches, the first too."""
        with parallel.raise_on_all_ranks(self.group):
            first = list(itertools.islice(batches, 1))
            for batch, _ in first:
                state = RandomState()
                self._run(batch, QuantileSearch.probe)
                state.restore()
        if not any(parallel.all_gather_objects(len(first), self.group)):
            raise ValueError("the loader is empty: adapt needs the training data")
        for search in self.searches.values():
            search.start()
        return itertools.chain(first, batches)

    def _run(self, batch: Any, observer: _Observer | None) -> None:
        self._observer = observer
        self.forward(parallel.unwrap(self.model), batch)

    def _observe(self, name: str, unit: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._observer is not None:
            with _errors_about(name):
                self._observer(self.searches[name], args[0] if args else kwargs["x"], unit.dim)

    def _batches(self) -> Iterator[tuple[Any, bool]]:
        """Every batch, on the device of the model, and whether it counts."""
        device = parallel.compute_device(next(self.model.parameters()))
        if self.group is None or not parallel.fsdp_modules(self.model):
            yield from ((_to(batch, device), True) for batch in self.loader)
            return
        # Every forward pass of a sharded model needs all processes: those that have run out of
        # data repeat their last batch, which does not count, until the others have finished.
        nothing = last = object()
        with parallel.raise_on_all_ranks(self.group):
            iterator = iter(self.loader)
        while True:
            with parallel.raise_on_all_ranks(self.group):
                batch = next(iterator, nothing)
            going = parallel.all_gather_objects(batch is not nothing, self.group)
            if not any(going):
                return
            if last is nothing and not all(going):
                raise ValueError(
                    f"process {going.index(False)} has no data: for a sharded model, every process "
                    "needs at least one batch"
                )
            last = last if batch is nothing else _to(batch, device)
            yield last, batch is not nothing


def run_batch(model: nn.Module, batch: Any) -> Any:
    """Runs the model on a batch: a dict as keyword arguments, else the first of a sequence."""
    try:
        if isinstance(batch, Mapping):
            return model(**batch)
        return model(batch[0] if isinstance(batch, (tuple, list)) else batch)
    except (AttributeError, TypeError) as error:
        error.add_note(
            f"adapt gave the network a batch, a {type(batch).__name__}: the values of a dict as "
            "keyword arguments, else the first of a sequence, or the batch itself. Where that is "
            "wrong, pass forward=, as in forward=lambda network, batch: network(batch['x'])"
        )
        raise


@contextlib.contextmanager
def training_modes(modes: Mapping[nn.Module, bool]) -> Iterator[None]:
    """Sets ``training`` module by module; afterwards every module is back in its own mode."""
    before = {module: module.training for module in modes}
    try:
        for module, training in modes.items():
            module.training = training
        yield
    finally:
        for module, training in before.items():
            module.training = training  # not train(), which would also set the children


def _to(batch: Any, device: torch.device) -> Any:
    """The batch, of the same structure, with all its tensors on ``device``."""
    return tree_map_only(object, lambda x: x.to(device) if hasattr(x, "to") else x, batch)  # type: ignore[attr-defined]


@contextlib.contextmanager
def _errors_about(unit: str) -> Iterator[None]:
    """Says which unit an error is about, and what to do."""
    try:
        yield
    except (ValueError, TypeError, ChangedStreamError) as error:
        advice = _ADVICE.get(type(error), "")
        raise type(error)(f"the input of {unit}: {error}{advice}") from None


def _progress(
    batches: Iterator[Any], title: str, loader: Iterable[Any], shown: bool
) -> Generator[Any]:
    """Yields the batches; shows their number on stderr, if that is a terminal."""
    stream = sys.stderr
    if not (shown and stream is not None and stream.isatty()):
        yield from batches
        return
    total = ""
    with contextlib.suppress(TypeError):
        total = f"/{len(loader)}"  # type: ignore[arg-type]
    try:
        for number, batch in enumerate(batches, 1):
            print(f"\r{title}: batch {number}{total}", end="", file=stream, flush=True)
            yield batch
    finally:
        print("\r\x1b[K", end="", file=stream, flush=True)  # clears the line
