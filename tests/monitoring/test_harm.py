"""The error among accepted answers."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from transcendent import InductiveEvaluator
from transcendent.monitoring import HarmMonitor, expected_errors


def audited(rng, chances, n, labels):
    """Return for each batch the wrong audited answers, their expected errors, and the true share."""
    for chance in chances:
        doubt = np.clip(rng.beta(0.2, 2, n) * chance / 0.09, 0, 1)
        wrong = rng.random(n) < doubt
        drawn = rng.choice(n, labels, replace=False)
        yield wrong[drawn], doubt[drawn], doubt, wrong.mean()


@pytest.mark.slow
@pytest.mark.parametrize("runs", [30, pytest.param(300, marks=pytest.mark.full)])
@pytest.mark.parametrize("helped", [False, True])
def test_the_interval_holds_at_all_times_while_the_error_moves(helped, runs):
    rng, failed = np.random.default_rng(0), 0
    chances = 0.05 + 0.04 * np.sin(np.arange(25))
    for _ in range(runs):
        monitor, truths, held = HarmMonitor(0.5, delta=0.1), [], True
        for wrong, own, everybody, truth in audited(rng, chances, 100, 40):
            monitor.update(wrong, **({"doubt": own, "all_doubt": everybody} if helped else {}))
            truths.append(truth)
            _, low, high, _ = monitor.kept_error
            held &= low <= np.mean(truths) <= high
        failed += not held
    assert failed <= binom.ppf(0.9999, runs, 0.1)


@pytest.mark.slow
def test_good_estimates_narrow_the_interval_and_bad_ones_do_no_harm():
    rng = np.random.default_rng(1)
    widths = {"none": [], "good": [], "bad": []}
    for _ in range(5):
        monitors = {name: HarmMonitor(0.5) for name in widths}
        for _ in range(60):
            wrong = rng.random(400) < 0.3
            good, bad = np.where(wrong, 0.95, 0.02), rng.random(400)
            drawn = rng.choice(400, 20, replace=False)
            monitors["none"].update(wrong[drawn])
            monitors["good"].update(wrong[drawn], doubt=good[drawn], all_doubt=good)
            monitors["bad"].update(wrong[drawn], doubt=bad[drawn], all_doubt=bad)
        for name, monitor in monitors.items():
            _, low, high, _ = monitor.kept_error
            widths[name].append(high - low)
    none, good, bad = (np.mean(widths[name]) for name in ("none", "good", "bad"))
    assert good < 0.6 * none
    assert bad < 1.1 * none


@pytest.mark.slow
@pytest.mark.parametrize("runs", [50, pytest.param(1000, marks=pytest.mark.full)])
def test_false_alarms_are_as_rare_as_said(runs):
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(runs):
        monitor = HarmMonitor(0.05, delta=0.1)
        for wrong, *_ in audited(rng, [0.05] * 50, 200, 16):
            monitor.update(wrong)
        alarms += monitor.alarm is not None
    assert alarms <= binom.ppf(0.9999, runs, 0.1)


def test_harm_is_found_after_a_long_good_time():
    rng, monitor = np.random.default_rng(3), HarmMonitor(0.02)
    for _ in range(300):
        monitor.update(rng.random(16) < 0.005)
    assert monitor.alarm is None
    for _ in range(30):
        monitor.update(rng.random(16) < 0.12)
    assert 300 * 16 < monitor.alarm.at < 320 * 16


def test_interval_against_brute_force():
    monitor = HarmMonitor(0.1)
    monitor.update([True] * 3 + [False] * 57)
    _, low, high, labels = monitor.kept_error
    grid = np.linspace(0, 1, 2001)
    inside = grid[[monitor._log_interval_capital(m) <= -np.log(0.05) for m in grid]]
    assert (low, high) == (pytest.approx(inside[0], abs=1e-3), pytest.approx(inside[-1], abs=1e-3))
    assert labels == 60


def test_a_restart_at_any_position_changes_nothing():
    rng = np.random.default_rng(4)
    whole, part = HarmMonitor(0.05), HarmMonitor(0.05)
    for wrong, own, everybody, _ in audited(rng, [0.08] * 40, 100, 10):
        part = HarmMonitor.from_json(part.to_json())
        for monitor in (whole, part):
            monitor.update(wrong, doubt=own, all_doubt=everybody)
    assert part == whole
    assert repr(part) == repr(whole)


def test_expected_errors_follow_the_calibration_objects():
    X, y = make_classification(4000, flip_y=0.2, random_state=0)
    ice = InductiveEvaluator(LogisticRegression(), random_state=0, verbose=False).fit(X[:2000], y[:2000])
    decisions = ice.decide(X[2000:])
    expected = expected_errors(ice, decisions)
    assert np.all((expected >= 0) & (expected <= 1))
    assert expected.mean() == pytest.approx(np.mean(decisions.labels != y[2000:]), abs=0.03)
    assert expected[decisions.rejected].mean() > expected[decisions.accepted].mean()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"wrong": [0.5]}, "one per audited answer"),
        ({"wrong": [[True]]}, "one per audited answer"),
        ({"wrong": [True], "doubt": [2.0], "all_doubt": [0.1]}, "must be probabilities"),
        ({"wrong": [True], "doubt": [0.1, 0.2], "all_doubt": [0.1]}, "must be probabilities"),
        ({"wrong": [True], "doubt": [0.1], "all_doubt": [np.nan]}, "must be probabilities"),
        ({"wrong": [True], "doubt": [0.1]}, "both"),
        ({"wrong": [True, None]}, "one per audited answer"),
        ({"wrong": pd.array([True, None])}, "one per audited answer"),
        ({"wrong": [True], "doubt": [0.1], "all_doubt": []}, "including the audited ones"),
        ({"wrong": [True] * 2, "doubt": [0.1] * 2, "all_doubt": [0.1]}, "including the audited ones"),
        ({"wrong": [True], "doubt": [0.3], "all_doubt": [0.1] * 5}, "including the audited ones"),
    ],
)
def test_bad_labels_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        HarmMonitor(0.1).update(**given)


def test_bad_settings_and_states_are_refused():
    for wrong in ({"promised": 0.0}, {"promised": 0.1, "delta": 1.0}, {"promised": None}):
        with pytest.raises(ValueError, match="between 0 and 1"):
            HarmMonitor(**wrong)
    state = json.loads(HarmMonitor(np.float32(0.1)).to_json())
    for change, match in (
        ({"kind": "DriftMonitor"}, "not the state of a HarmMonitor"),
        ({"format": 9}, "format 9"),
        ({"wrong": 3}, "damaged"),
        ({"labels": None}, "damaged"),
        ({"more": 1}, "damaged"),
    ):
        with pytest.raises(ValueError, match=match):
            HarmMonitor.from_json(json.dumps(state | change))


@pytest.mark.parametrize("value", [..., None, True, -7, 10**400, 1e999, "x", [], {}], ids=range(9))
def test_states_with_any_part_damaged_are_refused(value):
    monitor = HarmMonitor(0.05)
    monitor.update([False, True, False])
    text = monitor.to_json()
    inner = [("history", "n"), ("history", "columns"), ("log_starts", 3)]
    for path in [*((key,) for key in json.loads(text)), *inner]:
        state = json.loads(text)
        place = state
        for key in path[:-1]:
            place = place[key]
        is_log = path[0] in ("log_value", "log_starts")
        fine = (value is None and path == ("alarm",)) or (value == -7 and is_log)
        if fine or place[path[-1]] == value:
            continue
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        with pytest.raises(ValueError, match=r"."):
            HarmMonitor.from_json(json.dumps(state).replace("Infinity", "1e999"))


def test_labels_that_no_draw_explains_end_in_an_interval_of_one_point():
    monitor = HarmMonitor(0.05)
    monitor.update(np.zeros(1000), doubt=np.zeros(1000), all_doubt=np.r_[np.zeros(1000), np.ones(9000)])
    assert monitor.kept_error.low <= monitor.kept_error.high
    assert monitor.labels == 1000


def test_labels_that_are_unknown_have_no_expected_error():
    X, y = make_classification(600, random_state=0)
    ice = InductiveEvaluator(LogisticRegression(), random_state=0, verbose=False).fit(X, y)
    decisions = ice.decide(X[:5])
    with pytest.raises(ValueError, match="outside the classes"):
        expected_errors(ice, replace(decisions, labels=decisions.labels + 7))


def test_nothing_is_known_before_the_first_label():
    monitor = HarmMonitor(0.1)
    monitor.update([])
    assert np.isnan(monitor.kept_error.error)
    assert monitor.kept_error[1:] == (0.0, 1.0, 0)
    assert "nothing known yet" in repr(monitor)
