"""What the compression of artifacts saves, and what it costs.

OMP_NUM_THREADS=1 python benchmarks/artifacts.py        # about ten minutes, of which the fit takes most

The preset `measure="drift"` is fitted on 20,000 Android apps. The environment variable TRANSCENDENT_DATA
names the folder with the apigraph files. Times are of the processor, which other work hardly changes.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zipfile import ZIP_DEFLATED, ZIP_STORED

import numpy as np
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, load, save
from transcendent.artifacts import container, open_artifact
from transcendent.artifacts.container import MAX_BYTES, pack, unpack
from transcendent.artifacts.entries import to_entries
from transcendent.datasets import load_apigraph

ROWS, ROUNDS = 20_000, 3
WAYS = {
    "stored": (ZIP_STORED, None),
    **{f"deflated, level {level}": (ZIP_DEFLATED, level) for level in (1, 3, 6, 9)},
}


def seconds(work: Callable[..., Any], *given: Any, **named: Any) -> float:
    start = time.process_time()
    work(*given, **named)
    return time.process_time() - start


def fitted() -> InductiveEvaluator:
    apps = load_apigraph()
    rows = np.sort(np.random.default_rng(0).choice(apps.X.shape[0], ROWS, replace=False))
    ice = InductiveEvaluator(LinearSVC(C=0.1), measure="drift", random_state=0, verbose=False)
    return ice.fit(apps.X[rows], apps.y[rows])


def main() -> None:
    ice = fitted()
    entries = to_entries(ice)
    times: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "drift.transcendent")
        for _ in range(ROUNDS):
            for name, (method, level) in WAYS.items():
                with patch.multiple(container, ZIP_DEFLATED=method, _LEVEL=level):
                    found = [seconds(pack, entries, None), seconds(save, ice, path)]
                sizes[name] = path.stat().st_size
                data, trusted = path.read_bytes(), open_artifact(path).types_to_trust()
                found += [seconds(unpack, data, MAX_BYTES), seconds(load, path, trusted=trusted)]
                times[name].append(found)
    print("| entries | file | packed in | of `save` | unpacked in | of `load` |\n|---|---|---|---|---|---|")
    for name, rounds in times.items():
        packed, saved, unpacked, loaded = (
            f"{statistics.median(each):.2f} s" for each in zip(*rounds, strict=True)
        )
        print(f"| {name} | {sizes[name] / 1e6:.1f} MB | {packed} | {saved} | {unpacked} | {loaded} |")


if __name__ == "__main__":
    main()
