"""Missing labels are refused in every form and by every function."""

from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.svm import LinearSVC

from transcendent import (
    Answers,
    CrossConformalEvaluator,
    ExactSearch,
    InductiveEvaluator,
    RejectionBudget,
    ScoreEvaluator,
    TransductiveEvaluator,
)
from transcendent._utils.arrays import as_labels, unlabelled_rows
from transcendent.baselines import CPReject, DroidEvolver, ProbabilityThresholds
from transcendent.datasets import Dataset
from transcendent.metrics import rejection_metrics
from transcendent.temporal import backtest, downsample, find_biases, time_split

RNG = np.random.default_rng(0)
CODES = RNG.integers(2, size=400)
X = RNG.normal(size=(400, 3)) + CODES[:, None]
TIMES = np.datetime64("2024-01-01") + np.arange(400)
TEXT = np.where(CODES == 1, "malicious", "good").astype(object)
MISSING = [7, 390]
DETECTOR = InductiveEvaluator(LinearSVC())


def with_gaps(values, gap):
    gapped = values.astype(object)
    gapped[MISSING] = gap
    return gapped


FORMS = {
    "object None": with_gaps(TEXT, None),
    "object NaN": with_gaps(TEXT, np.nan),
    "object NA": with_gaps(CODES, pd.NA),
    "object NaT": with_gaps(TEXT, pd.NaT),
    "list of text": with_gaps(TEXT, np.nan).tolist(),
    "object empty": with_gaps(TEXT, ""),
    "text empty": with_gaps(TEXT, "").astype(str),
    "float": with_gaps(CODES, np.nan).astype(float),
    "column": with_gaps(CODES, np.nan).astype(float)[:, None],
    "masked": np.ma.masked_array(CODES, np.isin(np.arange(400), MISSING)),
    "pandas str": pd.Series(with_gaps(TEXT, None)),
    "pandas string": pd.Series(with_gaps(TEXT, None), dtype="string"),
    "pandas Int64": pd.Series(with_gaps(CODES, None), dtype="Int64"),
    "pandas boolean": pd.Series(with_gaps(CODES == 1, None), dtype="boolean"),
    "pandas categorical text": pd.Series(with_gaps(TEXT, None), dtype="category"),
    "pandas categorical numbers": pd.Series(with_gaps(CODES, None), dtype="category"),
    "polars text": pl.Series(with_gaps(TEXT, None).tolist()),
    "polars categorical": pl.Series(with_gaps(TEXT, None).tolist(), dtype=pl.Categorical),
    "polars numbers": pl.Series(with_gaps(CODES, None).tolist(), dtype=pl.Int8),
}
TAKERS = {
    "ICE": lambda y: InductiveEvaluator(LinearSVC()).fit(X, y),
    "TCE": lambda y: TransductiveEvaluator(LinearSVC(), cv="loo").fit(X, y),
    "CCE": lambda y: CrossConformalEvaluator(LinearSVC(), cv=3).fit(X, y),
    "recalibrate": lambda y: evaluator().recalibrate(X, y),
    "budget": lambda y: RejectionBudget(InductiveEvaluator(LinearSVC()), rate=0.1).fit(X, y),
    "probability": lambda y: ProbabilityThresholds(LinearSVC()).fit(X, y),
    "CP-Reject": lambda y: CPReject(LinearSVC()).fit(X, y),
    "DroidEvolver": lambda y: DroidEvolver().fit(X, y),
    "scores": lambda y: ScoreEvaluator().fit(Answers(CODES, X[:, :2]), y),
    "answers": lambda y: ScoreEvaluator().fit(Answers(y, X[:, :2]), CODES),
    "search": lambda y: ExactSearch().find(y, CODES, RNG.random(400)),
    "metrics": lambda y: rejection_metrics(y, evaluator().decide(X)),
    "biases": lambda y: find_biases(X, y, time_split(TIMES, train="2024-12")),
    "downsample": lambda y: downsample(y, {1: 0.2}),
    "dataset": lambda y: Dataset(X, y, TIMES),
    "backtest": lambda y: backtest(InductiveEvaluator(LinearSVC()), X, y, TIMES, train="2024-12"),
}


@cache
def evaluator():
    return InductiveEvaluator(LinearSVC(), random_state=0).fit(X, CODES)


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("taker", TAKERS)
def test_missing_labels_are_refused_with_their_number_and_the_remedy(taker, form):
    with pytest.raises(ValueError, match=r"missing labels: 2 of 400 .* first at row 7\. Leave such rows out"):
        TAKERS[taker](FORMS[form])


@pytest.mark.parametrize("form", FORMS)
def test_the_remedy_works(form):
    y = FORMS[form]
    known = ~np.ravel(y.mask if form == "masked" else pd.isna(np.asarray(y, dtype=object)))
    if "empty" in form:
        known = y != ""
    assert np.flatnonzero(~known).tolist() == unlabelled_rows(y).tolist() == MISSING
    as_labels(np.asarray(y, dtype=object).ravel()[known])


def test_text_that_only_reads_as_missing_is_a_label():
    assert as_labels(np.array(["nan", "None", "NA"])).tolist() == ["nan", "None", "NA"]
    assert as_labels(["nan", " "]).tolist() == ["nan", " "]


def test_answers_refuse_them_too():
    with pytest.raises(ValueError, match="labels has missing labels: 2 of 400"):
        Answers(FORMS["object None"], X[:, :2])


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.filterwarnings("ignore::transcendent.errors.TemporalBiasWarning")
@pytest.mark.parametrize("form", FORMS)
def test_a_backtest_drops_rows_without_labels_when_told_to(form):
    dropped = backtest(DETECTOR, X, FORMS[form], TIMES, train="2024-12", unlabelled="drop")
    known = np.setdiff1d(np.arange(400), MISSING)
    expected = backtest(DETECTOR, X[known], CODES[known], TIMES[known], train="2024-12")
    assert dropped.rows.tolist() == known[expected.rows].tolist()
    assert dropped.summary()["error_kept"].tolist() == expected.summary()["error_kept"].tolist()
    assert (dropped.manifest["unlabelled"], expected.manifest["unlabelled"]) == (2, 0)
    assert len(dropped.classes) == 2


@pytest.mark.filterwarnings("ignore::transcendent.errors.TemporalBiasWarning")
def test_a_mask_of_training_rows_loses_the_dropped_rows_too():
    mask = np.arange(400) < 335
    dropped = backtest(DETECTOR, X, FORMS["float"], TIMES, train=mask, unlabelled="drop")
    assert dropped.rows.tolist() == [row for row in range(335, 400) if row != 390]


def test_what_to_do_with_missing_labels_is_one_of_two():
    with pytest.raises(ValueError, match="unlabelled must be 'refuse' or 'drop', not 'guess'"):
        backtest(DETECTOR, X, CODES, TIMES, train="2024-12", unlabelled="guess")


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "UInt64", "boolean", "bool[pyarrow]", object])
def test_whole_numbers_stay_whole(dtype):
    """As floats, which scikit-learn converts nullable columns to, the two large labels would be equal."""
    large = np.array([2**60, 2**60 + 1, 7] * 20)
    y = large if "ool" not in str(dtype) else large % 2 == 0
    kept = as_labels(pd.Series(y, dtype=dtype))
    assert kept.tolist() == y.tolist()
    assert kept.dtype.kind in "biu"
