"""Checks of names against the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_choice(what: str, name: str, choices: Iterable[str], listed_by: str = "") -> None:
    """Raises ValueError if ``name`` is not in ``choices``; lists them and suggests the nearest.

    Args:
        what: What is chosen, for the error.
        name: The given name.
        choices: The known names.
        listed_by: A command that lists the choices, where they are too many for a sentence: the
            error then names it, and up to three near names, instead of them.

    Example:
        >>> check_choice("activation", "sreul", ["relu", "srelu"])
        Traceback (most recent call last):
        ValueError: unknown activation 'sreul': did you mean 'srelu'? Choose one of relu, srelu
    """
    known = list(choices)
    if name in known:
        return
    near = difflib.get_close_matches(str(name), known, n=3 if listed_by else 1)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    choose = f"{'Choose' if near else 'choose'} one of {', '.join(known)}"
    all_of_them = f"`{listed_by}` lists all" if listed_by else choose
    raise ValueError(f"unknown {what} {name!r}: {hint}{all_of_them}")
