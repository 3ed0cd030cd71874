"""Names that a user chooses from."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_choice(what: str, name: str, choices: Iterable[str]) -> None:
    """Raises ValueError if ``name`` is none of ``choices``: lists them, suggests the nearest.

    Example:
        >>> check_choice("activation", "sreul", ["relu", "srelu"])
        Traceback (most recent call last):
        ValueError: unknown activation 'sreul': did you mean 'srelu'? Choose one of relu, srelu
    """
    known = list(choices)
    if name in known:
        return
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {what} {name!r}: {hint}Choose one of {', '.join(known)}")
