"""The base class of Displays, and what they share: colours, legends, axes of periods, notes on gaps."""

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent._utils.extras import extra

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
_LEGEND = {"fontsize": SMALL, "frameon": False}


class Display(ABC):
    """Computed arrays, and how to draw them.

    ``plot`` sets ``figure_``, its panels ``axes_``, and ``ax_``, the first of them.
    """

    figure_: Any
    axes_: tuple[Any, ...]
    _size = (7.0, 3.2)
    _layout: tuple[tuple[str, ...], ...] = (("panel",),)  # names of panels, row by row
    _heights: tuple[float, ...] = (1.0,)

    @property
    def ax_(self) -> Any:
        """The first panel."""
        return self.axes_[0]

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; by default a new figure. A display with several panels replaces ``ax``.
            Legends are outside the axes: create the figure with ``layout="constrained"``, or save it
            with ``bbox_inches="tight"``.
        """
        self.axes_ = self._open(ax)
        self.figure_ = self.ax_.figure.figure
        self._draw(*self.axes_)
        return self

    @abstractmethod
    def _draw(self, *axes: Any) -> None:
        """Draw onto the panels."""

    def _open(self, ax: Any) -> tuple[Any, ...]:
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


def dress(ax: Any, *, x: str = "", y: str = "", title: str = "") -> None:
    """Set labels and title, a light grid, and a frame at the left and bottom only."""
    ax.set_xlabel(x, fontsize=LARGE)
    ax.set_ylabel(y, fontsize=LARGE)
    ax.set_title(title, fontsize=LARGE, loc="left")
    ax.tick_params(labelsize=SMALL, which="both")
    ax.grid(visible=True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def legend_beside(ax: Any) -> None:
    """Put a legend to the right of the axes, where it covers nothing."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), borderaxespad=0.3, **_LEGEND)


def legend_above(ax: Any) -> None:
    """Put a legend in one row above the axes, at the right, since the title is at the left."""
    names = ax.get_legend_handles_labels()[1]
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1, ncols=len(names), **_LEGEND)


def legend_over(axes: Sequence[Any]) -> None:
    """Put one legend over several panels, with each name once."""
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
