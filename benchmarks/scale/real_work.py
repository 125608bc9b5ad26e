"""Experiments over time on two workers: seeds × detectors × measures, and the label loop; all bits equal.

python benchmarks/scale/real_work.py --folder /tmp/scale                              # about 15 minutes
python benchmarks/scale/real_work.py --folder /tmp/scale --end 2013-04 --seeds 2      # a quick trial

TRANSCENDENT_DATA names the folder with the apigraph files. Ideal is half the time of the same work one after
the other. In the last row of each, a Dask worker is killed in the middle.
"""

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
from common import WORKERS, arguments, dask_workers, markdown, one_thread
from joblib import parallel_config
from lightgbm import LGBMClassifier
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.datasets import load_apigraph
from transcendent.measures import Probability, SecondOpinion
from transcendent.temporal import Retraining, backtest

BOOSTING = LGBMClassifier(n_estimators=100, num_leaves=31, n_jobs=1, verbose=-1)
DETECTORS = {
    "SVM": LinearSVC(C=0.1),
    "LightGBM": BOOSTING,
    "extra trees": ExtraTreesClassifier(50, n_jobs=1),
}
MEASURES: dict[str, Any] = {"its own": "auto", "a second opinion": SecondOpinion(BOOSTING, Probability())}
REJECTORS = {
    f"{detector}, {measure}": InductiveEvaluator(
        DETECTORS[detector], measure=MEASURES[measure], verbose=False
    )
    for detector in DETECTORS
    for measure in MEASURES
}
LEARNERS = {
    "SVM and judge learn": InductiveEvaluator(DETECTORS["SVM"], measure=MEASURES["a second opinion"]),
    "LightGBM learns": InductiveEvaluator(BOOSTING, verbose=False),
}


@contextmanager
def killing(after: float, parent: psutil.Process) -> Iterator[list[float]]:
    """Kill the busiest worker after some seconds; the list says when."""
    killed: list[float] = []

    def kill() -> None:
        workers = [each for each in parent.children(recursive=True) if not each.children()]
        max(workers, key=lambda worker: worker.cpu_times().user).kill()
        killed.append(after)

    timer = threading.Timer(after, kill)
    timer.start()
    try:
        yield killed
    finally:
        timer.cancel()


def run(apps: Any, chosen: dict[str, Any], retrain: Any, seeds: int) -> Any:
    """All seeds and rejectors in one call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return backtest(
            chosen,
            apps.X,
            apps.y,
            apps.times,
            train="2013",
            retrain=retrain,
            random_state=list(range(seeds)),
            verbose=False,
        )


def same(one: Any, other: Any) -> bool:
    """Whether all answers of all seeds are equal."""
    return all(
        np.array_equal(getattr(decided, part), getattr(other.results[seed].answers[name], part))
        for seed, result in one.results.items()
        for name, decided in result.answers.items()
        for part in ("labels", "accepted", "credibility", "confidence")
    )


def rows(what: str, apps: Any, chosen: dict[str, Any], retrain: Any, seeds: int) -> list[list[str]]:
    """One after the other, on loky, on Dask, and on Dask with a worker that is killed."""

    def timed() -> tuple[Any, float]:
        start = time.perf_counter()
        return run(apps, chosen, retrain, seeds), time.perf_counter() - start

    with parallel_config(backend="loky", n_jobs=1):
        alone, ideal = timed()
    ideal /= WORKERS
    found = [[what, "one after the other", f"{ideal * WORKERS:.0f}", f"{WORKERS:.2f}", "–"]]

    def add(how: str, result: Any, seconds: float) -> None:
        equal = "yes" if same(alone, result) else "NO"
        found.append([what, how, f"{seconds:.0f}", f"{seconds / ideal:.2f}", equal])

    with parallel_config(backend="loky", n_jobs=WORKERS):
        add("loky", *timed())
    with dask_workers() as client, parallel_config(backend="dask", client=client):
        add("Dask", *timed())
        with killing(ideal / 2, psutil.Process()) as killed:
            result, seconds = timed()
        add("Dask, a worker is killed" if killed else "Dask, NOT struck", result, seconds)
    return found


def main() -> None:
    options = arguments(__doc__, end="2013-07", seeds=3)
    apps = load_apigraph()
    apps = apps[apps.times < np.datetime64(options.end)]
    print(f"{len(apps):,} apps to {options.end}, {options.seeds} seeds\n")
    head = ["work", "where", "seconds", "time ÷ ideal", "equal to one after the other"]
    drawn = Retraining(100, "drawn")
    lines = rows(f"{len(REJECTORS)} rejectors", apps, REJECTORS, None, options.seeds)
    lines += rows("label loop of two", apps, LEARNERS, drawn, options.seeds)
    print(markdown(head, lines))


if __name__ == "__main__":
    one_thread()
    main()
