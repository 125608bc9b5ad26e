"""The same objects get the same decisions, to the last bit, however they are handed over.

python -m tests.contracts.test_invariance 10000    # every object also alone; hours rather than seconds
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from tests.contracts.test_measures import PAIRS, SPARSE
from tests.contracts.test_measures import name as name_of
from tests.contracts.test_rejectors import REJECTORS
from transcendent import InductiveEvaluator
from transcendent._utils.arrays import take_rows
from transcendent.artifacts import open_artifact, save
from transcendent.baselines import ProbabilityThresholds
from transcendent.decisions import declared
from transcendent.measures import (
    HiddenLayerSVM,
    NeighbourDistance,
    NeighbourRatio,
    NeighbourShare,
    ProbabilityMargin,
)
from transcendent.measures.base import FunctionMeasure

N_TRAIN = 600
METRICS = ("euclidean", "cosine", "jaccard")
SINGLE_PRECISION = MLPClassifier((8,), max_iter=5000, tol=1e-3, random_state=0)
COLUMNS = ("labels", "accepted", "credibility", "confidence", "p_values", "votes", "doubts")
PROBABILITIES = ("probability", "squashed margin", "judged")

FRESH_PROCESS = """
import json, sys, warnings
import numpy as np, scipy.sparse as sp
from transcendent.artifacts import load
warnings.simplefilter("ignore")
dense, sparse = np.load("dense.npy"), sp.load_npz("sparse.npz")
half = slice(None, None, 2) if sys.argv[1] == "0" else slice(1, None, 2)
for name, (trusted, kind) in json.load(open("cases.json")).items():
    X = {"sparse": sparse, "dense": dense, "single": dense.astype(np.float32)}[kind]
    decisions = load(f"{name}.transcendent", trusted=trusted).decide(X[half])
    found = {c: getattr(decisions, c) for c in json.loads(sys.argv[2]) if getattr(decisions, c) is not None}
    np.savez(f"{name}-{sys.argv[1]}.npz", **found)
"""


def objects(n, seed=2):
    """Rows of which most are copies of a few, as in malware feeds; labels that the copies do not share."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(80, 50)) * (rng.random((80, 50)) < 0.6)
    rng = np.random.default_rng(seed)
    X = patterns[rng.integers(len(patterns), size=n)]
    X[::10] += rng.normal(size=X[::10].shape)
    noise = rng.normal(size=n)
    return X, (X @ np.linspace(-1, 1, 50) + 3 * noise > 0).astype(int)


NEIGHBOURS = (NeighbourRatio, NeighbourDistance)


def by_differences(detector):
    """Nearest neighbours that scikit-learn searches through products of matrices are its own to tie."""
    if isinstance(detector, KNeighborsClassifier):
        return clone(detector).set_params(algorithm="ball_tree")
    return clone(detector)


def cases():
    """Every measure with every detector of the measures' contract, dense and sparse; every rejector."""
    ratios = [(make(3, metric=metric), LinearSVC()) for make in NEIGHBOURS for metric in METRICS]
    single = [
        ("auto", SINGLE_PRECISION),
        (ProbabilityMargin(), SINGLE_PRECISION),
        (HiddenLayerSVM(), SINGLE_PRECISION),
        ("auto", make_pipeline(PCA(10, random_state=0), LinearSVC())),
        ("auto", make_pipeline(PCA(10, random_state=0), SVC())),
        *((NeighbourRatio(3, metric=metric), LinearSVC()) for metric in METRICS),
        (NeighbourShare(3), LinearSVC()),
    ]
    for kind, pairs in (("dense", PAIRS), ("sparse", SPARSE + ratios), ("single", single)):
        for i, pair in enumerate(pairs):
            measure = pair[0] if isinstance(pair[0], str) else clone(pair[0])
            detector = by_differences(pair[1]) if kind == "dense" else clone(pair[1])
            rejector = InductiveEvaluator(detector, measure=measure, random_state=0)
            yield f"{kind}-{i}-{name_of(pair)}", rejector, kind
    for name, rejector in REJECTORS.items():
        if not declared(rejector).depends_on_others:
            yield name, clone(rejector), "dense"
    projected = make_pipeline(PCA(10, random_state=0), LinearSVC())
    yield "squashed margin, single", ProbabilityThresholds(projected, random_state=0), "single"


CASES = {name: (rejector, kind) for name, rejector, kind in cases()}


def of_kind(X, kind):
    return {"dense": np.asarray, "sparse": sp.csr_matrix, "single": np.float32}[kind](X)


def fitted(name):
    rejector, kind = CASES[name]
    X, y = objects(N_TRAIN, seed=1)
    return clone(rejector).fit(of_kind(X, kind), y)


def columns(name):
    """What must be equal to the last bit: all there is, but for probabilities, which nothing ranks."""
    return ("labels", "accepted") if name.startswith(PROBABILITIES) else COLUMNS


def same(name, found, expected, rows=slice(None)):
    for column in columns(name):
        if getattr(expected, column) is not None:
            wanted = getattr(expected, column)[rows]
            np.testing.assert_array_equal(getattr(found, column), wanted, err_msg=f"{name}: {column}")


def at_the_border(decisions):
    """All objects, those nearest to a threshold first: of each label and of both sides of it in turn."""
    towards = np.where(decisions.accepted, decisions.credibility, -decisions.credibility)
    place = np.empty(len(towards), dtype=int)
    for label in decisions.classes:
        for side in (False, True):
            members = np.flatnonzero((decisions.labels == label) & (decisions.accepted == side))
            place[members] = np.argsort(np.argsort(towards[members]))
    return np.argsort(place, kind="stable").tolist()


def check(name, n_objects, n_alone):
    """Decide the objects in every way within this process."""
    rejector, kind = fitted(name), CASES[name][1]
    X = of_kind(objects(n_objects)[0], kind)
    expected = rejector.decide(X)
    order = np.random.default_rng(0).permutation(n_objects)
    same(name, rejector.decide(take_rows(X, order)), expected, order)
    for threads in (1, 2):
        with threadpool_limits(threads):
            same(name, rejector.decide(X), expected)
    for start, stop in ((0, 7), (7, n_objects // 3), (n_objects // 3, n_objects)):
        rows = slice(start, stop)
        same(name, rejector.decide(take_rows(X, rows)), expected, rows)
    for i in at_the_border(expected)[:n_alone]:
        same(name, rejector.decide(take_rows(X, slice(i, i + 1))), expected, slice(i, i + 1))


def check_from_artifacts(n_objects, folder, step=1):
    """Decide halves of the objects in two fresh processes, one with one thread and one with two."""
    X, listed, expected = objects(n_objects)[0], {}, {}
    np.save(folder / "dense.npy", X)
    sp.save_npz(folder / "sparse.npz", sp.csr_matrix(X))
    for name, (rejector, kind) in islice(CASES.items(), 0, None, step):
        if isinstance(getattr(rejector, "measure", None), FunctionMeasure):
            continue
        path = folder / f"{name}.transcendent"
        save(again := fitted(name), path)
        listed[name] = open_artifact(path).types_to_trust(), kind
        expected[name] = again.decide(of_kind(X, kind))
    (folder / "cases.json").write_text(json.dumps(listed))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", FRESH_PROCESS, str(half), json.dumps(COLUMNS)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": str(half + 1), "OPENBLAS_NUM_THREADS": str(half + 1)},
        )
        for half in (0, 1)
    ]
    assert [process.wait() for process in running] == [0, 0]
    for name, decisions in expected.items():
        for half in (0, 1):
            with np.load(folder / f"{name}-{half}.npz") as found:
                for column in columns(name):
                    if getattr(decisions, column) is not None:
                        wanted = getattr(decisions, column)[half::2]
                        np.testing.assert_array_equal(found[column], wanted, err_msg=f"{name}: {column}")
    return len(expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of detectors, about generated rows
@pytest.mark.parametrize("name", CASES)
def test_alone_in_parts_shuffled_and_with_other_threads(name):
    check(name, n_objects=600, n_alone=15)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("step", "cases"), [(3, 22), pytest.param(1, 70, marks=pytest.mark.full)])
def test_from_an_artifact_in_two_fresh_processes(step, cases, tmp_path):
    assert check_from_artifacts(1000, tmp_path, step) > cases


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    n = int(sys.argv[1])
    for case in CASES:
        check(case, n, n)
        print(f"{case}: {n:,} objects decided alike in every way", flush=True)  # noqa: T201
    with tempfile.TemporaryDirectory() as scratch:
        n_cases = check_from_artifacts(n, Path(scratch))
        print(f"{n_cases} artifacts decided {n:,} objects alike in two fresh processes")  # noqa: T201
