"""Promises of thresholds, kept and broken: simulated calibrations of a detector that is known exactly."""

import warnings
from typing import Any

import numpy as np
from scipy.stats import binom
from tables import markdown, run_all

from transcendent import ExactSearch, GuaranteedSearch, ScoreEvaluator
from transcendent.errors import InfeasibleError
from transcendent.metrics import RejectionRate

SIMULATED = 2000
CALIBRATION = 5000
DELTA = 0.05
ERRORS = (0.01, 0.05, 0.1)
PRIORS = {2: [0.9, 0.1], 5: [0.6, 0.2, 0.1, 0.06, 0.04]}
SEPARATION = {2: 1.6, 5: 2.5}
_BLOCK = 50


def objects(generator: np.random.Generator, n: int, n_classes: int) -> tuple[Any, Any, Any]:
    """Scores, true labels and answers; the rarer a class, the more of its answers are wrong."""
    y = generator.choice(n_classes, n, p=PRIORS[n_classes])
    evidence = generator.normal(size=(n, n_classes))
    evidence[np.arange(n), y] += SEPARATION[n_classes]
    ranked = np.sort(evidence, axis=1)
    best_other = np.where(evidence == ranked[:, -1:], ranked[:, -2:-1], ranked[:, -1:])
    return best_other - evidence, y, evidence.argmax(axis=1)


def judges(error: float) -> dict[str, ScoreEvaluator]:
    """Guaranteed thresholds, and others with the same aim: as few rejected as the error allows."""
    aim = ExactSearch(RejectionRate(), max_rejection=None, constraints=f"error <= {error}")
    return {
        "GuaranteedSearch": ScoreEvaluator(search=GuaranteedSearch(error, delta=DELTA)),
        "ExactSearch": ScoreEvaluator(search=aim),
        "ExactSearch, calibrated as the released code": ScoreEvaluator(search=aim, calibration_label="true"),
    }


def simulate(n_classes: int, error: float, block: int) -> dict[str, list[tuple[float, float]]]:
    """For some calibrations: the error delivered and the share rejected; all rejected if infeasible."""
    generator = np.random.default_rng([n_classes, round(1000 * error), block])
    scores, y, labels = objects(np.random.default_rng(n_classes), 50_000, n_classes)
    found: dict[str, list[tuple[float, float]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(_BLOCK):
            calibration = objects(generator, CALIBRATION, n_classes)
            for name, judge in judges(error).items():
                delivered, rejected = 0.0, 1.0
                try:
                    kept = judge.fit(*calibration).decide(scores, labels).accepted
                    delivered, rejected = float(np.mean((y != labels)[kept])), float(np.mean(~kept))
                except InfeasibleError:
                    pass
                found.setdefault(name, []).append((delivered, rejected))
    return found


def guarantees() -> str:
    """How often thresholds broke their promise, and what they reject."""
    tasks = [(n_classes, error) for n_classes in PRIORS for error in ERRORS]
    blocks = run_all(simulate, tasks, range(SIMULATED // _BLOCK))
    bound = int(binom.ppf(0.999, SIMULATED, DELTA))
    rows = []
    for (n_classes, error), found in blocks.items():
        for name in found[0]:
            runs = np.array([run for block in found for run in block[name]])
            broken, infeasible = runs[:, 0] > error, runs[:, 1] == 1
            rows.append(
                [
                    str(n_classes),
                    f"{error:.2f}",
                    name,
                    f"{np.mean(broken):.4f}",
                    f"{runs[~infeasible, 0].mean():.4f}",
                    f"{runs[~infeasible, 1].mean():.3f}",
                    f"{np.mean(infeasible):.3f}",
                ]
            )
    head = ["classes", "error promised", "thresholds", "broken", "error, mean", "rejected", "infeasible"]
    return (
        f"{SIMULATED:,} calibrations of {CALIBRATION:,} objects each; delta is {DELTA}: by chance alone "
        f"(999 times in 1,000) at most {bound / SIMULATED:.4f} of the promises break.\n\n"
        + markdown(head, rows)
    )
