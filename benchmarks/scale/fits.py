"""Ten fits of a cross-conformal evaluator on two workers, and how often the training matrix travels.

python benchmarks/scale/fits.py --folder /tmp/scale                                   # about 5 minutes
python benchmarks/scale/fits.py --folder /tmp/scale --rows 8000 --rounds 1            # a quick trial

Ideal is half the time of the same fits one after the other. Bytes are those of all messages a Dask worker
read from its connections.
"""

import statistics
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import traffic
from common import WORKERS, arguments, csr, dask_workers, in_turn, markdown, one_thread, ratio, sparse_rows
from distributed import Client
from sklearn.svm import LinearSVC

from transcendent import CrossConformalEvaluator

FOLDS = 10


def training_rows(n: int) -> tuple[Any, Any]:
    """Noisy labels, so that liblinear has to work."""
    X = csr(*sparse_rows(n, 2))
    rng = np.random.default_rng(0)
    truth = X @ rng.normal(size=X.shape[1])
    return X, (truth + truth.std() * rng.normal(size=n) > 0).astype(int)


def fit(X: Any, y: Any, n_jobs: int | None) -> CrossConformalEvaluator:
    detector = LinearSVC(random_state=0)
    evaluator = CrossConformalEvaluator(detector, cv=FOLDS, random_state=0, n_jobs=n_jobs, verbose=False)
    fitted: CrossConformalEvaluator = evaluator.fit(X, y)
    return fitted


def fit_on_dask(X: Any, y: Any, client: Client, copies: list[list[float]]) -> CrossConformalEvaluator:
    """Fitted there; adds how many times the matrix each worker was sent."""
    before = client.run(traffic.received)
    with joblib.parallel_config(backend="dask", client=client):
        fitted = fit(X, y, None)
    after = client.run(traffic.received)
    matrix = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    copies.append([(after[worker] - before[worker]) / matrix for worker in before])
    return fitted


def check_equal(fitted: dict[str, CrossConformalEvaluator]) -> None:
    """The same detectors and thresholds, whoever fitted them."""
    first, *others = fitted.values()
    for other in others:
        if not np.array_equal(first.thresholds_, other.thresholds_):
            raise SystemExit("thresholds differ between backends")
        for one, two in zip(first.detectors_, other.detectors_, strict=True):
            if not np.array_equal(one.estimator.coef_, two.estimator.coef_):
                raise SystemExit("fitted detectors differ between backends")


def main() -> None:
    options = arguments(__doc__, rows=200_000, rounds=3)
    X, y = training_rows(options.rows)
    copies: list[list[float]] = []
    fitted: dict[str, CrossConformalEvaluator] = {}
    with dask_workers() as client:
        client.run(traffic.count)
        ways: dict[str, Callable[[], Any]] = {
            "one after the other": lambda: fitted.update(sequential=fit(X, y, 1)),
            "loky": lambda: fitted.update(loky=fit(X, y, WORKERS)),
            "Dask": lambda: fitted.update(dask=fit_on_dask(X, y, client, copies)),
        }
        times = in_turn(ways, options.rounds, lambda: check_equal(fitted))
    alone = times["one after the other"]
    lines = [
        [
            name,
            f"{statistics.median(found):.1f}",
            f"{ratio(found, alone) * (1 if found is alone else WORKERS):.2f}",
        ]
        for name, found in times.items()
    ]
    what = f"{FOLDS} × LinearSVC, {options.rows:,} × {X.shape[1]:,} sparse"
    print(markdown([what, "seconds", "time ÷ ideal"], lines))
    print(f"A fit takes {statistics.median(alone) / FOLDS:.2f} s on one core.\n")
    sent = [[f"{number + 1}", *(f"{each:.2f}" for each in run)] for number, run in enumerate(copies)]
    head = ["run on Dask", *(f"worker {number + 1}" for number in range(WORKERS))]
    print("Bytes a worker received ÷ bytes of the matrix, per run:\n")
    print(markdown(head, sent))


if __name__ == "__main__":
    one_thread()
    main()
