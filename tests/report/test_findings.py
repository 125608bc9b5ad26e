"""Findings are the backtest's own figures, and everything else only renders them."""

import ast
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

import transcendent.report
from tests.report.test_report import random_backtest
from transcendent.report.findings import MAX_CLASSES, MAX_DRAWN, MAX_PERIODS, ErrorCounts, find
from transcendent.temporal import RepeatedBacktest


@pytest.mark.parametrize("classes", [("benign", "malware"), tuple(f"family {i:02}" for i in range(25))])
@pytest.mark.parametrize("periods", [6, 2 * MAX_PERIODS + 1])
def test_counts_are_those_of_the_first_rejector(classes, periods):
    result = random_backtest(3000, periods, classes=classes, rejectors=("ICE", "other"))
    f, answer = find(result), result.answers["ICE"]
    wrong = answer.labels != result.y
    counted = len(wrong), (~answer.accepted).sum(), wrong.sum(), (wrong & ~answer.accepted).sum()
    assert f.overall == ErrorCounts(*map(int, counted))
    assert np.sum([astuple(p.counts) for p in f.by_period], axis=0).tolist() == list(counted)
    rest = [] if f.other_classes is None else [astuple(f.other_classes)]
    assert np.sum([astuple(c) for _, c in f.by_class] + rest, axis=0).tolist() == list(counted)
    assert len(f.by_class) == min(len(classes), MAX_CLASSES)
    for label, counts in f.by_class:
        assert counts.objects == (result.y == label).sum()
        assert counts.caught == (wrong & ~answer.accepted & (result.y == label)).sum()
    assert len(f.by_period) == -(-periods // f.step) <= MAX_PERIODS


def test_figures_of_rejectors_are_those_of_the_summary():
    result = random_backtest(900, 3, rejectors=[f"rejector {i}" for i in range(10)])
    f, summary = find(result), result.summary()
    for i, rejector in enumerate(f.rejectors):
        for key in ("rejection_rate", "f1_kept", "error_kept", "errors_caught", "caught_at_15", "aurc"):
            assert getattr(rejector, key) == summary[key][i]
        assert (rejector.all, rejector.kept) == (summary["f1_baseline"][i], summary["f1_kept"][i])
    assert [r.kept_at_15 for r in f.rejectors] == summary["f1_kept_at_15"].tolist()
    assert len(f.over_time) == len(f.risk.rejectors) == MAX_DRAWN
    assert f.over_time[0].kept.tolist() == result.series("rejector 0", "f1").tolist()


def test_only_findings_look_into_a_backtest():
    folder = Path(transcendent.report.__file__).parent
    for module in ("words", "results", "figures", "svg"):
        tree = ast.parse((folder / f"{module}.py").read_text())
        imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [name for name in imported if name.startswith("transcendent.temporal")]


def test_several_seeds_are_means_with_half_of_their_interval():
    names = ("ICE", "other")
    runs = {seed: random_backtest(900, 4, rejectors=names, seed=0) for seed in (3, 5, 8)}
    for seed, run in runs.items():  # the same objects, decided by other fits
        rng = np.random.default_rng(seed)
        for name, answer in run.answers.items():
            run.answers[name] = replace(answer, accepted=rng.random(900) < 0.8)
    repeated = RepeatedBacktest(runs)
    f, summary = find(repeated), repeated.summary()
    assert f.seeds == (3, 5, 8)
    for i, name in enumerate(names):
        for key in ("rejection_rate", "f1_kept", "errors_caught", "aurc"):
            row = (summary["rejector"] == name) & (summary["metric"] == key)
            assert getattr(f.rejectors[i], key) == pytest.approx(summary["mean"][row].item())
            half = (summary["high"] - summary["low"])[row].item() / 2
            assert getattr(f.halves[i], key) == pytest.approx(half)
    kept = np.array([run.series("ICE", "f1", "kept") for run in runs.values()])
    np.testing.assert_allclose(f.over_time[0].kept, kept.mean(axis=0))
    np.testing.assert_array_equal(f.over_time[0].interval, [kept.min(axis=0), kept.max(axis=0)])
    rejected = np.mean([run.answers["ICE"].rejected.sum() for run in runs.values()])
    assert abs(f.overall.rejected - rejected) <= 8  # every cell is rounded
    assert find(runs[3]).halves == ()
