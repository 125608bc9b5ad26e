import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from lightgbm import LGBMClassifier
from scipy.stats import binom
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from transcendent import (
    Answers,
    CrossConformalEvaluator,
    ExactSearch,
    InductiveEvaluator,
    RejectionBudget,
    ScoreEvaluator,
    StreamingBudget,
    TransductiveEvaluator,
)
from transcendent.baselines import CPReject, DroidEvolver, ProbabilityThresholds
from transcendent.datasets import make_stream
from transcendent.errors import TemporalBiasError, TemporalBiasWarning
from transcendent.measures import NeighbourRatio, SecondOpinion
from transcendent.metrics import errors_caught, rejection_metrics, risk_coverage
from transcendent.metrics.ranking import kept_shares
from transcendent.monitoring import DriftMonitor
from transcendent.temporal import Backtest, Candidates, Retraining, backtest


def stream(seed=0, n_months=10, per_month=150):
    """The labelling direction turns a little every month."""
    rng = np.random.default_rng(seed)
    n = n_months * per_month
    month = np.repeat(np.arange(n_months), per_month)
    X = rng.normal(size=(n, 6))
    angle = month / n_months
    score = X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle) + 0.3 * rng.normal(size=n)
    times = np.datetime64("2021-01") + month.astype("timedelta64[M]")
    return X, (score > 0.8).astype(int), times


X, Y, TIMES = stream()
TRAIN = "2021-05"


def rejectors():
    return {
        "ICE": InductiveEvaluator(LinearSVC()),
        "CCE": CrossConformalEvaluator(LinearSVC(), cv=4),
        "CP-Reject": CPReject(LogisticRegression()),
        "DroidEvolver": DroidEvolver(buffer_size=100),
    }


@pytest.fixture(scope="module")
def result():
    return backtest(rejectors(), X, Y, TIMES, train=TRAIN)


def columns_equal(one, two):
    assert list(one) == list(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_decisions_are_those_of_the_rejector_fitted_on_the_past(result):
    past = np.datetime64(TRAIN) > TIMES
    ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(X[past], Y[past])
    expected = ice.decide(X[~past])
    for name in ("labels", "accepted", "credibility", "confidence"):
        np.testing.assert_array_equal(getattr(result.answers["ICE"], name), getattr(expected, name))
    np.testing.assert_array_equal(result.y, Y[~past])
    np.testing.assert_array_equal(result.rows, np.flatnonzero(~past))


def test_a_rejector_that_judges_batches_is_given_periods(result):
    past = np.datetime64(TRAIN) > TIMES
    cp = CPReject(LogisticRegression(random_state=0), random_state=0).fit(X[past], Y[past])
    for i, month in enumerate(np.unique(TIMES[~past])):
        expected = cp.decide(X[month == TIMES])
        np.testing.assert_array_equal(
            result.answers["CP-Reject"].accepted[result.period == i], expected.accepted
        )


def test_the_table_has_a_row_per_rejector_period_and_subset(result):
    frame = result.to_frame()
    assert len(frame) == 4 * 6 * 3 == len(frame.drop_duplicates(["rejector", "period", "subset"]))
    for name, answer in result.answers.items():
        for i, period in enumerate(result.periods):
            rows = result.period == i
            for subset, chosen in (
                ("baseline", rows),
                ("kept", rows & answer.accepted),
                ("rejected", rows & ~answer.accepted),
            ):
                row = frame[
                    (frame.rejector == name) & (frame.period == period) & (frame.subset == subset)
                ].iloc[0]
                assert row.objects == chosen.sum()
                expected = (
                    f1_score(result.y[chosen], answer.labels[chosen], zero_division=np.nan)
                    if chosen.any()
                    else np.nan
                )
                np.testing.assert_allclose(row.f1, expected)
                np.testing.assert_allclose(row.share, chosen.sum() / rows.sum())
    np.testing.assert_array_equal(result.to_frame("polars")["f1"].to_numpy(), frame.f1)


def test_rejection_of_true_classes(result):
    frame = result.to_frame(table="by_class")
    answer = result.answers["CCE"]
    row = frame[(frame.rejector == "CCE") & (frame.period == "2021-07") & (frame["class"] == 1)].iloc[0]
    own = (result.period == 2) & (result.y == 1)
    assert (row.objects, row.rejected) == (own.sum(), (own & ~answer.accepted).sum())
    assert row.rejection_rate == row.rejected / row.objects


def test_summary_is_what_its_columns_say(result):
    summary = result.to_frame(table="summary").set_index("rejector")
    past = np.datetime64(TRAIN) > TIMES
    ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(X[past], Y[past])
    decisions = ice.decide(X[~past])
    overall = rejection_metrics(Y[~past], decisions)
    row = summary.loc["ICE"]
    assert row.f1_kept == overall["kept"]["f1"]
    assert row.error_rejected == overall["rejected"]["error"]
    assert row.errors_caught == overall["rejected"]["share_of_errors"]
    assert row.rejection_rate == decisions.rejection_rate
    assert row.positives_rejected == pytest.approx(decisions.rejected[Y[~past] == 1].mean())
    kept, labels, y = decisions.accepted, decisions.labels, Y[~past]
    assert row.detections_rejected == pytest.approx(np.mean((~kept & (labels == 1))[y == 1]))
    assert row.positives_missed == pytest.approx(np.mean((kept & (labels != 1))[y == 1]))
    assert row.f1_reviewed == pytest.approx(f1_score(y, np.where(kept, labels, y)))
    f1 = result.series("ICE", "f1", "kept")
    assert row.aut_f1_kept == pytest.approx((f1[:-1] + f1[1:]).sum() / 2 / 5)
    wrong, periods = decisions.labels != Y[~past], np.repeat(np.arange(6), 150)
    each = [risk_coverage(wrong[periods == i], decisions.credibility[periods == i]).aurc for i in range(6)]
    assert row.aurc == pytest.approx(np.mean(each))
    caught = sum(
        errors_caught(wrong[periods == i], decisions.credibility[periods == i]) * wrong[periods == i].sum()
        for i in range(6)
    )
    assert row.caught_at_15 == pytest.approx(caught / wrong.sum())
    kept = np.concatenate([kept_shares(decisions.credibility[periods == i], 0.15) for i in range(6)])
    assert row.f1_kept_at_15 == pytest.approx(f1_score(Y[~past], decisions.labels, sample_weight=kept))
    assert result.at_rejection("ICE", 0.15)["kept"]["share"] == pytest.approx(0.85)
    text = repr(result)
    assert "900 objects in 6 periods, 2021-05 to 2021-10" in text
    assert all(name in text for name in result.answers)


def test_ranks_by_what_the_rejector_ranks_by(result):
    assert result.answers["CP-Reject"].ranked_by == "confidence"
    assert result.answers["CP-Reject"].ranking is result.answers["CP-Reject"].confidence
    assert result.answers["ICE"].ranking is result.answers["ICE"].credibility


def test_intervals_hold_the_value_and_narrow_with_more_objects(result):
    low, high, area = result.intervals("ICE", "error", "baseline", n_resamples=500)
    values = result.series("ICE", "error", "baseline")
    assert np.all((low <= values) & (values <= high))
    assert area[0] <= result.aut("ICE", "error", "baseline").value <= area[1]
    assert area[1] - area[0] < np.mean(high - low)
    exact = np.sqrt(values * (1 - values) / 150) * 1.96
    np.testing.assert_allclose((high - low) / 2, exact, rtol=0.25)
    again = result.intervals("ICE", "error", "baseline", n_resamples=500)
    np.testing.assert_array_equal(low, again[0])


def test_intervals_of_what_is_undefined_everywhere():
    keep_all = InductiveEvaluator(LinearSVC(), search=ExactSearch("rejection_rate", max_rejection=None))
    found = backtest({"ICE": keep_all}, X, Y, TIMES, train=TRAIN)
    low, high, area = found.intervals("ICE", "f1", "rejected", n_resamples=50)
    assert np.isnan([*low, *high, *area]).all()
    assert "F1 of rejected is undefined in 2021-05, 2021-06, 2021-07, 2021-08 and 2 more" in repr(found)


def test_saved_and_loaded(result, tmp_path):
    loaded = Backtest.load(result.save(tmp_path / "run"))
    columns_equal(loaded.table, result.table)
    columns_equal(loaded.by_class, result.by_class)
    columns_equal(loaded.summary(), result.summary())
    assert loaded.answers["ICE"].votes is None
    np.testing.assert_array_equal(loaded.answers["CCE"].votes, result.answers["CCE"].votes)
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["versions"]["scikit-learn"]
    assert manifest["random_state"] == 0
    assert len(manifest["data"]) == 64
    assert set(manifest["seconds"]["ICE"]) == {"fit", "decide"}
    assert "LinearSVC(random_state=0)" in manifest["rejectors"]["ICE"]
    assert pq.read_table(tmp_path / "run/table.parquet").num_rows == 72


def test_the_version_of_the_detectors_library_is_in_the_manifest():
    forest = InductiveEvaluator(LGBMClassifier(n_estimators=5, verbose=-1))
    manifest = backtest(forest, X, Y, TIMES, train=TRAIN).manifest
    assert manifest["versions"]["lightgbm"] == lightgbm.__version__


def test_classes_that_no_training_row_had_are_in_the_manifest(tmp_path):
    y = np.where((np.datetime64("2021-08") <= TIMES) & (X[:, 3] > 1), 2, Y)
    ice = InductiveEvaluator(LinearSVC())
    found = backtest(ice, X, y, TIMES, train=TRAIN, folder=tmp_path)
    assert found.manifest["new_classes"] == Backtest.load(tmp_path).manifest["new_classes"] == [2]
    assert backtest(ice, X, Y, TIMES, train=TRAIN).manifest["new_classes"] == []


@pytest.mark.slow
def test_in_parallel_it_is_the_same(result):
    columns_equal(backtest(rejectors(), X, Y, TIMES, train=TRAIN, n_jobs=2).table, result.table)


@pytest.mark.parametrize("form", ["sparse", "pandas", "polars", "shuffled", "text labels"])
def test_rows_of_any_form(result, form):
    rows, y, times = X, Y, TIMES
    if form == "sparse":
        rows = sp.csr_matrix(X)
    elif form == "pandas":
        rows, y, times = pd.DataFrame(X), pd.Series(Y), pd.Series(TIMES.astype("datetime64[ns]"))
    elif form == "polars":
        rows = pl.DataFrame(X)
    elif form == "text labels":
        y = np.array(["good", "bad"], dtype=object)[Y]
    elif form == "shuffled":
        order = np.random.default_rng(0).permutation(len(Y))
        rows, y, times = X[order], Y[order], TIMES[order]
    found = backtest(
        {"ICE": InductiveEvaluator(LinearSVC())},
        rows,
        y,
        times,
        train=TRAIN,
        pos_label="good" if form == "text labels" else None,
    )
    assert found.periods == result.periods
    if form == "text labels":
        assert found.classes.tolist() == ["bad", "good"]
    elif form != "shuffled":
        np.testing.assert_allclose(found.series("ICE"), result.series("ICE")[: len(found.periods)], atol=0.02)
    assert np.nanmean(found.series("ICE", "error", "kept")) < np.nanmean(
        found.series("ICE", "error", "rejected")
    )


def test_periods_without_objects_stay():
    rows = np.datetime64("2021-07") != TIMES
    with_gap = backtest(rejectors(), X[rows], Y[rows], TIMES[rows], train=TRAIN)
    assert with_gap.periods[2] == "2021-07"
    for name in with_gap.answers:
        assert np.isnan(with_gap.series(name, "error", "baseline")[2])
        assert 2 in with_gap.aut(name, "f1", "kept").undefined
    assert repr(with_gap).count("2021-07") == repr(with_gap).count("no objects in 2021-07") == 1


@pytest.mark.parametrize("field", ["choose", "delay", "noise"])
def test_an_error_of_a_function_names_rejector_and_period(field):
    def broken(given):
        return np.array([1e9]) if given.times.min() >= np.datetime64("2021-06") else good(given)

    def good(given):
        return {
            "choose": np.arange(5),
            "delay": np.zeros(len(given.rows), int),
            "noise": getattr(given, "y", None),
        }[field]

    with pytest.raises(ValueError, match=f"{field} must return") as raised:
        backtest(
            {"ICE": InductiveEvaluator(LinearSVC())},
            X,
            Y,
            TIMES,
            train=TRAIN,
            retrain=Retraining(5, **{field: broken}),
        )
    assert raised.value.__notes__ == ["This was in labelling for ICE, period 2021-06."]


def test_classes_never_trained_on_count_as_errors():
    y = Y.copy()
    new = (np.datetime64("2021-08") <= TIMES) & (X[:, 3] > 1)
    y[new] = 2
    found = backtest(InductiveEvaluator(LinearSVC()), X, y, TIMES, train=TRAIN)
    assert found.classes.tolist() == [0, 1, 2]
    kept = found.series("InductiveEvaluator", "error", "baseline")
    assert kept[3:].min() > kept[:3].max()
    table = found.to_frame(table="by_class")
    assert table[(table["class"] == 2) & (table.period >= "2021-08")].objects.sum() == new.sum()


def test_chronological_calibration():
    with pytest.raises(ValueError, match="chronological=True: CCE cannot calibrate on the most recent"):
        backtest(rejectors(), X, Y, TIMES, train=TRAIN, chronological=True)
    found = backtest({"ICE": InductiveEvaluator(LinearSVC())}, X, Y, TIMES, train=TRAIN, chronological=True)
    past = np.datetime64(TRAIN) > TIMES
    ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(
        X[past], Y[past], times=TIMES[past]
    )
    np.testing.assert_array_equal(found.answers["ICE"].accepted, ice.decide(X[~past]).accepted)


def literal_retraining(rejector, retrain):
    """Month by month, as an analyst would do it by hand."""
    past = np.datetime64(TRAIN) > TIMES
    rows, labelled, accepted = np.flatnonzero(past), [], []
    for i, month in enumerate(np.unique(TIMES[~past])):
        if i % retrain.every == 0:
            fitted = clone(rejector).fit(X[rows], Y[rows])
            train = np.concatenate([rows, np.array(labelled, dtype=int)])
            if labelled:
                fitted.learn(X[train], Y[train], what=retrain.what)
        test = np.flatnonzero(month == TIMES)
        decisions = fitted.decide(X[test])
        accepted.append(decisions.accepted)
        generator = np.random.default_rng((0, i))
        chosen = retrain.select(Candidates(test, X[test], TIMES[test], decisions, fitted, generator))
        labelled.extend(test[chosen.rows])
    return np.concatenate(accepted), labelled


@pytest.mark.parametrize("choose", ["rejected", "drawn", "margin", "random"])
@pytest.mark.parametrize(("every", "learns"), [(1, "both"), (2, "judge"), (2, "detector"), (100, "both")])
def test_retraining_against_a_loop_by_hand(choose, every, learns):
    measure = SecondOpinion(GaussianNB())
    ice = InductiveEvaluator(LinearSVC(random_state=0), measure=measure, random_state=0)
    retrain = Retraining(30, choose, every, what=learns)
    found = backtest({"ICE": ice}, X, Y, TIMES, train=TRAIN, retrain=retrain)
    expected, labelled = literal_retraining(ice, retrain)
    np.testing.assert_array_equal(found.answers["ICE"].accepted, expected)
    assert found.manifest["labelled"] == {"ICE": 30 * 6}
    assert found.labelled["ICE"]["row"].tolist() == labelled


class Remembers(LinearSVC):
    """Answers what it was taught of an object, and never the class 1 of what it was not."""

    def fit(self, X, y):
        super().fit(X, y)
        self.known_ = dict(zip(map(bytes, np.asarray(X)), y, strict=True))
        return self

    def predict(self, X):
        return np.array([self.known_.get(bytes(row), 0) for row in np.asarray(X)])

    def predict_proba(self, X):
        return np.eye(2)[self.predict(X)]


@pytest.mark.parametrize("delay", [0, 1, 4, "by object"])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("make", [InductiveEvaluator, ProbabilityThresholds])
def test_no_label_is_learnt_before_its_time(delay, every, make):
    """All objects are the same in every month, so an answer 1 shows a label that was known."""
    n, months = 120, 7
    X = np.tile(np.random.default_rng(0).normal(size=(n, 4)), (months + 2, 1))
    X[: 2 * n] += 100.0  # what trains is never met again
    times = np.repeat(np.datetime64("2021-01") + np.arange(months + 2), n)
    y = np.tile(np.arange(n) % 2, months + 2)
    late = {"by object": lambda chosen: chosen.rows % 3}.get(delay, delay)
    retrain = Retraining(30, "random", every, delay=late)
    found = backtest(make(Remembers()), X, y, times, train="2021-03", retrain=retrain)
    name = make.__name__
    answered = found.answers[name].labels.reshape(months, n)
    columns = found.labelled[name]
    taught = np.zeros((months, n), dtype=int)
    for row, label in zip(columns["row"], columns["label"], strict=True):
        month = row // n - 2
        known = month + 1 + (row % 3 if delay == "by object" else delay)
        for later in range(months):
            if later - later % every >= known:
                taught[later, row % n] |= label
    if make is InductiveEvaluator:
        np.testing.assert_array_equal(answered, taught)
    assert (answered <= taught).all()  # a part of what the others are taught calibrates
    assert answered.sum() > 0


def test_wrong_labels_are_learnt_and_metrics_use_the_true_ones():
    ice = InductiveEvaluator(LinearSVC())
    right, wrong = (
        backtest(ice, X, Y, TIMES, train=TRAIN, retrain=Retraining(60, noise=noise)) for noise in (0.0, 1.0)
    )
    name = "InductiveEvaluator"
    columns = wrong.labelled[name]
    true = wrong.y[np.searchsorted(wrong.rows, columns["row"])]
    assert not (columns["label"] == true).any()
    np.testing.assert_array_equal(right.labelled[name]["label"][:60], true[:60])
    np.testing.assert_array_equal(right.labelled[name]["row"][:60], columns["row"][:60])
    assert wrong.summary()["f1_baseline"] < right.summary()["f1_baseline"]
    assert right.audit(name).error < 0.5 < wrong.audit(name).error


def test_wrong_labels_are_of_classes_that_have_been_seen():
    y = Y.copy()
    y[(np.datetime64("2021-09") <= TIMES) & (X[:, 3] > 0.5)] = 2
    result = backtest(
        InductiveEvaluator(LinearSVC()), X, y, TIMES, train=TRAIN, retrain=Retraining(60, noise=0.5)
    )
    columns = result.labelled["InductiveEvaluator"]
    months = TIMES[columns["row"]].astype("datetime64[M]")
    assert 2 in columns["label"]
    assert months[columns["label"] == 2].min() == np.datetime64("2021-09")


def test_functions_get_copies():
    def spoils(given):
        given.X[:] = 0
        given.rows[:] = 0
        return np.zeros(len(given.rows), dtype=int) if hasattr(given, "y") else np.arange(20)

    def plain(given):
        return np.zeros(len(given.rows), dtype=int) if hasattr(given, "y") else np.arange(20)

    before = X.copy()
    found = [
        backtest(
            InductiveEvaluator(LinearSVC()),
            X,
            Y,
            TIMES,
            train=TRAIN,
            retrain=Retraining(20, function, delay=function),
        )
        for function in (plain, spoils)
    ]
    np.testing.assert_array_equal(X, before)
    columns_equal(found[0].table, found[1].table)


def least_confident(candidates):
    return np.argsort(candidates.decisions.confidence, kind="stable")


def test_functions_are_known_by_their_code_in_a_folder(tmp_path):
    def run(choose):
        retrain = Retraining(20, choose, delay=1, noise=0.1)
        return backtest(
            InductiveEvaluator(LinearSVC()), X, Y, TIMES, train=TRAIN, retrain=retrain, folder=tmp_path
        )

    first = run(least_confident)
    again = run(least_confident)
    for key, column in first.labelled["InductiveEvaluator"].items():
        np.testing.assert_array_equal(column, again.labelled["InductiveEvaluator"][key])
    assert "0x" not in first.manifest["retrain"]
    with pytest.raises(ValueError, match="holds another backtest: retrain"):
        run("rejected")
    with pytest.raises(ValueError, match="choose of retrain cannot be identified"):
        run(lambda candidates: np.arange(3))


@pytest.mark.parametrize("learns", ["judge", "detector"])
def test_what_cannot_learn_alone_is_refused_before_anything_runs(learns):
    splitter = CrossConformalEvaluator(LinearSVC(), cv=StratifiedKFold(3))
    for rejector in (CPReject(LinearSVC()), TransductiveEvaluator(LinearSVC()), splitter):
        with pytest.raises(ValueError, match="fits detector and judge together: pass what='both'"):
            backtest(rejector, X, Y, TIMES, train=TRAIN, retrain=Retraining(20, what=learns))


def test_the_chances_of_labels_are_kept(tmp_path):
    retrain = Retraining(30)
    ices = {"ICE": InductiveEvaluator(LinearSVC()), "CP": CPReject(LinearSVC())}
    found = backtest(ices, X, Y, TIMES, train=TRAIN, retrain=retrain, folder=tmp_path)
    for name, answers in found.answers.items():
        own = found.labelled[name]
        place = np.searchsorted(found.rows, own["row"])
        assert answers.accepted[place][own["audited"]].all()
        for period in range(6):
            here = found.period[place] == period
            audited = here & own["audited"]
            assert (audited.sum(), here.sum()) == (6, 30)
            certain = place[here & ~own["audited"]]
            left = np.sum(answers.accepted & (found.period == period)) - answers.accepted[certain].sum()
            np.testing.assert_allclose(own["probability"][audited], 6 / left)
            assert np.all(own["probability"][here & ~own["audited"]] == 1)
    loaded = Backtest.load(tmp_path)
    for name, columns in found.labelled.items():
        for key, column in columns.items():
            np.testing.assert_array_equal(loaded.labelled[name][key], column)
    assert backtest(ices, X, Y, TIMES, train=TRAIN).labelled == {}


def test_labels_help():
    def error(retrain):
        found = backtest(InductiveEvaluator(LinearSVC()), X, Y, TIMES, train=TRAIN, retrain=retrain)
        return found.series("InductiveEvaluator", "error", "baseline")[-3:].mean()

    assert error(Retraining(100)) < error(None) - 0.02


def test_biases_are_refused_or_warned_about():
    mixed = np.random.default_rng(0).random(len(Y)) < 0.4
    with pytest.raises(TemporalBiasError, match="training_after_test"):
        backtest(rejectors(), X, Y, TIMES, train=mixed)
    with pytest.warns(TemporalBiasWarning, match="class_ratio") as caught:
        backtest({"ICE": InductiveEvaluator(LinearSVC())}, X, Y, TIMES, train=TRAIN, class_ratio={1: 0.5})
    assert caught[0].filename == __file__
    backtest(
        {"ICE": InductiveEvaluator(LinearSVC())}, X, Y, TIMES, train=mixed, allow=["training_after_test"]
    )


def test_the_rejectors_given_stay_as_they_were():
    given = rejectors()
    backtest(given, X, Y, TIMES, train=TRAIN)
    assert all(not hasattr(rejector, "classes_") for rejector in given.values())
    assert given["ICE"].random_state is None


def test_seeds_of_everything_random_are_set():
    sgd = InductiveEvaluator(SGDClassifier(loss="log_loss"))
    runs = [backtest(sgd, X, Y, TIMES, train=TRAIN, random_state=seed) for seed in (0, 0, 1)]
    columns_equal(runs[0].table, runs[1].table)
    assert not np.array_equal(runs[0].table["f1"], runs[2].table["f1"])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, ValueError, "no rejectors"),
        ([InductiveEvaluator(LinearSVC())] * 2, ValueError, "a dict of names and rejectors"),
        ({1: CPReject(LinearSVC()), "1": CPReject(LinearSVC())}, ValueError, "have the same name"),
        ({"class": InductiveEvaluator}, TypeError, "class is not a rejector"),
        ({"vendor": ScoreEvaluator()}, TypeError, "vendor judges scores"),
        ([("ICE", InductiveEvaluator(LinearSVC()))], TypeError, "pass several rejectors as a dict"),
        ({"svm": LinearSVC()}, TypeError, "svm is not a rejector"),
        ({"none": None}, TypeError, "none is not a rejector"),
    ],
)
def test_what_is_no_rejector_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        backtest(given, X, Y, TIMES, train=TRAIN)


def test_bad_questions_are_answered_with_what_there_is(result):
    with pytest.raises(ValueError, match="no rejector 'ice'; the rejectors are"):
        result.series("ice")
    with pytest.raises(ValueError, match="no metric 'auc'"):
        result.series("ICE", "auc")
    with pytest.raises(ValueError, match="no metric 'auc'"):
        result.intervals("ICE", "auc")
    with pytest.raises(ValueError, match="no subset 'all'; the subsets are baseline"):
        result.aut("ICE", "f1", "all")
    with pytest.raises(ValueError, match="must be 'pandas' or 'polars'"):
        result.to_frame("spark")
    with pytest.raises(ValueError, match="table must be"):
        result.to_frame(table="byclass")
    with pytest.raises(ValueError, match="level must be strictly between"):
        result.intervals("ICE", level=95)
    with pytest.raises(ValueError, match="pos_label 5"):
        backtest(rejectors(), X, Y, TIMES, train=TRAIN, pos_label=5)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"times": None}, ValueError, "the time at which each row was seen"),
        ({"retrain": 50}, TypeError, r"such as Retraining\(50\)"),
        ({"y": np.array([None, *Y[1:]], dtype=object)}, ValueError, "missing labels"),
        ({"y": np.where(X[:, 0] > 2, np.nan, Y)}, ValueError, "NaN"),
        ({"train": 2021}, ValueError, "is not a date"),
        ({"period": "months"}, ValueError, "period must be one of"),
    ],
)
def test_what_newcomers_get_wrong(given, error, message):
    options = {"y": Y, "times": TIMES, "train": TRAIN} | given
    with pytest.raises(error, match=message):
        backtest({"ICE": InductiveEvaluator(LinearSVC())}, X, **options)


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_values_that_are_refused_are_named_by_their_row(n_jobs):
    rows = np.where(np.arange(len(X))[:, None] == len(X) - 7, np.nan, X)
    labels = np.where(np.arange(len(X)) < 3, None, Y.astype(object))
    given = {"train": TRAIN, "unlabelled": "drop", "n_jobs": n_jobs, "verbose": False}
    with pytest.raises(ValueError, match=rf"The first of {X.shape[1]} is in row {len(X) - 7}, column 0"):
        backtest(InductiveEvaluator(LinearSVC()), rows, labels, TIMES, **given)


def test_two_columns_of_one_name_are_refused():
    rows = pd.DataFrame(X).rename(columns={1: 0})
    with pytest.raises(ValueError, match="X has 2 columns named '0'"):
        backtest(InductiveEvaluator(LinearSVC()), rows, Y, TIMES, train=TRAIN)


def test_rows_that_differ_in_number_are_refused():
    with pytest.raises(ValueError, match="inconsistent"):
        backtest(rejectors(), X[1:], Y, TIMES, train=TRAIN)
    with pytest.raises(ValueError, match="times has 1499 entries for 1500 rows"):
        backtest(rejectors(), X, Y, TIMES[1:], train=TRAIN)


def test_a_folder_keeps_what_is_done(tmp_path, result):
    first = backtest(rejectors(), X, Y, TIMES, train=TRAIN, folder=tmp_path / "run")
    columns_equal(first.table, result.table)
    again = backtest(rejectors(), X, Y, TIMES, train=TRAIN, folder=tmp_path / "run")
    columns_equal(again.table, result.table)
    assert again.manifest["finished"] == first.manifest["finished"]


def test_a_folder_of_another_run_is_refused(tmp_path):
    one = {"ICE": InductiveEvaluator(LinearSVC())}
    backtest(one, X, Y, TIMES, train=TRAIN, folder=tmp_path / "run")
    for change in (
        {"rejectors": {"ICE": InductiveEvaluator(LinearSVC(C=2))}},
        {"y": 1 - Y},
        {"random_state": 1},
    ):
        given = {"rejectors": one, "y": Y, "random_state": 0} | change
        with pytest.raises(ValueError, match="holds another backtest"):
            backtest(
                given["rejectors"],
                X,
                given["y"],
                TIMES,
                train=TRAIN,
                random_state=given["random_state"],
                folder=tmp_path / "run",
            )
    with pytest.raises(ValueError, match="holds another backtest: rejectors: ICE was"):
        backtest(
            {"ICE": InductiveEvaluator(LinearSVC(C=2))}, X, Y, TIMES, train=TRAIN, folder=tmp_path / "run"
        )


def test_a_detector_fitted_otherwise_is_another_run(tmp_path):
    def run(rows):
        frozen = FrozenEstimator(LinearSVC(random_state=0).fit(X[rows], Y[rows]))
        return backtest({"ICE": InductiveEvaluator(frozen)}, X, Y, TIMES, train=TRAIN, folder=tmp_path)

    columns_equal(run(slice(0, 600)).table, run(slice(0, 600)).table)
    with pytest.raises(ValueError, match="holds another backtest: fingerprints"):
        run(slice(0, 60))


def test_what_cannot_be_told_apart_has_no_folder(tmp_path):
    strange = InductiveEvaluator(LinearSVC(), measure=lambda d, rows: np.c_[rows[:, 0], -rows[:, 0]])
    backtest({"strange": strange}, X, Y, TIMES, train=TRAIN)
    with pytest.raises(ValueError, match="strange cannot be identified"):
        backtest({"strange": strange}, X, Y, TIMES, train=TRAIN, folder=tmp_path)


@pytest.mark.slow
def test_changed_code_of_ones_own_is_another_run(tmp_path):
    fingerprints = []
    for body in ("-rows[:, :2]", "-rows[:, :2]", "-rows[:, 1:3]"):
        (tmp_path / "own_measure.py").write_text(f"def strange(d, rows):\n    return {body}\n")
        script = (
            "import sys\n"
            f"sys.path.insert(0, {str(tmp_path)!r})\n"
            "from own_measure import strange\n"
            "from sklearn.svm import LinearSVC\n"
            "from transcendent import InductiveEvaluator\n"
            "from transcendent._utils.provenance import fingerprint\n"
            "print(fingerprint('own', InductiveEvaluator(LinearSVC(), measure=strange)))\n"
        )
        command = [sys.executable, "-B", "-c", script]
        fingerprints.append(subprocess.run(command, check=True, capture_output=True).stdout)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 cut off"], ids=["empty", "cut off"])
def test_a_damaged_checkpoint_is_decided_again(tmp_path, damage):
    def run(stop=100, **given):
        StopsAfter.left = stop
        stops = {"ICE": InductiveEvaluator(LinearSVC()), "stops": StopsAfter(LinearSVC())}
        return backtest(stops, X, Y, TIMES, train=TRAIN, **given)

    with pytest.raises(InterruptedRunError):
        run(3, folder=tmp_path)
    for file in tmp_path.glob("checkpoints/*00002.npz"):
        file.write_bytes(damage)
    whole = run()
    columns_equal(run(folder=tmp_path).table, whole.table)
    assert not (tmp_path / "checkpoints").exists()
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(
        ValueError, match=r"cannot be read\. Use another folder, or replace its backtest with fresh=True"
    ):
        run(folder=tmp_path)
    columns_equal(run(folder=tmp_path, fresh=True).table, whole.table)


def test_a_run_that_failed_before_its_first_period_blocks_nothing(tmp_path):
    StopsAfter.left = 0
    with pytest.raises(InterruptedRunError):
        backtest(StopsAfter(LinearSVC()), X, Y, TIMES, train=TRAIN, folder=tmp_path)
    backtest(InductiveEvaluator(LinearSVC()), X, Y, TIMES, train=TRAIN, folder=tmp_path)


def test_fresh_removes_another_run_and_nothing_else(tmp_path):
    ice = InductiveEvaluator(LinearSVC())
    (tmp_path / "notes.txt").write_text("mine")
    StopsAfter.left = 2
    with pytest.raises(InterruptedRunError):
        backtest(StopsAfter(LinearSVC()), X, Y, TIMES, train=TRAIN, folder=tmp_path)
    with pytest.raises(ValueError, match="holds another backtest"):
        backtest(ice, X, Y, TIMES, train=TRAIN, folder=tmp_path)
    first = backtest(ice, X, Y, TIMES, train=TRAIN, folder=tmp_path, fresh=True)
    assert backtest(ice, X, Y, TIMES, train=TRAIN, folder=tmp_path).manifest == first.manifest
    backtest(ice, X, Y, TIMES, train=TRAIN, period="week", folder=tmp_path, fresh=True)
    assert Backtest.load(tmp_path).manifest["period"] == "week"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("decisions.parquet", "manifest.json", "notes.txt", "table.parquet")
    ]


def test_a_folder_with_files_of_others_is_left_alone(tmp_path):
    ice = InductiveEvaluator(LinearSVC())
    files = [("checkpoints/model.pt", "[1]"), ("table.parquet", "[1]"), ("manifest.json", "[1]")]
    for i, (name, text) in enumerate([*files, ("manifest.json", "theirs")]):
        place = tmp_path / str(i)
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text(text)
        for fresh in (False, True):
            with pytest.raises(ValueError, match="which no backtest wrote"):
                backtest(ice, X, Y, TIMES, train=TRAIN, folder=place, fresh=fresh)
        assert [path for path in place.rglob("*") if path.is_file()] == [place / name]


def test_fresh_removes_nothing_if_the_run_is_refused(tmp_path):
    ice = InductiveEvaluator(LinearSVC())
    backtest(ice, X, Y, TIMES, train=TRAIN, folder=tmp_path)
    unknown = InductiveEvaluator(LinearSVC(), measure=lambda detector, rows: np.zeros((len(rows), 2)))
    with pytest.raises(ValueError, match="cannot be identified"):
        backtest(unknown, X, Y, TIMES, train=TRAIN, folder=tmp_path, fresh=True)
    assert Backtest.load(tmp_path).summary()


def test_other_names_widths_and_dropped_rows_are_other_data(tmp_path):
    frame, sparse, twice = pd.DataFrame(X, columns=list("abcdef")), sp.csr_matrix(X), X.copy()
    twice[1], labels = twice[0], np.where(np.arange(len(Y)) < 2, Y[0], Y).astype(float)
    missing = [np.where(np.arange(len(Y)) == row, np.nan, labels) for row in (0, 1)]
    given = [
        ((frame, Y), (frame.rename(columns={"a": "d", "d": "a"}), Y)),
        ((sparse, Y), (sp.hstack([sparse, sp.csr_matrix((len(Y), 3))]).tocsr(), Y)),
        ((twice, missing[0]), (twice, missing[1])),
    ]
    ice = InductiveEvaluator(LinearSVC())
    for i, (one, other) in enumerate(given):
        run = partial(backtest, ice, times=TIMES, train=TRAIN, unlabelled="drop", folder=tmp_path / str(i))
        run(*one)
        with pytest.raises(ValueError, match="the data differ"):
            run(*other)


def test_scores_over_time_are_judged_as_the_detector_that_gave_them():
    """A frozen detector's scores, judged, give the decisions of the evaluator around it."""
    first = np.datetime64("2021-03") > TIMES
    detector = LinearSVC(random_state=0).fit(X[first], Y[first])
    values = detector.decision_function(X)
    answers = Answers(detector.predict(X), np.column_stack([values, -values]))
    frozen = {
        "frozen": InductiveEvaluator(FrozenEstimator(detector)),
        "held": RejectionBudget(InductiveEvaluator(FrozenEstimator(detector)), rate=0.1),
    }
    judges = {"frozen": ScoreEvaluator(), "held": RejectionBudget(ScoreEvaluator(), rate=0.1)}
    streamed = {"stream": StreamingBudget(ScoreEvaluator(), rate=0.1, window=100)}
    assert len(backtest(streamed, answers, Y, TIMES, train=TRAIN).y)
    given = {"train": TRAIN, "retrain": Retraining(20)}
    columns_equal(
        backtest(judges, answers, Y, TIMES, **given).table,
        backtest(frozen, X, Y, TIMES, **given).table,
    )
    with pytest.raises(TypeError, match=r"judges scores, not rows: pass the detector's Answers"):
        backtest(ScoreEvaluator(), answers.scores, Y, TIMES, **given)
    with pytest.raises(TypeError, match="Answers are for rejectors that judge scores"):
        backtest(frozen, answers, Y, TIMES, **given)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        backtest(judges, answers[:3], Y, TIMES, **given)
    unknown = np.where(np.arange(len(Y)) == 3, None, Y)
    assert len(backtest(judges, answers, unknown, TIMES, unlabelled="drop", **given).y)


def test_a_result_is_written_aside_and_renamed(tmp_path, result):
    """Saved periods survive a full disk, so the run can be resumed."""
    result.save(tmp_path)
    for path in list(tmp_path.iterdir()):
        os.link(path, tmp_path / f"old-{path.name}")
        path.write_bytes(b"before")
    result.save(tmp_path)
    names = ("table.parquet", "decisions.parquet", "manifest.json")
    assert [(tmp_path / f"old-{name}").read_bytes() for name in names] == [b"before"] * 3
    assert Backtest.load(tmp_path).summary()["aurc"].tolist() == result.summary()["aurc"].tolist()


@pytest.mark.parametrize("chronological", [False, True])
def test_periods_by_name_are_those_by_date(chronological):
    names = [f"week {i // 150:02}" for i in range(len(Y))]
    ice = {"ICE": InductiveEvaluator(LinearSVC())}
    by_name, by_date = (
        backtest(ice, X, Y, times, train=train, period=period, chronological=chronological)
        for times, train, period in ((names, "week 04", None), (TIMES, TRAIN, "month"))
    )
    assert by_name.periods[:2] == ("week 04", "week 05")
    assert by_name.summary()["aurc"].tolist() == by_date.summary()["aurc"].tolist()
    with pytest.raises(TemporalBiasError, match="training goes up to week 09, testing begins at week 00"):
        backtest(ice, X, Y, names, train=np.arange(len(Y)) % 2 == 0, period=None)


def test_numpy_numbers_resume_as_python_numbers(tmp_path):
    given = {"pos_label": np.int64(1), "random_state": np.int64(3), "train": np.datetime64(TRAIN)}
    for _ in range(2):
        backtest({"ICE": InductiveEvaluator(LinearSVC())}, X, Y, TIMES, folder=tmp_path, **given)


def test_rejectors_that_evolve_are_fed_in_the_order_of_time():
    seconds = TIMES.astype("datetime64[s]") + np.arange(len(Y)).astype("timedelta64[s]")
    order = np.random.default_rng(0).permutation(len(Y))
    one = backtest({"de": DroidEvolver(buffer_size=100)}, X, Y, seconds, train=TRAIN)
    two = backtest({"de": DroidEvolver(buffer_size=100)}, X[order], Y[order], seconds[order], train=TRAIN)
    columns_equal(one.table, two.table)


@pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
def test_a_new_class_joins_training_when_enough_is_labelled():
    y = Y.copy()
    y[(np.datetime64("2021-06") <= TIMES) & (X[:, 3] > 1)] = 2
    ice = {"ICE": InductiveEvaluator(LinearSVC())}
    found = backtest(ice, X, y, TIMES, train=TRAIN, retrain=Retraining(12, "rejected"))
    assert found.pos_label == 1
    assert 2 not in found.answers["ICE"].labels[found.period < 3]
    many = backtest(ice, X, y, TIMES, train=TRAIN, retrain=Retraining(100, "rejected"))
    assert many.classes.tolist() == [0, 1, 2]
    assert many.manifest["labelled"] == {"ICE": 600}


def test_splitters_are_seeded_too():
    shuffled = CrossConformalEvaluator(LinearSVC(), cv=StratifiedKFold(3, shuffle=True))
    runs = [backtest({"CCE": shuffled}, X, Y, TIMES, train=TRAIN) for _ in range(2)]
    columns_equal(runs[0].table, runs[1].table)
    assert shuffled.cv.random_state is None


def test_biases_are_kept_in_the_manifest():
    mixed = np.random.default_rng(0).random(len(Y)) < 0.4
    ice = {"ICE": InductiveEvaluator(LinearSVC())}
    found = backtest(ice, X, Y, TIMES, train=mixed, allow=["training_after_test"])
    assert "newer than the oldest test row" in found.manifest["biases"]["training_after_test"]


class InterruptedRunError(Exception):
    pass


class StopsAfter(InductiveEvaluator):
    """Raises when it has decided a number of batches."""

    left = 0

    def decide(self, rows):
        if StopsAfter.left == 0:
            raise InterruptedRunError
        StopsAfter.left -= 1
        return super().decide(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "retrain",
    [None, Retraining(20, delay=1, noise=0.2), Retraining(20, audit=0.5, every=3)],
)
@pytest.mark.parametrize("stop", range(1, 6))
def test_interrupted_anywhere_it_resumes_to_the_same_table(tmp_path, retrain, stop):
    def run(folder):
        given = {"evolves": DroidEvolver(buffer_size=50), "stops": StopsAfter(LinearSVC())}
        return backtest(given, X, Y, TIMES, train=TRAIN, retrain=retrain, folder=folder)

    StopsAfter.left = 100
    whole = run(None)
    StopsAfter.left = stop
    with pytest.raises(InterruptedRunError):
        run(tmp_path)
    for file in sorted(tmp_path.glob("checkpoints/evolves*"))[stop - 1 :: 2]:
        file.unlink()  # as if the other rejector had been cut off too
    StopsAfter.left = 6 - stop
    columns_equal(run(tmp_path).table, whole.table)
    assert StopsAfter.left == 0


@pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
@pytest.mark.parametrize(("learns", "gap"), [("both", None), ("detector", None), ("both", "2021-08")])
def test_a_class_that_grew_period_by_period_is_resumed_as_it_grew(tmp_path, learns, gap):
    """Which of its rows calibrate depends on when they came; a month without objects teaches nothing."""
    y = Y.copy()
    y[(np.datetime64("2021-06") <= TIMES) & (X[:, 3] > 0.5)] = 2
    own = np.full(len(y), True) if gap is None else TIMES.astype("datetime64[M]") != np.datetime64(gap)
    ice = {"ICE": StopsAfter(LinearSVC(), measure=NeighbourRatio())}
    late = int(gap is not None)
    retrain, months = Retraining(120 if late else 60, what=learns, delay=late), 6 - late

    def run(folder):
        return backtest(ice, X[own], y[own], TIMES[own], train=TRAIN, retrain=retrain, folder=folder)

    StopsAfter.left = 100
    whole = run(None)
    StopsAfter.left = months - 1
    with pytest.raises(InterruptedRunError):
        run(tmp_path)
    StopsAfter.left = 1
    columns_equal(run(tmp_path).table, whole.table)
    assert 2 in whole.answers["ICE"].labels


class StopsBefore(StopsAfter):
    """Raises when it has answered a number of batches, by a monitor or not."""

    def _check_rows(self, rows):
        if StopsAfter.left == 0:
            raise InterruptedRunError
        StopsAfter.left -= 1
        return super()._check_rows(rows)

    decide = InductiveEvaluator.decide


@pytest.mark.slow
@pytest.mark.parametrize("stop", range(1, 6))
@pytest.mark.parametrize("retrain", [None, Retraining(20, every=3)])
def test_monitors_resume_too(tmp_path, retrain, stop):
    def run(folder):
        given = {"stops": StopsBefore(LinearSVC()), "CP-Reject": CPReject(LinearSVC())}
        return backtest(given, SHRINKING, Y, TIMES, train=TRAIN, retrain=retrain, folder=folder, monitor=20)

    StopsAfter.left = 100
    whole = run(None)
    StopsAfter.left = stop
    with pytest.raises(InterruptedRunError):
        run(tmp_path)
    StopsAfter.left = 100
    run(tmp_path)
    found = Backtest.load(tmp_path)
    columns_equal(found.table, whole.table)
    assert found.manifest["monitors"] == whole.manifest["monitors"]
    assert list(found.monitors) == ["stops"]


SHRINKING = np.where((np.datetime64("2021-08") <= TIMES)[:, None], 0.3 * X, X)


def test_monitors_see_what_a_monitor_sees_and_change_no_decision():
    ice = {"ICE": InductiveEvaluator(LinearSVC())}
    plain = backtest(ice, SHRINKING, Y, TIMES, train=TRAIN)
    watched = backtest(ice, SHRINKING, Y, TIMES, train=TRAIN, monitor=20)
    columns_equal(watched.table, plain.table)
    assert plain.monitors == {}
    past = np.datetime64(TRAIN) > TIMES
    fitted = InductiveEvaluator(LinearSVC(), random_state=0).fit(SHRINKING[past], Y[past])
    monitor = DriftMonitor.of(fitted, threshold=20)
    monitor.update(SHRINKING[watched.rows])
    seen = watched.monitors["ICE"]
    assert seen.log_value[-1] == monitor.log_value
    assert seen.drift == (watched.periods[watched.period[monitor.alarm.at - 1]],)
    assert seen.periods == watched.periods
    assert seen.drift[0] >= "2021-08"
    assert seen.drift[0] in str(seen)


@pytest.mark.parametrize("budget", [RejectionBudget, StreamingBudget])
def test_a_budget_is_monitored_as_its_evaluator_and_decides_as_without_a_monitor(budget, tmp_path):
    ice = InductiveEvaluator(LinearSVC())
    given = {"budget": budget(ice, rate=0.1), "ICE": ice}
    plain = backtest(given, SHRINKING, Y, TIMES, train=TRAIN)
    watched = backtest(given, SHRINKING, Y, TIMES, train=TRAIN, monitor=20, folder=tmp_path, title="Old")
    columns_equal(watched.table, plain.table)
    assert watched.manifest["monitors"]["budget"] == watched.manifest["monitors"]["ICE"]
    assert watched.monitors["budget"].drift[0] >= "2021-08"
    assert watched.manifest["in_words"]["budget"]["rejects"].endswith(("10% that it trusts least", "1,000"))
    again = backtest(given, SHRINKING, Y, TIMES, train=TRAIN, monitor=20, folder=tmp_path, title="New")
    columns_equal(again.table, plain.table)
    assert (watched.title, again.title, Backtest.load(tmp_path).title, plain.title) == (
        "Old",
        "New",
        "New",
        None,
    )


def test_monitors_are_refused_where_there_is_nothing_to_watch():
    with pytest.raises(ValueError, match="more than 1"):
        backtest(InductiveEvaluator(LinearSVC()), X, Y, TIMES, train=TRAIN, monitor=1)
    with pytest.raises(ValueError, match="there is none"):
        backtest(CPReject(LinearSVC()), X, Y, TIMES, train=TRAIN, monitor=100)


SCRIPT = """
    import os, sys, time
    sys.path.insert(0, {tests!r})
    from test_backtest import *

    class Slow(InductiveEvaluator):
        def decide(self, rows):
            time.sleep(float(os.environ["PAUSE"]))
            return super().decide(rows)

    if __name__ == "__main__":
        given = {{"ICE": InductiveEvaluator(LinearSVC()), "slow": Slow(LinearSVC())}}
        result = backtest(given, X, Y, TIMES, train=TRAIN, retrain=Retraining(20, every=2),
                          folder={folder!r}, n_jobs=2)
        result.save({out!r})
"""


@pytest.mark.slow
def test_killed_in_the_middle_it_resumes_to_the_same_table(tmp_path):
    places = {"folder": str(tmp_path / "cut"), "out": str(tmp_path / "found")}
    (tmp_path / "script.py").write_text(
        textwrap.dedent(SCRIPT.format(tests=os.path.dirname(__file__), **places))
    )
    command = [sys.executable, str(tmp_path / "script.py")]
    quick, slow = os.environ | {"PAUSE": "0"}, os.environ | {"PAUSE": "0.5"}
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL, env=slow)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "cut").glob("checkpoints/slow*.npz"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = list((tmp_path / "cut").glob("checkpoints/*.npz"))
    assert 2 <= len(done) < 30
    assert not (tmp_path / "cut/manifest.json").exists()
    subprocess.run(command, check=True, env=quick)
    given = {"ICE": InductiveEvaluator(LinearSVC()), "slow": InductiveEvaluator(LinearSVC())}
    expected = backtest(given, X, Y, TIMES, train=TRAIN, retrain=Retraining(20, every=2))
    columns_equal(Backtest.load(tmp_path / "found").table, expected.table)


def test_probabilities_and_credibility_agree_over_time():
    given = {"ICE": InductiveEvaluator(LinearSVC()), "margin": ProbabilityThresholds(LinearSVC())}
    found = backtest(given, X, Y, TIMES, train=TRAIN)
    assert np.mean(found.answers["ICE"].accepted != found.answers["margin"].accepted) < 0.02


def test_rows_of_odd_dates_are_counted_without_those_that_were_dropped():
    labels, times = Y.astype(float), TIMES.astype("datetime64[D]").copy()
    labels[:10], times[20] = np.nan, np.datetime64("1950-01-01")
    with pytest.raises(ValueError, match=r"row 10 .*Rows without a label are not counted"):
        backtest(InductiveEvaluator(LinearSVC()), X, labels, times, train=TRAIN, unlabelled="drop")


@pytest.mark.parametrize("make", [pa.table, lambda frame: frame, pl.from_pandas])
def test_frames_of_any_library_give_what_an_array_gives(make):
    data = make_stream(1200, n_periods=6, concept=0.5, random_state=0)
    X = np.round(data.X, 1)
    X[600:620] = X[:20]
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    ice = InductiveEvaluator(LinearSVC())
    with pytest.warns(TemporalBiasWarning, match="duplicates: 20 of"):
        ours = backtest(ice, make(frame), data.y, data.times, train="2020-03")
    with pytest.warns(TemporalBiasWarning):
        theirs = backtest(ice, X, data.y, data.times, train="2020-03")
    name = "InductiveEvaluator"
    np.testing.assert_array_equal(ours.answers[name].credibility, theirs.answers[name].credibility)


@pytest.mark.parametrize("kind", ["Int64", "boolean", "int64[pyarrow]", "string"])
@pytest.mark.parametrize("missing", [0, 7])
def test_nullable_labels_keep_their_type(kind, missing):
    data = make_stream(1200, n_periods=6, concept=0.5, random_state=0)
    y = pd.Series(data.y.astype(str) if kind == "string" else data.y).astype(kind)
    y.iloc[:missing] = pd.NA
    ice = InductiveEvaluator(LinearSVC())
    result = backtest(ice, data.X, y, data.times, train="2020-03", unlabelled="drop")
    expected = {"Int64": "i", "boolean": "b", "int64[pyarrow]": "i", "string": "U"}[kind]
    assert result.y.dtype.kind == result.classes.dtype.kind == expected
    assert result.answers["InductiveEvaluator"].labels.dtype.kind == expected


def test_texts_of_numpy_are_labels():
    data = make_stream(1200, n_periods=6, concept=0.5, random_state=0)
    y = np.array(["good", "bad"], dtype=np.dtypes.StringDType())[data.y]
    result = backtest(InductiveEvaluator(LinearSVC()), data.X, y, data.times, train="2020-03")
    assert result.classes.tolist() == ["bad", "good"]


def test_a_saved_result_holds_no_labels_of_another(tmp_path):
    ice = {"ICE": InductiveEvaluator(LinearSVC())}
    backtest(ice, X, Y, TIMES, train=TRAIN, retrain=Retraining(20)).save(tmp_path)
    backtest(ice, X, Y, TIMES, train=TRAIN).save(tmp_path)
    assert Backtest.load(tmp_path).labelled == {}


def test_a_frozen_detector_without_a_judge_stays_as_it_is():
    first = np.datetime64(TRAIN) > TIMES
    detector = FrozenEstimator(LinearSVC(random_state=0).fit(X[first], Y[first]))
    ice = {"ICE": InductiveEvaluator(detector)}
    static, retrained = (
        backtest(ice, X, Y, TIMES, train=TRAIN, retrain=retrain) for retrain in (None, Retraining(50))
    )
    columns_equal(static.table, retrained.table)


@pytest.mark.slow
@pytest.mark.parametrize("choose", ["rejected", "drawn", "margin", "random"])
def test_an_audit_estimates_the_error_of_the_accepted_without_bias(choose):
    shuffled = np.random.default_rng(0).permutation(len(Y))
    rows, labels, times = X[shuffled], Y[shuffled], TIMES[shuffled]
    ice = {"ICE": InductiveEvaluator(LinearSVC(random_state=0), random_state=0, verbose=False)}
    audits, truth = [], 0.0
    for seed in range(60):
        result = backtest(
            ice,
            rows,
            labels,
            times,
            train=TRAIN,
            random_state=seed,
            verbose=False,
            retrain=Retraining(40, choose, every=100),
        )
        audits.append(result.audit("ICE"))
        truth = result.summary()["error_kept"][0]
    errors = np.array([audit.error for audit in audits])
    assert abs(errors.mean() - truth) < 4 * errors.std() / np.sqrt(len(errors))
    inside = sum(audit.low <= truth <= audit.high for audit in audits)
    assert binom.cdf(inside, 60, 0.95) > 1e-4
    with pytest.raises(ValueError, match="has no labels to audit"):
        backtest(ice, X, Y, TIMES, train=TRAIN).audit("ICE")


@pytest.mark.parametrize(
    "retrain", [Retraining(30, audit=0), Retraining(30, "margin", audit=0), Retraining(2)]
)
def test_an_audit_of_nothing_knows_nothing(retrain):
    ice = {"ICE": InductiveEvaluator(LinearSVC(), random_state=0)}
    audit = backtest(ice, X, Y, TIMES, train=TRAIN, retrain=retrain).audit("ICE")
    assert np.isnan(audit.error)
    assert (audit.low, audit.high) == (0, 1)


def test_what_cannot_learn_is_named():
    rejectors = {"margin": InductiveEvaluator(LinearSVC(), random_state=0)}
    with pytest.raises(ValueError, match=r"margin: Margin\(\) has no models"):
        backtest(rejectors, X, Y, TIMES, train=TRAIN, retrain=Retraining(20, what="judge"))
