"""Print small listings as text for terminals, HTML for notebooks, or LaTeX."""

import html
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from transcendent._utils.text import WIDTH, shorten, visible

_GAP = 2
_MIN_ROOM = 12
_IN_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "{}$&#_%"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "–": "--", "≥": r"$\geq$"}
)


@dataclass(frozen=True)
class Listing:
    """Rows of cells; the first cell of each names the row.

    ``groups`` holds headings over several columns, each with its number of columns. The column of names has
    none. ``texts`` holds the headings of columns of text, which `as_text` aligns to the left.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    groups: Sequence[tuple[str, int]] = ()
    texts: Sequence[str] = ()

    def as_text(self) -> str:
        """Align the cells within the width of a terminal; long names are wrapped or shortened."""
        head, *rows = [[visible(cell) for cell in row] for row in (self.head, *self.rows)]
        widths = [max(map(len, column)) for column in list(zip(head, *rows, strict=True))[1:]]
        over = self._headings_over(widths)
        room = max(_MIN_ROOM, WIDTH - sum(widths) - _GAP * len(widths))
        names = [textwrap.wrap(shorten(row[0], 2 * room), room) or [""] for row in rows]
        first = max(len(line) for lines in [[head[0]], *names] for line in lines)
        lines = [[" " * first, *over]] if over else []
        lines.append([head[0].ljust(first), *self._aligned(head[1:], widths)])
        for name, (_, *cells) in zip(names, rows, strict=True):
            lines.append([name[0].ljust(first), *self._aligned(cells, widths)])
            lines += [[more] for more in name[1:]]
        return "\n".join((" " * _GAP).join(cells).rstrip() for cells in lines)

    def as_html(self, title: str, notes: Iterable[str] = ()) -> str:
        """Return a title, the listing and notes below it, for notebooks with light or dark themes."""
        over = "".join(_html_cell(text, "th", "center", span) for text, span in self.groups)
        rows = [f"<th></th>{over}"] if over else []
        rows += [_html_row(self.head, "th"), *(_html_row(row, "td") for row in self.rows)]
        table = "".join(f"<tr>{row}</tr>" for row in rows)
        below = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
        plain = "color:inherit;font:inherit"  # not the default in every notebook
        return (
            f"<div><p><strong>{html.escape(title)}</strong></p>"
            f"<table style='{plain}'>{table}</table>{below}</div>"
        )

    def as_latex(self) -> str:
        """Return a tabular environment; it needs the package booktabs."""
        lines = [rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}", r"\toprule"]
        if self.groups:
            over = [rf"\multicolumn{{{span}}}{{c}}{{{latex(text)}}}" for text, span in self.groups]
            lines.append(" & ".join(["", *over]).strip() + r" \\")
            lines.append(" ".join(self._rules()))
        lines += [_latex_row(self.head), r"\midrule", *map(_latex_row, self.rows)]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def _aligned(self, cells: Sequence[str], widths: list[int]) -> list[str]:
        columns = zip(self.head[1:], cells, widths, strict=True)
        return [
            cell.ljust(width) if name in self.texts else cell.rjust(width) for name, cell, width in columns
        ]

    def _headings_over(self, widths: list[int]) -> list[str]:
        """Return headings as wide as their columns; widen the last column under a long heading."""
        headings, end = [], 0
        for text, span in self.groups:
            start, end = end, end + span
            room = sum(widths[start:end]) + _GAP * (span - 1)
            widths[end - 1] += max(0, len(text) - room)
            room = max(room, len(text))
            headings.append(text.center(room) if span > 1 else text.rjust(room))
        return headings

    def _rules(self) -> list[str]:
        ends = [1 + end for end in accumulate(span for _, span in self.groups)]
        named = zip(self.groups, ends, strict=True)
        return [rf"\cmidrule(lr){{{end - span + 1}-{end}}}" for (text, span), end in named if text]


def latex(text: str) -> str:
    """Return text on one line for LaTeX, with special characters escaped."""
    return " ".join(text.split()).translate(_IN_LATEX)


def figure(value: float, digits: int | None = None) -> str:
    """Return a share or metric with three decimals, or four if it is small; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.{decimals(value) if digits is None else digits}f}"


def decimals(value: float) -> int:
    """Return the number of decimals that `figure` shows."""
    return 4 if abs(value) < 0.1 else 3


def _latex_row(cells: Sequence[str]) -> str:
    row = " & ".join(map(latex, cells))
    guard = "{}" if row.startswith(("[", "*")) else ""  # else LaTeX reads an argument of the row before
    return guard + row + r" \\"


def _html_row(cells: Sequence[str], tag: str) -> str:
    first, *others = cells
    return _html_cell(first, "th", "left") + "".join(_html_cell(cell, tag, "right") for cell in others)


def _html_cell(text: str, tag: str, align: str, span: int = 1) -> str:
    over = f" colspan='{span}'" if span > 1 else ""
    style = f"text-align:{align};padding:0 0.6em{'' if align == 'left' else ';white-space:nowrap'}"
    return f"<{tag}{over} style='{style}'>{html.escape(text)}</{tag}>"
