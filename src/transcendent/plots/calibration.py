"""Displays of calibration objects: their p-values, and what thresholds on them can reach."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, encode_labels
from transcendent._utils.text import shorten
from transcendent.errors import InfeasibleError
from transcendent.evaluators.base import OneDetectorEvaluator
from transcendent.judging.calibration import Calibration
from transcendent.judging.judge import ScoreEvaluator
from transcendent.metrics.ratios import Metric, resolve_metric
from transcendent.plots.base import (
    BLACK,
    BLUE,
    ORANGE,
    SKY,
    VERMILLION,
    Display,
    dress,
    largest,
    legend_above,
    legend_beside,
    show_shares,
    with_note,
)
from transcendent.thresholds.base import On, SearchResult
from transcendent.thresholds.counts import margins
from transcendent.thresholds.exact import ExactSearch

_MOST_CLASSES = 8
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MOST_REJECTED = 0.5


@dataclass(eq=False)
class AlphaAssessmentDisplay(Display):
    """P-values of right and wrong answers per class: a good measure puts the right high, the wrong low.

    Attributes
    ----------
    classes : array of shape (shown,)
        The classes shown: at most eight, those with most objects.
    n_classes : int
        How many there are.
    quantiles : array of shape (shown, 2, 5)
        5%, 25%, 50%, 75% and 95% quantiles of the correct and of the incorrect answers' p-values; NaN
        without objects.
    counts : int array of shape (shown, 2)
        How many objects these are.
    label_conditional : bool
        Whether each object counts for its predicted class only, or for every class.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.plots import AlphaAssessmentDisplay
    >>> X, y = make_classification(1000, flip_y=0.1, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
    >>> display = AlphaAssessmentDisplay.from_calibration(ice.calibration_).plot()
    >>> display.quantiles[:, :, 2].round(2)
    array([[0.55, 0.25],
           [0.56, 0.34]])
    """

    classes: AnyArray
    n_classes: int
    quantiles: FloatArray
    counts: IntArray
    label_conditional: bool

    @classmethod
    def from_calibration(cls, calibration: Calibration, *, label_conditional: bool = True) -> Self:
        """Take p-values from calibration objects.

        Parameters
        ----------
        calibration : Calibration
            An evaluator's ``calibration_``, or that of one of its ``detectors_``.
        label_conditional : bool
            As for ``Calibration.alpha_assessment``.
        """
        alpha = calibration.alpha_assessment(label_conditional=label_conditional)
        k = len(alpha.classes)
        codes = encode_labels(alpha.labels, alpha.classes, "labels")
        groups = 2 * codes + ~alpha.correct
        counts = np.bincount(groups, minlength=2 * k).reshape(k, 2)
        of_class = counts.sum(axis=1) if label_conditional else counts[:, 0]
        shown = largest(of_class, _MOST_CLASSES)
        quantiles = np.full((len(shown), 2, len(_QUANTILES)), np.nan)
        for i, c in enumerate(shown):
            for j in np.flatnonzero(counts[c]):
                quantiles[i, j] = np.quantile(alpha.p_values[groups == 2 * c + j], _QUANTILES)
        return cls(alpha.classes[shown], k, quantiles, counts[shown], label_conditional)

    def _draw(self, *axes: Any) -> None:
        (ax,) = axes
        width = 0.3 * min(1, len(self.classes) / 4)
        at = np.arange(len(self.classes))[:, None] + np.array([-0.63, 0.63]) * width
        for j, (name, colour, hatch) in enumerate((("correct", SKY, ""), ("incorrect", ORANGE, "////"))):
            there = self.counts[:, j] > 0
            style = {"facecolor": colour, "hatch": hatch, "linewidth": 0.8, "edgecolor": BLACK}
            _draw_boxes(ax, at[there, j], width, self.quantiles[there, j], style)
            ax.fill_between([], [], [], label=name, **style)
        ax.set_xticks(at.ravel(), [_short(n) for n in self.counts.ravel().tolist()])
        names = [shorten(c, max(6, 84 // len(self.classes))) for c in self.classes]
        ax.set_xticks(np.arange(len(self.classes)), names, minor=True)
        ax.set_xlim(-0.5, len(self.classes) - 0.5)
        show_shares(ax)
        what = "predicted class" if self.label_conditional else "class"
        dress(ax, x=with_note(ax, f"number of objects, and {what}", self._note()), y="p-value")
        ax.grid(visible=False, axis="x")
        ax.tick_params(axis="x", length=0)
        ax.tick_params(axis="x", which="minor", pad=16, length=0)
        legend_above(ax)

    def _note(self) -> str:
        parts = ["Boxes hold the middle half, whiskers the middle 90%."]
        if len(self.classes) < self.n_classes:
            parts.append(f"Shown are the {len(self.classes)} of {self.n_classes} classes with most objects.")
        if (self.counts == 0).any():
            parts.append("A group without objects has no box.")
        return " ".join(parts)


@dataclass(eq=False)
class TradeOffDisplay(Display):
    """The best a metric of the kept calibration objects can be, against how much may be rejected.

    Attributes
    ----------
    metric : str
        What is best.
    limits : array of shape (points,)
        Largest share that may be rejected: from 0 to 0.5, and the share that the evaluator rejects.
    values, rejection_rates : arrays of shape (points,)
        The best value there is, and the share rejected for it; NaN where the metric is undefined.
    chosen_value, chosen_rejection_rate : float
        The same for the evaluator's thresholds.
    classes : array of shape (classes,)
        The labels there are.
    credibility_thresholds, confidence_thresholds : arrays of shape (classes,)
        The evaluator's thresholds.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.plots import TradeOffDisplay
    >>> X, y = make_classification(1000, flip_y=0.1, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
    >>> display = TradeOffDisplay.from_evaluator(ice, n_points=11).plot()
    >>> f"F1 {display.values[0]:.3f} if all are kept, {display.values[-1]:.3f} with half of them rejected"
    'F1 0.892 if all are kept, 0.965 with half of them rejected'
    """

    metric: str
    limits: FloatArray
    values: FloatArray
    rejection_rates: FloatArray
    chosen_value: float
    chosen_rejection_rate: float
    classes: AnyArray
    credibility_thresholds: FloatArray
    confidence_thresholds: FloatArray

    @classmethod
    def from_evaluator(
        cls, evaluator: Any, *, n_points: int = 40, metric: str | Metric | None = None
    ) -> Self:
        """Search the best thresholds for limits on the rejection rate from 0 to 0.5.

        Parameters
        ----------
        evaluator : InductiveEvaluator or TransductiveEvaluator
            Fitted.
        n_points : int
            How many limits.
        metric : str, Metric or None
            What is best; by default the objective of the evaluator's search.
        """
        calibration, result, on = _calibrated(evaluator)
        wanted = result.objective if metric is None else metric
        if wanted is None:
            raise ValueError(f"{evaluator.search_} has no objective to draw; name a metric, such as 'f1'.")
        objective = resolve_metric(wanted)
        limits = np.union1d(np.linspace(0, _MOST_REJECTED, n_points), result.rejection_rate)
        found = [_best(calibration, ExactSearch(objective, max_rejection=float(r), on=on)) for r in limits]
        return cls(
            metric=_words(objective),
            limits=limits,
            values=np.array([value for value, _ in found]),
            rejection_rates=np.array([rate for _, rate in found]),
            chosen_value=_value(calibration, result, objective),
            chosen_rejection_rate=result.rejection_rate,
            classes=calibration.classes,
            credibility_thresholds=result.credibility_thresholds,
            confidence_thresholds=result.confidence_thresholds,
        )

    def _draw(self, *axes: Any) -> None:
        (ax,) = axes
        # What is best for one share rejected is so until a larger share allows better.
        rates = np.append(self.rejection_rates, self.limits[-1])
        values = np.append(self.values, self.values[-1])
        ax.step(rates, values, where="post", color=BLUE, linewidth=1.6, label="best thresholds")
        first, *others = self._chosen()
        style = {"color": VERMILLION, "markersize": 7, "markeredgecolor": BLACK, "zorder": 3}
        ax.plot(self.chosen_rejection_rate, self.chosen_value, "D", label=first, **style)
        for line in others:
            ax.plot([], [], " ", label=line)
        ax.set_xlim(-0.01, max(_MOST_REJECTED, self.chosen_rejection_rate) + 0.01)
        missing = int(np.isnan(self.values).sum())
        note = f"Undefined, so not drawn, at {missing} of {len(self.limits)} limits." if missing else ""
        dress(ax, x=with_note(ax, "share rejected", note), y=self.metric, title="on calibration objects")
        legend_beside(ax)

    def _chosen(self) -> list[str]:
        """What was chosen, thresholds included."""
        lines = ["chosen thresholds:", f"{self.chosen_rejection_rate:.1%} rejected, {self.chosen_value:.4f}"]
        for name in ("credibility", "confidence"):
            thresholds = getattr(self, f"{name}_thresholds")
            if thresholds.any():
                lines.append(f"on {name}:")
                shown = largest(thresholds, _MOST_CLASSES)
                lines += [f"  {shorten(self.classes[c])}: {thresholds[c]:.4f}" for c in shown]
                if len(shown) < len(thresholds):
                    lines.append(f"  and {len(thresholds) - len(shown)} lower ones")
        return lines


def _draw_boxes(ax: Any, at: FloatArray, width: float, quantiles: FloatArray, style: dict[str, Any]) -> None:
    names = ("whislo", "q1", "med", "q3", "whishi")
    ax.bxp(
        [dict(zip(names, q, strict=True)) for q in quantiles],
        positions=at,
        widths=width,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        medianprops={"color": BLACK, "linewidth": 2},
        boxprops=style,
    )


def _calibrated(evaluator: Any) -> tuple[Calibration, SearchResult, On]:
    """Calibration objects, thresholds, and what those are on: of two, an exact search takes credibility."""
    check_is_fitted(evaluator)
    if not isinstance(evaluator, OneDetectorEvaluator | ScoreEvaluator):
        raise TypeError(
            f"{type(evaluator).__name__} has no calibration_: this draws evaluators with one set of "
            "calibration objects, such as InductiveEvaluator."
        )
    on = evaluator.search_.on
    return evaluator.calibration_, evaluator.result_, "confidence" if on == "confidence" else "credibility"


def _best(calibration: Calibration, search: ExactSearch) -> tuple[float, float]:
    """Value and rejection rate, NaN where the metric is undefined."""
    try:
        found = calibration.search(search)
    except InfeasibleError:
        return np.nan, np.nan
    return found.value, found.rejection_rate


def _value(calibration: Calibration, result: SearchResult, objective: Metric) -> float:
    """A metric of what thresholds keep and reject of the calibration objects."""
    predicted, actual, classes = calibration.predicted, calibration.actual, calibration.classes
    kept = result.accepts(predicted, *calibration.credibility_and_confidence())
    of_kept, of_rejected = (margins(predicted[r], actual[r], len(classes)) for r in (kept, ~kept))
    return float(objective.value(of_kept, of_rejected, classes))


def _words(objective: Metric) -> str:
    name = repr(objective).removesuffix("()")
    return f"{name} of the kept" if getattr(objective, "of", None) == "kept" else name


def _short(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:.0f}k"
