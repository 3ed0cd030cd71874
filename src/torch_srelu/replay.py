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
        >>> from torch_srelu.replay import RandomState
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


def _generators(loader: Any) -> list[torch.Generator]:
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    holders = (loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
    found = (getattr(holder, "generator", None) for holder in holders)
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


@contextlib.contextmanager
def new_workers(loader: Iterable[Any]) -> Iterator[None]:
    """Lets ``loader`` start worker processes of its own inside this context.

    Persistent workers are seeded only once in their lives, so their augmentations never come
    again. They rest meanwhile, and go on afterwards as if nothing had happened.
    """
    if not (isinstance(loader, DataLoader) and loader.persistent_workers):
        yield
        return
    resting, loader._iterator = loader._iterator, None
    try:
        yield
    finally:
        mine: Any = loader._iterator
        if mine is not None:
            mine._shutdown_workers()
        loader._iterator = resting
