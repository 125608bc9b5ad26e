"""Text for terminals."""

import difflib
from collections.abc import Collection, Sequence
from typing import Any

WIDTH = 100
"""Characters in a line of a terminal."""


def visible(text: str, keep: str = "") -> str:
    """Spell out control characters, except those in ``keep``, so that text cannot steer a terminal."""
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def some(items: Sequence[str], most: int = 6) -> str:
    """Return the first items, and the number of the others."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def counted(n: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align rows of cells: the first column to the left, shortened if need be, the others to the right."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = max(12, WIDTH - sum(widths[1:]) - 2 * len(widths[1:]))
    rows = [[shorten(first, room), *rest] for first, *rest in rows]
    widths[0] = max(len(row[0]) for row in rows)
    lines = []
    for first, *rest in rows:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def suggestion(word: str, known: Collection[str]) -> str:
    """The end of a sentence about an unknown word: the known one closest to it, or all of them."""
    by_lower_case = {one.lower(): one for one in known}
    close = difflib.get_close_matches(word.lower(), by_lower_case, 1)
    if close:
        return f"; did you mean {by_lower_case[close[0]]!r}?"
    return f"; there are {', '.join(sorted(known))}."


def shorten(label: Any, length: int = 14) -> str:
    """A name in at most ``length`` characters, its middle left out."""
    text = str(label)
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-(length - 1 - half) :]}"
