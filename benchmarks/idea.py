"""The idea of conformal evaluation in five pictures, for docs/learn/idea.md: one small stream that drifts.

python benchmarks/idea.py            # some seconds
python benchmarks/idea.py --check    # draws, and writes nothing
"""

import sys
from typing import Any

import matplotlib as mpl
import numpy as np
from pictures import save
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, backtest
from transcendent.plots.base import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILLION

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS, MARKERS = {"goodware": GREEN, "malware": PURPLE}, {"goodware": "o", "malware": "^"}
STAR: Any = {"marker": "*", "markersize": 17, "color": VERMILLION, "linestyle": "none", "zorder": 5}
A_MONTH, TRAINING, KNOWN = 150, 4, 6  # objects; months that train; months whose labels are known
STYLE: Any = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "legend.borderaxespad": 0.1,
    "legend.frameon": False,
}


def draw_stream() -> tuple[Any, Any, Any]:
    """Return rows, labels and months of a year. From July on, malware moves towards goodware."""
    rng = np.random.default_rng(0)
    month = np.repeat(np.arange(12), A_MONTH)
    malware = rng.random(len(month)) < 0.4
    moved = np.clip((month - KNOWN + 1) / (12 - KNOWN), 0, 1)[:, None]
    X = rng.normal(size=(len(month), 2))
    X[malware] += ((1 - moved) * (2.8, 1.2) + moved * (1.2, 1.8))[malware]
    return X, np.where(malware, "malware", "goodware"), np.datetime64("2024-01") + month


X, Y, TIMES = draw_stream()
OLD, TRAINED, LATER = (slice(KNOWN * A_MONTH), slice(TRAINING * A_MONTH), slice(10 * A_MONTH, None))
RECENT = 1 - TRAINING / KNOWN  # the share that calibrates: May and June
ICE = InductiveEvaluator(LinearSVC(), search="error", calibration_size=RECENT).fit(
    X[OLD], Y[OLD], times=TIMES[OLD]
)
CALIBRATION, CLASSES = ICE.calibration_, ICE.classes_.tolist()


def followed() -> int:
    """Return the row of a late object that shows the idea well: malware that is rejected as goodware."""
    late = ICE.decide(X[LATER])
    chosen = np.flatnonzero(late.rejected & (late.labels == "goodware") & (Y[LATER] == "malware"))
    return LATER.start + int(chosen[late.credibility[chosen].argmin()])


STARRED = followed()


def boundary() -> Any:
    """What the detector was trained on, what comes later, and its boundary."""
    figure, axes = plt.subplots(1, 2, figsize=(5.9, 3.7), sharex=True, sharey=True)
    months = {
        "trained on: January to April": TRAINED,
        "later: November and December": LATER,
    }
    for ax, (title, rows) in zip(axes, months.items(), strict=True):
        draw_sides(ax)
        wrong = ICE.predict(X[rows]) != Y[rows]
        for label in CLASSES:
            own = Y[rows] == label
            draw_points(ax, X[rows][own & ~wrong], label, alpha=0.45)
            draw_points(ax, X[rows][own & wrong], label, color=ORANGE, s=24)
        ax.set(title=f"{title}\n{wrong.mean():.0%} of the answers are wrong", xlabel="feature 1")
    axes[0].set_ylabel("feature 2")
    axes[1].plot(*X[STARRED], **STAR)
    name_points(figure)
    return figure


def bags() -> Any:
    """The scores of the calibration objects of each class."""
    figure, axes = plt.subplots(2, 1, figsize=(5.9, 3.9), sharex=True, sharey=True)
    for c, (ax, label) in enumerate(zip(axes, CLASSES, strict=True)):
        scores = bag(c)
        draw_stack(ax, scores, np.ones(len(scores), dtype=bool), label)
        ax.set(title=f"the bag of {label}: {len(scores)} objects", yticks=[])
        ax.axvline(0, color=BLACK, linewidth=1, linestyle=":")
    axes[0].set_ylim(0, 15)
    axes[0].text(-0.1, 13.2, "on its own side of the boundary", ha="right")
    axes[0].text(0.1, 13.2, "on the other side")
    axes[1].set_xlabel("score: how strange the object looks for its class")
    return figure


def tail() -> Any:
    """A p-value: the share of a bag that is at least as strange as the new object."""
    figure, ax = plt.subplots(figsize=(5.9, 2.9))
    c = CLASSES.index("goodware")
    scores = bag(c)
    score = float(ICE.answer(X[[STARRED]]).scores[0, c])
    p_value = float(ICE.decide(X[[STARRED]]).credibility[0])
    beyond = scores >= score
    assert beyond.mean() == p_value
    top = draw_stack(ax, scores, beyond, "goodware")
    ax.set_xlim(scores.min() - 0.2, score + 2.9)
    ax.axvspan(score, score + 2.9, color=VERMILLION, alpha=0.15, linewidth=0)
    ax.plot([score, score], [0, top], color=VERMILLION, linewidth=1.4)
    ax.plot(score, top, **STAR)
    words = f"at least as strange as ★:\n{beyond.sum()} of {len(scores)}, so p = {p_value:.3f}"
    ax.text(score + 0.25, top + 0.4, words, color=VERMILLION, va="top")
    ax.set(title="the bag of goodware, and a new object that is called goodware", yticks=[])
    ax.set_xlabel("score: how strange the object looks for goodware")
    return figure


def threshold() -> Any:
    """What thresholds on the p-value accept of the calibration objects, and what they reject."""
    figure, ax = plt.subplots(figsize=(5.9, 3.6))
    credibility = CALIBRATION.credibility_and_confidence()[0]
    wrong = CALIBRATION.predicted != CALIBRATION.actual
    rng = np.random.default_rng(0)
    for c, label in enumerate(CLASSES):
        own, place, least = CALIBRATION.predicted == c, 1 - c, ICE.thresholds_[c]
        points = np.column_stack([credibility, place + rng.uniform(-0.3, 0.3, len(own))])
        draw_points(ax, points[own & ~wrong], label, alpha=0.45)
        draw_points(ax, points[own & wrong], CLASSES[1 - c], color=ORANGE, s=24)
        ax.fill_betweenx([place - 0.4, place + 0.4], -0.03, least, color=VERMILLION, alpha=0.15, linewidth=0)
        ax.plot([least, least], [place - 0.4, place + 0.4], color=VERMILLION, linewidth=1.6)
    ax.plot(ICE.decide(X[[STARRED]]).credibility[0], 1, **STAR)
    kept = credibility >= ICE.thresholds_[CALIBRATION.predicted]
    title = f"in calibration, {1 - kept.mean():.0%} of the answers are rejected:\n"
    title += f"{wrong.mean():.1%} of all answers are wrong, and {wrong[kept].mean():.1%} of the accepted ones"
    ax.text(-0.02, 1.43, "rejected", color=VERMILLION)
    ax.text(0.98, 1.43, "accepted", color=BLUE, ha="right")
    ax.set(title=title, xlabel="p-value of the answer", xlim=(-0.03, 1.03), ylim=(-0.5, 1.65))
    ax.set_yticks([1, 0], [f"called\n{label}" for label in CLASSES])
    name_points(figure)
    return figure


def months() -> Any:
    """The error of all answers and of the accepted ones, and the share rejected, month by month."""
    figure, axes = plt.subplots(2, 1, figsize=(5.9, 4), sharex=True, height_ratios=[2, 1])
    result = backtest({"ICE": ICE}, X, Y, TIMES, train="2024-07", chronological=True, verbose=False)
    error, kept = (result.series("ICE", "error", of) for of in ("baseline", "kept"))
    at = np.arange(len(error))
    rejected, expected = result.series("ICE", "share", "rejected"), ICE.result_.rejection_rate
    axes[0].plot(at, error, "--", color=BLACK)
    axes[0].plot(at, kept, "o-", color=BLUE)
    axes[1].bar(at, rejected, color=VERMILLION, alpha=0.7, width=0.6)
    axes[0].axhline(ICE.result_.value, color=BLUE, linewidth=1, linestyle=":")
    axes[1].axhline(expected, color=BLACK, linewidth=1, linestyle=":")
    end = at[-1] + 0.15
    axes[0].text(end, error[-1], "all answers", va="center")
    axes[0].text(end, kept[-1], "accepted\nanswers", color=BLUE, va="center")
    axes[0].text(end, ICE.result_.value, "accepted,\nin calibration", color=BLUE, va="bottom")
    axes[1].text(end + 0.25, expected, "in calibration", va="bottom")
    axes[0].set(ylim=(0, None), ylabel="share wrong")
    axes[1].set(ylabel="share rejected", xlabel="month of 2024", xlim=(-0.5, end + 1.35))
    axes[1].set_xticks(at, ["Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
    for ax in axes:
        ax.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
    return figure


def bag(c: int) -> Any:
    """Return the scores of the calibration objects of a class, for that class."""
    return CALIBRATION.scores[CALIBRATION.actual == c, c]


def draw_points(ax: Any, points: Any, label: str, **style: Any) -> None:
    ax.scatter(
        *points.T, marker=MARKERS[label], **{"s": 16, "color": COLOURS[label], "linewidths": 0} | style
    )


def draw_stack(ax: Any, scores: Any, bright: Any, label: str) -> float:
    """Draw scores as dots on top of each other, some of them bright; return the height."""
    column = np.floor(scores / 0.14)
    height = np.array([np.sum(column[:i] == column[i]) for i in range(len(column))])
    points = np.column_stack([(column + 0.5) * 0.14, height + 0.5])
    draw_points(ax, points[bright], label, s=22)
    draw_points(ax, points[~bright], label, s=22, alpha=0.4)
    ax.set_ylim(0, height.max() + 2)
    return float(height.max() + 1)


def draw_sides(ax: Any) -> None:
    """Draw the detector's boundary, and name its sides."""
    svm, low, high = ICE.estimator_, X.min(axis=0) - 0.3, X.max(axis=0) + 0.3
    y = np.array([low[1], high[1]])
    x = -(svm.intercept_[0] + svm.coef_[0, 1] * y) / svm.coef_[0, 0]
    ax.fill_betweenx(y, low[0], x, color=GREEN, alpha=0.1, linewidth=0)
    ax.fill_betweenx(y, x, high[0], color=PURPLE, alpha=0.12, linewidth=0)
    ax.plot(x, y, color=BLACK, linewidth=1.4)
    ax.text(low[0] + 0.15, low[1] + 0.2, "called goodware", color=GREEN)
    ax.text(high[0] - 0.15, high[1] - 0.2, "called malware", color=PURPLE, ha="right", va="top")
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def name_points(figure: Any) -> None:
    """Name the marks below the figure."""
    ax = figure.axes[0]
    marks = [
        ax.scatter([], [], color=COLOURS[label], marker=MARKERS[label], label=label) for label in CLASSES
    ]
    pair = tuple(ax.scatter([], [], color=ORANGE, marker=MARKERS[label]) for label in CLASSES)
    star = ax.plot([], [], **STAR | {"markersize": 12})[0]
    handler = {tuple: mpl.legend_handler.HandlerTuple(ndivide=None)}
    names = [*CLASSES, "wrong answer", "one new object"]
    figure.legend([*marks, pair, star], names, loc="outside lower center", ncols=4, handler_map=handler)


if __name__ == "__main__":
    with mpl.rc_context(STYLE):
        for draw in (boundary, bags, tail, threshold, months):
            figure = draw()
            if "--check" not in sys.argv:
                print(save(figure, f"idea-{draw.__name__}").name)
