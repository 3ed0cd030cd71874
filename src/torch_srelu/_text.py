"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number and what it counts, in the singular for one.

    Example:
        >>> counted(1, "run"), counted(0, "run"), counted(1200, "image")
        ('1 run', '0 runs', '1,200 images')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
