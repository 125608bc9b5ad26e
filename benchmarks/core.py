"""What the core costs, each figure a ratio measured side by side in one run.

python benchmarks/core.py            # everything, about three minutes
python benchmarks/core.py decide     # only the lines whose name contains a word
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from transcendent import CrossConformalEvaluator, ExactSearch, InductiveEvaluator, RandomSearch
from transcendent.judging.pvalues import Bags
from transcendent.thresholds.counts import LevelCounts

SEED = 0


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def side_by_side(ours: Callable[[], Any], bare: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Median times, taken in turn so that a busy machine slows both."""
    ours(), bare()
    pairs = [(seconds(ours), seconds(bare)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def p_values() -> str:
    rng = np.random.default_rng(SEED)
    n, classes = 100_000, np.arange(2)
    calibration, codes = rng.normal(size=(2 * n, 2)), np.repeat([0, 1], n)
    new = rng.normal(size=(n, 2))

    def ours() -> Any:
        return Bags.of(calibration, codes, classes).p_values(new)

    def bare() -> Any:
        bags = [np.sort(calibration[codes == c, c]) for c in (0, 1)]
        return [np.searchsorted(bags[c], new[:, c]) for c in (0, 1)]

    a, b = side_by_side(ours, bare, 15)
    return f"{a / b:.2f} × bare sort + searchsorted ({a * 1e3:.0f} ms)|≤ 1.3|{a <= 1.3 * b}"


def random_search_trial() -> str:
    y, labels, values = calibration_set(100_000)
    search = RandomSearch("f1")
    problem = search._problem(y, labels, values[:, None], np.arange(2))
    assert isinstance(problem.counts, LevelCounts)
    thresholds = np.random.default_rng(SEED).random((1024, 1, 2))

    def ours() -> Any:
        return problem.evaluate(thresholds)

    def bare() -> Any:
        kept = values >= thresholds[0, 0][labels]
        hits = np.sum(kept & (y == 1) & (labels == 1))
        f1 = 2 * hits / (np.sum(kept & (y == 1)) + np.sum(kept & (labels == 1)))
        return f1, 1 - kept.mean()

    a, b = side_by_side(ours, bare, 25)
    ratio = b / (a / len(thresholds))
    return f"{ratio:.0f} × faster than NumPy over all objects|≥ 100|{ratio >= 100}"


def exact_search() -> str:
    y, labels, values = calibration_set(10_000_000)
    a, b = side_by_side(
        lambda: ExactSearch("f1").find(y, labels, values), lambda: np.argsort(values), rounds=3
    )
    return f"{a / b:.1f} × argsort of the same array ({a:.1f} s)|≤ 10|{a <= 10 * b}"


def decide() -> str:
    X, y = sparse_rows(100_000, 100_000)
    ice = InductiveEvaluator(LinearSVC(C=0.1), random_state=SEED, verbose=False).fit(X, y)
    detector = ice.estimator_
    a, b = side_by_side(
        lambda: ice.decide(X), lambda: (detector.predict(X), detector.decision_function(X)), rounds=15
    )
    return f"{a / b:.2f} × bare predict + decision_function ({a * 1e3:.0f} ms)|≤ 1.3|{a <= 1.3 * b}"


def cross_conformal_fit() -> str:
    X, y = sparse_rows(100_000, 10_000)
    detector = TimedSVC(C=0.1, random_state=SEED)
    cce = CrossConformalEvaluator(detector, cv=10, random_state=SEED, n_jobs=1, verbose=False)
    ratios = []
    for _ in range(5):
        TimedSVC.spent = 0.0
        total = seconds(lambda: cce.fit(X, y))
        ratios.append(total / TimedSVC.spent)
    ratio = statistics.median(ratios)
    return f"{ratio:.3f} × its 10 bare fits ({total:.1f} s)|≤ 1.05|{ratio <= 1.05}"


class TimedSVC(LinearSVC):
    """Liblinear's time varies by more than the overhead in question: so time the very fits that are made."""

    spent = 0.0

    def fit(self, X: Any, y: Any) -> "TimedSVC":
        start = time.perf_counter()
        super().fit(X, y)
        TimedSVC.spent += time.perf_counter() - start
        return self


def decide_memory() -> str:
    """In a process of its own, so that the peak is that of deciding."""
    done = subprocess.run(
        [sys.executable, __file__, "--peak-of-deciding"], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def peak_of_deciding() -> str:
    rng = np.random.default_rng(SEED)
    n, width = 10_000_000, 16
    X = rng.random((n, width), dtype=np.float32)
    y = (X[:20_000, 0] + 0.3 * rng.normal(size=20_000) > 0.5).astype(int)
    ice = InductiveEvaluator(LinearSVC(C=0.1), random_state=SEED, verbose=False).fit(X[:20_000], y)
    ice.decide(X[:1000])
    before = _memory("VmRSS")
    decisions = ice.decide(X)
    peak = _memory("VmHWM") - before
    result = sum(column.nbytes for column in decisions.columns().values()) / 2**20
    return (
        f"{result:.0f} MiB of result and at most {peak - result:.0f} MiB beside it|"
        f"≤ 64 MiB beside it|{peak - result <= 64}"
    )


def _memory(field: str) -> float:
    """MiB, from the kernel's own account of this process."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


def calibration_set(n: int) -> tuple[Any, Any, Any]:
    """10% positives, 5% errors, errors less credible."""
    rng = np.random.default_rng(SEED)
    y = (rng.random(n) < 0.1).astype(int)
    labels = np.where(rng.random(n) < 0.95, y, 1 - y)
    values = rng.random(n)
    return y, labels, np.where(labels == y, np.sqrt(values), values)


def sparse_rows(n: int, width: int, nonzeros: int = 50) -> tuple[Any, Any]:
    """Binary features; a linear rule with noise decides the label."""
    rng = np.random.default_rng(SEED)
    indices = np.sort(rng.integers(0, width, (n, nonzeros)), axis=1).ravel()
    pointers = np.arange(0, n * nonzeros + 1, nonzeros)
    X = sp.csr_matrix((np.ones(n * nonzeros), indices, pointers), shape=(n, width))
    weights = rng.normal(size=width)
    return X, (X @ weights + 3 * rng.normal(size=n) > 0).astype(int)


LINES: dict[str, Callable[[], str]] = {
    "p-values, 100k new × 100k calibration × 2 classes": p_values,
    "one RandomSearch trial, 100k calibration objects": random_search_trial,
    "ExactSearch, 10⁷ calibration objects": exact_search,
    "decide, LinearSVC, 100k × 100k CSR, 50 non-zeros a row": decide,
    "fit CCE, LinearSVC, 100k × 10k CSR, k = 10, n_jobs = 1": cross_conformal_fit,
    "memory of decide, 10⁷ rows × 16 float32": decide_memory,
}


def main(wanted: list[str]) -> None:
    if wanted == ["--peak-of-deciding"]:
        print(peak_of_deciding())
        return
    print("| what | measured | target | reached |\n|---|---|---|---|")
    for name, line in LINES.items():
        if all(word in name for word in wanted):
            measured, target, reached = line().split("|")
            print(f"| {name} | {measured} | {target} | {'yes' if reached == 'True' else 'no'} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
