"""Far from 0, decisions do not depend on which rows are decided together, or the detector is refused."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from tests.contracts.test_invariance import objects
from transcendent import CrossConformalEvaluator, InductiveEvaluator, TransductiveEvaluator
from transcendent.artifacts import load, save
from transcendent.errors import CalibrationError
from transcendent.measures import CentroidDistance, NeighbourDistance, NeighbourRatio, NeighbourShare

pytestmark = pytest.mark.filterwarnings("ignore")  # of detectors, about rows far from 0

X, y = objects(650)
DISTINCT = X + np.random.default_rng(1).normal(scale=0.1, size=X.shape)
"""For detectors that break ties between copies in an order of their own."""
DISTANCES = [NeighbourRatio(3), NeighbourDistance(3), CentroidDistance(), NeighbourShare(3)]
LINEAR = [LinearDiscriminantAnalysis(), RidgeClassifier()]
SQUARES = [KNeighborsClassifier(algorithm="brute"), NearestCentroid()]


def fitted(detector, measure="auto", offset=0.0):
    rows = DISTINCT if detector in SQUARES else X
    return InductiveEvaluator(clone(detector), measure=measure, random_state=0).fit(
        rows[:600] + offset, y[:600]
    )


def check(rejector, offset=0.0):
    """Decide rows in several ways; all there is to a decision must be equal to the last bit."""
    rows = (DISTINCT if type(rejector.estimator) in map(type, SQUARES) else X)[600:] + offset
    expected = rejector.decide(rows)
    for size in (1, 7):
        parts = [rejector.decide(rows[i : i + size]) for i in range(0, len(rows), size)]
        for name, column in expected.columns().items():
            found = np.concatenate([part.columns()[name] for part in parts])
            np.testing.assert_array_equal(found, column, err_msg=name)
    with threadpool_limits(2):
        again = rejector.decide(rows)
    for name, column in expected.columns().items():
        np.testing.assert_array_equal(again.columns()[name], column, err_msg=name)


@pytest.mark.parametrize("measure", DISTANCES, ids=lambda measure: type(measure).__name__)
@pytest.mark.parametrize("offset", [1e5, 1e7])
def test_distances_of_ours_lose_no_digits(measure, offset):
    check(fitted(GaussianNB(), measure, offset), offset)


@pytest.mark.parametrize("detector", LINEAR + SQUARES, ids=lambda detector: type(detector).__name__)
def test_detectors_whose_terms_cancel_are_refused(detector):
    with pytest.raises(CalibrationError, match=r"standard deviations away from 0.*StandardScaler"):
        fitted(detector, offset=1e11)
    fitted(make_pipeline(StandardScaler(), detector), offset=1e11)


def table(kind, seed, n=300):
    """A table with a column far from 0, as there are in practice."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    columns = {f"x{i}": rng.normal(size=n) + 0.8 * y for i in range(6)}
    columns[kind] = {
        "address": 3_232_235_776 + rng.integers(256, size=n),
        "version": 20_240_101 + rng.integers(3, size=n),
        "row": 10**12 + np.arange(n),
    }[kind]
    return pd.DataFrame(columns), y


@pytest.mark.slow
@pytest.mark.parametrize("detector", LINEAR, ids=lambda detector: type(detector).__name__)
@pytest.mark.parametrize("kind", ["address", "version", "row"])
def test_where_single_precision_has_the_digits_no_seed_is_refused(kind, detector):
    for seed in range(10):
        frame, labels = table(kind, seed)
        rows = frame.to_numpy()
        rejector = InductiveEvaluator(clone(detector), random_state=seed).fit(rows[:280], labels[:280])
        together = rejector.decide(rows[275:285]).columns()
        alone = [rejector.decide(rows[i : i + 1]).columns() for i in range(275, 285)]
        for name, column in together.items():
            np.testing.assert_array_equal(np.concatenate([one[name] for one in alone]), column, name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: InductiveEvaluator(RidgeClassifier(), random_state=0),
        lambda: CrossConformalEvaluator(RidgeClassifier(), cv=2, random_state=0),
        lambda: TransductiveEvaluator(RidgeClassifier(), cv="loo", random_state=0),
        lambda: TransductiveEvaluator(RidgeClassifier(), cv=2, random_state=0),
    ],
)
def test_scores_in_single_precision_stay_so(make, tmp_path):
    def check_single(rejector):
        assert all(detector.in_single_precision for detector in rejector.detectors_)
        for judge in rejector.judges_:
            scores = judge.calibration_.scores
            np.testing.assert_array_equal(scores, scores.astype(np.float32))
        for detector in rejector.detectors_:
            scores = detector.answer(rows[200:300])[1]
            np.testing.assert_array_equal(scores, scores.astype(np.float32))

    rows = X + 1e7
    rejector = make().fit(rows[:200], y[:200])
    check_single(rejector)
    save(rejector, tmp_path / "far.transcendent")
    loaded = load(tmp_path / "far.transcendent")
    check_single(loaded)
    expected = rejector.decide(rows[200:300]).columns()
    for name, column in loaded.decide(rows[200:300]).columns().items():
        np.testing.assert_array_equal(column, expected[name], name)
    check_single(clone(rejector).fit(rows[:200], y[:200]))
    check_single(loaded.learn(rows[:260], y[:260], what="both"))
    check_single(rejector.recalibrate(rows[200:300], y[200:300]))


class Unsteady(RidgeClassifier):
    """Answers rows alone otherwise than among others."""

    def predict(self, X):
        return np.full(1, self.classes_[0]) if len(X) == 1 else super().predict(X)


def test_labels_that_differ_are_refused():
    rows, labels = table("version", 0)
    with pytest.raises(CalibrationError, match="one label alone and another among other rows"):
        InductiveEvaluator(Unsteady(), random_state=0).fit(rows, labels)


def test_the_refusal_names_the_column_the_noise_and_the_way_out():
    rows, labels = table("row", 0)
    rows["row"], rows["x0"] = 1e6 + rows["x0"], 1e11 + rows["x0"]
    noise = r"differ by up to [\de.-]+, while the standard deviation of all scores is [\de.-]+\."
    with pytest.raises(CalibrationError, match=rf"the farthest: 'x0'\).*{noise} Put a StandardScaler"):
        InductiveEvaluator(RidgeClassifier(), random_state=0).fit(rows, labels)
    with pytest.raises(CalibrationError, match=r"the farthest: column 0\).*Put a StandardScaler"):
        InductiveEvaluator(RidgeClassifier(), random_state=0).fit(rows.to_numpy(), labels)
    frozen = FrozenEstimator(RidgeClassifier().fit(rows, labels))
    with pytest.raises(CalibrationError, match=r"It is frozen, so fit it on scaled columns"):
        InductiveEvaluator(frozen).fit(rows, labels)
    scaled = FrozenEstimator(make_pipeline(StandardScaler(), RidgeClassifier()).fit(rows, labels))
    InductiveEvaluator(scaled).fit(rows, labels)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    exponent=st.floats(0, 8),
    detector=st.sampled_from([*LINEAR, *SQUARES, make_pipeline(PCA(10, random_state=0), LinearSVC())]),
    measure=st.sampled_from(["auto", *DISTANCES]),
)
def test_whatever_is_added_to_the_columns_decisions_are_equal_or_refused(exponent, detector, measure):
    offset = 10.0**exponent
    try:
        rejector = fitted(detector, measure, offset)
    except CalibrationError:
        assert offset > 1e3  # a ratio of more than 2,048
    else:
        check(rejector, offset)


@pytest.mark.parametrize(
    "make",
    [
        lambda detector: CrossConformalEvaluator(detector, cv=2, random_state=0),
        lambda detector: TransductiveEvaluator(detector, cv="loo", random_state=0),
    ],
)
def test_every_evaluator_refuses(make):
    with pytest.raises(CalibrationError, match="standard deviations away from 0"):
        (refused := make(RidgeClassifier())).fit(X[:200] + 1e11, y[:200])
    with pytest.raises(NotFittedError):
        refused.rethreshold("f1")


def test_detectors_that_compare_values_are_not_refused():
    for detector in (DecisionTreeClassifier(random_state=0), RandomForestClassifier(5, random_state=0)):
        check(fitted(detector, offset=1e7), 1e7)


def test_years_seconds_and_constant_columns_are_not_refused():
    rng = np.random.default_rng(0)
    columns = {
        "year": rng.integers(2023, 2025, 600),
        "seconds": 1.7e9 + rng.integers(0, 30 * 86_400, 600),
        "constant": np.full(600, 1e6),
        "small": rng.normal(size=600),
    }
    for table in (pd.DataFrame(columns), sp.csr_matrix(np.column_stack(list(columns.values())))):
        InductiveEvaluator(
            LinearDiscriminantAnalysis() if not sp.issparse(table) else LinearSVC(), random_state=0
        ).fit(table, y[:600])


def test_copies_and_equal_values_are_not_taken_for_columns_far_from_0():
    rows = X[:240].copy()
    rows[::8] = rows[0]
    rows[:, 3] = 0.1
    for cv in (3, "loo"):
        TransductiveEvaluator(NearestCentroid(), cv=cv, random_state=0).fit(rows, y[:240])
    CrossConformalEvaluator(NearestCentroid(), cv=3, random_state=0).fit(np.tile(rows[:8], (30, 1)), y[:240])


@pytest.mark.parametrize("offset", [0, 100, 1500])
def test_single_precision_that_is_too_little_is_refused(offset):
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=(900, 20))
    columns = hidden @ generator.normal(size=(20, 100)) + 0.01 * generator.normal(size=(900, 100))
    labels = (hidden[:, :5].sum(axis=1) + generator.normal(size=900) > 0).astype(int)
    rows = (columns / columns.std(axis=0) + offset).astype(np.float32)
    with pytest.raises(
        CalibrationError, match=r"double precision, to fit and to decide: X.astype\(numpy.float64"
    ):
        InductiveEvaluator(LinearDiscriminantAnalysis(), random_state=0).fit(rows, labels)
    for detector in (LinearSVC(), DecisionTreeClassifier(random_state=0)):
        rejector = InductiveEvaluator(detector, random_state=0).fit(rows[:800], labels[:800])
        together = rejector.decide(rows[800:]).credibility
        alone = [rejector.decide(rows[i : i + 1]).credibility[0] for i in range(800, 900)]
        np.testing.assert_array_equal(alone, together)
