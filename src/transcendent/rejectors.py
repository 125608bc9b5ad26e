"""What the library looks up in a rejector, besides calling ``predict`` and ``decide``."""

from dataclasses import dataclass
from inspect import signature
from typing import Any

from transcendent._utils.arrays import AnyArray


@dataclass(frozen=True)
class Traits:
    """Attributes of a rejector, empty or None where it has none.

    Attributes
    ----------
    classes, feature_names : arrays or None
        The labels, and the names of the columns it was fitted on.
    n_features : int or None
        The number of columns it was fitted on.
    evolves : bool
        Whether it changes while it decides.
    depends_on_others : bool
        Whether its decision about an object depends on other objects: those of the same call or, if it
        evolves, those of earlier ones.
    takes_labels : bool
        Whether it judges scores, beside which it is given the detector's answers.
    rethresholds : bool
        Whether it can search new thresholds.
    has_p_values : bool
        Whether its decisions have p-values.
    tells_doubt : bool
        Whether its decisions say which kind of doubt there is.
    detectors : list of classifiers
        The fitted detectors.
    calibrations : list of Calibration
        The calibration objects of each judge, also of one within a budget or a baseline.
    results : list of SearchResult
        The thresholds in use, and what they promise.
    lacks_thresholds : bool
        Whether it was calibrated, but no search has found thresholds.
    n_left_out : int
        Number of rows that did not train when it learnt, since they equal rows that calibrate.
    """

    classes: AnyArray | None
    feature_names: AnyArray | None
    n_features: int | None
    evolves: bool
    depends_on_others: bool
    takes_labels: bool
    rethresholds: bool
    has_p_values: bool
    tells_doubt: bool
    detectors: list[Any]
    calibrations: list[Any]
    results: list[Any]
    lacks_thresholds: bool
    n_left_out: int

    @classmethod
    def of(cls, rejector: Any) -> "Traits":
        """Look into a rejector, and into the one within a budget or a baseline."""
        outer = getattr(rejector, "rejector_", rejector)
        inner = getattr(outer, "evaluator_", outer)
        judges = getattr(inner, "judges_", [inner])
        deciding = judges if inner is outer else [outer]
        evolves = bool(getattr(rejector, "evolves", False))
        return cls(
            classes=getattr(rejector, "classes_", None),
            feature_names=getattr(rejector, "feature_names_in_", None),
            n_features=getattr(rejector, "n_features_in_", None),
            evolves=evolves,
            depends_on_others=evolves or bool(getattr(rejector, "depends_on_others", False)),
            takes_labels="labels" in signature(getattr(rejector, "rejector", rejector).fit).parameters,
            rethresholds=hasattr(rejector, "rethreshold"),
            has_p_values=hasattr(inner, "predict_p") and inner is outer,
            tells_doubt=inner is outer and any(_of_each(judges, "tells_doubt")),
            detectors=_detectors(inner),
            calibrations=_of_each(judges, "calibration_"),
            results=_of_each(deciding, "result_"),
            lacks_thresholds=not all(hasattr(judge, "result_") for judge in getattr(outer, "judges_", ())),
            n_left_out=getattr(inner, "n_left_out_", 0),
        )


def adopt_input(rejector: Any, inner: Any) -> None:
    """Give a rejector the classes and columns of the fitted one that it wraps."""
    for name in ("classes_", "n_features_in_", "feature_names_in_"):
        if hasattr(inner, name):
            setattr(rejector, name, getattr(inner, name))


def set_quorum(rejector: Any, quorum: int) -> None:
    """Give a cross-conformal evaluator another quorum."""
    if not hasattr(rejector, "quorum"):
        raise ValueError(f"{type(rejector).__name__} has no quorum: only a CrossConformalEvaluator has.")
    rejector.quorum = quorum


def silence(rejector: Any) -> None:
    """Let a rejector show no progress of its own."""
    if hasattr(rejector, "verbose"):
        rejector.verbose = False


def _detectors(rejector: Any) -> list[Any]:
    if hasattr(rejector, "detectors_"):
        return [detector.estimator for detector in rejector.detectors_]
    return _of_each([rejector], "estimator_")


def _of_each(things: list[Any], attribute: str) -> list[Any]:
    return [getattr(thing, attribute) for thing in things if hasattr(thing, attribute)]
