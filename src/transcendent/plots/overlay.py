"""Drawing over another display: series are told apart by colour and by name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray
from transcendent._utils.extras import extra

_SEE_THROUGH = 0.5
_DARKER = 0.55


@dataclass(frozen=True)
class Below:
    """What a panel shows before another display is drawn over it; ``name`` is that of the display."""

    ax: Any
    name: str
    series: tuple[Any, ...]
    words: tuple[str, str, str]
    limits: tuple[tuple[float, float], tuple[float, float]]

    @classmethod
    def of(cls, ax: Any, name: str) -> "Below":
        """Take the series, words and limits of a panel, and let its limits grow."""
        below = cls(ax, name, tuple(_series(ax)), _words(ax), (ax.get_xlim(), ax.get_ylim()))
        ax.set_autoscale_on(True)
        return below

    @property
    def added(self) -> list[Any]:
        """The series that were drawn since."""
        return [one for one in _series(self.ax) if one not in self.series]

    def remove_repeated(self) -> None:
        """Remove what was drawn before with the same name, colour and values."""
        repeated = [one for one in self.added if any(_same(one, other) for other in self.series)]
        for one in repeated:
            if not _is_empty(one):
                one.remove()
        for one in repeated:  # entries of the legend alone, which the remaining series may need
            drawn = [other for other in self.added if not _is_empty(other)]
            if _is_empty(one) and _colour(one) not in _colours(drawn):
                one.remove()

    def rename(self, name: str) -> None:
        """Put the names of the displays before labels that both have, and number those that are taken."""
        added = [one for one in self.added if _label(one)]
        labels = {_label(one) for one in added}
        for one in self.series:
            if self.name and _label(one) in labels:
                one.set_label(f"{self.name}: {_label(one)}")
        taken = {_label(one).partition("\n")[0] for one in self.series}
        for one in added:
            one.set_label(_free(f"{name}: {_label(one)}" if name else _label(one), taken))

    def merge(self) -> None:
        """Show the words and limits of both."""
        x, y, title = (
            list(dict.fromkeys([*before.splitlines(), *after.splitlines()]))
            for before, after in zip(self.words, _words(self.ax), strict=True)
        )
        self.ax.set_xlabel("\n".join(x))
        self.ax.set_ylabel("\n".join(y))
        self.ax.set_title(", ".join(title), loc="left", fontsize=self.ax.yaxis.label.get_size())
        for limits, now, change in (
            (self.limits[0], self.ax.get_xlim(), self.ax.set_xlim),
            (self.limits[1], self.ax.get_ylim(), self.ax.set_ylim),
        ):
            change(min(limits[0], now[0]), max(limits[1], now[1]))


def tell_apart(panels: Sequence[Below], palette: Sequence[str], name: str) -> None:
    """Give what was drawn over other series colours and names of its own; ``name`` is its display's."""
    for panel in panels:
        panel.remove_repeated()
    below = [one for panel in panels for one in panel.series]
    _recolour([one for panel in panels for one in panel.added], _colours(below), palette)
    for panel in panels:
        panel.rename(name)
        panel.merge()


def _recolour(added: Sequence[Any], used: Sequence[str], palette: Sequence[str]) -> None:
    """Replace colours that are used by others of the palette; greys, and if none is left, by a shade."""
    own = _colours(added)
    free = [one for one in map(_hex, palette) if one not in {*used, *own} and not _is_grey(one)]
    new = {one: free.pop(0) if free and not _is_grey(one) else _shade(one) for one in own if one in used}
    for one in added:
        _paint(one, new.get(_colour(one)))


def _paint(series: Any, colour: str | None) -> None:
    if colour is None:
        return
    if _is_line(series):
        series.set_color(colour)
    elif len(series.get_facecolor()):
        series.set_facecolor(colour)
        if series.get_alpha() is None:
            series.set_alpha(_SEE_THROUGH)
    else:
        series.set_edgecolor(colour)


def _free(label: str, taken: Iterable[str]) -> str:
    """Return a label whose first line is not taken, with a number if need be."""
    first, *others = label.split("\n")
    numbers = count(2)
    head = first
    while head in taken:
        colon = ":" if first.endswith(":") else ""
        head = f"{first.removesuffix(':')} ({next(numbers)}){colon}"
    return "\n".join([head, *others])


def _series(ax: Any) -> list[Any]:
    return [*ax.lines, *ax.collections, *ax.patches]


def _is_line(series: Any) -> bool:
    return hasattr(series, "get_xydata")


def _label(series: Any) -> str:
    label = str(series.get_label())
    return "" if label.startswith("_") else label


def _colours(series: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(map(_colour, series)))


def _colour(series: Any) -> str:
    """Return the colour of a line, of an area or of the lines of a collection, as opaque."""
    if _is_line(series):
        return _hex(series.get_color())
    face = np.atleast_2d(series.get_facecolor())
    return _hex(face[0] if face.size else series.get_edgecolor()[0])


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or (_label(one), _colour(one)) != (_label(other), _colour(other)):
        return False
    mine, theirs = _values(one), _values(other)
    return len(mine) == len(theirs) and all(map(_equal, mine, theirs))


def _equal(one: AnyArray, other: AnyArray) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def _values(series: Any) -> list[AnyArray]:
    if _is_line(series):
        return [np.asarray(series.get_xydata())]
    paths = series.get_paths() if hasattr(series, "get_paths") else [series.get_path()]
    return [path.vertices for path in paths]


def _is_empty(series: Any) -> bool:
    return not any(map(len, _values(series)))


def _words(ax: Any) -> tuple[str, str, str]:
    return ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")


def _hex(colour: Any) -> str:
    return str(extra("matplotlib.colors", "plots").to_hex(colour))


def _is_grey(colour: str) -> bool:
    return colour[1:3] == colour[3:5] == colour[5:7]


def _shade(colour: str) -> str:
    """Return a darker colour, or grey for black."""
    rgb = np.array(extra("matplotlib.colors", "plots").to_rgb(colour))
    return _hex(_DARKER * rgb if rgb.any() else rgb + _DARKER)
