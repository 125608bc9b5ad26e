"""What every model and measure says about every object, computed once per data set and seed, and kept."""

import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from kept import CACHE, keep, maker
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from xgboost import XGBClassifier

from transcendent import Answers, Decisions, ScoreEvaluator
from transcendent.datasets import Dataset
from transcendent.measures import (
    CombinedMeasure,
    Margin,
    NeighbourRatio,
    Probability,
    SecondOpinion,
    drift_measure,
)
from transcendent.temporal import Backtest, TimeSplit

DETECTORS = {
    "LinearSVC": LinearSVC(C=0.1),
    "random forest": RandomForestClassifier(100, n_jobs=2),
    "LightGBM": LGBMClassifier(verbose=-1, n_jobs=2),
    "MLP": MLPClassifier(early_stopping=True, max_iter=30),
}
PRESET = ["boosting, coarse", "boosting, fine", "extra trees"]
OTHERS = {"XGBoost": XGBClassifier(n_estimators=200, max_depth=8, colsample_bytree=0.3, n_jobs=2)}
_ROWS = 30_000


def parts() -> dict[str, Any]:
    """Every kind of evidence: the detectors' own measures, the preset's parts, and others."""
    own = {
        name: SecondOpinion(model, Margin() if name == "LinearSVC" else Probability())
        for name, model in DETECTORS.items()
    }
    preset = dict(zip(PRESET, drift_measure(n_jobs=2, new_classes=False).measures, strict=True))
    others = {name: SecondOpinion(model, Probability()) for name, model in OTHERS.items()}
    return {**own, **preset, **others, "neighbours": NeighbourRatio(5, metric="cosine")}


@dataclass(frozen=True)
class Evidence:
    """Scores (objects, classes, parts) of calibration and test objects, and every detector's answers."""

    names: list[str]
    classes: Any
    calibration: Any
    calibration_y: Any
    calibration_labels: dict[str, Any]
    test: Any
    y: Any
    labels: dict[str, Any]
    period: Any
    periods: list[str]
    seconds: dict[str, float]

    def judged(self, detector: str, chosen: list[str], **options: Any) -> Decisions:
        """What combining the chosen parts makes of a detector's answers."""
        columns = [self.names.index(name) for name in chosen]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rejector = ScoreEvaluator(**({"bag": "all"} | options)).fit(
                Answers(self.calibration_labels[detector], self.calibration[:, :, columns]),
                self.calibration_y,
            )
        return rejector.decide(Answers(self.labels[detector], self.test[:, :, columns]))

    def beside(self, other: "Evidence", name: str) -> "Evidence":
        """This evidence, with a part of other evidence about the same objects."""
        m = other.names.index(name)
        return replace(
            self,
            names=[*self.names, name],
            calibration=np.concatenate([self.calibration, other.calibration[:, :, [m]]], axis=2),
            test=np.concatenate([self.test, other.test[:, :, [m]]], axis=2),
        )

    def ranked(self, detector: str, trust: Any) -> Decisions:
        """A detector's answers ranked by any number, higher = more trusted."""
        return Decisions(
            labels=self.labels[detector],
            accepted=np.ones(len(trust), dtype=bool),
            credibility=trust,
            confidence=np.zeros(len(trust)),
            classes=self.classes,
        )

    def backtest(
        self, answers: dict[str, Decisions], pos_label: Any = 1, rows: Any = slice(None)
    ) -> Backtest:
        """The answers as a backtest, of all objects or some."""
        cut = {name: decisions[rows] for name, decisions in answers.items()}
        period = np.unique(self.period[rows], return_inverse=True)
        names = tuple(self.periods[i] for i in period[0])
        y = self.y[rows]
        classes = np.unique(np.concatenate([self.classes, np.unique(y)]))
        return Backtest(names, period[1], np.arange(len(y)), y, cut, classes, pos_label, {})


def gather(
    name: str, seed: int, data: Dataset, split: TimeSplit, measures: dict[str, Any] | None = None
) -> Evidence:
    """Evidence about the test objects from models fitted on two thirds of the training rows; kept on disk."""
    path, available = CACHE / f"{name}-{seed}.npz", parts() if measures is None else measures
    made_by = maker(__file__, str(Path(__file__).with_name("tried.py")), settings=repr(available))
    keep(path, lambda: _compute(path, seed, data, split, available), made_by)
    with np.load(path, allow_pickle=False) as stored:
        names, detectors = stored["names"].tolist(), stored["detectors"].tolist()
        return Evidence(
            names=names,
            classes=stored["classes"],
            calibration=stored["calibration"],
            calibration_y=stored["calibration_y"],
            calibration_labels=dict(zip(detectors, stored["calibration_labels"], strict=True)),
            test=stored["test"],
            y=stored["y"],
            labels=dict(zip(detectors, stored["labels"], strict=True)),
            period=stored["period"],
            periods=stored["periods"].tolist(),
            seconds=dict(zip([*names, "fit"], stored["seconds"].tolist(), strict=True)),
        )


def _compute(path: Path, seed: int, data: Dataset, split: TimeSplit, available: dict[str, Any]) -> None:
    started = time.perf_counter()
    train, test, periods = split.train, split.test, split.periods
    fit, calibrate = train_test_split(train, test_size=0.34, stratify=data.y[train], random_state=seed)
    detector = clone(DETECTORS["LinearSVC"]).fit(data.X[fit], data.y[fit])
    combined = CombinedMeasure(list(available.values()), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        combined.fit(detector, data.X[fit], data.y[fit])
        seconds = [0.0] * len(available) + [time.perf_counter() - started]
        objects = np.concatenate([calibrate, test])
        blocks = [objects[i : i + _ROWS] for i in range(0, len(objects), _ROWS)]
        columns = []
        for m, part in enumerate(combined.measures_):
            began = time.perf_counter()
            columns.append(np.concatenate([part.scores(detector, data.X[rows]) for rows in blocks]))
            seconds[m] = time.perf_counter() - began
        fitted = dict(zip(available, combined.measures_, strict=True))
        labels = np.array(
            [
                detector.classes_[
                    np.concatenate([fitted[d].estimator_.predict(data.X[rows]) for rows in blocks])
                ]
                for d in DETECTORS
                if d in fitted
            ]
        )
    scores, n = np.stack(columns, axis=-1), len(calibrate)
    np.savez(
        path,
        names=list(available),
        detectors=[d for d in DETECTORS if d in fitted],
        classes=detector.classes_,
        calibration=scores[:n],
        calibration_y=data.y[calibrate],
        calibration_labels=labels[:, :n],
        test=scores[n:],
        y=data.y[test],
        labels=labels[:, n:],
        period=periods.codes,
        periods=periods.labels,
        seconds=seconds,
    )
    sys.stderr.write(
        f"{path.name}: {time.perf_counter() - started:.0f} s, of which fitting {seconds[-1]:.0f} s\n"
    )


def rejectors(evidence: Evidence, detector: str) -> dict[str, Decisions]:
    """The detector's own measure, every other alone, a soft vote, and the preset."""
    codes = np.searchsorted(evidence.classes, evidence.labels[detector])
    voters = [evidence.names.index(name) for name in ("random forest", "LightGBM", "MLP")]

    def of_label(parts: list[int]) -> Any:
        """Minus the mean score of the detector's label: of probabilities, the mean probability."""
        return -evidence.test[np.arange(len(codes)), codes][:, parts].mean(axis=1)

    return {
        "its own measure": evidence.judged(detector, [detector], bag="class"),
        "its own, raw": evidence.ranked(detector, of_label([evidence.names.index(detector)])),
        **{
            name: evidence.judged(detector, [name], bag="class")
            for name in evidence.names
            if name not in (detector, "neighbours")
        },
        "soft vote, raw": evidence.ranked(detector, of_label(voters)),
        "drift_measure()": evidence.judged(detector, PRESET),
    }


def least_trusted(answers: Decisions, period: Any, rate: float) -> Any:
    """Which objects are rejected if this share of every period is."""
    rejected = np.zeros(len(period), dtype=bool)
    for one in np.unique(period):
        rows = np.flatnonzero(period == one)
        order = np.argsort(answers.credibility[rows], kind="stable")
        rejected[rows[order[: round(rate * len(rows))]]] = True
    return rejected
