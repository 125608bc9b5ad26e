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

from transcendent import InductiveEvaluator
from transcendent.batch.refusals import decide_rows

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
    decisions, refused = decide_rows(rejector, rows)
    assert sorted(refused) == [i for i, one in enumerate(alone) if one is None]
    taken = [one for one in alone if one is not None]
    if not taken:
        assert decisions is None
        return len(refused)
    np.testing.assert_array_equal(decisions.labels, np.concatenate([one.labels for one in taken]))
    np.testing.assert_array_equal(decisions.accepted, np.concatenate([one.accepted for one in taken]))
    np.testing.assert_array_equal(decisions.p_values, np.concatenate([one.p_values for one in taken]))
    return len(refused)


def test_rows_that_are_all_taken_are_decided_by_one_call():
    rejector = fit(LogisticRegression())
    decisions, refused = decide_rows(rejector, X)
    assert rejector.calls == 1
    assert not refused
    np.testing.assert_array_equal(decisions.p_values, rejector.rejector.decide(X).p_values)


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
    assert decide_rows(rejector, frame)[1][3].startswith("Input X contains infinity")


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
    _, refused = decide_rows(rejector, rows)
    assert refused[7].startswith("the scores of Margin contain NaN")


def test_reasons_are_short():
    class Wordy:
        def decide(self, X):
            raise ValueError("much " * 100 + "\nand more")

    decisions, refused = decide_rows(Wordy(), X[:2])
    assert decisions is None
    assert len(refused[1]) == 200


def test_other_errors_are_not_refusals():
    class Broken:
        def decide(self, X):
            raise OSError("the model's file is gone")

    with pytest.raises(OSError, match="gone"):
        decide_rows(Broken(), X[:2])


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
    decisions, refused = decide_rows(rejector, rows)
    assert list(refused) == [7]
    assert len(decisions) == 49
