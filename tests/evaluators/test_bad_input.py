"""Bad input gives a clear error, never a wrong number."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from transcendent import (
    Answers,
    CrossConformalEvaluator,
    ExactSearch,
    InductiveEvaluator,
    ScoreEvaluator,
    TransductiveEvaluator,
)
from transcendent.errors import CalibrationError, CalibrationWarning, InfeasibleError, MeasureError
from transcendent.measures import CombinedMeasure
from transcendent.metrics import F1

X, y = make_classification(300, 6, random_state=0)
DETECTOR = LinearSVC()
EVALUATORS = [
    InductiveEvaluator(DETECTOR, random_state=0),
    TransductiveEvaluator(DETECTOR, cv=3, random_state=0),
    TransductiveEvaluator(DETECTOR, cv="loo", random_state=0),
    CrossConformalEvaluator(DETECTOR, cv=3, random_state=0),
]
every_evaluator = pytest.mark.parametrize("evaluator", EVALUATORS, ids=lambda e: f"{type(e).__name__}")


def with_entry(value, kind):
    changed = X[:60].copy()
    changed[3, 2] = value
    return kind(changed)


@every_evaluator
class TestEveryEvaluator:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
    def test_nan_and_infinity(self, evaluator, bad, kind):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            clone(evaluator).fit(with_entry(bad, kind), y[:60])
        fitted = clone(evaluator).fit(kind(X), y)
        for method in (fitted.predict, fitted.predict_p, fitted.decide):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                method(with_entry(bad, kind))

    def test_the_first_that_is_not_finite_is_named(self, evaluator):
        rows = pd.DataFrame(X, columns=[f"f{j}" for j in range(6)])
        fitted = clone(evaluator).fit(rows, y)
        rows.iloc[[250, 17], [3, 5]] = np.inf
        rows.iloc[17, 4] = np.nan
        for call in (fitted.decide, fitted.predict, lambda rows: fitted.recalibrate(rows, y)):
            with pytest.raises(ValueError, match=r"contains NaN\.\nIt is in row 17, column 4 \('f4'\)\."):
                call(rows)
        with pytest.raises(ValueError, match=r"infinity .*\nThe first of 4 is in row 17, column 3\."):
            clone(evaluator).fit(np.nan_to_num(rows, posinf=np.inf), y)

    def test_one_class(self, evaluator):
        with pytest.raises(ValueError, match="at least two classes, but y has one class: \\[1\\]"):
            clone(evaluator).fit(X, np.ones(300, dtype=int))

    def test_empty(self, evaluator):
        with pytest.raises(ValueError, match="0 sample"):
            clone(evaluator).fit(X[:0], y[:0])
        with pytest.raises(ValueError, match="0 sample"):
            clone(evaluator).fit(X, y).decide(X[:0])

    def test_wrong_width(self, evaluator):
        fitted = clone(evaluator).fit(X, y)
        with pytest.raises(ValueError, match=r"X has 5 features, but \w+ is expecting 6 features"):
            fitted.decide(X[:, :5])
        with pytest.raises(ValueError, match=r"X has 1000000 features, but \w+ is expecting 6 features"):
            fitted.decide(sp.csr_matrix((2, 1_000_000)))
        with pytest.raises(ValueError, match=r"X has 5 features"):
            fitted.recalibrate(X[:, :5], y)

    def test_lengths_that_differ(self, evaluator):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            clone(evaluator).fit(X, y[:-1])

    def test_numbers_to_regress_on(self, evaluator):
        with pytest.raises(ValueError, match="Unknown label type"):
            clone(evaluator).fit(X, X[:, 0])

    def test_missing_labels(self, evaluator):
        with pytest.raises(ValueError, match="missing labels: 1 of 300"):
            clone(evaluator).fit(X, np.where(np.arange(300) == 5, np.nan, y))
        with pytest.raises(ValueError, match="infinity"):
            clone(evaluator).fit(X, np.where(np.arange(300) == 5, np.inf, y))

    @pytest.mark.parametrize("kind", [list, tuple, pd.Series, lambda labels: np.array(labels, dtype=object)])
    def test_labels_of_different_types(self, evaluator, kind):
        with pytest.raises(ValueError, match=r"different types, such as 'spam' and 0: make them one"):
            clone(evaluator).fit(X, kind([0 if label else "spam" for label in y]))

    def test_not_fitted(self, evaluator):
        for call in (
            lambda e: e.decide(X),
            lambda e: e.predict(X),
            lambda e: e.predict_p(X),
            lambda e: e.rethreshold(ExactSearch()),
            lambda e: e.recalibrate(X, y),
        ):
            with pytest.raises(NotFittedError):
                call(clone(evaluator))

    def test_class_unseen_in_recalibration(self, evaluator):
        fitted = clone(evaluator).fit(X, y)
        with pytest.raises(CalibrationError, match="no calibration object has the label 1"):
            fitted.recalibrate(X[y == 0], y[y == 0])
        with pytest.raises(ValueError, match=r"y has labels outside the classes \[0, 1\]: \[7\]"):
            fitted.recalibrate(X, np.where(y == 0, 7, y))
        fitted.decide(X)

    def test_parameters_that_mean_nothing(self, evaluator):
        for name, value, message in (
            ("measure", "distance", "there is no measure 'distance'; did you mean 'centroid_distance'"),
            ("measure", 3, "measure must be"),
            ("search", "exact", "there is no search 'exact'; choose from accuracy, auto"),
            ("search", 3, "search must be"),
            ("p_value", "exact", "p_value must be one of"),
            ("calibration_label", "guessed", "calibration_label must be"),
        ):
            with pytest.raises(ValueError, match=message):
                clone(evaluator).set_params(**{name: value}).fit(X[:60], y[:60])

    def test_a_measure_that_fails(self, evaluator):
        strange = clone(evaluator).set_params(measure=lambda _, X: np.full((X.shape[0], 2), np.nan))
        with pytest.raises(MeasureError, match="contain NaN"):
            strange.fit(X[:60], y[:60])

    @pytest.mark.parametrize("bad", [np.inf, -np.inf])
    @pytest.mark.parametrize("combined", [False, True], ids=["alone", "combined"])
    def test_infinite_scores_are_refused_wherever_they_arise(self, evaluator, bad, combined):
        def far(_, rows):
            return np.where(np.abs(rows[:, :2]) > 100, bad, rows[:, :2])

        measure = CombinedMeasure([far, "auto"]) if combined else far
        rows, labels = X[:150], y[:150]
        outliers = np.where(np.arange(150)[:, None] % 5 == 0, 1000.0, rows)
        fitted = clone(evaluator).set_params(measure=measure).fit(rows, labels)
        before = frozen_state(fitted)
        for call in (
            lambda: fitted.decide(outliers),
            lambda: fitted.predict_p(outliers),
            lambda: fitted.recalibrate(outliers, labels),
        ):
            with pytest.raises(MeasureError, match="FunctionMeasure contain NaN or infinity"):
                call()
        assert frozen_state(fitted) == before
        with pytest.raises(MeasureError, match="FunctionMeasure contain NaN or infinity"):
            fitted.fit(outliers, labels)


@every_evaluator
def test_two_columns_of_one_name_are_named(evaluator):
    rows = pd.DataFrame(X, columns=list("abcdef"))
    fitted = clone(evaluator).fit(rows, y)
    twice = rows.rename(columns={"e": "b"})
    for call in (lambda: fitted.decide(twice), lambda: fitted.fit(twice, y)):
        with pytest.raises(ValueError, match="X has 2 columns named 'b'"):
            call()


@pytest.mark.parametrize("kind", ["pandas", "polars", "categories", "objects"])
def test_text_that_is_no_number_is_named(kind):
    table = pd.DataFrame(X, columns=list("abcdef"))
    detector = make_pipeline(StandardScaler(), LinearSVC())
    fitted = InductiveEvaluator(detector, random_state=0).fit(X if kind == "objects" else table, y)
    texts = ["1e1", " 7", "-2.5", "seven", "3"]
    table = table[:5].assign(c=pd.Categorical(texts) if kind == "categories" else texts)
    convert = {"polars": pl.from_pandas, "objects": lambda table: table.to_numpy(dtype=object)}
    rows = convert.get(kind, lambda table: table)(table)
    place = r"\nIt is in row 3, column 2" + ("" if kind == "objects" else r" \('c'\)")
    with pytest.raises(ValueError, match=f"could not convert string to float: 'seven'{place}"):
        fitted.decide(rows)
    assert table["c"].tolist() == texts


@pytest.mark.parametrize("size", [0, 1, 1.0, -0.1, 5, "half"])
def test_calibration_size_is_a_share(size):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        InductiveEvaluator(DETECTOR, calibration_size=size).fit(X, y)


def test_a_class_too_small_to_split():
    labels = np.where(np.arange(300) == 0, 2, y)
    for evaluator in (InductiveEvaluator(DETECTOR), TransductiveEvaluator(DETECTOR, cv=3)):
        with pytest.raises(CalibrationError, match=r"class 2 has 1 row\(s\), but 2 are needed"):
            evaluator.fit(X, labels)


def test_more_folds_than_rows_of_a_class():
    labels = np.where(np.arange(300) < 4, "rare", np.where(y == 0, "a", "b"))
    with pytest.raises(
        CalibrationError, match=r"class 'rare' has 4 row\(s\), but 5 are needed for each of 5"
    ):
        CrossConformalEvaluator(DETECTOR, cv=5).fit(X, labels)


@pytest.mark.parametrize("cv", [1, 0, 301, 2.5, "kfold", None])
def test_numbers_of_folds_that_mean_nothing(cv):
    with pytest.raises(ValueError, match="cv"):
        TransductiveEvaluator(DETECTOR, cv=cv).fit(X, y)


def test_times_that_mean_nothing():
    with pytest.raises(ValueError, match="one entry per row"):
        InductiveEvaluator(DETECTOR).fit(X, y, times=np.arange(10))
    for unit in ("D", "ns"):
        times = np.arange(300).astype(f"datetime64[{unit}]")
        times[7] = "NaT"
        with pytest.raises(ValueError, match="missing values"):
            InductiveEvaluator(DETECTOR).fit(X, y, times=times)


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NaT])
def test_a_missing_time_among_objects_is_refused(missing):
    """Nothing compares with it, so that sorting would mix past and future without a word."""
    times = pd.Series(pd.date_range("2020", periods=300, tz="UTC")).astype(object)
    times[7] = missing
    with pytest.raises(ValueError, match="missing values"):
        InductiveEvaluator(DETECTOR).fit(X, y, times=times)


def test_times_as_text_are_dates_or_refused():
    days = np.arange("2020-01", "2020-10-27", dtype="datetime64[D]")
    by_text, by_date = (
        InductiveEvaluator(DETECTOR).fit(X, y, times=times).calibration_
        for times in (days.astype(str).tolist(), days)
    )
    assert by_text.scores.tolist() == by_date.scores.tolist()
    zoned = [f"{day}T12:00:00+02:00" for day in days]
    in_bytes = days.astype("S")
    for times in (zoned, in_bytes, list(in_bytes)):
        calibration = InductiveEvaluator(DETECTOR).fit(X, y, times=times).calibration_
        assert calibration.scores.tolist() == by_date.scores.tolist()
    american = [f"{day}/1/2020" for day in range(300)]
    for times in (american, np.array(american, dtype="S")):
        with pytest.raises(ValueError, match="must be ISO dates"):
            InductiveEvaluator(DETECTOR).fit(X, y, times=times)
    for missing in ("", "NaT"):
        with pytest.raises(ValueError, match="missing values"):
            InductiveEvaluator(DETECTOR).fit(X, y, times=[missing, *days[1:].astype(str)])


@every_evaluator
def test_a_fit_that_fails_leaves_nothing_of_the_one_before(evaluator):
    fitted = clone(evaluator).fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(with_entry(np.nan, np.asarray), np.where(y[:60] == 1, "mal", "good"))
    for broken in (lambda: fitted.decide(X), lambda: fitted.thresholds_, lambda: fitted.rethreshold("auto")):
        with pytest.raises(NotFittedError):
            broken()


@every_evaluator
def test_thresholds_that_cannot_be_had_do_not_cost_the_fit(evaluator):
    greedy = ExactSearch("f1", max_rejection=0.01, constraints=F1() >= 1.0)
    fitted = clone(evaluator).set_params(search=greedy)
    with pytest.raises(InfeasibleError):
        fitted.fit(X, np.where(y == 1, "mal", "good"))
    with pytest.raises(NotFittedError):
        fitted.decide(X)
    plain = clone(evaluator).fit(X, np.where(y == 1, "mal", "good"))
    assert fitted.rethreshold("auto").decide(X).accepted.tolist() == plain.decide(X).accepted.tolist()


def frozen_state(evaluator):
    """Everything a user can see of an evaluator's state, the bits of its arrays included."""
    judges = getattr(evaluator, "judges_", [evaluator])
    calibrations, results = [judge.calibration_ for judge in judges], [judge.result_ for judge in judges]
    return pickle.dumps((evaluator.search_, calibrations, results, sorted(vars(evaluator))))


GREEDY = ExactSearch("f1", max_rejection=0.01, constraints=F1() >= 1.0)
FLIPPED = np.where(np.arange(300) % 3 == 0, 1 - y, y)


@every_evaluator
class TestACallThatFailsChangesNothing:
    @pytest.mark.parametrize(
        ("rows", "labels"),
        [
            (X, np.where(y == 0, 7, y)),
            (X[y == 0], y[y == 0]),
            (X, y[:-1]),
            (with_entry(np.nan, np.asarray), y[:60]),
            (X[:, :5], y),
            (np.vstack([X[y == 0][:3], X[y == 1][:3]]), [0, 0, 0, 1, 1, 1]),
        ],
        ids=[
            "bad labels",
            "class without objects",
            "lengths",
            "NaN",
            "width",
            "few, and warnings are errors",
        ],
    )
    def test_recalibrate(self, evaluator, rows, labels):
        fitted = clone(evaluator).fit(X, y)
        before, decided = frozen_state(fitted), pickle.dumps(fitted.decide(X))
        with pytest.raises((ValueError, CalibrationWarning)):
            fitted.recalibrate(rows, labels)
        assert frozen_state(fitted) == before
        assert pickle.dumps(fitted.rethreshold("auto").decide(X)) == decided

    def test_recalibrate_without_thresholds(self, evaluator):
        strict = ExactSearch("f1", max_rejection=0.5, constraints=F1() >= 0.9)
        fitted = clone(evaluator).set_params(search=strict).fit(X, y)
        before, decided = frozen_state(fitted), pickle.dumps(fitted.decide(X))
        with pytest.raises(InfeasibleError):
            fitted.recalibrate(X, FLIPPED)
        assert frozen_state(fitted) == before
        assert pickle.dumps(fitted.rethreshold(strict).decide(X)) == decided

    @pytest.mark.parametrize("search", [GREEDY, "exact"])
    def test_rethreshold(self, evaluator, search):
        fitted = clone(evaluator).fit(X, FLIPPED)
        before, decided = frozen_state(fitted), pickle.dumps(fitted.decide(X))
        with pytest.raises(ValueError, match=r"max_rejection|constraint|there is no search|satisf"):
            fitted.rethreshold(search)
        assert frozen_state(fitted) == before
        assert pickle.dumps(fitted.decide(X)) == decided

    def test_rethreshold_after_a_fit_without_thresholds(self, evaluator):
        fitted = clone(evaluator).set_params(search=GREEDY)
        for again in (lambda: fitted.fit(X, FLIPPED), lambda: fitted.rethreshold(GREEDY)):
            with pytest.raises(InfeasibleError):
                again()
        decided = fitted.rethreshold("auto").decide(X).accepted
        np.testing.assert_array_equal(decided, clone(evaluator).fit(X, FLIPPED).decide(X).accepted)


def test_times_are_refused_where_all_rows_calibrate():
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    with pytest.raises(ValueError, match="pass only the recent rows"):
        InductiveEvaluator(frozen).fit(X, y, times=np.arange(300))


class Forgetful(LogisticRegression):
    def predict(self, X):
        return super().predict(X)[:-1]


def test_a_detector_that_loses_rows_is_named():
    with pytest.raises(ValueError, match="Forgetful predicts 101 labels for 102 rows"):
        InductiveEvaluator(Forgetful(), random_state=0).fit(X, y)


def test_rethresholding_takes_what_fitting_takes():
    ice = InductiveEvaluator(DETECTOR, random_state=0).fit(X, y)
    assert ice.rethreshold("auto").search_.objective == "f1"
    with pytest.raises(ValueError, match="there is no search 'exact'"):
        ice.rethreshold("exact")


@pytest.mark.parametrize("cv", ["loo", LeaveOneOut(), [(np.flatnonzero(y == 1), np.flatnonzero(y == 0))]])
def test_folds_that_cannot_calibrate_are_refused_before_any_fit(cv):
    class NeverFitted(LogisticRegression):
        def fit(self, X, y):
            raise AssertionError

    with pytest.raises(CalibrationError):
        CrossConformalEvaluator(NeverFitted(), cv=cv).fit(X, y)


@pytest.mark.parametrize("quorum", [1.5, "all", True + 0.0])
def test_a_quorum_is_a_whole_number(quorum):
    with pytest.raises(ValueError, match="must be an integer"):
        CrossConformalEvaluator(DETECTOR, cv=3, random_state=0).fit(X, y).decide(X, quorum=quorum)


def test_a_class_unseen_on_one_side_of_the_cut():
    order = np.argsort(y, kind="stable")
    with pytest.raises(CalibrationError, match="class 0 has no row to calibrate on, after the cut"):
        InductiveEvaluator(DETECTOR).fit(X[order], y[order], times=np.arange(300))


def test_a_frozen_detector_and_data_that_disagree():
    three = LogisticRegression().fit(X, np.where(np.arange(300) % 5 == 0, 2, y))
    with pytest.raises(CalibrationError, match="the detector can predict 2, but y has no object"):
        InductiveEvaluator(FrozenEstimator(three)).fit(X, y)
    two = LogisticRegression().fit(X, y)
    with pytest.raises(CalibrationError, match="y has the label 2, which the detector does not know"):
        InductiveEvaluator(FrozenEstimator(two)).fit(X, np.where(np.arange(300) % 5 == 0, 2, y))


def test_something_that_is_no_classifier():
    with pytest.raises(ValueError, match="LinearRegression is not a fitted classifier"):
        InductiveEvaluator(LinearRegression()).fit(X, y)


class TestScores:
    scores = np.column_stack([X[:, 0], -X[:, 0]])

    def test_shapes(self):
        with pytest.raises(ValueError, match=r"scores must be \(objects, classes\) = \(300, 2\)"):
            ScoreEvaluator().fit(Answers(y, np.zeros((300, 3))), y)
        with pytest.raises(ValueError, match="a column for each class"):
            ScoreEvaluator().fit(Answers(y, np.zeros(300)), y)
        fitted = ScoreEvaluator().fit(Answers(y, self.scores), y)
        with pytest.raises(ValueError, match="scores must be"):
            fitted.decide(Answers(y[:5], np.zeros((5, 3))))
        with pytest.raises(ValueError, match="scores must be"):
            fitted.predict_p(Answers(y[:5], np.zeros((5, 3))))

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_nan_and_infinity(self, bad):
        scores = np.where(np.arange(300)[:, None] == 3, bad, self.scores)
        with pytest.raises(ValueError, match="NaN or infinity"):
            ScoreEvaluator().fit(Answers(y, scores), y)
        with pytest.raises(ValueError, match="NaN or infinity"):
            ScoreEvaluator().fit(Answers(y, self.scores), y).decide(Answers(y, scores))

    def test_masked_scores(self):
        with pytest.raises(ValueError, match="scores is a masked array"):
            ScoreEvaluator().fit(Answers(y, np.ma.masked_greater(self.scores, 0)), y)
        with pytest.raises(ValueError, match="scores is a masked array"):
            ScoreEvaluator().fit(Answers(y, self.scores), y).decide(
                Answers(y, np.ma.masked_greater(self.scores, 0))
            )

    def test_labels(self):
        with pytest.raises(ValueError, match="at least two distinct classes"):
            ScoreEvaluator().fit(Answers(np.zeros(300), self.scores), np.zeros(300))
        with pytest.raises(ValueError, match="at least two distinct classes"):
            ScoreEvaluator().fit(Answers(y, self.scores), y, classes=[0, 0])
        with pytest.raises(ValueError, match="1d array"):
            ScoreEvaluator().fit(Answers(None, self.scores), y)
        with pytest.raises(ValueError, match="labels has labels outside"):
            ScoreEvaluator().fit(Answers(y + 1, self.scores), y)
        with pytest.raises(CalibrationError, match="no calibration object has the label 2"):
            ScoreEvaluator().fit(Answers(y, np.zeros((300, 3))), y, classes=[0, 1, 2])
        with pytest.raises(ValueError, match="labels has labels outside"):
            ScoreEvaluator().fit(Answers(y, self.scores), y).decide(Answers(y + 1, self.scores))
        with pytest.raises(ValueError, match="299 labels for 300 rows of scores"):
            ScoreEvaluator().fit(Answers(y[:-1], self.scores), y)
        with pytest.raises(ValueError, match="labels of different types"):
            ScoreEvaluator().fit(Answers(y, self.scores), [0 if label else "spam" for label in y])

    def test_scores_with_the_wrong_sign_are_noticed(self):
        suspicion = np.where(y == 1, 1.0, -1.0)
        for shift in (0, 50):  # columns have no common scale
            with pytest.warns(CalibrationWarning, match="from probabilities pass -p"):
                ScoreEvaluator().fit(Answers(y, np.column_stack([-suspicion + shift, suspicion])), y)
            ScoreEvaluator().fit(Answers(y, np.column_stack([suspicion + shift, -suspicion])), y)

    def test_a_rethreshold_that_fails_changes_nothing(self):
        answers = (X[:, 0] > 0).astype(int)
        vendor = ScoreEvaluator().fit(Answers(answers, self.scores), FLIPPED)
        before = frozen_state(vendor)
        for search in (GREEDY, "exact"):
            with pytest.raises(ValueError, match=r"max_rejection|constraint|there is no search|satisf"):
                vendor.rethreshold(search)
            assert frozen_state(vendor) == before

    def test_thresholds_that_cannot_be_had_do_not_cost_the_fit(self):
        answers = (X[:, 0] > 0).astype(int)
        vendor = ScoreEvaluator(search=GREEDY)
        with pytest.raises(InfeasibleError):
            vendor.fit(Answers(answers, self.scores), FLIPPED)
        plain = ScoreEvaluator().fit(Answers(answers, self.scores), FLIPPED)
        assert frozen_state(vendor.rethreshold("auto")) == frozen_state(plain)

    def test_a_fit_that_fails_leaves_no_evaluator(self):
        vendor = ScoreEvaluator().fit(Answers(y, self.scores), y)
        with pytest.raises(ValueError, match="scores must be"):
            vendor.fit(Answers(y, np.zeros((300, 5))), y)
        for broken in (lambda: vendor.decide(Answers(y, self.scores)), lambda: vendor.rethreshold("auto")):
            with pytest.raises(NotFittedError):
                broken()


ALL = np.arange(300)


@pytest.mark.parametrize("make", [TransductiveEvaluator, CrossConformalEvaluator])
@pytest.mark.parametrize(
    ("fold", "message"),
    [
        ((ALL, ALL[150:]), "fold 1 of cv trains on 150 of the 150 rows it calibrates on, such as row 150"),
        ((ALL[:151], ALL[150:]), "fold 1 of cv trains on 1 of the 150 rows it calibrates on"),
        ((ALL[:150], ALL[150:] + 1), "the test set of fold 1 of cv names row 300, but there are 300"),
        ((ALL[:150] - 1, ALL[150:]), "the training set of fold 1 of cv names row -1"),
        ((ALL < 150, ALL >= 150), "the training set of fold 1 of cv must be positions of rows, not bool"),
        ((ALL[:150], np.repeat(ALL[150:], 2)), "the test set of fold 1 of cv has row 150 twice"),
        ((ALL, []), "the test set of fold 1 of cv"),
    ],
)
def test_folds_that_leak_or_do_not_exist_are_refused(make, fold, message):
    with pytest.raises(CalibrationError, match=message):
        make(DETECTOR, cv=[(ALL[150:], ALL[:150]), fold]).fit(X, y)
