"""Other implementations beside this one, on the same scores.

``python benchmarks/other_libraries.py p_values``: crepes. ``abstention``: MAPIE; writes the table of
docs/explanation/which_library.md. ``released FOLDER``: the scripts that were released with the paper, in a
clone of s2labres/transcendent-release (they need termcolor).
"""

import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from crepes import WrapClassifier
from mapie.risk_control import BinaryRisk, MultiClassificationLTTController, abstention_rate
from scipy.sparse import csr_matrix
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from transcendent import (
    Answers,
    ExactSearch,
    GuaranteedSearch,
    InductiveEvaluator,
    QuartileSearch,
    ScoreEvaluator,
)
from transcendent.errors import InfeasibleError
from transcendent.metrics import ClassRejectionRate

PAGE = Path(__file__).parents[1] / "docs/explanation/which_library.md"
DELTA, DRAWS = 0.05, 300

right = BinaryRisk(lambda y, a: a == y, lambda _, a: a == a, higher_is_better=True)  # an abstention is NaN
Accepts = Callable[[Any], Any] | None


def main(what: str, *arguments: str) -> None:
    commands: dict[str, Callable[..., None]] = {
        "p_values": compare_p_values,
        "abstention": compare_abstention,
        "released": compare_released,
    }
    commands[what](*arguments)


def compare_p_values() -> None:
    """Print the largest difference between p-values of crepes and ours, for several detectors."""
    print(
        f"crepes {version('crepes')}, 2,000 calibration and 2,000 new objects: largest difference of p-values"
    )
    X, y = make_classification(6000, n_informative=6, class_sep=3, flip_y=0.01, random_state=0)
    train, calibration, new = np.split(np.arange(6000), [2000, 4000])
    for detector in (
        LogisticRegression(),
        KNeighborsClassifier(10),
        RandomForestClassifier(random_state=0),
        HistGradientBoostingClassifier(random_state=0),
    ):
        model = detector.fit(X[train], y[train])
        theirs = WrapClassifier(model).calibrate(X[calibration], y[calibration], class_cond=True)
        p = theirs.predict_p(X[new], smoothing=False)
        ice = InductiveEvaluator(FrozenEstimator(model), measure="probability", p_value="plus_one")
        ours = ice.fit(X[calibration], y[calibration]).decide(X[new]).p_values
        higher, lower = np.max(ours - p), np.max(p - ours)
        distinct = len(np.unique(model.predict_proba(X[new])[:, 1]))
        print(f"{type(model).__name__}: ours higher by {higher:.3g}, lower by {lower:.3g}", end="; ")
        print(f"{distinct} different probabilities; p-values below .5 differ by {largest_below(ours, p):.3g}")


def largest_below(ours: Any, theirs: Any) -> float:
    low = np.minimum(ours, theirs) < 0.5
    return float(np.abs(ours - theirs)[low].max())


def compare_abstention() -> None:
    """Promise the same of accepted answers with MAPIE and with `GuaranteedSearch`, many times."""
    warnings.simplefilter("ignore")  # MAPIE warns if nothing can be promised
    rows = []
    for classes in (2, 5):
        shape = {"n_informative": 8, "n_classes": classes, "class_sep": 1.5, "flip_y": 0.01}
        X, y = make_classification(120_000, **shape, random_state=classes)
        probabilities = LogisticRegression().fit(X[:5000], y[:5000]).predict_proba(X[5000:])
        own = np.mean(probabilities.argmax(axis=1) != y[5000:])
        for error in (round(0.75 * own, 3), round(0.5 * own, 3)):
            for n in (1000, 4000):
                row = [str(classes), f"{own:.3f}", f"{error:.3f}", f"{n:,}"]
                for promise in (by_mapie, by_search):
                    rng = np.random.default_rng(0)
                    runs = [one_draw(promise, probabilities, y[5000:], n, error, rng) for _ in range(DRAWS)]
                    row += summary(runs, error)
                rows.append(row)
    of_both = [cell for by in ("MAPIE", "here") for cell in (f"{by}: infeasible", "broken", "rejected")]
    head = ["classes", "own error", "promised", "calibration objects", *of_both]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))
    print(table)
    before, _, rest = PAGE.read_text("utf-8").partition("<!-- abstention -->")
    after = rest.split("<!-- end of abstention -->")[1]
    marked = f"<!-- abstention -->\n\n{table}\n\n<!-- end of abstention -->"
    PAGE.write_text(f"{before}{marked}{after}", "utf-8")


def one_draw(promise: Any, probabilities: Any, y: Any, n: int, error: float, rng: Any) -> tuple[float, float]:
    """Error of accepted answers and share rejected, of objects that do not calibrate; NaN if infeasible."""
    drawn = rng.permutation(len(y)) < n
    accepts: Accepts = promise(probabilities[drawn], y[drawn], error)
    if accepts is None:
        return np.nan, 1.0
    accepted = accepts(probabilities[~drawn])
    wrong = probabilities[~drawn].argmax(axis=1) != y[~drawn]
    return float(wrong[accepted].mean()) if accepted.any() else 0.0, float(1 - accepted.mean())


def by_mapie(probabilities: Any, y: Any, error: float) -> Accepts:
    controller = MultiClassificationLTTController(
        lambda rows: rows,
        [right],
        [1 - error],
        confidence_level=1 - DELTA,
        best_predict_param_choice=abstention_rate,
        classes=np.arange(probabilities.shape[1]),
    ).calibrate(probabilities, y)
    if controller.best_predict_param is None:
        return None
    return lambda rows: rows.max(axis=1) >= controller.best_predict_param


def by_search(probabilities: Any, y: Any, error: float) -> Accepts:
    judge = ScoreEvaluator(search=GuaranteedSearch(error=error, delta=DELTA))
    try:
        judge.fit(Answers(probabilities.argmax(axis=1), -probabilities), y)
    except InfeasibleError:
        return None
    return lambda rows: judge.decide(Answers(rows.argmax(axis=1), -rows)).accepted


def summary(runs: list[tuple[float, float]], error: float) -> list[str]:
    errors, rejected = np.transpose(runs)
    infeasible, broken = np.isnan(errors).mean(), np.mean(errors > error)
    return [f"{infeasible:.3f}", f"{broken:.3f}", f"{rejected.mean():.3f}"]


def compare_released(folder: str) -> None:
    """Print how far p-values, thresholds and decisions of the released scripts are from ours."""
    sys.path.insert(0, folder)
    from transcend import scores, thresholding  # type: ignore[import-not-found]

    X, y = make_classification(2400, n_informative=6, flip_y=0.1, random_state=0)
    train, calibration, new = np.split(np.arange(2400), [800, 1600])
    rows = csr_matrix(X)
    svm = SVC(kernel="linear").fit(rows[train], y[train])
    predicted, truth = svm.predict(rows), y[calibration]
    ice = InductiveEvaluator(FrozenEstimator(svm)).fit(rows[calibration], truth)
    decisions = ice.decide(rows[new])

    bag = scores.get_svm_ncms(svm, rows[calibration], truth)
    strangeness = scores.get_svm_ncms(svm, rows[new], predicted[new])
    theirs = scores.compute_p_values_cred_and_conf(bag, truth, strangeness, predicted[new])
    print_difference("credibility of new objects", theirs["cred"], decisions.credibility)
    print_difference("confidence of new objects", theirs["conf"], decisions.confidence)

    own = np.ravel(scores.compute_p_values_cred_and_conf(bag, truth, bag, truth)["cred"])
    counts = np.bincount(truth)[truth]
    of_truth = ice.calibration_.p_values[np.arange(len(truth)), truth]
    print_difference(
        "p-values in calibration, less the own score", (own * counts - 1) / (counts - 1), of_truth
    )

    answers = predicted[calibration]
    quartiles = thresholding.find_quartile_thresholds(own, answers, truth)["q1"]
    found = QuartileSearch("q1").find(truth, answers, own).credibility_thresholds
    print_difference("first quartiles of these", [quartiles["gw"], quartiles["mw"]], found)
    kept = thresholding.apply_threshold({"cred": quartiles}, theirs, predicted[new])
    print_difference("decisions by them", kept, decisions.credibility >= found[decisions.labels])

    search = thresholding.find_random_search_thresholds_with_constraints_discrete
    aims = "f1_k:0.9", "kept_pos_perc:0.85,kept_neg_perc:0.85"
    result, _ = search({"cred": own}, answers, truth, *aims, max_samples=5000, quiet=True)
    limits = [ClassRejectionRate(label) <= 0.15 for label in (0, 1)]
    exact = ExactSearch("f1", max_rejection=None, constraints=limits).find(truth, answers, own)
    print(f"F1 kept in calibration: random search {result['f1_k']:.4f}, exact search {exact.value:.4f}")


def print_difference(what: str, theirs: Any, ours: Any) -> None:
    difference = np.abs(np.ravel(theirs).astype(float) - np.ravel(ours)).max()
    print(f"{what}: largest difference {difference:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
