"""The base class of Displays, and what they share: colours, legends, axes of periods, notes on gaps."""

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent._utils.extras import extra
from transcendent.plots.overlay import Below, tell_apart

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLACK, BLUE, VERMILLION, GREEN = "#000000", "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
KEPT = {"color": BLUE, "linestyle": "-", "linewidth": 1.4, "marker": "o", "markersize": 3.2, "zorder": 3}
REJECTED = {"color": VERMILLION, "linestyle": ":", "linewidth": 1.2, "marker": "x", "markersize": 3.8}

SMALL, LARGE = 8, 9

_CHARACTERS_PER_INCH = 15
_MAX_BESIDE = 4
_LEGEND = {"fontsize": SMALL, "frameon": False}
# The periods and the name of the display that each panel shows, the first if there are several.
_SHOWN: WeakKeyDictionary[Any, tuple[tuple[str, ...], str]] = WeakKeyDictionary()


def legend_beside(ax: Any) -> None:
    """Put a legend to the right of the axes, where it covers nothing."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), borderaxespad=0.3, **_LEGEND)


def legend_above(ax: Any) -> None:
    """Put a legend above the axes, in rows of at most four, at the right, since the title is at the left."""
    n = len(ax.get_legend_handles_labels()[1])
    columns = -(-n // -(-n // _MAX_BESIDE))
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1, ncols=columns, **_LEGEND)


class Display(ABC):
    """Computed arrays, and how to draw them.

    ``plot`` sets ``figure_``, its panels ``axes_``, and ``ax_``, the first of them.
    """

    figure_: Any
    axes_: tuple[Any, ...]
    _size = (7.0, 3.2)
    _layout: tuple[tuple[str, ...], ...] = (("panel",),)  # names of panels, row by row
    _heights: tuple[float, ...] = (1.0,)
    _legend: Callable[[Any], None] = staticmethod(legend_beside)
    _name = ""  # put before the names of series if another display is on the same axes
    _covers = False  # whether its marks would hide those of another display

    @property
    def ax_(self) -> Any:
        """The first panel."""
        return self.axes_[0]

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, sequence of them or None
            Where to draw; by default a new figure. A display with several panels replaces a single axes.
            ``second.plot(first.axes_)`` draws over the panels of another display: in other colours, and
            without what is there already. Legends are outside the axes: create the figure with
            ``layout="constrained"``, or save it with ``bbox_inches="tight"``.
        """
        axes = self._open(ax)
        below = [found for one in axes if (found := self._below(one))]
        self.axes_, self.figure_ = axes, axes[0].figure.figure
        self._draw(*axes)
        tell_apart(below, COLOURS, self._name)
        self._draw_legends(*axes)
        return self

    @abstractmethod
    def _draw(self, *axes: Any) -> None:
        """Draw onto the panels."""

    def _draw_legends(self, *axes: Any) -> None:
        for ax in axes:
            if ax.get_legend_handles_labels()[1]:
                self._legend(ax)

    def _below(self, ax: Any) -> Below | None:
        """Return what another display shows on a panel, if any; raise if it cannot be drawn over."""
        own: tuple[str, ...] = getattr(self, "periods", ())
        if ax not in _SHOWN or not ax.has_data():
            _SHOWN[ax] = own, self._name
            return None
        if self._covers:
            raise ValueError(f"a {type(self).__name__} cannot be drawn over others: give it axes of its own.")
        shown, name = _SHOWN[ax]
        if shown != own and shown and own:
            raise ValueError(
                f"the axes show {len(shown)} periods, {shown[0]} to {shown[-1]}, and not the {len(own)} from "
                f"{own[0]} to {own[-1]}: draw over a display with the same periods."
            )
        return Below.of(ax, name)

    def _open(self, ax: Any) -> tuple[Any, ...]:
        if isinstance(ax, Sequence | np.ndarray):
            return self._check_number(tuple(np.ravel(ax)))
        if ax is None:
            place = extra("matplotlib.pyplot", "plots").figure(figsize=self._size, layout="constrained")
        elif sum(map(len, self._layout)) == 1:
            return (ax,)
        elif (spec := ax.get_subplotspec()) is not None:
            place = ax.figure.add_subfigure(spec)
            ax.remove()
        else:
            name = type(self).__name__
            raise ValueError(f"{name} has several panels: pass an axes from plt.subplots(), or none.")
        layout = [list(row) for row in self._layout]
        return tuple(place.subplot_mosaic(layout, height_ratios=self._heights).values())

    def _check_number(self, axes: tuple[Any, ...]) -> tuple[Any, ...]:
        panels = len({name for row in self._layout for name in row})
        if len(axes) != panels:
            raise ValueError(
                f"{type(self).__name__} needs {panels} axes, one for each panel, not {len(axes)}: pass the "
                "axes_ of a display with as many panels, or none."
            )
        return axes


def dress(ax: Any, *, x: str = "", y: str = "", title: str = "") -> None:
    """Set labels and title, a light grid, and a frame at the left and bottom only."""
    ax.set_xlabel(x, fontsize=LARGE)
    ax.set_ylabel(y, fontsize=LARGE)
    ax.set_title(title, fontsize=LARGE, loc="left")
    ax.tick_params(labelsize=SMALL, which="both")
    ax.grid(visible=True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def legend_over(axes: Sequence[Any]) -> None:
    """Put one legend over several panels, with each name once."""
    for earlier in list(axes[0].figure.legends):
        earlier.remove()
    named = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    axes[0].figure.legend(named.values(), named, loc="outside upper right", ncols=len(named), **_LEGEND)


def show_shares(ax: Any) -> None:
    """Make the y axis run from 0 to 1, with room for markers at the ends."""
    ax.set_ylim(-0.03, 1.03)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])


def show_periods(ax: Any, periods: Sequence[str]) -> None:
    """Label the x axis with as many periods as fit, or with years if there are many periods."""
    ticks, labels = thin_labels(periods, _room(ax))
    ax.set_xticks(ticks, labels)
    ax.set_xlim(-0.7, len(periods) - 0.3)


def thin_labels(periods: Sequence[str], room: int) -> tuple[IntArray, list[str]]:
    """Return positions and labels that fit into ``room`` characters: all, each year's first, or every nth."""
    positions, labels = np.arange(len(periods)), list(periods)
    if _fits(labels, room):
        return positions, labels
    years = [label[:4] for label in labels]
    starts = np.array([i for i in positions if years[i].isdigit() and (i == 0 or years[i] != years[i - 1])])
    if len(starts) > 3:  # the label of a short first year would touch that of the second
        positions = starts[1:] if starts[1] < 0.5 * (starts[2] - starts[1]) else starts
        labels = [years[i] for i in positions]
    step = next(s for s in (1, 2, 3, 4, 6, *range(12, 12 * len(labels) + 1, 12)) if _fits(labels[::s], room))
    return positions[::step], labels[::step]


def lone_points(values: FloatArray) -> IntArray:
    """Return positions of values with undefined neighbours, which a line without markers does not show."""
    defined = np.pad(~np.isnan(values), 1)
    return np.flatnonzero(defined[1:-1] & ~defined[:-2] & ~defined[2:])


def shade(ax: Any, interval: FloatArray, colour: str, label: str | None = None) -> None:
    """Shade (2, periods) intervals, also of periods whose neighbours are undefined."""
    low, high = interval
    style = {"color": colour, "alpha": 0.25}
    ax.fill_between(np.arange(len(low)), low, high, **style, linewidth=0, label=label)
    lone = lone_points(low)
    ax.vlines(lone, low[lone], high[lone], **style, linewidth=5)


def gaps(named: Mapping[str, FloatArray], periods: Sequence[str]) -> str:
    """Return a note on which series are undefined in which periods, empty if none is."""
    by_periods: dict[tuple[int, ...], list[str]] = {}
    for name, values in named.items():
        missing = tuple(np.flatnonzero(np.isnan(values)).tolist())
        by_periods.setdefault(missing, []).append(name)
    notes = []
    for missing, names in by_periods.items():
        if missing:
            some = ", ".join(periods[i] for i in missing[:3]) + (", …" if len(missing) > 3 else "")
            notes.append(f"{', '.join(names)} in {len(missing)} of {len(periods)} periods ({some})")
    return f"Gaps: undefined for {'; for '.join(notes)}." if notes else ""


def with_note(place: Any, label: str, note: str) -> str:
    """Return an axis label with a note below, wrapped to the width of the axes or figure."""
    return "\n".join([label, *textwrap.wrap(note, _room(place))])


def largest(counts: AnyArray, n: int) -> IntArray:
    """Return positions of the n largest counts, in ascending order."""
    return np.sort(np.argsort(-counts, kind="stable")[:n])


def _room(place: Any) -> int:
    """Return the number of characters that fit in a line under an axes or figure."""
    inches = place.bbox.width / place.figure.dpi
    return max(20, int(inches * _CHARACTERS_PER_INCH))


def _fits(labels: Sequence[str], room: int) -> bool:
    return sum(len(label) + 3 for label in labels) <= room or len(labels) == 1
