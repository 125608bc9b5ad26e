"""What each column contributes to a detector's score for a label."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB

from transcendent._utils.arrays import AnyArray, FloatArray, chunks
from transcendent._utils.estimators import see_through, transform
from transcendent.explaining.origins import trace_columns
from transcendent.explaining.variants import differing, variants

Method = Literal["exact", "paths", "occlusion"]
Base = Literal["usual values", "average", "no values"]

_EXACT = 1e-9
_SINGLE = 1e-3
_CELLS = 1 << 22


class Contributions(NamedTuple):
    """The parts of a detector's score for a label: ``base + sum(amounts) + rest``.

    ``amounts`` has one number per column, positive if the column speaks for the label. ``base`` is the score
    of what the object is compared with, which ``base_of`` names: usual values, the average of the training
    rows (path contributions), or no values at all. ``rest`` is what occlusion cannot assign to single
    columns, 0 for the other methods. ``of`` names the score.
    """

    method: Method
    of: str
    base_of: Base
    score: float
    base: float
    amounts: FloatArray
    rest: float


Terms = tuple[FloatArray, float]
"""Amounts of the classifier's columns, and the base."""
Pair = tuple[int, int]
"""The positions of the label and of its rival in the classifier's classes."""


def contributions(
    detectors: Sequence[Any], row: Any, label: Any, rival: Any, usual: Callable[[], Any]
) -> Contributions | None:
    """Return the mean contributions over detectors of one kind; None if there is no way to tell.

    ``rival`` is the class that the label is compared with if there are more than two. ``usual`` returns
    a row of usual values; None if there is none, which allows no occlusion.
    """
    found = [_of_detector(detector, row, label, rival, usual) for detector in detectors]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found) or len({each[:3] for each in known}) > 1:
        return None
    score, base, rest = (float(np.mean([each[k] for each in known])) for k in (3, 4, 6))
    amounts = np.mean([each.amounts for each in known], axis=0)
    return known[0]._replace(score=score, base=base, amounts=amounts, rest=rest)


def _of_detector(
    detector: Any, row: Any, label: Any, rival: Any, usual: Callable[[], Any]
) -> Contributions | None:
    transformers, classifier = see_through(detector)
    classes = getattr(classifier, "classes_", np.empty(0)).tolist()
    if label not in classes or rival not in classes:
        return None
    pair = classes.index(label), classes.index(rival)
    usual_values = None if _library(classifier) in _BOOSTERS else usual()
    found = _exact(transformers, classifier, row, pair, usual_values)
    if found is not None:
        return found

    def scores(rows: Any) -> tuple[str, FloatArray]:
        return _scores(classifier, transform(transformers, rows), pair)

    return _occlusion(scores, row, usual())


def _exact(
    transformers: list[Any], classifier: Any, row: Any, pair: Pair, usual: Any
) -> Contributions | None:
    """Return contributions that add up to the score, if the classifier and the transformers allow that."""
    rows = transform(transformers, row)
    found = _terms(classifier, rows, pair)
    origins = None if found is None else trace_columns(transformers, row)
    if found is None or origins is None or len(origins) != len(found[0]):
        return None
    amounts, base = found
    of, scores = _scores(classifier, rows, pair)
    score, off = float(scores[0]), float(scores[0]) - base - float(np.sum(amounts))
    boosted = _library(classifier) in _BOOSTERS
    if not abs(off) <= (_SINGLE if boosted else _EXACT) * (abs(base) + np.abs(amounts).sum() + 1):
        return None
    base_of: Base = "average" if boosted else "no values"
    if boosted:
        base += off  # XGBoost sums in single precision
    elif (
        usual is not None and (other := _terms(classifier, transform(transformers, usual), pair)) is not None
    ):
        amounts, base, base_of = amounts - other[0], base + float(np.sum(other[0])), "usual values"
    summed = np.bincount(origins, weights=amounts, minlength=row.shape[1]).astype(np.float64)
    return Contributions("paths" if boosted else "exact", of, base_of, score, base, summed, 0.0)


def _terms(classifier: Any, rows: Any, pair: Pair) -> Terms | None:
    """Return the terms of the score of one row, one for each of its columns, and the base."""
    library = _library(classifier)
    if library in _BOOSTERS:
        return _BOOSTERS[library](classifier, rows, pair)
    row = np.asarray(rows.toarray() if sp.issparse(rows) else rows)[0]
    if isinstance(classifier, _NAIVE_BAYES):
        (mine, base), (theirs, other) = (_log_density(classifier, row, code) for code in pair)
        return mine - theirs, base - other
    if hasattr(classifier, "coef_") and hasattr(classifier, "decision_function"):
        return _linear(classifier, row.astype(np.float64), pair)
    return None


def _linear(classifier: Any, row: FloatArray, pair: Pair) -> Terms | None:
    weights = classifier.coef_.toarray() if sp.issparse(classifier.coef_) else classifier.coef_
    coef = np.atleast_2d(weights)
    intercept = np.broadcast_to(np.ravel(classifier.intercept_), len(coef)).astype(np.float64)
    if coef.ndim != 2 or coef.shape[1] != len(row) or len(coef) not in (1, len(classifier.classes_)):
        return None
    if len(coef) == 1:
        sign = 1.0 if pair[0] == 1 else -1.0
        return sign * coef[0] * row, sign * float(intercept[0])
    mine, theirs = pair
    return (coef[mine] - coef[theirs]) * row, float(intercept[mine] - intercept[theirs])


def _log_density(bayes: Any, row: AnyArray, code: int) -> Terms:
    """Return the log density of each value in a class, and the log prior of the class."""
    if isinstance(bayes, GaussianNB):
        mean, variance = bayes.theta_[code], bayes.var_[code]
        terms = -0.5 * np.log(2 * np.pi * variance) - 0.5 * (row - mean) ** 2 / variance
        return terms, float(np.log(bayes.class_prior_[code]))
    prior = 0.0 if isinstance(bayes, ComplementNB) else float(bayes.class_log_prior_[code])
    if isinstance(bayes, CategoricalNB):
        values = row.astype(np.intp)
        return np.array([p[code, v] for p, v in zip(bayes.feature_log_prob_, values, strict=True)]), prior
    present = bayes.feature_log_prob_[code]
    if isinstance(bayes, BernoulliNB):
        there = row if bayes.binarize is None else row > bayes.binarize
        absent = np.log(1 - np.exp(present))
        return there * (present - absent) + absent, prior
    return row * present, prior


def _lightgbm(classifier: Any, rows: Any, pair: Pair) -> Terms:
    found = classifier.predict(rows, pred_contrib=True)
    parts = found if isinstance(found, list) else [found]  # of sparse rows, one matrix for each class
    flat = np.concatenate([part.toarray()[0] if sp.issparse(part) else part[0] for part in parts])
    return _of_pair(flat.reshape(-1, rows.shape[1] + 1), pair)


def _xgboost(classifier: Any, rows: Any, pair: Pair) -> Terms:
    xgboost: Any = import_module("xgboost")
    types = {"missing": classifier.missing, "enable_categorical": bool(classifier.enable_categorical)}
    booster, best = classifier.get_booster(), getattr(classifier, "best_iteration", None)
    found = booster.predict(
        xgboost.DMatrix(rows, **types),
        pred_contribs=True,
        iteration_range=(0, 0 if best is None else best + 1),
        validate_features=False,
    )
    return _of_pair(np.asarray(found, dtype=np.float64).reshape(-1, rows.shape[1] + 1), pair)


def _of_pair(parts: FloatArray, pair: Pair) -> Terms:
    """Return the terms of a label against its rival, given those of each class, or of the second of two."""
    terms = _difference(parts.T if len(parts) > 1 else parts[0], pair)
    return terms[:-1], float(terms[-1])


_NAIVE_BAYES = (GaussianNB, BernoulliNB, MultinomialNB, ComplementNB, CategoricalNB)
_BOOSTERS: dict[str, Callable[[Any, Any, Pair], Terms]] = {"lightgbm": _lightgbm, "xgboost": _xgboost}


def _library(classifier: Any) -> str:
    return type(classifier).__module__.partition(".")[0]


def _scores(classifier: Any, rows: Any, pair: Pair) -> tuple[str, FloatArray]:
    """Return what the detector's score for the label is, and the scores of rows."""
    mine = pair[0]
    library, k = _library(classifier), len(classifier.classes_)
    if library in _BOOSTERS:
        raw = classifier.predict(rows, **{"raw_score" if library == "lightgbm" else "output_margin": True})
        return "log-odds", _difference(np.asarray(raw, dtype=np.float64), pair)
    if isinstance(classifier, _NAIVE_BAYES):
        return "log-odds", _difference(classifier.predict_joint_log_proba(rows), pair)
    if hasattr(classifier, "decision_function"):
        decision = np.asarray(classifier.decision_function(rows), dtype=np.float64)
        if decision.ndim == 1 or decision.shape[1] == k:
            return "decision value", _difference(decision, pair)
    if hasattr(classifier, "predict_proba"):
        return "probability", np.asarray(classifier.predict_proba(rows), dtype=np.float64)[:, mine]
    return "answer", (np.asarray(classifier.predict(rows)) == classifier.classes_[mine]).astype(np.float64)


def _difference(values: FloatArray, pair: Pair) -> FloatArray:
    mine, theirs = pair
    if values.ndim == 1:
        return values if mine == 1 else -values
    return values[:, mine] - values[:, theirs]


def _occlusion(scores: Callable[[Any], tuple[str, FloatArray]], row: Any, usual: Any) -> Contributions | None:
    """Return how much the score falls when the value of each column is replaced by the usual one."""
    if usual is None:
        return None
    columns = differing(row, usual)
    groups = [columns[:0], columns, *columns[:, None]]
    size = max(2, _CELLS // row.shape[1])
    found = [scores(variants(row, usual, groups[cut])) for cut in chunks(len(groups), size)]
    score, base, *replaced = np.concatenate([values for _, values in found])
    amounts = np.zeros(row.shape[1])
    amounts[columns] = score - np.array(replaced)
    rest = float(score - base - amounts.sum())
    return Contributions("occlusion", found[0][0], "usual values", float(score), float(base), amounts, rest)
