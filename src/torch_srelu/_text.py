"""Numbers in sentences, and tables."""

from __future__ import annotations

from collections.abc import Container, Iterable


def counted(number: int, noun: str) -> str:
    """A number and what it counts, in the singular for one.

    Example:
        >>> counted(1, "run"), counted(0, "run"), counted(1200, "image")
        ('1 run', '0 runs', '1,200 images')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def text_table(
    head: tuple[str, ...], rows: Iterable[tuple[str, ...]], numbers: Container[int] = ()
) -> str:
    """Columns as wide as their longest cell; those in ``numbers`` are aligned to the right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    align = [str.rjust if i in numbers else str.ljust for i in range(len(head))]
    return "\n".join(
        "  ".join(
            a(cell, width) for a, cell, width in zip(align, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )
