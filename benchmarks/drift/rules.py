"""Every rule that could decide which answers of one detector to reject, on the same apps, months and labels.

A rule is a set of answers, and how much each is trusted, computed once per data set and seed, and kept:

python benchmarks/drift/rules.py raw:0 deduplicated:0 androzoo:0 androzoo-deduplicated:0 raw-2015:0
"""

import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from judge import BOOSTING
from kept import CACHE, keep, maker
from scipy.special import logit
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from transcendent import Answers, Decisions, InductiveEvaluator, ScoreEvaluator
from transcendent._utils.arrays import row_keys
from transcendent.datasets import Dataset, load_apigraph
from transcendent.evaluators.splits import stratified_split
from transcendent.measures import CombinedMeasure, Margin, Probability, SecondOpinion, drift_measure
from transcendent.temporal import Backtest, TimeSplit, time_split
from transcendent.temporal.labelling import Candidates, Retraining

sys.path.append(str(Path(__file__).parents[1]))  # a script finds only modules beside itself
from campaigns import androzoo

SEEDS = range(5)
LABELS = 100
RATE = 0.15
NOTHING = "nothing rejected"
MARGIN = "its margin, p-value"
THRESHOLDS = "its margin, thresholds as in the paper"
"""Of which the trust is 1 or 0: accepted or rejected."""
VOTERS = (RandomForestClassifier(100, n_jobs=1), MLPClassifier(early_stopping=True, max_iter=30))


@dataclass(frozen=True)
class Problem:
    """A stream, the end of training, and the detector."""

    data: Dataset
    train: str
    detector: Any


def problem(kind: str) -> Problem:
    """Apps of apigraph, raw or without copies within a month, or of androzoo; tested from a year if named."""
    stream, _, how = kind.partition("-")
    if stream == "androzoo":
        apps = androzoo().apps
        apps = apps[_first_of_each_month(apps)] if how == "deduplicated" else apps
        return Problem(replace(apps, X=apps.X.astype(np.float64)), "2021-04", LinearSVC(C=0.01))
    return Problem(load_apigraph(deduplicate=stream == "deduplicated"), how or "2013", LinearSVC(C=0.1))


def _first_of_each_month(apps: Dataset) -> Any:
    """Positions of the first app of each (features, month, label)."""
    months = apps.times.astype("datetime64[M]").astype(np.int64)
    columns = np.column_stack([row_keys(apps.X), months.astype(np.uint64), apps.y.astype(np.uint64)])
    return np.sort(np.unique(columns, axis=0, return_index=True)[1])


def rules(kind: str, seed: int) -> Backtest:
    """All rules, ranked by their trust; months in order."""
    with _stored(kind, seed) as stored:
        period, y, periods = stored["period"], stored["y"], tuple(stored["periods"].tolist())
        columns = {
            name: (stored[f"labels {name}"], stored[f"trust {name}"]) for name in stored["names"].tolist()
        }
    answers = {name: _ranked(*pair) for name, pair in (columns | _answering(columns)).items()}
    return Backtest(periods, period, np.arange(len(y)), y, answers, np.array([0, 1]), 1, {"period": "month"})


def never_seen(kind: str, seed: int) -> Any:
    """Which objects of the rules have features that no earlier object has, nor one of training."""
    with _stored(kind, seed) as stored:
        return ~stored["seen"]


def _stored(kind: str, seed: int) -> Any:
    path = CACHE / f"rules-{kind}-{seed}.npz"
    keep(path, lambda: _compute(path, kind, seed), maker(__file__))
    return np.load(path, allow_pickle=False)


def _answering(columns: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """The frozen LightGBM, answering itself."""
    labels, chance = columns["LightGBM, frozen"]
    own = np.where(chance < 0.5, 1 - labels, labels)
    sure = np.maximum(chance, 1 - chance)
    name = "LightGBM of the start as the detector"
    return {f"{name}, {NOTHING}": (own, np.zeros(len(own))), name: (own, sure)}


def _ranked(labels: Any, trust: Any) -> Decisions:
    """Answers ranked by any number, higher = more trusted."""
    accepted, nothing = np.ones(len(trust), dtype=bool), np.zeros(len(trust))
    return Decisions(labels, accepted, trust, nothing, classes=np.array([0, 1]))


def _compute(path: Path, kind: str, seed: int) -> None:
    started = time.process_time()
    given = problem(kind)
    data, split = given.data, time_split(given.data.times, train=given.train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opinion = SecondOpinion(BOOSTING, Probability())
        detector = _seeded(given.detector, seed)
        ice = InductiveEvaluator(detector, measure=opinion, random_state=seed, verbose=False)
        ice.fit(data.X[split.train], data.y[split.train])
        found = _frozen(ice, data, split, seed)
        frozen = time.process_time() - started
        found |= _learning(ice, data, split, seed, LABELS)
    seen = _seen_before(row_keys(data.X), np.concatenate([split.train, _tested(split)]))[len(split.train) :]
    columns = {f"{what} {name}": each[i] for name, each in found.items() for i, what in enumerate(_COLUMNS)}
    np.savez_compressed(
        path,
        names=list(found),
        period=np.sort(split.periods.codes),
        periods=split.periods.labels,
        y=data.y[_tested(split)],
        seen=seen,
        **columns,
    )
    spent = time.process_time() - started
    sys.stderr.write(f"{path.name}: {spent:.0f} s of a processor, {frozen:.0f} of them frozen\n")


_COLUMNS = ("labels", "trust")


def _accepted(predicted: Any, scores: Any, y: Any, labels: Any, later: Any) -> Any:
    """1 for what thresholds accept that are searched as in the paper: the best F1 in calibration."""
    judge = ScoreEvaluator(search="f1").fit(Answers(predicted, scores), y)
    return judge.decide(Answers(labels, later)).accepted.astype(float)


def _copies(data: Dataset, train: Any, tested: Any, labels: Any) -> Any:
    """1 for copies of a training app of their answer's class, −1 for those of the other class only, or 0."""
    keys = row_keys(data.X)
    known = [np.isin(keys[tested], keys[train][data.y[train] == c]) for c in (0, 1)]
    same = np.where(labels == 1, known[1], known[0])
    return np.where(same, 1.0, np.where(known[0] | known[1], -1.0, 0.0))


def _seen_before(keys: Any, order: Any) -> Any:
    """Which rows, in an order of time, have the features of an earlier one."""
    first = np.unique(keys[order], return_index=True)[1]
    seen = np.ones(len(order), dtype=bool)
    seen[first] = False
    return seen


def _tested(split: TimeSplit) -> Any:
    return split.test[np.concatenate(split.periods.rows)]


def _frozen(ice: Any, data: Dataset, split: TimeSplit, seed: int) -> dict[str, tuple[Any, Any]]:
    """What can be known without any new label."""
    train, calibrates = (split.train[rows] for rows in _halves(data.y[split.train], seed))
    tested = _tested(split)
    X, y, test = data.X[calibrates], data.y[calibrates], data.X[tested]
    detector = ice.estimator_
    labels = detector.predict(test)
    rows = np.arange(len(labels))

    margins = detector.decision_function(X), detector.decision_function(test)
    platt = LogisticRegression(C=1e6).fit(margins[0][:, None], y).predict_proba(margins[1][:, None])
    voters = [_seeded(voter, seed).fit(data.X[train], data.y[train]) for voter in VOTERS]
    fitted = ice.measure_.estimator_
    votes = [
        np.mean([model.predict_proba(some) for model in (*voters, fitted)], axis=0) for some in (X, test)
    ]
    preset = CombinedMeasure(drift_measure().measures, random_state=seed)
    preset.fit(detector, data.X[train], data.y[train])
    scored = [
        np.stack([part.scores(detector, some) for part in preset.measures_], axis=-1) for some in (X, test)
    ]
    predicted = detector.predict(X)

    def p_values(scores: Any, bag: Literal["class", "all"]) -> Any:
        judge = ScoreEvaluator(bag=bag).fit(Answers(predicted, scores[0]), y)
        return judge.decide(Answers(labels, scores[1])).credibility

    margin = [Margin().scores(detector, some) for some in (X, test)]
    chance, prior = fitted.predict_proba(test), data.y[train].mean()
    trust = {
        NOTHING: np.zeros(len(rows)),
        "its own decision value": np.abs(margins[1]),
        "its own probability (Platt)": platt[rows, labels],
        MARGIN: p_values(margin, "class"),
        THRESHOLDS: _accepted(predicted, margin[0], y, labels, margin[1]),
        "exact copies of training": _copies(data, train, tested, labels),
        "soft vote, frozen": votes[1][rows, labels],
        "soft vote, frozen, p-value": p_values([-vote for vote in votes], "class"),
        'measure="drift"': p_values(scored, "all"),
        "LightGBM, frozen": chance[rows, labels],
        "LightGBM, frozen, p-value": ice.predict_p(test)[rows, labels],
        "LightGBM, frozen, odds over prior": _odds(chance, prior)[rows, labels],
    }
    return {name: (labels, values) for name, values in trust.items()}


def _learning(
    ice: Any, data: Dataset, split: TimeSplit, seed: int, n_labels: int
) -> dict[str, tuple[Any, Any]]:
    """What the same labels make of a judge, of a detector, and of both, month by month."""
    retraining = Retraining(n_labels, "drawn", what="judge")
    train, _ = (split.train[rows] for rows in _halves(data.y[split.train], seed))
    detector, past, labelled = ice.estimator_, split.train, np.empty(0, dtype=np.intp)
    months: list[dict[str, tuple[Any, Any]]] = []
    for i, own in enumerate(split.periods.rows):
        if len(own) == 0:
            continue
        rows = split.test[own]
        if len(labelled):
            known = np.concatenate([past, labelled])
            ice = ice.learn(data.X[known], data.y[known], what="judge")
            known = np.concatenate([train, labelled])
            detector = clone(ice.estimator_).fit(data.X[known], data.y[known])
        prior = data.y[np.concatenate([train, labelled])].mean()
        decisions = ice.decide(data.X[rows]).within_budget(RATE)
        months.append(_month(ice, detector, data.X[rows], decisions, prior))
        generator = np.random.default_rng((seed, i))
        candidates = Candidates(rows, data.X[rows], data.times[rows], decisions, ice, generator)
        labelled = np.concatenate([labelled, rows[retraining.select(candidates).rows]])
    return {
        name: (
            np.concatenate([month[name][0] for month in months]),
            np.concatenate([month[name][1] for month in months]),
        )
        for name in months[0]
    }


def _month(ice: Any, detector: Any, X: Any, decisions: Decisions, prior: float) -> dict[str, Any]:
    chance, p, rows = ice.measure_.estimator_.predict_proba(X), ice.predict_p(X), np.arange(X.shape[0])
    own, opinion, learnt = decisions.labels, chance.argmax(axis=1), detector.predict(X)
    return {
        "LightGBM that learns": (own, chance[rows, own]),
        "LightGBM that learns, p-value": (own, p[rows, own]),
        "LightGBM that learns, odds over prior": (own, _odds(chance, prior)[rows, own]),
        f"an SVM that learns, {NOTHING}": (learnt, np.zeros(len(rows))),
        "both learn, p-value": (learnt, p[rows, learnt]),
        f"LightGBM as the detector, {NOTHING}": (opinion, np.zeros(len(rows))),
        "LightGBM as the detector": (opinion, chance[rows, opinion]),
        "LightGBM as the detector, p-value": (opinion, p[rows, opinion]),
        "LightGBM as the detector, odds over prior": (opinion, _odds(chance, prior)[rows, opinion]),
    }


def _halves(y: Any, seed: int) -> tuple[Any, Any]:
    """The rows that an evaluator with this seed trains on and calibrates with."""
    return stratified_split(y, np.array([0, 1]), 0.34, check_random_state(seed))


def _seeded(model: Any, seed: int) -> Any:
    return clone(model).set_params(random_state=seed)


def _odds(chance: Any, prior: float) -> Any:
    """Log odds of each class beyond those of its share in training."""
    beyond = logit(np.clip(chance[:, 1], 1e-12, 1 - 1e-12)) - logit(prior)
    return np.column_stack([-beyond, beyond])


if __name__ == "__main__":
    for given in sys.argv[1:]:
        name, seed = given.split(":")
        rules(name, int(seed))
