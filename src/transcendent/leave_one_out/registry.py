"""Registry of the detector types with a leave-one-out shortcut."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from transcendent._utils.arrays import AnyArray, count_rows
from transcendent._utils.estimators import see_through
from transcendent.errors import NoShortcutError

Kind = Literal["exact", "approximate"]


class LeftOut:
    """A detector's answers about its training rows, each as if the detector had not been fitted on that row.

    It replaces the detector when a measure scores those rows.

    Parameters
    ----------
    classes : array
        The labels, as in ``classes_`` of the detector.
    predict : array of shape (n,), optional
        The left-out labels; by default the highest of the first of ``answers``.
    **answers : arrays
        What a method of the detector would return, by the name of the method (``decision_function``,
        ``predict_proba``, …), one row per training row.

    Examples
    --------
    >>> from transcendent.leave_one_out import LeftOut
    >>> answers = LeftOut(["ham", "spam"], decision_function=[-1.5, 0.2])
    >>> answers.predict(["first row", "second row"])
    array(['ham', 'spam'], dtype='<U4')
    """

    def __init__(self, classes: Any, predict: Any = None, **answers: Any) -> None:
        self.classes_: AnyArray = np.asarray(classes)
        self._answers = {name: np.asarray(values) for name, values in answers.items()}
        if predict is None:
            values = next(iter(self._answers.values()))
            codes = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1)
            predict = self.classes_[codes]
        self._answers["predict"] = np.asarray(predict)

    def __getattr__(self, name: str) -> Callable[[Any], AnyArray]:
        if name.startswith("_") or name not in self._answers:
            raise AttributeError(f"there are no left-out answers of {name!r}")

        def answer(X: Any) -> AnyArray:
            values: AnyArray = self._answers[name]
            if count_rows(X) != len(values):
                raise ValueError(
                    f"there are left-out answers about {len(values)} rows, but X has {count_rows(X)}."
                )
            return values

        return answer


Function = Callable[[Any, Any, AnyArray], LeftOut]


@dataclass(frozen=True)
class Shortcut:
    """How rows are left out for one detector type, and whether refitting would give the same answers."""

    kind: Kind
    function: Function


SHORTCUTS: dict[type, Shortcut] = {}


def register(*estimators: type, kind: Kind) -> Callable[[Function], Function]:
    """Register a leave-one-out shortcut for detectors of exactly these types, not of subclasses.

    The function is called with the detector fitted on all rows, the rows and their labels. It returns
    `LeftOut` answers, or raises `NoShortcutError` with the reason; then the detector is refitted once per
    row. A pipeline has the shortcut of its last step if the others learn nothing from the rows. A later
    registration for a type replaces an earlier one.

    Parameters
    ----------
    *estimators : type
        Detector types.
    kind : {"exact", "approximate"}
        Whether refitting to convergence would give the same answers, or only similar ones.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be 'exact' or 'approximate', not {kind!r}.")

    def add(function: Function) -> Function:
        SHORTCUTS.update(dict.fromkeys(estimators, Shortcut(kind, function)))
        return function

    return add


def find_shortcut(model: Any, params: dict[str, Any]) -> Shortcut:
    """Return the shortcut for a fitted detector or pipeline, or raise `NoShortcutError` with the reason."""
    if isinstance(model, FrozenEstimator):
        return Shortcut("exact", lambda frozen, X, y: frozen)  # noqa: ARG005
    if params:
        raise NoShortcutError(f"{', '.join(sorted(params))} passed to fit is not supported")
    while isinstance(model, Pipeline):
        for name, step in model.steps[:-1]:
            if step not in (None, "passthrough") and get_tags(step).requires_fit:
                raise NoShortcutError(f"step {name!r} of the pipeline is fitted on the rows")
        if see_through(model)[1] is model:
            break
        model = model.steps[-1][1]
    if type(model) not in SHORTCUTS:
        raise NoShortcutError(f"none is registered for {type(model).__name__}")
    return SHORTCUTS[type(model)]
