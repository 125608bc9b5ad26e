"""Several measures together: by the definition, in every evaluator, and as valid as one alone."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lightgbm import LGBMClassifier
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import LeaveOneOut
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from xgboost import XGBClassifier

from transcendent import (
    Answers,
    CrossConformalEvaluator,
    InductiveEvaluator,
    ScoreEvaluator,
    TransductiveEvaluator,
)
from transcendent._utils import parallel
from transcendent.errors import MeasureError
from transcendent.judging.calibration import Calibration
from transcendent.measures import (
    CombinedMeasure,
    HiddenLayerSVM,
    Margin,
    NeighbourDistance,
    NeighbourRatio,
    Probability,
    SecondOpinion,
    drift_measure,
)
from transcendent.measures.drift import DenseColumns
from transcendent.merging import Merging

pytestmark = pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")


def parts():
    return ["auto", SecondOpinion(GaussianNB()), NeighbourRatio(3)]


def data(n_classes=2, n=300):
    return make_classification(
        n, 8, n_informative=5, n_redundant=0, n_classes=n_classes, flip_y=0.1, random_state=n_classes
    )


def naive(calibration, scores, merging):
    """(n, classes) p-values of new objects, straight from the definition, one object at a time."""
    k, n_members = scores.shape[1:]
    actual = calibration.actual
    counts = np.bincount(actual, minlength=k)

    def part_p(score, c, m, leave_out=None):
        others = [j for j in np.flatnonzero(actual == c) if j != leave_out]
        return (sum(calibration.scores[j, c, m] >= score for j in others) + 1) / (counts[c] + 1)

    def merged(object_scores, c, leave_out=None):
        p = [part_p(object_scores[c, m], c, m, leave_out) for m in range(n_members)]
        return float(merging.scores([p])[0])

    own = [merged(calibration.scores[i], actual[i], i) for i in range(len(actual))]
    out = np.empty(scores.shape[:2])
    for i, new in enumerate(scores):
        for c in range(k):
            bag = [s for s, a in zip(own, actual, strict=True) if merging.bag == "all" or a == c]
            out[i, c] = np.mean(at_least(bag, merged(new, c)))
    return out


def at_least(values, value):
    """Which values are not smaller, but for rounding: logarithms summed in another order are ties."""
    return np.asarray(values) >= value - 1e-9


coarse = arrays(float, (14, 2, 3), elements=st.integers(0, 4).map(float))


@pytest.mark.slow
@settings(max_examples=60)
@given(coarse, coarse, st.sampled_from(["class", "all"]))
def test_p_values_follow_the_definition(old, new, bag):
    calibration = Calibration(
        classes=np.array([0, 1]),
        scores=old,
        actual=np.arange(14) % 2,
        predicted=np.arange(14) % 3 % 2,
        merging=Merging(bag=bag),
    )
    found = calibration.bags.p_values(calibration.merge(new))
    np.testing.assert_array_equal(found, naive(calibration, new, calibration.merging))
    codes = np.arange(14) // 3 % 2
    np.testing.assert_array_equal(calibration.credibility(codes, new), found[np.arange(14), codes])


@settings(max_examples=60)
@given(coarse, st.sampled_from(["paper", "plus_one"]))
def test_calibration_objects_are_left_out_of_a_bag_of_all_classes(old, form):
    actual = np.arange(14) % 2
    calibration = Calibration(
        classes=np.array([0, 1]),
        scores=old,
        actual=actual,
        predicted=actual,
        p_value=form,
        merging=Merging(bag="all"),
    )
    merged, plus = calibration.merged, form == "plus_one"
    own = merged[np.arange(14), actual]
    for i in range(14):
        bag = np.delete(own, i)
        expected = [(np.sum(at_least(bag, merged[i, c])) + plus) / (13 + plus) for c in (0, 1)]
        np.testing.assert_array_equal(calibration.p_values[i], expected)


@settings(max_examples=60)
@given(
    arrays(float, (20, 2, 1), elements=st.floats(-5, 5)), arrays(float, (9, 2, 1), elements=st.floats(-5, 5))
)
def test_one_part_alone_is_at_most_a_step_of_the_bag_above_itself(old, new):
    actual = np.arange(20) % 2
    common = {"classes": np.array([0, 1]), "actual": actual, "predicted": actual}
    combined = Calibration(scores=old, merging=Merging(), **common)
    alone = Calibration(scores=old[:, :, 0], **common)
    step = combined.bags.p_values(combined.merge(new)) - alone.bags.p_values(new[:, :, 0])
    ties = 1 + max(np.unique(old[actual == c, c, 0], return_counts=True)[1].max() for c in (0, 1))
    assert step.min() >= -1e-12
    assert step.max() <= ties / 10 + 1e-12


def transductive_count(calibration, new, c):
    """How many of a class, the new object included, are as strange when all are ranked beside each other."""
    members = np.vstack([calibration.scores[calibration.actual == c, c], new[None, c]])
    merged = calibration.merging.scores(np.mean(members[None] >= members[:, None], axis=1))
    return int(np.sum(merged >= merged[-1]))


def steps_too_high(old, new):
    """Of each new object and class, how many steps of the bag the p-value is above the transductive one."""
    n = len(old)
    calibration = Calibration(
        classes=np.array([0, 1]),
        scores=old,
        actual=np.arange(n) % 2,
        predicted=np.arange(n) % 2,
        p_value="plus_one",
        merging=Merging(),
    )
    found = calibration.bags.p_values(calibration.merge(new), "plus_one") * (n // 2 + 1)
    expected = [[transductive_count(calibration, one, c) for c in (0, 1)] for one in new]
    return np.rint(found).astype(int) - expected


@pytest.mark.slow
@settings(max_examples=60)
@given(coarse, coarse)
def test_p_values_are_never_below_those_of_full_transduction(old, new):
    assert steps_too_high(old, new).min() >= 0
    assert steps_too_high(old[:, :, :1], new[:, :, :1]).max() <= 1


def test_p_values_are_half_a_step_above_those_of_full_transduction():
    rng = np.random.default_rng(0)
    for n_members in (2, 3, 6):
        scores = 0.7 * rng.normal(size=(300, 1, 1)) + rng.normal(size=(300, 2, n_members))
        steps = steps_too_high(scores[:200], scores[200:])
        assert 0.3 < steps.mean() < 0.7
        assert np.quantile(steps, 0.99) <= 3


def test_p_values_can_be_many_steps_above_those_of_full_transduction():
    """Each of thirteen members is as strange as the new object, and less so once that one is ranked too."""
    crossing = [(24, 6), (20, 7), (18, 8), (16, 9), (14, 10), (13, 11)]
    crossing += [(second, first) for first, second in crossing]
    others = sorted(set(range(1, 25)) - {rank for rank, _ in crossing})
    ranks = np.array(crossing + [(rank, rank) for rank in others])  # 1 is the strangest
    old = np.repeat(-ranks[:, None, :].astype(float), 2, axis=0).repeat(2, axis=1)
    assert (steps_too_high(old, np.full((1, 2, 2), -11.5)) == 13).all()


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weights", [None, [1, 2, 0]])
@pytest.mark.parametrize("bag", ["class", "all"])
@pytest.mark.parametrize(
    "evaluator",
    [
        InductiveEvaluator(LinearSVC(), random_state=0),
        CrossConformalEvaluator(LinearSVC(), cv=3, random_state=0, verbose=False),
        TransductiveEvaluator(LinearSVC(), cv=3, random_state=0, verbose=False),
        TransductiveEvaluator(LinearSVC(), cv="loo", verbose=False),
    ],
    ids=["ICE", "CCE", "approx-TCE", "TCE"],
)
def test_every_evaluator_takes_it(evaluator, n_classes, weights, bag):
    X, y = data(n_classes)
    measure = CombinedMeasure(parts(), weights=weights, bag=bag)
    fitted = clone(evaluator).set_params(measure=measure).fit(X[:200], y[:200])
    decisions = fitted.decide(X[200:])
    if n_classes == 2 or not isinstance(evaluator, CrossConformalEvaluator):  # whose ties credibility breaks
        plain = clone(evaluator).fit(X[:200], y[:200])
        np.testing.assert_array_equal(decisions.labels, plain.predict(X[200:]))
    right = decisions.labels == y[200:]
    assert decisions.credibility[right].mean() > decisions.credibility[~right].mean()
    np.testing.assert_array_equal(fitted.decide(X[200:210]).p_values, decisions.p_values[:10])


@pytest.mark.slow
def test_transduction_is_what_refitting_everything_gives():
    X, y = data(n=80)
    measure = CombinedMeasure(
        ["auto", SecondOpinion(KNeighborsClassifier(3), Probability()), NeighbourRatio(3)]
    )
    make = {"measure": measure, "verbose": False}
    quick = TransductiveEvaluator(GaussianNB(), cv="loo", **make).fit(X, y)
    slow = TransductiveEvaluator(GaussianNB(), cv=LeaveOneOut(), **make).fit(X, y)
    assert quick.leave_one_out_ == "exact"
    np.testing.assert_allclose(quick.calibration_.scores, slow.calibration_.scores, atol=1e-9)


def test_transduction_says_that_a_part_is_approximate():
    X, y = data(n=100)
    forest = SecondOpinion(RandomForestClassifier(100, random_state=0))
    tce = TransductiveEvaluator(GaussianNB(), measure=CombinedMeasure(["auto", forest]), cv="loo").fit(X, y)
    assert tce.leave_one_out_ == "approximate"


def test_transduction_refits_where_a_part_has_no_shortcut():
    X, y = data(n=40)
    measure = CombinedMeasure(["auto", SecondOpinion(LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1))])
    tce = TransductiveEvaluator(GaussianNB(), measure=measure, cv="loo", verbose=False).fit(X, y)
    assert (tce.leave_one_out_, tce.leave_one_out_reason_) == (
        "refit",
        "none is registered for LGBMClassifier",
    )


@pytest.mark.slow
@pytest.mark.parametrize("bag", ["class", "all"])
def test_p_values_of_the_true_label_are_valid(bag):
    """Few calibration objects, so that a step of the bag would show; the parts depend on each other."""
    rng, runs, n = np.random.default_rng(0), 3000, 20
    p = np.empty((runs, 2))
    for run in range(runs):
        common = rng.normal(size=(n + 2, 1, 1))
        scores = 0.7 * common + rng.normal(size=(n + 2, 2, 3))
        actual = np.concatenate([np.arange(n) % 2, [0, 1]])
        calibration = Calibration(
            classes=np.array([0, 1]),
            scores=scores[:n],
            actual=actual[:n],
            predicted=actual[:n],
            p_value="plus_one",
            merging=Merging(bag=bag),
        )
        new = calibration.bags.p_values(calibration.merge(scores[n:]), "plus_one")
        p[run] = new[[0, 1], [0, 1]]
    for c in (0, 1):
        for level in (0.05, 0.1, 0.2, 0.5):
            hits = int(np.sum(p[:, c] <= level))
            assert binom.sf(hits - 1, runs, level) > 1e-4, (c, level, hits / runs)
    assert np.mean(p <= 0.5) > 0.3  # valid, and not by calling nothing strange


def test_scores_alone_can_be_combined():
    X, y = data(n=600)
    measure = CombinedMeasure(parts(), weights=[1, 2, 0.5], bag="all")
    ice = InductiveEvaluator(LinearSVC(), measure=measure, random_state=0).fit(X[:300], y[:300])
    calibration, answers = ice.calibration_, ice.answer(X[300:])
    alone = ScoreEvaluator(weights=[1, 2, 0.5], bag="all").fit(
        Answers(ice.classes_[calibration.predicted], calibration.scores), ice.classes_[calibration.actual]
    )
    expected, found = ice.decide(X[300:]), alone.decide(answers)
    np.testing.assert_array_equal(found.p_values, expected.p_values)
    np.testing.assert_array_equal(found.accepted, expected.accepted)
    with pytest.raises(ValueError, match=r"\(objects, classes, members\) = \(300, 2, 3\)"):
        alone.decide(Answers(answers.labels, answers.scores[:, :, :2]))


def test_a_vendors_model_needs_no_training_rows_for_parts_that_learn_nothing():
    X, y = data()
    svm = FrozenEstimator(LogisticRegression().fit(X[:100], y[:100]))
    ice = InductiveEvaluator(svm, measure=CombinedMeasure([Margin(), Probability()])).fit(X[100:], y[100:])
    assert len(ice.calibration_.scores) == 200


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "other",
    [
        GaussianNB(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1, random_state=0),
        XGBClassifier(n_estimators=5, n_jobs=1, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_second_opinion_is_the_others_measure(other, n_classes):
    """Also with labels that are text and a detector whose classes are in another order."""
    X, y = data(n_classes)
    names = np.array(["spam", "ham", "eggs"])[y]
    svm = LinearSVC().fit(X, names)
    scores = SecondOpinion(other, Probability()).fit(svm, X, names).scores(svm, X)
    p = clone(other).fit(X, np.searchsorted(svm.classes_, names)).predict_proba(X)
    np.testing.assert_allclose(scores, -p, atol=1e-6)


class Counting(GaussianNB):
    """Notes how many threads OpenMP had while it was fitted."""

    def fit(self, X, y):
        self.threads_ = _openmp_effective_n_threads()
        return super().fit(X, y)


class TestPreset:
    @pytest.mark.slow
    def test_judges_any_detector_from_sparse_rows(self):
        X, y = data()
        rows = sp.csr_matrix(np.where(np.abs(X) > 1, X, 0))
        ice = InductiveEvaluator(LinearSVC(), measure=drift_measure(random_state=0), random_state=0)
        first = ice.fit(rows[:200], y[:200]).decide(rows[200:])
        again = clone(ice).fit(rows[:200], y[:200]).decide(rows[200:])
        np.testing.assert_array_equal(first.p_values, again.p_values)

    def test_judges_text(self):
        words = [f"w{i % 7} w{i % 5} {'good' if i % 2 else 'bad'}" for i in range(120)]
        y = np.arange(120) % 2
        detector = make_pipeline(TfidfVectorizer(), LinearSVC())
        ice = InductiveEvaluator(detector, measure=drift_measure(random_state=0), random_state=0)
        assert ice.fit(words, y).predict(words).tolist() == y.tolist()

    def test_takes_the_most_telling_of_a_million_columns(self):
        rng = np.random.default_rng(0)
        X = sp.random(300, 1_000_000, density=1e-5, format="csr", random_state=rng)
        y = rng.integers(0, 2, 300)
        telling = sp.csr_matrix((np.ones(300), (np.arange(300), np.where(y == 1, 999_998, 999_999))), X.shape)
        dense = DenseColumns(100).fit(X + telling, y)
        assert dense.transform(X + telling).shape == (300, 100)
        assert set(dense.columns_[-2:]) == {999_998, 999_999}

    @pytest.mark.parametrize(("n_jobs", "threads"), [(None, 1), (2, 2)])
    def test_its_models_keep_to_the_threads_they_are_given(self, n_jobs, threads):
        X, y = data()
        with parallel.openmp_threads(3):
            for opinion in drift_measure(n_jobs=n_jobs, random_state=0).measures[:3]:
                opinion.set_params(estimator=Counting()).fit(LinearSVC().fit(X, y), X, y)
                assert opinion.estimator_.threads_ == threads
            free = SecondOpinion(Counting()).fit(LinearSVC().fit(X, y), X, y)
            assert free.estimator_.threads_ == _openmp_effective_n_threads() >= 2

    @pytest.mark.slow
    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_has_room_for_missing_values(self, n_classes):
        X, y = data(n_classes)
        holes = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
        detector = LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1)
        measure = drift_measure(random_state=0, new_classes=n_classes > 2)
        ice = InductiveEvaluator(detector, measure=measure, random_state=0)
        assert not np.isnan(ice.fit(holes, y).predict_p(holes)).any()

    @pytest.mark.slow
    def test_notices_a_class_that_nobody_has_seen(self):
        rng = np.random.default_rng(0)
        centres = np.eye(5, 40)[:, rng.permutation(40)] + np.eye(5, 40)
        y = rng.integers(0, 5, 1500)
        X = 4 * centres[y] + rng.normal(size=(1500, 40))
        known, test = np.flatnonzero(y[:1000] < 3), np.arange(1000, 1500)
        measure = drift_measure(random_state=0, new_classes=True)
        ice = InductiveEvaluator(LinearSVC(), measure=measure, random_state=0)
        decisions = ice.fit(X[known], y[known]).decide(X[test])
        assert ice.measure_.n_members == 4
        assert roc_auc_score(y[test] >= 3, -decisions.credibility) > 0.9

    @pytest.mark.slow
    @pytest.mark.parametrize("given", [{}, {"new_classes": False}])
    def test_distance_is_left_out_of_few_classes(self, given):
        X, y = data(3)
        preset = drift_measure(random_state=0, **given)
        three = CombinedMeasure(preset.measures[:3], bag="all", random_state=0)
        found, expected = (
            InductiveEvaluator(LinearSVC(), measure=measure, random_state=0).fit(X, y).predict_p(X)
            for measure in (preset, three)
        )
        np.testing.assert_array_equal(found, expected)


def test_absolute_members_are_ranked_among_all():
    """By definition: plus-one p-values among all calibration objects, each scored for its own class."""
    X, y = data(3)
    ice = InductiveEvaluator(
        LinearSVC(),
        measure=CombinedMeasure([SecondOpinion(GaussianNB()), NeighbourDistance(2)], bag="all"),
        random_state=0,
    ).fit(X[:200], y[:200])
    calibration, scores = ice.calibration_, ice.answer(X[200:]).scores
    own = calibration.scores[np.arange(len(calibration.actual)), calibration.actual]
    for i, c in np.ndindex(scores.shape[:2]):
        of_class = own[calibration.actual == c, 0]
        p = (np.sum(of_class >= scores[i, c, 0]) + 1) / (len(of_class) + 1)
        q = (np.sum(own[:, 1] >= scores[i, c, 1]) + 1) / (len(own) + 1)
        np.testing.assert_allclose(calibration.merge(scores)[i, c], -np.log(p) - np.log(q))


@pytest.mark.parametrize("absolute", [(2,), (-1,), "0", (0.0,), (True,), None, 5])
@pytest.mark.parametrize("stacked", [True, False])
def test_absolute_names_members(absolute, stacked):
    scores = np.arange(16.0).reshape(4, 2, 2) if stacked else np.arange(8.0).reshape(4, 2)
    with pytest.raises(ValueError, match="absolute must be positions of members"):
        ScoreEvaluator(bag="all", absolute=absolute).fit(Answers([0, 1, 0, 1], scores), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("measure", "error", "message"),
    [
        (CombinedMeasure([]), MeasureError, "needs members"),
        (CombinedMeasure([CombinedMeasure([Margin()])]), MeasureError, "none of them a combined measure"),
        (
            CombinedMeasure([Margin(), NeighbourRatio()], weights=[1, 2, 3]),
            ValueError,
            "3 weights for 2 measures",
        ),
        (CombinedMeasure([Margin(), HiddenLayerSVM()]), MeasureError, "LinearSVC"),
        (
            CombinedMeasure([Margin(), lambda model, X: np.zeros(3)]),
            MeasureError,
            "FunctionMeasure gave scores",
        ),
        (CombinedMeasure([Margin(), 3]), MeasureError, "measure must be"),
    ],
)
def test_what_makes_no_sense_is_refused(measure, error, message):
    X, y = data()
    with pytest.raises(error, match=message):
        InductiveEvaluator(LinearSVC(), measure=measure).fit(X, y)
