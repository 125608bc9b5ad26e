"""Text for people to read."""

from collections.abc import Sequence


def visible(text: str, keep: str = "") -> str:
    """Text of anyone's files, with what would steer a terminal spelled out; of that, ``keep`` is kept."""
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def some(items: Sequence[str], most: int = 6) -> str:
    """Return the first items, and the number of the others."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, aligned: the first column to the left, the others to the right."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
