"""Reading a data loader several times with the same random numbers."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from .. import _torch_compat


class RandomState:
    """The state of all reachable random generators, saved now and put back by `restore`.

    Those of torch on the CPU and on CUDA, of Python and of NumPy (the global one), and the torch
    generators of a DataLoader and its samplers. Worker processes are seeded from these. Generators
    that a dataset owns are not among them.

    Example:
        >>> import torch
        >>> from torch_srelu.adaptive.loader_replay import RandomState
        >>> state = RandomState()
        >>> first = torch.rand(3)
        >>> state.restore()
        >>> torch.equal(first, torch.rand(3))
        True
    """

    def __init__(self, loader: Any = None) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")  # not loaded: not used
        self._numpy = numpy.random.get_state() if numpy else None
        holders = (*component_loaders(loader), *samplers(loader))
        generators = (getattr(holder, "generator", None) for holder in holders)
        self._generators = {g: g.get_state() for g in generators if isinstance(g, torch.Generator)}

    def restore(self) -> None:
        """Sets all generators back to the saved state."""
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        for generator, state in self._generators.items():
            generator.set_state(state)


class CompositeLoader:
    """A loader that reads others, its ``parts``: their generators and workers are replayed too."""

    parts: list[Any]


def component_loaders(loader: Any) -> list[Any]:
    """The parts of a `CompositeLoader`, or the loader itself."""
    return loader.parts if isinstance(loader, CompositeLoader) else [loader]


def samplers(loader: Any) -> list[Any]:
    """The samplers of a loader, and the samplers that those read from."""
    loaders = component_loaders(loader)
    holders = list(loaders)
    for holder in holders:  # which grows
        inner = (getattr(holder, name, None) for name in ("batch_sampler", "sampler"))
        holders += [s for s in inner if s is not None and all(s is not seen for seen in holders)]
    return holders[len(loaders) :]


@contextlib.contextmanager
def fresh_workers(loader: Iterable[Any]) -> Iterator[None]:
    """Makes ``loader`` start new worker processes inside this context.

    Persistent workers are seeded once, when they start, so their random augmentations cannot be
    replayed. They are paused meanwhile and go on afterwards.
    """
    with contextlib.ExitStack() as stack:
        for part in component_loaders(loader):
            if isinstance(part, DataLoader) and part.persistent_workers:
                stack.enter_context(_torch_compat.fresh_workers(part))
        yield
