"""Statistical promises, with exact binomial bounds."""

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from transcendent import CrossConformalEvaluator, ExactSearch, InductiveEvaluator
from transcendent.judging.pvalues import p_values
from transcendent.measures import SecondOpinion

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning"),
]

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.5)
ALPHA = 1e-4  # chance of a false alarm of one comparison


def draw(rng, n, share=0.3):
    """Exchangeable objects of two overlapping classes."""
    y = (rng.random(n) < share).astype(int)
    X = rng.normal(size=(n, 3)) + y[:, None] * np.array([2.4, 0.5, 0.0])
    return X, y


def p_values_of_true_labels(make, form, runs, seed=0):
    """One exchangeable test object of each class per run, so that the p-values are independent."""
    rng = np.random.default_rng(seed)
    collected = []
    for run in range(runs):
        X, y = draw(rng, 150)
        new, labels = draw(rng, 40)
        rows = [int(np.flatnonzero(labels == c)[0]) for c in (0, 1)]
        evaluator = make(form, run).fit(X, y)
        pairs = zip(evaluator.judges_, evaluator.detectors_, strict=True)
        p = np.array([judge.judge(*detector.answer(new[rows])).p_values for judge, detector in pairs])
        collected.append(p[:, [0, 1], [0, 1]])
    return np.array(collected)  # (runs, members, classes)


def ice(form, seed):
    return InductiveEvaluator(GaussianNB(), p_value=form, random_state=seed)


def cce(form, seed):
    return CrossConformalEvaluator(GaussianNB(), cv=3, p_value=form, random_state=seed)


class Learning(InductiveEvaluator):
    """Learns the least credible of objects that come after those it was fitted on."""

    def fit(self, X, y):
        super().fit(X, y)
        new, labels = draw(np.random.default_rng(self.random_state + 1_000_000), 100)
        strange = np.argsort(self.decide(new).credibility)[:40]
        return self.learn(np.vstack([X, new[strange]]), np.concatenate([y, labels[strange]]))


def learning(form, seed):
    judge = SecondOpinion(GaussianNB())
    return Learning(LogisticRegression(), measure=judge, p_value=form, random_state=seed)


@pytest.mark.parametrize("runs", [150, pytest.param(3000, marks=pytest.mark.full)])
@pytest.mark.parametrize("make", [ice, cce, learning], ids=["ICE", "each fold of CCE", "learning ICE"])
def test_p_values_of_the_true_label_are_valid(make, runs):
    p = p_values_of_true_labels(make, "plus_one", runs)
    for member in range(p.shape[1]):
        for c in (0, 1):
            for level in LEVELS:
                hits = int(np.sum(p[:, member, c] <= level))
                assert binom.sf(hits - 1, runs, level) > ALPHA, (member, c, level, hits / runs)


def test_smoothed_p_values_are_uniform():
    rng, runs = np.random.default_rng(0), 5000
    scores = rng.integers(0, 4, (runs, 21)).astype(float)  # many ties
    p = np.array(
        [
            p_values(row[:1], row[1:], p_value="smoothed", random_state=rng.integers(1 << 31))[0]
            for row in scores
        ]
    )
    for level in LEVELS:
        hits = int(np.sum(p <= level))
        assert binom.cdf(hits, runs, level) > ALPHA
        assert binom.sf(hits - 1, runs, level) > ALPHA


def test_the_papers_form_exceeds_its_level_by_about_one_over_n():
    """It counts p ≤ ε for ⌊εn⌋ + 1 of n + 1 equally likely ranks: 2 of 21 here, where ε allows 1.05."""
    rng = np.random.default_rng(0)
    n, runs, level = 20, 40_000, 0.05
    scores = rng.random((runs, n + 1))
    p = {
        form: np.array([p_values(row[:1], row[1:], p_value=form)[0] for row in scores])
        for form in ("paper", "plus_one")
    }
    hits = int(np.sum(p["paper"] <= level))
    assert binom.sf(hits - 1, runs, level) < 1e-9
    assert ALPHA < binom.cdf(hits, runs, 2 / 21) < 1 - ALPHA
    assert binom.sf(hits - 1, runs, level + 1 / n) > ALPHA
    assert binom.sf(int(np.sum(p["plus_one"] <= level)) - 1, runs, level) > ALPHA


def f1(y, labels, kept):
    hits = np.sum(kept & (y == 1) & (labels == 1))
    return 2 * hits / (np.sum(kept & (y == 1)) + np.sum(kept & (labels == 1)))


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_deliver_what_they_promise_and_leaky_ones_do_not(seed):
    rng = np.random.default_rng(seed)
    detector = LogisticRegression().fit(*draw(rng, 5_000))
    X, y = draw(rng, 10_000)
    new, truth = draw(rng, 20_000)
    outcome = {}
    for label in ("predicted", "true"):
        ice = InductiveEvaluator(
            FrozenEstimator(detector),
            search=ExactSearch("f1", max_rejection=0.15),
            calibration_label=label,
        ).fit(X, y)
        decisions = ice.decide(new)
        outcome[label] = ice.result_.value, f1(truth, decisions.labels, decisions.accepted)
    promised, delivered = outcome["predicted"]
    assert abs(promised - delivered) <= 0.02, outcome
    promised, delivered = outcome["true"]
    assert promised - delivered > 0.05, outcome
