"""A backtest with several seeds equals the backtests with each seed, and has intervals."""

import os
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC

from transcendent import Answers, InductiveEvaluator, ScoreEvaluator
from transcendent.baselines import CPReject
from transcendent.datasets import make_stream
from transcendent.errors import TemporalBiasWarning
from transcendent.temporal import Backtest, RepeatedBacktest, Retraining, backtest

STREAM = make_stream(3000, n_periods=8, concept=0.5, random_state=0)
DATA = (STREAM.X, STREAM.y, STREAM.times)
REJECTORS = {"ICE": InductiveEvaluator(SGDClassifier(loss="log_loss")), "CP": CPReject(LinearSVC())}
SEEDS = [3, 0, 7]


def run(*, random_state=SEEDS, rejectors=REJECTORS, data=DATA, **given):
    return backtest(rejectors, *data, train="2020-04", random_state=random_state, **given)


@pytest.fixture(scope="module")
def repeated():
    return run()


def assert_same(one, two):
    for a, b in zip(one.answers.values(), two.answers.values(), strict=True):
        for name, column in a.columns().items():
            np.testing.assert_array_equal(column, getattr(b, name))
    assert_equal_columns(one.summary(), two.summary())


def assert_equal_columns(one, two):
    assert list(one) == list(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def scores():
    detector = LinearSVC(random_state=0).fit(STREAM.X[:600], STREAM.y[:600])
    values = detector.decision_function(STREAM.X)
    answers = Answers(detector.predict(STREAM.X), np.column_stack([values, -values]))
    return {"rejectors": {"scores": ScoreEvaluator()}, "data": (answers, *DATA[1:])}


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"retrain": Retraining(20, "random")},
        {"n_jobs": 2},
        {"chronological": True, "rejectors": {"ICE": InductiveEvaluator(SGDClassifier())}},
        {"period": "quarter", "pos_label": 0},
        scores(),
    ],
    ids=["plain", "retrained", "in processes", "chronological", "quarters", "scores"],
)
def test_every_seed_gives_what_it_gives_alone(given):
    repeated = run(random_state=np.array(SEEDS), **given)
    assert list(repeated.results) == SEEDS
    for seed, result in repeated.results.items():
        alone = run(random_state=seed, **given)
        assert_same(result, alone)
        differ = ("finished", "seconds")
        assert {k: v for k, v in result.manifest.items() if k not in differ} == {
            k: v for k, v in alone.manifest.items() if k not in differ
        }


def test_means_and_intervals_are_students(repeated):
    frame = repeated.to_frame().set_index(["rejector", "metric"])
    assert set(frame.index.get_level_values("metric")) == {*repeated.results[0].summary()} - {"rejector"}
    for i, name in enumerate(REJECTORS):
        values = [result.summary()["aut_f1_kept"][i] for result in repeated.results.values()]
        row = frame.loc[name, "aut_f1_kept"]
        assert row["mean"] == pytest.approx(np.mean(values))
        expected = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
        assert (row.low, row.high) == pytest.approx(expected)
        assert row.low < row.high
    np.testing.assert_array_equal(repeated.to_frame("polars")["mean"].to_numpy(), frame["mean"])


def test_it_is_shown_with_half_intervals_within_a_terminal(repeated):
    frame = repeated.to_frame().set_index(["rejector", "metric"])
    row = frame.loc["ICE", "f1_kept"]
    shown = f"{row['mean']:.3f} ± {row.high - row['mean']:.3f}"
    assert re.search(rf"^F1 of kept +{shown} ", repr(repeated), re.MULTILINE)
    assert "3 seeds (3, 0, 7): " in repr(repeated)
    assert f">{shown}</td>" in repeated._repr_html_()
    in_latex = shown.replace("±", r"$\pm$")
    assert f"F1 of kept & {in_latex} & " in repeated.to_latex()
    names = [f"rejector {i} with <a> name_that_is long" for i in range(9)]
    many = {
        seed: replace(result, answers=dict.fromkeys(names, result.answers["ICE"]))
        for seed, result in repeated.results.items()
    }
    text = repr(RepeatedBacktest(many))
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("F1 of kept") == 3
    assert text.count(shown) == 9
    assert "<a>" not in RepeatedBacktest(many)._repr_html_()


def test_what_is_undefined_for_a_seed_is_a_dash(repeated):
    first, *others = repeated.results.items()
    ice = first[1].answers["ICE"]
    keeps_all = replace(first[1], answers={"ICE": replace(ice, accepted=np.ones(len(ice), dtype=bool))})
    alone = {seed: replace(r, answers={"ICE": r.answers["ICE"]}) for seed, r in others}
    text = repr(RepeatedBacktest({first[0]: keeps_all} | alone))
    assert re.search(r"^error of rejected +–$", text, re.MULTILINE)
    assert "nan" not in text


def test_folders_of_seeds_resume_and_are_read_again(tmp_path, repeated):
    first = run(folder=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["seed-0", "seed-3", "seed-7"]
    assert Backtest.load(tmp_path / "seed-7").manifest["random_state"] == 7
    again = run(folder=tmp_path, random_state=[0, 3, 7])
    for seed in SEEDS:
        assert_same(first.results[seed], repeated.results[seed])
        assert again.results[seed].manifest["finished"] == first.results[seed].manifest["finished"]
    loaded = RepeatedBacktest.load(tmp_path)
    assert list(loaded.results) == [0, 3, 7]
    assert_equal_columns(loaded.summary(), again.summary())
    with pytest.raises(ValueError, match="seed-3 holds another backtest"):
        run(folder=tmp_path, pos_label=0)
    fresh = run(folder=tmp_path, pos_label=0, fresh=True)
    assert fresh.results[0].pos_label == 0
    with pytest.raises(FileNotFoundError, match="no folders seed-0"):
        RepeatedBacktest.load(tmp_path / "seed-0")
    (tmp_path / "seed-old").mkdir()
    assert list(RepeatedBacktest.load(tmp_path).results) == [0, 3, 7]
    run(folder=tmp_path, random_state=[0, 3], fresh=True)
    with pytest.raises(ValueError, match="seed-7 and seed-0 are different backtests"):
        RepeatedBacktest.load(tmp_path)
    (tmp_path / "seed-7/manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match="seed-7 has no finished backtest"):
        RepeatedBacktest.load(tmp_path)


class Interrupted(InductiveEvaluator):
    """Fails after a number of batches."""

    left = 0

    def decide(self, rows):
        if Interrupted.left == 0:
            raise KeyboardInterrupt
        Interrupted.left -= 1
        return super().decide(rows)


def test_an_interrupted_run_resumes_in_the_seed_it_was_in(tmp_path):
    rejectors = {"stops": Interrupted(LinearSVC())}
    Interrupted.left = 100
    whole = run(rejectors=rejectors)
    periods = len(whole.results[0].periods)
    Interrupted.left = periods + 2
    with pytest.raises(KeyboardInterrupt):
        run(rejectors=rejectors, folder=tmp_path)
    Interrupted.left = 2 * periods - 2
    resumed = run(rejectors=rejectors, folder=tmp_path)
    assert Interrupted.left == 0
    for seed in SEEDS:
        assert_same(resumed.results[seed], whole.results[seed])


@pytest.mark.parametrize("seeds", [[], [1], [1, 1], (0, 1, 0)])
def test_seeds_are_several_and_differ(seeds):
    with pytest.raises(ValueError, match="one seed or several different ones"):
        run(random_state=seeds)


@pytest.mark.parametrize("seeds", ["01", [0.5, 1.7]])
def test_seeds_are_whole_numbers(seeds):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        run(random_state=seeds)


def test_biases_are_warned_about_once_and_where_the_caller_is():
    with pytest.warns(TemporalBiasWarning, match="class_ratio") as caught:
        backtest(REJECTORS, *DATA, train="2020-04", random_state=[0, 1], class_ratio={1: 0.01})
    assert [warning.filename for warning in caught] == [__file__]


def test_a_frozen_detector_may_not_vary_at_all():
    frozen = FrozenEstimator(LinearSVC(random_state=0).fit(STREAM.X[:900], STREAM.y[:900]))
    same = run(rejectors={"ICE": InductiveEvaluator(frozen)})
    np.testing.assert_allclose(same.to_frame().query("metric == 'error_baseline'").eval("high - low"), 0)


def test_a_rejector_with_a_seed_of_its_own_is_warned_about():
    rejectors = {
        "own": InductiveEvaluator(LinearSVC(), random_state=0),
        "none": InductiveEvaluator(LinearSVC()),
    }
    with pytest.warns(UserWarning, match="^own: a random_state that is set"):
        backtest(rejectors, *DATA, train="2020-03", random_state=[0, 1])
