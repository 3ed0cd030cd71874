"""Reading a loader several times with the same random numbers."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader


class RandomState:
    """The state of every random generator in reach, taken now and put back by `restore`.

    Those of torch on the CPU and on CUDA, of Python and of NumPy (the global one), and the torch
    generators of a DataLoader and its samplers. Worker processes are seeded from these. What a data
    set keeps to itself is out of reach.

    Example:
        >>> import torch
        >>> from torch_srelu.adaptive.replay import RandomState
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
        self._generators = [(g, g.get_state()) for g in _generators(loader)]

    def restore(self) -> None:
        """Sets all generators back to where they were."""
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        for generator, state in self._generators:
            generator.set_state(state)


class Compound:
    """A loader that reads others, its ``parts``: their generators and workers are replayed too."""

    parts: list[Any]


def parts(loader: Any) -> list[Any]:
    """The loaders that are read where ``loader`` is: its parts, or itself."""
    return loader.parts if isinstance(loader, Compound) else [loader]


def samplers(loader: Any) -> list[Any]:
    """The samplers that are read where ``loader`` is, and those that they read themselves."""
    holders = list(parts(loader))
    for holder in holders:  # which grows
        inside = (getattr(holder, name, None) for name in ("batch_sampler", "sampler"))
        holders += [s for s in inside if s is not None and all(s is not known for known in holders)]
    return holders[len(parts(loader)) :]


def _generators(loader: Any) -> list[torch.Generator]:
    holders = (*parts(loader), *samplers(loader))
    found = (getattr(holder, "generator", None) for holder in holders)
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


@contextlib.contextmanager
def new_workers(loader: Iterable[Any]) -> Iterator[None]:
    """Lets ``loader`` start worker processes of its own inside this context.

    Persistent workers are seeded only once in their lives, so their augmentations never come
    again. They rest meanwhile, and go on afterwards as if nothing had happened.
    """
    with contextlib.ExitStack() as stack:
        for part in parts(loader):
            if isinstance(part, DataLoader) and part.persistent_workers:
                stack.callback(_change_back, part, part._iterator)
                part._iterator = None
        yield


def _change_back(loader: DataLoader, resting: Any) -> None:
    if loader._iterator is not None:
        loader._iterator._shutdown_workers()  # type: ignore[attr-defined]
    loader._iterator = resting
