"""What is decided, and by which thresholds, is what it was when the corpus was written.

python -m tests.contracts.test_corpus    # writes tests/contracts/corpus.npz anew

By default 60 cases are compared, some of every kind; with ``pytest --full`` all are.
The numbers follow from the detectors too, so they are compared where the libraries are those that wrote them.
"""

import random
import warnings
from collections import defaultdict
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import BaggingClassifier
from sklearn.ensemble._forest import ForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from tests.contracts.test_measures import PAIRS, SPARSE
from tests.contracts.test_measures import name as name_of
from tests.contracts.test_rejectors import REJECTORS
from transcendent import (
    CrossConformalEvaluator,
    ExactSearch,
    GridSearch,
    InductiveEvaluator,
    QuartileSearch,
    RandomSearch,
    RejectionBudget,
    TransductiveEvaluator,
)
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out.registry import find_shortcut
from transcendent.measures import CombinedMeasure, Margin, NeighbourRatio, OneVsRestMeasure, SecondOpinion
from transcendent.metrics import Recall

FILE = Path(__file__).with_name("corpus.npz")
LIBRARIES = ("numpy", "scipy", "scikit-learn", "lightgbm", "xgboost-cpu")
EVALUATORS = {
    "ICE": (InductiveEvaluator, {}),
    "CCE": (CrossConformalEvaluator, {"cv": 3}),
    "approx-TCE": (TransductiveEvaluator, {"cv": 3}),
    "TCE": (TransductiveEvaluator, {"cv": "loo"}),
}
PROBABILITIES = tuple(f"rejector {name}" for name in ("probability", "squashed", "judged", "Droid"))
REFITTED = (OneVsRestMeasure, SecondOpinion, BaggingClassifier, ForestClassifier)
"""Too slow to be left out of one row at a time."""

PARTS = [Margin(), SecondOpinion(GaussianNB()), NeighbourRatio(3)]
COMBINED = {
    "each class": CombinedMeasure(PARTS),
    "all classes": CombinedMeasure(PARTS, bag="all"),
    "weighted": CombinedMeasure(PARTS, weights=[1.0, 2.0, 0.5]),
}
SEARCHES = {
    "exact, confidence": ExactSearch(on="confidence"),
    "exact, recall": ExactSearch("precision", constraints=Recall() >= 0.3),
    "grid, both": GridSearch("accuracy", steps=7, on="both"),
    "random, both": RandomSearch("accuracy", trials=200, on="both", random_state=0),
    "quartiles": QuartileSearch(),
}


def data(n_classes, kind="dense"):
    X, y = make_classification(
        300, 10, n_informative=6, n_redundant=0, n_classes=n_classes, flip_y=0.1, random_state=n_classes
    )
    X[::8] = X[0]  # ties
    return sp.csr_array(np.where(np.abs(X) < 0.5, 0, X)) if kind == "sparse" else X, y


def is_cheap(measure, detector):
    """Whether leave-one-out needs no refits."""
    try:
        find_shortcut(detector, {})
    except NoShortcutError:
        return False
    return not isinstance(measure, REFITTED) and not isinstance(detector, REFITTED)


def cases():
    """Name, rejector, number of classes, kind of rows, and arguments of ``decide``."""
    for name, (make, options) in EVALUATORS.items():
        for i, (measure, detector) in enumerate(PAIRS):
            if name != "TCE" or is_cheap(measure, detector):
                rejector = make(clone(detector), measure=clone(measure), random_state=0, **options)
                for n_classes in (2, 3, 7):
                    yield f"{name}, {i} {name_of((measure, detector))}", rejector, n_classes, "dense", {}
        for what, measure in COMBINED.items():
            rejector = make(LinearSVC(), measure=clone(measure), random_state=0, **options)
            for n_classes in (2, 3):
                yield f"{name}, combined, {what}", rejector, n_classes, "dense", {}
        for what, search in SEARCHES.items():
            rejector = make(LinearSVC(), search=search, random_state=0, **options)
            yield f"{name}, {what}", rejector, 2, "dense", {}
        for what, parameters in (
            ("plus one", {"p_value": "plus_one"}),
            ("true label", {"calibration_label": "true"}),
        ):
            yield (
                f"{name}, {what}",
                make(LinearSVC(), random_state=0, **options, **parameters),
                3,
                "dense",
                {},
            )
    for i, (measure, detector) in enumerate(SPARSE):
        rejector = InductiveEvaluator(clone(detector), measure=clone(measure), random_state=0)
        yield f"sparse, {i} {name_of((measure, detector))}", rejector, 2, "sparse", {}
    for quorum in (1, 2, 3):
        cce = CrossConformalEvaluator(LinearSVC(), cv=3, random_state=0)
        yield f"quorum {quorum}", cce, 3, "dense", {"quorum": quorum}
    for name, rejector in REJECTORS.items():
        yield f"rejector {name}", clone(rejector), 2, "dense", {}
    yield (
        "budget of CCE",
        RejectionBudget(CrossConformalEvaluator(LinearSVC(), cv=3), rate=0.2),
        3,
        "dense",
        {},
    )


CASES = {
    f"{name}, {n_classes} classes": (rejector, n_classes, *how) for name, rejector, n_classes, *how in cases()
}


def kind(name):
    """The evaluator and whether a case is about its measure, or what else a case is about."""
    first, rest = name.split(", ", 1)
    return first.split()[0], rest[0].isdigit()


def sample(size):
    """Names of cases, of each kind as many as there are or nearly the same number."""
    kinds = defaultdict(list)
    for name in random.Random(0).sample(list(CASES), len(CASES)):
        kinds[kind(name)].append(name)
    in_turn = chain.from_iterable(zip_longest(*kinds.values()))
    return set([name for name in in_turn if name][:size])


SAMPLE = sample(60)


def thresholds(rejector):
    """Credibility and confidence thresholds of every judge that a rejector has."""
    held = getattr(rejector, "rejector_", rejector)
    judges = getattr(held, "judges_", [held])
    results = [judge.result_ for judge in judges if hasattr(judge, "result_")]
    return [
        values
        for result in results
        for values in (result.credibility_thresholds, result.confidence_thresholds)
    ]


def seeded(rejector):
    """A clone in which nothing is left to chance."""
    unseeded = {
        name: 0
        for name, value in rejector.get_params().items()
        if name.endswith("random_state") and value is None
    }
    return clone(rejector).set_params(**unseeded)


def outcome(rejector, n_classes, kind, arguments):
    """Thresholds and decisions as one array."""
    X, y = data(n_classes, kind)
    fitted = seeded(rejector).fit(X[:240], y[:240])
    return flat(fitted, fitted.decide(X[240:], **arguments))


def flat(fitted, decisions):
    codes = np.searchsorted(decisions.classes, decisions.labels)
    p = decisions.p_values
    if p is None:  # two classes
        own = np.eye(2, dtype=bool)[codes]
        p = np.where(own, decisions.credibility[:, None], 1 - decisions.confidence[:, None])
    columns = (codes, decisions.accepted, p)
    votes = [] if decisions.votes is None else decisions.votes
    return np.concatenate([np.ravel(part).astype(float) for part in (*thresholds(fitted), *columns, votes)])


def libraries():
    return {name: version(name) for name in LIBRARIES}


@pytest.fixture(scope="module")
def corpus():
    with np.load(FILE) as stored:
        written = dict(stored["libraries"].tolist())
        if written != libraries():
            pytest.skip(f"the corpus was written with {written}")
        outcomes = np.split(stored["values"], np.cumsum(stored["sizes"])[:-1])
        return dict(zip(stored["names"].tolist(), outcomes, strict=True))


@pytest.mark.filterwarnings("ignore")  # of detectors and coarse p-values
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.full) for name in CASES]
)
def test_decisions_are_those_of_the_corpus(name, corpus):
    bits = 1e-12 if name.startswith(PROBABILITIES) else 0  # nothing ranks the last bits of a probability
    np.testing.assert_allclose(outcome(*CASES[name]), corpus[name], rtol=bits)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = {name: outcome(*case) for name, case in CASES.items()}
    np.savez_compressed(
        FILE,
        libraries=np.array(list(libraries().items())),
        names=np.array(list(found)),
        sizes=np.array([len(values) for values in found.values()]),
        values=np.concatenate(list(found.values())),
    )
    print(f"{len(found)} cases, {FILE.stat().st_size:,} bytes")  # noqa: T201
