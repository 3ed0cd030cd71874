"""Passes of training data through a network, to measure what enters its SReLU units."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.utils._pytree import tree_map

from .._distributed import all_or_none, device_of, of_all, sharded_modules, share_buffers, unwrap
from ..module import SReLU
from .quantile_search import ChangedStreamError, EmptyStreamError, QuantileSearch
from .replay import RandomState, new_workers

Forward = Callable[[nn.Module, Any], Any]
Look = Callable[[QuantileSearch, Tensor, int], None]


class Measurement:
    """Feeds the inputs of several units to their searches, in as many passes as those need.

    The network runs in eval mode and without torch.compile, whose graphs call no hooks. Each pass
    starts from the same random state, which is also left behind.

    Args:
        model: The network, wrapped or not.
        searches: The search that the inputs of each unit go to, by the name of the unit.
        units: The units behind each name: several where they share their parameters.
        loader: The data, which can be read more than once.
        forward: Gives a batch to the network.
        group: The processes that take part, each with its own share of the data.
    """

    def __init__(
        self,
        model: nn.Module,
        searches: Mapping[str, QuantileSearch],
        units: Mapping[str, list[SReLU]],
        loader: Iterable[Any],
        forward: Forward,
        group: dist.ProcessGroup | None,
    ) -> None:
        self._model, self._searches, self._loader = model, searches, loader
        self._forward, self._group = forward, group
        self._name_of = {unit: name for name in units for unit in units[name]}
        self._device = device_of(next(model.parameters()))
        self._look: Look | None = None

    def run(self) -> None:
        """Passes over the data until every search is done."""
        random = RandomState(self._loader)
        with contextlib.ExitStack() as stack:
            stack.callback(random.restore)
            share_buffers(self._model)
            stack.enter_context(_evaluating(self._model))
            for module in sharded_modules(self._model):
                stack.callback(module.reshard)  # a forward pass leaves some parameters gathered
            stack.enter_context(_eager())
            for unit in self._name_of:
                hook = unit.register_forward_pre_hook(self._observe, with_kwargs=True)
                stack.callback(hook.remove)
            for number in itertools.count(1):
                random.restore()
                with new_workers(self._loader):
                    self._pass(number)
                if all(search.done for search in self._searches.values()):
                    return

    def _pass(self, number: int) -> None:
        shown = self._group is None or dist.get_rank(self._group) == 0
        source = _progress(self._batches(), f"adapt, pass {number}", self._loader, shown)
        with contextlib.closing(source):
            batches = self._probe(source) if number == 1 else source
            with all_or_none(self._group):
                for batch, new in batches:
                    self._run(batch, QuantileSearch.update if new else None)
        for name, search in self._searches.items():
            with _named(name):
                search.finish_pass()

    def _probe(self, batches: Iterator[tuple[Any, bool]]) -> Iterator[tuple[Any, bool]]:
        """Shows the first batch to the searches, and returns all batches, the first included."""
        with all_or_none(self._group):
            first = list(itertools.islice(batches, 1))
            for batch, _ in first:
                state = RandomState()
                self._run(batch, QuantileSearch.probe)
                state.restore()
        if not any(of_all(len(first), self._group)):
            raise ValueError("the loader is empty: adapt needs the training data")
        for search in self._searches.values():
            search.start()
        return itertools.chain(first, batches)

    def _run(self, batch: Any, look: Look | None) -> None:
        self._look = look
        self._forward(unwrap(self._model), batch)

    def _observe(self, unit: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert isinstance(unit, SReLU)
        if self._look is not None:
            name = self._name_of[unit]
            with _named(name):
                self._look(self._searches[name], args[0] if args else kwargs["x"], unit.dim)

    # ---- batches, and the other processes ----

    def _batches(self) -> Iterator[tuple[Any, bool]]:
        """Every batch, on the device of the model, and whether it counts."""
        if self._group is None or not sharded_modules(self._model):
            yield from ((_to(batch, self._device), True) for batch in self._loader)
            return
        # Every forward pass of a sharded model needs all processes: those that have run out of
        # data repeat their last batch, which does not count, until the others have finished.
        nothing = last = object()
        with all_or_none(self._group):
            iterator = iter(self._loader)
        while True:
            with all_or_none(self._group):
                batch = next(iterator, nothing)
            going = of_all(batch is not nothing, self._group)
            if not any(going):
                return
            if last is nothing and not all(going):
                raise ValueError(
                    f"process {going.index(False)} has no data: for a sharded model, every process "
                    "needs at least one batch"
                )
            last = last if batch is nothing else _to(batch, self._device)
            yield last, batch is not nothing


def call(model: nn.Module, batch: Any) -> Any:
    """Gives a batch to the model: a dict as keyword arguments, else the first of a sequence."""
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


def _to(batch: Any, device: torch.device) -> Any:
    """The batch, of the same structure, with all its tensors on ``device``."""
    return tree_map(lambda part: part.to(device) if hasattr(part, "to") else part, batch)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode; afterwards every module is back in its own mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training  # not train(), which would also set the children


def _eager() -> contextlib.AbstractContextManager[Any]:
    """Switches torch.compile off, if it is there at all: importing it takes seconds."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")  # type: ignore[return-value]


@contextlib.contextmanager
def _named(unit: str) -> Iterator[None]:
    """Says which unit an error is about."""
    try:
        yield
    except EmptyStreamError as error:
        raise EmptyStreamError(
            f"the input of {unit}: {error}. Either the batches are empty, or the network does not "
            "call that unit in evaluation mode, like a head that is there for training alone: "
            "leave it as it was (convert has skip), or call it in the forward that adapt is given"
        ) from None
    except (ValueError, TypeError) as error:
        raise type(error)(f"the input of {unit}: {error}") from None
    except ChangedStreamError as error:
        raise ChangedStreamError(
            f"the input of {unit}: {error}. The data must be the same each time the loader is "
            "read. The generators of torch, Python, NumPy and the DataLoader are replayed; a data "
            "set or transform with a generator of its own must seed it anew each time, and a "
            "loader that can be read only once will not do"
        ) from None


def _progress(
    batches: Iterator[Any], title: str, loader: Iterable[Any], shown: bool
) -> Generator[Any]:
    """Passes the batches on; shows on stderr how far it got, if that is a terminal."""
    stream = sys.stderr
    if not (shown and stream is not None and stream.isatty()):
        yield from batches
        return
    try:
        total = f"/{len(loader)}"  # type: ignore[arg-type]
    except TypeError:
        total = ""
    try:
        for number, batch in enumerate(batches, 1):
            stream.write(f"\r{title}: batch {number}{total}")
            stream.flush()
            yield batch
    finally:
        stream.write("\r\x1b[K")  # clears the line
        stream.flush()
