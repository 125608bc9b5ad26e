"""Rows are refused exactly where ``decide`` refuses them alone, at the cost of few calls."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from transcendent import Decisions, InductiveEvaluator
from transcendent.tables.bad_rows import decide_rows, find_failing

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = (X.sum(axis=1) > 0).astype(int)
BIGGEST = np.finfo(np.float64).max


def logarithm(X):
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(X)


class Counting:
    """A rejector that counts how often it is asked."""

    def __init__(self, rejector):
        self.rejector, self.calls = rejector, 0

    def decide(self, X):
        self.calls += 1
        return self.rejector.decide(X)


def fit(detector, rows=X):
    return Counting(InductiveEvaluator(detector, random_state=0).fit(rows, Y))


def one_by_one(rejector, rows):
    """The decision about each row alone, None where it is refused."""
    found = []
    for i in range(rows.shape[0]):
        row = rows.iloc[[i]] if hasattr(rows, "iloc") else rows[[i]]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                found.append(rejector.rejector.decide(row))
        except (ValueError, TypeError):
            found.append(None)
    return found


def check_equal(rejector, rows):
    """Set against one call per row; how many are refused."""
    alone = one_by_one(rejector, rows)
    decided, refused, unknown = decide_rows(rejector.decide, rows)
    assert sorted(refused) == [i for i, one in enumerate(alone) if one is None]
    assert sorted([*refused, *(row for some, _ in decided for row in some)]) == [*range(len(alone))]
    assert not len(unknown)
    for some, decisions in decided:
        for name in ("labels", "accepted", "p_values"):
            expected = np.concatenate([getattr(alone[row], name) for row in some])
            np.testing.assert_array_equal(getattr(decisions, name), expected)
    return len(refused)


def test_rows_that_are_all_taken_are_decided_by_one_call():
    rejector = fit(LogisticRegression())
    ((_, decisions),), refused, _ = decide_rows(rejector.decide, X)
    assert rejector.calls == 1
    assert not refused
    np.testing.assert_array_equal(decisions.p_values, rejector.rejector.decide(X).p_values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("detector", "values", "bad"),
    [
        (LogisticRegression(), (np.nan, np.inf, -np.inf), 40 * 3),
        (make_pipeline(SimpleImputer(), LogisticRegression()), (np.nan, np.inf), 40),
        (RandomForestClassifier(5, random_state=0), (np.nan, np.inf, 1e39, -1e39), 40 * 3),
        (make_pipeline(StandardScaler(with_mean=False), LogisticRegression()), (BIGGEST,), 40),
        (make_pipeline(FunctionTransformer(logarithm), LogisticRegression()), (-1.0, 0.0, np.nan), 40 * 3),
    ],
)
def test_values_that_are_checked_cost_few_calls_however_many_there_are(detector, values, bad):
    rows = np.abs(X) * 0.9
    rejector = fit(detector, np.abs(X) + 0.1)
    for first, value in enumerate(values):
        rows[first : 40 * len(values) : len(values), 1] = value
    assert check_equal(rejector, rows) == bad
    assert rejector.calls <= 5


def test_sparse_values_cost_few_calls():
    rows = sp.random_array((600, 30), density=0.2, format="csr", rng=RNG)
    rejector = fit(LogisticRegression(), rows)
    rows.data[::40] = np.nan
    rows.data[1::40] = np.inf
    assert check_equal(rejector, rows) > 20
    assert rejector.calls <= 5


def test_a_name_that_says_nan_blames_no_row_for_it():
    frame = pd.DataFrame(X, columns=["a", "NaN", "c"])
    rejector = fit(LogisticRegression(), frame)
    frame.iloc[3, 1] = np.inf
    assert check_equal(rejector, frame) == 1
    assert rejector.calls <= 3
    assert decide_rows(rejector.decide, frame).refused[3].startswith("Input X contains infinity")


def test_text_that_is_no_number_costs_few_calls():
    frame = pd.DataFrame(X, columns=list("abc"))
    rejector = fit(LogisticRegression(), frame)
    frame = frame[:160]
    text = frame["b"].round(3).astype(str)
    text[:6] = ["1e1", " 7 ", "inf", "nan", "", "seven"]
    text[100:160] = "-"
    rows = frame.assign(b=text)
    assert check_equal(rejector, rows) == 64
    assert rejector.calls <= 7
    dates = frame.assign(c=pd.Timestamp("2024-02-03").date())
    assert check_equal(rejector, dates) == 160


def test_other_refusals_are_found_by_halving():
    rejector = fit(LogisticRegression())
    rows = X.copy()
    rows[[7, 450], :2] = BIGGEST  # whose scores overflow: no check of scikit-learn's sees that
    assert check_equal(rejector, rows) == 2
    assert rejector.calls < 60
    assert decide_rows(rejector.decide, rows).refused[7].startswith("the scores of Margin contain NaN")


def test_what_is_not_found_out_in_a_limited_number_of_calls_is_unknown():
    rejector = fit(LogisticRegression())
    rows = X.copy()
    rows[::3, :2] = BIGGEST
    decided, refused, unknown = decide_rows(rejector.decide, rows, max_calls=20)
    assert rejector.calls == 20
    known = [*refused, *(row for some, _ in decided for row in some)]
    assert sorted([*known, *unknown]) == [*range(600)]
    assert len(unknown) > 0


def test_other_errors_than_the_given_ones_are_raised():
    def decide(rows):
        raise KeyError("a")

    assert list(decide_rows(decide, X[:2]).refused) == [0, 1]
    with pytest.raises(KeyError):
        decide_rows(decide, X[:2], refusals=(ValueError,))


class Fragile:
    """Items of which some fail, and how often they were tried."""

    def __init__(self, bad, tells=False):
        self.bad, self.tells, self.tried = set(bad), tells, []

    def __call__(self, items):
        self.tried.append(items.tolist())
        fail = np.array([item in self.bad for item in items])
        return fail if self.tells and fail.any() else bool(fail.any())


@pytest.mark.parametrize("largest_first", [True, False])
@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("bad", [[], [0], [99], [0, 99], [7, 8, 50], range(100)])
def test_all_that_fail_are_found(bad, tells, largest_first):
    fails = Fragile(bad, tells)
    failing, unknown = find_failing(100, fails, largest_first=largest_first)
    assert sorted(failing) == [*bad]
    assert not len(unknown)
    assert len(fails.tried) <= (3 if tells else 1 + 2 * 7 * len(bad))


def test_nothing_is_tried_of_nothing():
    assert find_failing(0, Fragile([]))[0] == []


@pytest.mark.parametrize(("largest_first", "last"), [(True, 25), (False, 2)])
def test_a_limit_of_calls_is_kept(largest_first, last):
    fails = Fragile(range(0, 100, 2))
    failing, unknown = find_failing(100, fails, 7, largest_first=largest_first)
    assert len(fails.tried) == 7
    assert len(fails.tried[-1]) == last
    assert not set(failing) - fails.bad
    assert fails.bad <= {*failing, *unknown.tolist()}


def test_reasons_are_short():
    class Wordy:
        def decide(self, X):
            raise ValueError("much " * 100 + "\nand more")

    decided, refused, _ = decide_rows(Wordy().decide, X[:2])
    assert decided == []
    assert len(refused[1]) == 200


def test_other_errors_are_not_refusals():
    class Broken:
        def decide(self, X):
            raise OSError("the model's file is gone")

    with pytest.raises(OSError, match="gone"):
        decide_rows(Broken().decide, X[:2])


class Sorting(LogisticRegression):
    """A detector that orders rows in its own way before anything checks them."""

    def decision_function(self, X):
        order = np.argsort(-np.arange(len(X)) % 7, kind="stable")
        return super().decision_function(X[order])[np.argsort(order)]


def test_rows_are_not_blamed_for_others_that_a_detector_put_in_their_place():
    rows = X[:60].copy()
    rows[[5, 17], 1] = np.nan
    assert check_equal(fit(Sorting(), X), rows) == 2


def test_a_category_never_seen_is_the_fault_of_its_row():
    counts = np.random.default_rng(0).integers(0, 3, (600, 4))
    rejector = InductiveEvaluator(CategoricalNB(), random_state=0).fit(counts, Y)
    rows = counts[:50].copy()
    rows[7, 2] = 9
    decided, refused, _ = decide_rows(rejector.decide, rows)
    assert list(refused) == [7]
    assert sum(len(decisions) for _, decisions in decided) == 49


def test_rows_without_a_trust_are_refused():
    """Decisions that cannot be ranked would otherwise count as the most trusted of a budget."""

    def decide(rows):
        trust = rows["trust"].to_numpy()
        accepted = np.ones(len(rows), dtype=bool)
        return Decisions(np.zeros(len(rows)), accepted, trust, trust, np.arange(2), index=rows.index)

    sifted = decide_rows(decide, pd.DataFrame({"trust": [0.5, np.nan, 0.2, 0.1]}))
    assert list(sifted.refused) == [1]
    assert sifted.joined().credibility.tolist() == [0.5, 0.2, 0.1]
