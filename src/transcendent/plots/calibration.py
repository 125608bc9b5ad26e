"""Displays of calibration objects: their p-values, and what thresholds on these can achieve."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, encode_labels
from transcendent._utils.text import shorten
from transcendent.decisions import declared
from transcendent.errors import InfeasibleError
from transcendent.judging.calibration import Calibration
from transcendent.metrics.ratios import Metric, resolve_metric
from transcendent.plots import base
from transcendent.plots.base import Display
from transcendent.thresholds.base import On, SearchResult
from transcendent.thresholds.counts import margins
from transcendent.thresholds.exact import ExactSearch

_MAX_CLASSES = 8
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MAX_REJECTED = 0.5


@dataclass(eq=False)
class AlphaAssessmentDisplay(Display):
    """P-values of correct and incorrect answers per class. A good measure separates them.

    Attributes
    ----------
    classes : array of shape (shown,)
        The classes shown: at most eight, those with the most objects.
    n_classes : int
        Number of all classes.
    quantiles : array of shape (shown, 2, 5)
        5%, 25%, 50%, 75% and 95% quantiles of the p-values of correct and incorrect answers; NaN without
        objects.
    counts : int array of shape (shown, 2)
        Number of objects behind each group of quantiles.
    label_conditional : bool
        Whether an object counts for its predicted class only; otherwise it counts for every class.

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

    _legend = staticmethod(base.legend_above)
    _covers = True

    @classmethod
    def from_calibration(cls, calibration: Calibration, *, label_conditional: bool = True) -> Self:
        """Compute the quantiles from the ``calibration_`` of an evaluator, or of one of its ``judges_``.

        ``label_conditional`` is that of ``Calibration.alpha_assessment``.
        """
        alpha = calibration.alpha_assessment(label_conditional=label_conditional)
        k = len(alpha.classes)
        codes = encode_labels(alpha.labels, alpha.classes, "labels")
        groups = 2 * codes + ~alpha.correct
        counts = np.bincount(groups, minlength=2 * k).reshape(k, 2)
        of_class = counts.sum(axis=1) if label_conditional else counts[:, 0]
        shown = base.largest(of_class, _MAX_CLASSES)
        quantiles = np.full((len(shown), 2, len(_QUANTILES)), np.nan)
        for i, c in enumerate(shown):
            for j in np.flatnonzero(counts[c]):
                quantiles[i, j] = np.quantile(alpha.p_values[groups == 2 * c + j], _QUANTILES)
        return cls(alpha.classes[shown], k, quantiles, counts[shown], label_conditional)

    def _draw(self, *axes: Any) -> None:
        (ax,) = axes
        width = 0.3 * min(1, len(self.classes) / 4)
        at = np.arange(len(self.classes))[:, None] + np.array([-0.63, 0.63]) * width
        groups = (("correct", base.SKY, ""), ("incorrect", base.ORANGE, "////"))
        for j, (name, colour, hatch) in enumerate(groups):
            found = self.counts[:, j] > 0
            style = {"facecolor": colour, "hatch": hatch, "linewidth": 0.8, "edgecolor": base.BLACK}
            _draw_boxes(ax, at[found, j], width, self.quantiles[found, j], style)
            ax.fill_between([], [], [], label=name, **style)
        counts = [f"{n:,}" if n < 10_000 else f"{n / 1000:.0f}k" for n in self.counts.ravel().tolist()]
        ax.set_xticks(at.ravel(), counts)
        names = [shorten(c, max(6, 84 // len(self.classes))) for c in self.classes]
        ax.set_xticks(np.arange(len(self.classes)), names, minor=True)
        ax.set_xlim(-0.5, len(self.classes) - 0.5)
        base.show_shares(ax)
        what = "predicted class" if self.label_conditional else "class"
        base.dress(ax, x=base.with_note(ax, f"number of objects, and {what}", self._note()), y="p-value")
        ax.grid(visible=False, axis="x")
        ax.tick_params(axis="x", length=0)
        ax.tick_params(axis="x", which="minor", pad=16, length=0)

    def _note(self) -> str:
        notes = ["Boxes hold the middle half, whiskers the middle 90%."]
        if len(self.classes) < self.n_classes:
            notes.append(
                f"The {len(self.classes)} of {self.n_classes} classes with the most objects are shown."
            )
        if (self.counts == 0).any():
            notes.append("A group without objects has no box.")
        return " ".join(notes)


@dataclass(eq=False)
class TradeOffDisplay(Display):
    """Best value of a metric on the kept calibration objects, against the share that may be rejected.

    Attributes
    ----------
    metric : str
        Name of the metric.
    limits : array of shape (points,)
        Limits on the rejection rate: from 0 to 0.5, and the evaluator's own rejection rate.
    values, rejection_rates : arrays of shape (points,)
        The best value within each limit, and its rejection rate; NaN where the metric is undefined.
    chosen_value, chosen_rejection_rate : float
        The same for the evaluator's thresholds.
    classes, credibility_thresholds, confidence_thresholds : arrays of shape (classes,)
        The classes, and the evaluator's thresholds for them.

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
        """Search the best thresholds for several limits on the rejection rate.

        Parameters
        ----------
        evaluator : InductiveEvaluator or TransductiveEvaluator
            A fitted evaluator.
        n_points : int
            Number of limits, from 0 to 0.5.
        metric : str, Metric or None
            The metric to optimise; by default the objective of the evaluator's search.
        """
        calibration, result, on = _calibrated(evaluator)
        wanted = result.objective if metric is None else metric
        if wanted is None:
            raise ValueError(
                f"{evaluator.search_} has no objective to draw; pass metric, such as metric='f1'."
            )
        objective = resolve_metric(wanted)
        limits = np.union1d(np.linspace(0, _MAX_REJECTED, n_points), result.rejection_rate)
        name = repr(objective).removesuffix("()")
        name += " of the kept" if getattr(objective, "of", None) == "kept" else ""
        found = [_best(calibration, ExactSearch(objective, max_rejection=float(r), on=on)) for r in limits]
        return cls(
            metric=name,
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
        # A value stays the best until a larger rejection rate allows a better one: steps, not a line.
        rates = np.append(self.rejection_rates, self.limits[-1])
        values = np.append(self.values, self.values[-1])
        ax.step(rates, values, where="post", color=base.BLUE, linewidth=1.6, label="best thresholds")
        first, *others = self._legend_lines()
        style = {"color": base.VERMILLION, "markersize": 7, "markeredgecolor": base.BLACK, "zorder": 3}
        ax.plot(self.chosen_rejection_rate, self.chosen_value, "D", label=first, **style)
        for line in others:
            ax.plot([], [], " ", label=line, color=base.VERMILLION)
        ax.set_xlim(-0.01, max(_MAX_REJECTED, self.chosen_rejection_rate) + 0.01)
        missing = int(np.isnan(self.values).sum())
        note = f"Undefined, and not drawn, at {missing} of {len(self.limits)} limits." if missing else ""
        label = base.with_note(ax, "share rejected", note)
        base.dress(ax, x=label, y=self.metric, title="on calibration objects")

    def _legend_lines(self) -> list[str]:
        """Return the lines of the legend on the evaluator's own thresholds."""
        lines = ["chosen thresholds:", f"{self.chosen_rejection_rate:.1%} rejected, {self.chosen_value:.4f}"]
        for name in ("credibility", "confidence"):
            thresholds = getattr(self, f"{name}_thresholds")
            if thresholds.any():
                lines.append(f"on {name}:")
                shown = base.largest(thresholds, _MAX_CLASSES)
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
        medianprops={"color": base.BLACK, "linewidth": 2},
        boxprops=style,
    )


def _calibrated(evaluator: Any) -> tuple[Calibration, SearchResult, On]:
    """Return calibration objects, thresholds, and what an exact search puts thresholds on."""
    check_is_fitted(evaluator)
    rejector = declared(evaluator)
    if not rejector.has_p_values or not len(rejector.fitted.judges) == len(rejector.fitted.results) == 1:
        raise TypeError(
            f"{type(evaluator).__name__} has no single calibration_: pass an evaluator that has, such as "
            "InductiveEvaluator."
        )
    (judge,) = rejector.fitted.judges
    on: On = "confidence" if judge.search_.on == "confidence" else "credibility"
    return judge.calibration_, judge.result_, on


def _best(calibration: Calibration, search: ExactSearch) -> tuple[float, float]:
    """Return the best value and its rejection rate, or NaN where the metric is undefined."""
    try:
        found = calibration.search(search)
    except InfeasibleError:
        return np.nan, np.nan
    return found.value, found.rejection_rate


def _value(calibration: Calibration, result: SearchResult, objective: Metric) -> float:
    """Return the metric that the thresholds of a result reach on the calibration objects."""
    predicted, actual, classes = calibration.predicted, calibration.actual, calibration.classes
    kept = result.accepts(predicted, *calibration.credibility_and_confidence())
    of_kept, of_rejected = (margins(predicted[r], actual[r], len(classes)) for r in (kept, ~kept))
    return float(objective.value(of_kept, of_rejected, classes))
