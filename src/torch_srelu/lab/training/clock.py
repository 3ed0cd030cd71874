"""The clock of a training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds since it was made, and how many of them each kind of work took.

    Attributes:
        startup: What precedes the first step, and captures.
        epoch: The steps of the current epoch.
        adapt: The adaptive initialisation.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.startup = self.epoch = self.adapt = 0.0

    @property
    def now(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._began

    @contextmanager
    def measure(self, work: str) -> Iterator[None]:
        """Adds the time within to ``work``, the name of an attribute."""
        began = self.now
        yield
        setattr(self, work, getattr(self, work) + self.now - began)
