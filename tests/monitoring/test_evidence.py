"""Bets and alarms."""

import json
import math

import numpy as np
import pytest
from scipy.stats import binom

from transcendent.monitoring.evidence import Evidence, JointEvidence
from transcendent.monitoring.martingales import MARTINGALES, Jumper, Mixture

RULES = ("ville", "cusum", "shiryaev-roberts")


def start(betting, rule, threshold=100.0):
    return Evidence.of(betting, rule, threshold)


def test_the_jumper_is_the_mean_of_its_paths():
    p = np.random.default_rng(0).beta(0.8, 1, 350)
    capital = dict.fromkeys((-1, -0.5, 0, 0.5, 1), 1 / 5)
    for t, x in enumerate(p):
        jump, total = 0.1 * (t > 0 and t % 100 == 0), sum(capital.values())
        capital = {e: ((1 - jump) * c + jump * total / 5) * (1 + e * (x - 0.5)) for e, c in capital.items()}
    assert Jumper().update(p)[-1] == pytest.approx(math.log(sum(capital.values())), rel=1e-12)


@pytest.mark.parametrize("n", [1, 3, 50, 3000])
@pytest.mark.parametrize("surprise", [0.001, 0.3, 1.0, 1.3, 5.0])
def test_the_mixture_is_an_integral(n, surprise):
    epsilon = (np.arange(400_000) + 0.5) / 400_000
    logs = n * np.log(epsilon) + (1 - epsilon) * n * surprise
    integral = logs.max() + math.log(np.mean(np.exp(logs - logs.max())))
    assert Mixture().update(np.full(n, math.exp(-surprise)))[-1] == pytest.approx(integral, abs=2e-3)


@pytest.mark.parametrize("betting", MARTINGALES)
@pytest.mark.parametrize("rule", RULES)
def test_evidence_is_what_its_starts_have_gained(betting, rule):
    p = np.random.default_rng(0).beta(0.7, 1, 250)
    logs = np.concatenate([[0.0], MARTINGALES[betting]().update(p)])
    for t, value in enumerate(start(betting, rule).update(p), start=1):
        gains = np.exp(logs[t] - logs[:t])
        s = np.arange(0, t, 100)
        left = 1 / np.log2(np.arange(len(s) + 1) + 2)
        expected = {
            "ville": np.sum(gains[s] * -np.diff(left)) + left[-1],
            "cusum": gains.max(),
            "shiryaev-roberts": gains.sum(),
        }[rule]
        assert math.exp(value) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("betting", MARTINGALES)
@pytest.mark.parametrize("rule", RULES)
def test_any_batches_and_a_restart_at_any_position_change_nothing(betting, rule):
    rng = np.random.default_rng(1)
    p = np.concatenate([rng.random(300), rng.beta(0.4, 1, 200)])
    whole = start(betting, rule)
    values = whole.update(p)
    part, found = start(betting, rule), []
    for x in np.split(p, np.sort(rng.choice(500, 60, replace=False))):
        state = json.loads(json.dumps(part.to_json(), allow_nan=False))
        part = Evidence.of(betting, rule, 100.0, state)
        found.append(part.update(x))
    assert np.array_equal(np.concatenate(found), values)
    assert part.to_json() == whole.to_json()
    assert whole.alarm is not None


@pytest.mark.parametrize("betting", MARTINGALES)
@pytest.mark.parametrize("rule", RULES)
def test_joint_evidence_is_the_mean_of_its_parts(betting, rule):
    rng = np.random.default_rng(5)
    p, codes = rng.beta(0.7, 1, 300), rng.integers(0, 2, 300)
    joint = JointEvidence.of(3, betting, rule, 100.0)
    values = np.concatenate([joint.update(codes[:120], p[:120]), joint.update(codes[120:], p[120:])])
    each = [start(betting, rule) for _ in range(3)]
    for t, value in enumerate(values, start=1):
        each[2].update(p[t - 1 : t])
        each[codes[t - 1]].update(p[t - 1 : t])
        unseen = 1.0 if rule == "ville" else 0.0  # of the label that never comes
        mean = (sum(math.exp(one.log_value) for one in each) + unseen) / 4
        assert math.exp(value) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("betting", MARTINGALES)
def test_ville_holds(betting):
    rng, runs = np.random.default_rng(2), 400
    false = 0
    for _ in range(runs):
        evidence = start(betting, "ville", 20.0)
        evidence.update(rng.random(1000))
        false += evidence.alarm is not None
    assert false <= binom.ppf(0.9999, runs, 1 / 20)


@pytest.mark.parametrize("betting", MARTINGALES)
@pytest.mark.parametrize("rule", ["cusum", "shiryaev-roberts"])
def test_the_mean_time_to_a_false_alarm_is_at_least_the_threshold(betting, rule):
    rng, times = np.random.default_rng(3), []
    for _ in range(200):
        evidence = start(betting, rule, 50.0)
        evidence.update(rng.random(4000))
        times.append(evidence.alarm.at if evidence.alarm else 4000)
    assert np.mean(times) + 4 * np.std(times) / np.sqrt(200) >= 50


@pytest.mark.parametrize("betting", MARTINGALES)
@pytest.mark.parametrize("rule", RULES)
def test_drift_is_found_after_a_long_quiet_time(betting, rule):
    rng = np.random.default_rng(4)
    evidence = start(betting, rule, 1e6)
    evidence.update(rng.random(20_000))
    assert evidence.alarm is None
    evidence.update(rng.beta(0.5, 1, 2000))
    assert 20_000 < evidence.alarm.at < 22_000
