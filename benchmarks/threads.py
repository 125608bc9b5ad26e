"""What boosting loses to other work on the machine, by its number of threads.

python benchmarks/threads.py            # without OMP_NUM_THREADS; a few minutes

One model is fitted with one thread, and with one for each core, while other processes keep cores busy.
"""

import subprocess
import sys
import time

import numpy as np
from joblib import cpu_count
from sklearn.ensemble import HistGradientBoostingClassifier

from transcendent._utils.parallel import openmp_threads


def seconds(threads: int, X: np.ndarray, y: np.ndarray) -> float:
    model = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=63, early_stopping=False)
    started = time.perf_counter()
    with openmp_threads(threads):
        model.fit(X, y)
    return time.perf_counter() - started


def main() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((6000, 300)) < 0.1).astype(np.float32)
    y = (X[:, :10].sum(axis=1) + 0.3 * rng.normal(size=6000) > 1).astype(int)
    cores = cpu_count()
    print(f"| busy processes beside it | one thread | {cores} threads | ratio |\n|---|---|---|---|")
    for busy in (0, cores, 2 * cores):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            one, all_of_them = seconds(1, X, y), seconds(cores, X, y)
        finally:
            for other in others:
                other.kill()
        print(f"| {busy} | {one:.1f} s | {all_of_them:.1f} s | {all_of_them / one:.1f} |", flush=True)


if __name__ == "__main__":
    main()
