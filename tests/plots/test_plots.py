import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.stats import entropy
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

import transcendent.plots as plots
from transcendent import (
    CrossConformalEvaluator,
    ExactSearch,
    InductiveEvaluator,
    QuartileSearch,
    RandomSearch,
)
from transcendent._utils.text import shorten
from transcendent.baselines import ProbabilityThresholds
from transcendent.errors import MissingExtraError
from transcendent.metrics import F1, ErrorRate, area_under_time, errors_caught
from transcendent.monitoring import DriftMonitor, HarmMonitor, covariate_shift
from transcendent.plots import (
    AlphaAssessmentDisplay,
    ComparisonDisplay,
    CovariateShiftDisplay,
    DifferenceDisplay,
    EvidenceDisplay,
    MonitorDisplay,
    PerformanceDisplay,
    QuorumDisplay,
    RiskCoverageDisplay,
    StaffingDisplay,
    TradeOffDisplay,
)
from transcendent.plots.base import gaps, thin_labels
from transcendent.temporal import RepeatedBacktest, backtest, compare, time_split

mpl.use("Agg")
import matplotlib.pyplot as plt

NAN = float("nan")


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


def stream(n_classes, *, n=3000, months=14, empty=(), seed=0):
    """Classes around centres that wander; a month may have no objects."""
    rng = np.random.default_rng(seed)
    month = np.sort(rng.integers(months, size=n))
    month = month[~np.isin(month, empty)]
    y = rng.integers(n_classes, size=len(month))
    centres = rng.normal(size=(n_classes, 6)) * 2
    X = centres[y] + rng.normal(size=(len(y), 6)) * (1 + month[:, None] / 5)
    return X, np.array([f"class {c:02}" for c in y]), np.datetime64("2020-01") + month


SERIES = ("kept", "all objects", "rejected")
ALLOWED = ("few_positives", "class_windows")


@pytest.fixture(scope="module")
def data():
    return stream(2, empty=[9])


@pytest.fixture(scope="module")
def result(data):
    rejectors = {
        "ICE": InductiveEvaluator(LogisticRegression()),
        "CCE": CrossConformalEvaluator(LogisticRegression(), cv=5),
    }
    return backtest(rejectors, *data, train="2020-07", allow=ALLOWED, monitor=100)


@pytest.fixture(scope="module")
def repeated(data):
    rejectors = {
        "ICE": InductiveEvaluator(LogisticRegression()),
        "probability": ProbabilityThresholds(LogisticRegression()),
    }
    return backtest(rejectors, *data, train="2020-07", allow=ALLOWED, random_state=[0, 1, 2])


@pytest.fixture(scope="module")
def many_classes():
    X, y, times = stream(12, n=6000)
    ice = InductiveEvaluator(LogisticRegression(max_iter=1000), random_state=0)
    return backtest({"ICE": ice}, X, y, times, train="2020-07", allow=ALLOWED), ice.fit(X, y)


@pytest.fixture(scope="module")
def ice(data):
    X, y, _ = data
    return InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def displays(result, ice, data):
    X, y, times = data
    drift, harm = DriftMonitor.of(ice), HarmMonitor(promised=0.1)
    decisions = drift.update(X)
    for day in np.array_split(decisions.labels != y, 20):
        harm.update(day[:16])
    return [
        PerformanceDisplay.from_backtest(result, "ICE", intervals=True),
        RiskCoverageDisplay.from_backtest(result),
        QuorumDisplay.from_backtest(result, "CCE", folds=5),
        AlphaAssessmentDisplay.from_calibration(ice.calibration_),
        TradeOffDisplay.from_evaluator(ice, n_points=5),
        CovariateShiftDisplay.from_data(X > 1, time_split(times, train="2020-07")),
        MonitorDisplay.from_monitors(drift, harm),
        EvidenceDisplay.from_backtest(result),
        ComparisonDisplay.from_backtest(result),
        StaffingDisplay.from_backtest(result, minutes=10),
        DifferenceDisplay.from_comparisons({"ICE − CCE": compare(result, result, rejectors=("ICE", "CCE"))}),
    ]


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_every_public_display_is_tested(displays):
    public = {name for name in plots.__all__ if name.endswith("Display")}
    assert public == {type(display).__name__ for display in displays}


@pytest.mark.slow
def test_a_figure_of_its_own(displays):
    before = dict(mpl.rcParams)
    for display in displays:
        assert display.plot() is display
        assert display.figure_ is plt.gcf()
        assert display.figure_.axes == list(display.axes_)
        assert display.ax_ is display.axes_[0]
        display.figure_.savefig("/dev/null", format="png")
    assert dict(mpl.rcParams) == before


@pytest.mark.slow
def test_in_place_of_a_given_axes(displays):
    for display in displays:
        figure, (left, right) = plt.subplots(1, 2, figsize=(14, 5), layout="constrained")
        display.plot(left)
        assert display.figure_ is figure
        assert right in figure.axes
        assert all(ax in figure.axes for ax in display.axes_)
        assert (left in figure.axes) == (len(display.axes_) == 1)
        assert max(ax.get_position().x1 for ax in display.axes_) < 0.6 or len(display.axes_) > 1
        figure.savefig("/dev/null", format="png")


def test_several_panels_need_a_place_in_a_grid(displays):
    ax = plt.figure().add_axes((0, 0, 1, 1))
    with pytest.raises(
        ValueError, match=r"QuorumDisplay has several panels: pass an axes from plt.subplots\(\)"
    ):
        displays[2].plot(ax)
    assert displays[1].plot(ax).ax_ is ax


def test_computing_needs_no_matplotlib_and_drawing_says_how_to_get_it(result, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    display = RiskCoverageDisplay.from_backtest(result)
    with pytest.raises(MissingExtraError, match=r'pip install "transcendent\[plots\]"'):
        display.plot()


def test_performance_by_hand(result):
    display = PerformanceDisplay.from_backtest(result, "CCE", intervals=True)
    answer = result.answers["CCE"]
    for i in range(len(result.periods)):
        here = result.period == i
        for name, rows in {
            "kept": here & answer.accepted,
            "baseline": here,
            "rejected": here & ~answer.accepted,
        }.items():
            value = getattr(display, name)[i]
            if rows.any():
                f1 = f1_score(result.y[rows], answer.labels[rows], pos_label="class 01")
                assert value == pytest.approx(f1)
            else:
                assert np.isnan(value)
        if here.any():
            assert display.rejection_rate[i] == pytest.approx(np.mean(~answer.accepted[here]))
            for c, label in enumerate(["class 00", "class 01"]):
                of_class = ~answer.accepted[here & (result.y == label)]
                assert display.class_rejection_rate[c, i] == pytest.approx(of_class.mean())
    low, high = display.interval
    there = ~np.isnan(display.kept)
    assert (low[there] <= high[there]).all()
    assert np.isnan(low[~there]).all()


def test_periods_whose_neighbours_are_undefined_are_drawn_as_points(result):
    whole = PerformanceDisplay.from_backtest(result, "ICE", intervals=True)
    n = np.nan
    values = np.array([0.9, n, 0.8, n, 0.7, 0.6, n, 0.5])
    display = replace(
        whole, kept=values, baseline=values / 2, interval=np.array([values - 0.1, values + 0.1])
    )
    upper, _ = display.plot().axes_
    (points,) = [line for line in upper.lines if line.get_marker() == "_"]
    np.testing.assert_array_equal(points.get_xdata(), [0, 2, 7])
    np.testing.assert_array_equal(points.get_ydata(), [0.45, 0.4, 0.25])
    shades = upper.collections[-1].get_segments()
    np.testing.assert_allclose(shades, [[[i, values[i] - 0.1], [i, values[i] + 0.1]] for i in (0, 2, 7)])
    one = replace(whole, periods=whole.periods[:1], kept=values[:1], baseline=values[:1], interval=None)
    one = replace(one, rejected=values[:1], rejection_rate=values[:1], class_rejection_rate=np.ones((2, 1)))
    assert one.plot().axes_[0].lines[-2].get_ydata().tolist() == [0.9]


def test_bars_have_the_height_of_what_is_rejected(result):
    display = PerformanceDisplay.from_backtest(result, "ICE").plot()
    bars = [path.vertices for path in display.axes_[1].collections[0].get_paths()]
    there = np.flatnonzero(~np.isnan(display.rejection_rate))
    assert len(bars) == len(there) < len(result.periods)
    for i, bar in zip(there, bars, strict=True):
        assert (bar[:, 0].min(), bar[:, 0].max()) == pytest.approx((i - 0.4, i + 0.4))
        assert (bar[:, 1].min(), bar[:, 1].max()) == pytest.approx((0, display.rejection_rate[i]))


def test_performance_as_drawn(result):
    display = PerformanceDisplay.from_backtest(result, "ICE").plot()
    upper, lower = display.axes_
    assert texts(upper) == ["kept", "all objects", "rejected"]
    assert texts(lower) == ["all objects", "true class class 00", "true class class 01"]
    assert len({line.get_linestyle() for line in upper.lines}) == 3
    np.testing.assert_array_equal(upper.lines[0].get_ydata(), display.kept)
    assert upper.get_xlim() == lower.get_xlim()
    assert upper.get_ylabel() == "F1"
    note = " ".join(lower.get_xlabel().split())
    assert "Gaps: undefined for kept, all" in note
    assert "1 of 8 periods (2020-10)" in note


def test_performance_with_intervals_with_counts_and_with_many_classes(result, many_classes):
    assert "95% interval" in texts(PerformanceDisplay.from_backtest(result, "ICE", intervals=True).plot().ax_)
    counts = PerformanceDisplay.from_backtest(result, "ICE", "objects").plot()
    assert counts.ax_.get_ylim()[1] > 2
    display = PerformanceDisplay.from_backtest(many_classes[0], "ICE", "error").plot()
    assert display.class_rejection_rate.shape == (0, 8)
    assert texts(display.axes_[1]) == ["all objects"]
    assert display.ax_.get_ylabel() == "error rate"
    assert display.axes_[1].get_xlabel() == "period"


def test_performance_refuses_what_there_is_not(result):
    with pytest.raises(ValueError, match="no rejector 'TCE'"):
        PerformanceDisplay.from_backtest(result, "TCE")
    with pytest.raises(ValueError, match="no metric 'f2'"):
        PerformanceDisplay.from_backtest(result, "ICE", "f2")


def test_risk_coverage_by_hand(result):
    display = RiskCoverageDisplay.from_backtest(result)
    for i, name in enumerate(["ICE", "CCE"]):
        answer = result.answers[name]
        wrong = answer.labels != result.y
        for c in (0.01, 0.37, 0.8, 1.0):
            errors = 0.0
            for period in np.unique(result.period):
                here = result.period == period
                if wrong[here].any():
                    caught = errors_caught(wrong[here], answer.credibility[here], rejection_rate=1 - c)
                    errors += (1 - caught) * wrong[here].sum()
            assert display.risk[i, round(c * 100) - 1] == pytest.approx(errors / (c * len(wrong)))
        assert display.chosen_coverage[i] == pytest.approx(answer.accepted.mean())
        assert display.chosen_risk[i] == pytest.approx(wrong[answer.accepted].mean())
    np.testing.assert_array_equal(display.aurc, result.summary()["aurc"])


def test_risk_coverage_as_drawn(result):
    display = RiskCoverageDisplay.from_backtest(result, ["CCE"]).plot()
    assert texts(display.ax_) == [f"CCE\nAURC {display.aurc[0]:.4f}", "as it rejects"]
    assert display.aurc == result.summary()["aurc"][1]
    assert len(RiskCoverageDisplay.from_backtest(result).plot().ax_.lines) == 5
    display.chosen_risk = np.array([NAN])
    assert "nothing was kept: CCE" in display.plot().ax_.get_xlabel()
    with pytest.raises(ValueError, match="no rejector 'TCE'"):
        RiskCoverageDisplay.from_backtest(result, ["TCE"])


def test_staffing_by_hand(result):
    display = StaffingDisplay.from_backtest(result, minutes=10)
    days = 8 * 365.2425 / 12
    assert display.objects == pytest.approx(len(result.y) / days)
    for i, name in enumerate(result.answers):
        for point in (0, 5, 40):
            caught = result.at_rejection(name, point / 100)["rejected"]["share_of_errors"]
            assert display.looks[point] == pytest.approx(point / 100 * len(result.y) / days)
            assert display.caught[i, point] == pytest.approx(caught)
        own = result.summary()
        assert display.chosen_caught[i] == pytest.approx(own["errors_caught"][i])
        assert display.chosen_looks[i] == pytest.approx(own["rejection_rate"][i] * len(result.y) / days)
    assert display._tick(0, 0) == "0"
    assert display._tick(3, 0) == "3\n30 min"
    assert display._tick(9, 0) == "9\n1.5 h"


def test_staffing_without_a_calendar_and_without_errors(result):
    named = replace(result, manifest=result.manifest | {"period": None})
    assert StaffingDisplay.from_backtest(named).unit == "period"
    assert StaffingDisplay.from_backtest(named).objects == len(result.y) / 8
    right = {name: replace(answer, labels=result.y) for name, answer in result.answers.items()}
    assert np.isnan(StaffingDisplay.from_backtest(replace(result, answers=right)).caught[:, 1:]).all()


def test_comparison_by_hand(result, many_classes):
    display = ComparisonDisplay.from_backtest(result, ["CCE", "ICE"]).plot()
    assert display.rejectors == ("CCE", "ICE")
    of_class = result.by_class
    for i, name in enumerate(display.rejectors):
        np.testing.assert_array_equal(display.kept[i], result.series(name, "f1", "kept"))
        np.testing.assert_array_equal(display.rejection_rate[i], result.series(name, "share", "rejected"))
        own = (of_class["rejector"] == name) & (of_class["class"] == "class 01")
        np.testing.assert_array_equal(display.positives_rejected[i], of_class["rejection_rate"][own])
    np.testing.assert_array_equal(display.baseline, result.series("CCE", "f1", "baseline"))
    assert texts(display.ax_) == ["all objects, CCE", "CCE", "ICE"]
    assert len(display.axes_) == 3
    assert "Gaps: undefined for CCE, ICE in 1 of 8 periods (2020-10)." in display.axes_[-1].get_xlabel()
    assert len(ComparisonDisplay.from_backtest(many_classes[0]).plot().axes_) == 2


def drawn(ax):
    """The values of each line, by its name in the legend."""
    handles = zip(*ax.get_legend_handles_labels(), strict=True)
    return {label: line.get_ydata() for line, label in handles if hasattr(line, "get_ydata")}


def bands(ax):
    """Lower and upper ends of each shaded band, by its colour, at every period where it is defined."""
    found = {}
    for area in ax.collections:
        for path in area.get_paths() if type(area).__name__ == "FillBetweenPolyCollection" else ():
            ends = found.setdefault(mpl.colors.to_hex(area.get_facecolor()[0]), {})
            for x, y in path.vertices:
                ends.setdefault(round(x), []).append(y)
    return {
        colour: {x: (min(ys), max(ys)) for x, ys in ends.items()} for colour, ends in found.items() if ends
    }


def test_a_list_of_rejectors_is_compared(result):
    display = result.plot(["CCE", "ICE"], "error")
    assert isinstance(display, ComparisonDisplay)
    assert list(drawn(display.ax_)) == ["all objects, CCE", "CCE", "ICE"]
    for name in ("CCE", "ICE"):
        np.testing.assert_array_equal(drawn(display.ax_)[name], result.series(name, "error", "kept"))
    assert bands(display.ax_) == {}
    with pytest.raises(ValueError, match="no rejector 'TCE'"):
        result.plot(["ICE", "TCE"])
    with pytest.raises(ValueError, match="no rejector to draw: name at least one"):
        result.plot([])


def test_a_list_of_rejectors_with_bootstrap_intervals(result):
    display = result.plot(["CCE", "ICE"], intervals=True)
    assert "95% interval" in texts(display.ax_)
    for i, name in enumerate(display.rejectors):
        low, high, _ = result.intervals(name)
        np.testing.assert_array_equal(display.interval[i], [low, high])


def test_means_of_seeds_with_students_intervals(repeated):
    display = repeated.plot()
    assert isinstance(display, ComparisonDisplay)
    assert texts(display.ax_) == ["all objects", "ICE", "probability", "95% interval"]
    assert display.ax_.get_title(loc="left") == "mean of 3 seeds"
    shaded = bands(display.ax_)
    assert len(shaded) == 2
    for i, (name, band) in enumerate(zip(repeated.results[0].answers, shaded.values(), strict=True)):
        values = np.array([result.series(name, "f1", "kept") for result in repeated.results.values()])
        rejected = [result.series(name, "share", "rejected") for result in repeated.results.values()]
        np.testing.assert_allclose(drawn(display.ax_)[name], values.mean(axis=0))
        np.testing.assert_allclose(display.axes_[1].lines[i].get_ydata(), np.mean(rejected, axis=0))
        for period in np.flatnonzero(~np.isnan(values).any(axis=0)):
            of_seeds = values[:, period]
            expected = stats.t.interval(0.95, 2, loc=of_seeds.mean(), scale=stats.sem(of_seeds))
            assert band[period] == pytest.approx(expected)
        assert 3 not in band  # a period without objects
    alone = repeated.plot("probability", "error")
    assert alone.rejectors == ("probability",)
    with pytest.raises(ValueError, match="no rejector 'TCE'"):
        repeated.plot(["TCE"])


def test_one_seed_has_no_interval(repeated):
    one = RepeatedBacktest({1: repeated.results[1]}).plot()
    assert one.interval is None
    assert bands(one.ax_) == {}
    assert one.ax_.get_title(loc="left") == ""
    np.testing.assert_array_equal(one.kept[0], repeated.results[1].series("ICE"))


def colours(ax):
    return [line.get_color() for line in ax.lines]


@pytest.mark.parametrize("metric", ["f1", "error"])
def test_one_display_over_another(result, repeated, metric):
    first = result.plot(["ICE"], metric)
    limits = [ax.get_ylim() for ax in first.axes_]
    second = repeated.results[2].plot(["ICE", "probability"], metric, ax=first.axes_)
    assert second.axes_ == first.axes_
    assert second.figure_.axes == list(first.axes_)
    names = texts(first.ax_)
    assert names == ["all objects", "ICE", "all objects (2)", "ICE (2)", "probability"]
    values = drawn(first.ax_)
    np.testing.assert_array_equal(values["ICE"], first.kept[0])
    np.testing.assert_array_equal(values["ICE (2)"], second.kept[0])
    np.testing.assert_array_equal(values["probability"], second.kept[1])
    assert len(set(colours(first.ax_))) == 5
    for i, values in enumerate((second.rejection_rate, second.positives_rejected), start=1):
        ax = first.axes_[i]
        assert colours(ax) == [colours(first.ax_)[at] for at in (1, 3, 4)]
        np.testing.assert_array_equal([line.get_ydata() for line in ax.lines[1:]], values)
    for before, ax in zip(limits, first.axes_, strict=True):
        assert ax.get_ylim()[0] <= before[0]
        assert ax.get_ylim()[1] >= max(before[1], np.nanmax([line.get_ydata() for line in ax.lines]))


def test_the_names_of_both_are_before_series_that_both_have(result):
    first = result.plot("ICE")
    result.plot("CCE", ax=first.axes_)
    assert texts(first.ax_) == [f"{name}: {word}" for name in ("ICE", "CCE") for word in SERIES]
    assert first.ax_.get_title(loc="left") == "ICE, CCE"
    assert len(set(colours(first.ax_))) == 6
    third = result.plot("CCE", "error", ax=first.axes_)
    assert texts(first.ax_)[-3:] == [f"CCE: {word} (2)" for word in SERIES]
    assert third.ax_.get_ylabel() == "F1\nerror rate"


def test_what_is_drawn_already_is_not_drawn_again(displays):
    for display in displays:
        first = display.plot()
        series = [len(ax.lines) + len(ax.collections) + len(ax.patches) for ax in first.axes_]
        words = [(ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) for ax in first.axes_]
        limits = [(ax.get_xlim(), ax.get_ylim()) for ax in first.axes_]
        legends = [texts(ax) for ax in first.axes_ if ax.get_legend()]
        if type(display) in (AlphaAssessmentDisplay, DifferenceDisplay):
            with pytest.raises(ValueError, match="cannot be drawn over others"):
                replace(display).plot(first.axes_)
            continue
        again = replace(display).plot(first.axes_)
        assert [len(ax.lines) + len(ax.collections) + len(ax.patches) for ax in again.axes_] == series
        assert [texts(ax) for ax in again.axes_ if ax.get_legend()] == legends
        assert [(ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) for ax in again.axes_] == words
        assert [(ax.get_xlim(), ax.get_ylim()) for ax in again.axes_] == limits
        assert len(again.figure_.legends) <= 1
        again.figure_.savefig("/dev/null", format="png")


def test_displays_of_one_panel_over_each_other(result, repeated):
    first = RiskCoverageDisplay.from_backtest(result, ["ICE"]).plot()
    second = RiskCoverageDisplay.from_backtest(repeated.results[2]).plot(first.ax_)
    names = [text.partition("\n")[0] for text in texts(second.ax_)]
    assert names == ["ICE", "as it rejects", "ICE (2)", "probability"]
    curves = [line for line in second.ax_.lines if len(line.get_xdata()) == 100]
    assert len({curve.get_color() for curve in curves}) == 3
    np.testing.assert_array_equal(curves[1].get_ydata(), second.risk[0])


def test_what_is_not_of_a_display_stays_as_it_is(result):
    ax = plt.figure(layout="constrained").add_subplot()
    ax.plot([0, 1], [0, 1], color="#0072B2", label="ICE")
    display = RiskCoverageDisplay.from_backtest(result, ["ICE"]).plot(ax)
    assert ax.lines[1].get_color() == ax.lines[0].get_color()
    assert [text.partition("\n")[0] for text in texts(display.ax_)] == ["ICE", "ICE", "as it rejects"]


def test_drawing_over_needs_the_same_panels_and_periods(result, repeated, data):
    first = result.plot(["ICE"])
    with pytest.raises(ValueError, match="RiskCoverageDisplay needs 1 axes, one for each panel, not 3"):
        RiskCoverageDisplay.from_backtest(result).plot(first.axes_)
    with pytest.raises(ValueError, match=r"PerformanceDisplay needs 2 axes.*pass the axes_ of a display"):
        result.plot("ICE", ax=first.axes_)
    later = backtest(InductiveEvaluator(LogisticRegression()), *data, train="2020-08", allow=ALLOWED)
    with pytest.raises(ValueError, match="show 8 periods, 2020-07 to 2021-02, and not the 7 from 2020-08"):
        later.plot(["InductiveEvaluator"], ax=first.axes_)
    for ax in first.axes_:
        ax.clear()
    assert later.plot(["InductiveEvaluator"], ax=np.array(first.axes_)).axes_ == first.axes_


def test_quorum_by_hand(result):
    display = QuorumDisplay.from_backtest(result, "CCE", folds=5)
    answer = result.answers["CCE"]
    positive = "class 01"
    for q in range(1, 6):
        for s, chosen in enumerate([answer.votes >= q, answer.votes < q]):
            series = {"f1": [], "precision": [], "recall": []}
            for i in range(len(result.periods)):
                rows = chosen & (result.period == i)
                actual, said = result.y[rows] == positive, answer.labels[rows] == positive
                hits, a, b = (actual & said).sum(), actual.sum(), said.sum()
                ratios = {"f1": (2 * hits, a + b), "precision": (hits, b), "recall": (hits, a)}
                for name, (above, below) in ratios.items():
                    series[name].append(above / below if below else NAN)
            for m, (name, values) in enumerate(series.items()):
                assert getattr(display, name)[s, q - 1] == pytest.approx(
                    area_under_time(values).value, nan_ok=True
                )
                assert display.undefined[m, s, q - 1] == pytest.approx(np.isnan(values).mean())
        assert display.rejection_rate[q - 1] == pytest.approx(np.mean(answer.votes < q))
    own = result.summary()
    assert display.f1[0, display.default - 1] == pytest.approx(own["aut_f1_kept"][1])


def test_quorum_as_drawn(result):
    display = QuorumDisplay.from_backtest(result, "CCE")
    assert (display.default, display.quorums.tolist()) == (3, [1, 2, 3, 4, 5])
    display.plot()
    assert [ax.get_title(loc="left") for ax in display.axes_] == [
        "F1",
        "precision",
        "recall",
        "share rejected",
    ]
    assert [text.get_text() for text in display.figure_.legends[0].get_texts()] == [
        "kept",
        "rejected",
        "default quorum",
    ]
    label = display.figure_.get_supxlabel()
    assert label.startswith("quorum: folds of CCE that must agree")
    assert "undefined in up to" in label
    display.f1[:] = NAN
    assert "there is a gap" in " ".join(display.plot().figure_.get_supxlabel().split())


def test_quorum_refuses_what_has_none(result):
    with pytest.raises(ValueError, match="'ICE' has no votes: only a CrossConformalEvaluator"):
        QuorumDisplay.from_backtest(result, "ICE")
    with pytest.raises(ValueError, match="folds=3, but an object has 5 votes"):
        QuorumDisplay.from_backtest(result, "CCE", folds=3)
    with pytest.raises(ValueError, match="no rejector 'TCE'"):
        QuorumDisplay.from_backtest(result, "TCE")
    assert QuorumDisplay.from_backtest(result, "CCE", folds=8).default == 5


@pytest.mark.parametrize("label_conditional", [True, False])
def test_alpha_assessment_by_hand(ice, label_conditional):
    display = AlphaAssessmentDisplay.from_calibration(ice.calibration_, label_conditional=label_conditional)
    alpha = ice.calibration_.alpha_assessment(label_conditional=label_conditional)
    quartiles = alpha.quartiles()
    for i, label in enumerate(["class 00", "class 01"]):
        for j, (name, right) in enumerate([("correct", True), ("incorrect", False)]):
            np.testing.assert_allclose(display.quantiles[i, j, 1:4], quartiles[label, name])
            assert display.counts[i, j] == np.sum((alpha.labels == label) & (alpha.correct == right))
    ax = display.plot().ax_
    assert texts(ax) == ["correct", "incorrect"]
    assert [t.get_text() for t in ax.get_xticklabels()] == [f"{n:,}" for n in display.counts.ravel()]
    assert [t.get_text() for t in ax.get_xticklabels(minor=True)] == ["class 00", "class 01"]
    assert ("predicted" in ax.get_xlabel()) == label_conditional


def test_alpha_assessment_of_many_classes_and_of_empty_groups(many_classes):
    calibration = many_classes[1].calibration_
    display = AlphaAssessmentDisplay.from_calibration(calibration).plot()
    sizes = np.bincount(calibration.predicted, minlength=12)
    assert display.n_classes == 12
    assert sorted(display.counts.sum(axis=1)) == sorted(sizes)[4:]
    assert "8 of 12 classes" in " ".join(display.ax_.get_xlabel().split())
    display.counts[0, 1], display.quantiles[0, 1] = 0, NAN
    assert "without objects" in " ".join(display.plot().ax_.get_xlabel().split())
    assert len(display.ax_.patches) == 15


def test_trade_off_by_hand(ice):
    display = TradeOffDisplay.from_evaluator(ice, n_points=6)
    for limit, value, rate in zip(display.limits, display.values, display.rejection_rates, strict=True):
        found = ice.calibration_.search(ExactSearch("f1", max_rejection=float(limit)))
        assert (value, rate) == (found.value, found.rejection_rate)
    assert set(np.linspace(0, 0.5, 6)) <= set(display.limits)
    assert (np.diff(display.values) >= 0).all()
    assert display.chosen_value == pytest.approx(ice.result_.value)
    assert display.chosen_value == pytest.approx(
        display.values[display.limits == ice.result_.rejection_rate][0]
    )
    other = TradeOffDisplay.from_evaluator(ice, n_points=6, metric="error")
    assert (np.diff(other.values) <= 0).all()
    decided = ice.calibration_.credibility_and_confidence()[0] >= ice.thresholds_[ice.calibration_.predicted]
    wrong = ice.calibration_.predicted != ice.calibration_.actual
    assert other.chosen_value == pytest.approx(wrong[decided].mean())


def test_trade_off_as_drawn(ice, many_classes):
    ax = TradeOffDisplay.from_evaluator(ice, n_points=4).plot().ax_
    assert ax.get_title(loc="left") == "on calibration objects"
    assert ax.get_ylabel() == "F1 of the kept"
    said = texts(ax)
    assert said[:2] == ["best thresholds", "chosen thresholds:"]
    assert f"  class 00: {ice.thresholds_[0]:.4f}" in said
    assert "  and 4 lower ones" in texts(
        TradeOffDisplay.from_evaluator(many_classes[1], n_points=2).plot().ax_
    )
    undefined = TradeOffDisplay.from_evaluator(ice, n_points=4, metric=ErrorRate(of="rejected")).plot()
    assert np.isnan(undefined.values[0])
    assert "at 1 of 5 limits" in undefined.ax_.get_xlabel()


def test_trade_off_with_other_searches(data):
    X, y, _ = data
    ice = InductiveEvaluator(LogisticRegression(), random_state=0, search=ExactSearch(on="confidence"))
    assert "on confidence:" in texts(TradeOffDisplay.from_evaluator(ice.fit(X, y), n_points=3).plot().ax_)
    ice.rethreshold(RandomSearch("f1", on="both", random_state=0))
    assert TradeOffDisplay.from_evaluator(ice, n_points=3).chosen_value == pytest.approx(ice.result_.value)
    ice.rethreshold(QuartileSearch())
    with pytest.raises(ValueError, match="has no objective to draw; pass metric"):
        TradeOffDisplay.from_evaluator(ice)
    assert TradeOffDisplay.from_evaluator(ice, metric=F1(pos_label="class 00"), n_points=3).chosen_value > 0.5


def test_trade_off_needs_one_fitted_calibration(data):
    X, y, _ = data
    cce = CrossConformalEvaluator(LogisticRegression(), cv=3)
    with pytest.raises(ValueError, match="not fitted"):
        TradeOffDisplay.from_evaluator(cce)
    with pytest.raises(TypeError, match="CrossConformalEvaluator has no single calibration_"):
        TradeOffDisplay.from_evaluator(cce.fit(X, y))


def positions(split):
    """The rows that train, and those of each period."""
    return split.train, [split.test[rows] for rows in split.periods.rows]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.coo_matrix])
def test_covariate_shift_by_hand(data, kind):
    X, _, times = data
    X = np.where(X > 1, X, 0)
    split = time_split(times, train="2020-07")
    shift = covariate_shift(kind(X), *positions(split))
    there = X != 0
    np.testing.assert_allclose(shift.training, there[split.train].mean(axis=0))
    for i, rows in enumerate(split.periods.rows):
        if not len(rows):
            assert split.periods.labels[i] == "2020-10"
            assert np.isnan(shift.frequencies[i]).all()
            assert np.isnan(shift.divergence[i])
            continue
        counts = there[split.test[rows]].sum(axis=0)
        np.testing.assert_allclose(shift.frequencies[i], counts / len(rows))
        p = (counts + 0.5) / (counts + 0.5).sum()
        q = (there[split.train].sum(axis=0) + 0.5) / (there[split.train].sum(axis=0) + 0.5).sum()
        assert shift.divergence[i] == pytest.approx(np.sum(p * np.log2(p / q)))
        assert shift.divergence[i] == pytest.approx(entropy(p, q, base=2))


def test_covariate_shift_does_not_count_stored_zeros():
    X = sp.csr_array(([0.0, 1.0, 1.0], ([0, 1, 2], [0, 1, 1])), shape=(4, 2))
    assert X.nnz == 3
    split = time_split(["2020", "2020", "2021", "2021"], train="2021", period="year")
    shift = covariate_shift(X, *positions(split))
    assert shift.training.tolist() == [0, 0.5]
    assert shift.frequencies.tolist() == [[0, 0.5]]


def test_covariate_shift_of_a_million_columns_stays_sparse():
    rng = np.random.default_rng(0)
    X = sp.random_array((400, 1_000_000), density=1e-5, rng=rng, format="csr")
    split = time_split(np.repeat([2020, 2021, 2022, 2023], 100), train=2021, period=None)
    display = CovariateShiftDisplay.from_data(X, split).plot()
    assert display.n_features == 1_000_000
    assert len(display.ranks) <= 2000
    assert (display.ranks[0], display.ranks[-1]) == (1, 1_000_000)
    assert (np.diff(display.training) <= 0).all()
    assert "of 1,000,000 features are drawn" in " ".join(display.ax_.get_xlabel().split())
    assert display.axes_[1].get_xscale() == "log"


def test_covariate_shift_as_drawn(data):
    X, _, times = data
    split = time_split(times, train="2020-07")
    names = [f"a_rather_long_feature_name_{i}" for i in range(6)]
    display = CovariateShiftDisplay.from_data(X > 1, split, feature_names=names).plot()
    shift = covariate_shift(X > 1, *positions(split))
    order = np.argsort(-shift.training, kind="stable")
    assert display.shown.tolist() == [0, 4, 7]
    np.testing.assert_array_equal(display.training, shift.training[order])
    np.testing.assert_array_equal(display.frequencies, shift.frequencies[[0, 4, 7]][:, order])
    change = shift.frequencies[7] - shift.training
    up, down = change.argmax(), change.argmin()
    assert display.changes[2].split("\n") == [
        f"{change[up]:+.2f} {shorten(names[up], 22)}",
        f"{change[down]:+.2f} {shorten(names[down], 22)}",
    ]
    assert [ax.get_title(loc="left") for ax in display.axes_] == ["", "2020-07", "2020-11", "2021-02"]
    assert "Gaps: undefined for divergence in 1 of 8 periods (2020-10)." in display.ax_.get_xlabel()
    early = times < np.datetime64("2021")
    by_year = time_split(times[early], train="2020-02", period="year")
    one = CovariateShiftDisplay.from_data(X[early], by_year)
    assert len(one.plot().axes_) == 2
    with pytest.raises(ValueError, match="X has 6 features, but there are 2 feature_names"):
        CovariateShiftDisplay.from_data(X, split, feature_names=["a", "b"])


def months(first, n):
    return [str(np.datetime64(first) + i) for i in range(n)]


@pytest.mark.parametrize(
    ("periods", "shown"),
    [
        (months("2020-01", 4), ["2020-01", "2020-02", "2020-03", "2020-04"]),
        (months("2013-01", 72), ["2013", "2014", "2015", "2016", "2017", "2018"]),
        (months("2013-11", 72), ["2014", "2015", "2016", "2017", "2018", "2019"]),
        (months("2020-01", 18), ["2020-01", "2020-04", "2020-07", "2020-10", "2021-01", "2021-04"]),
        (months("1950-01", 600), ["1950", "1956", "1962", "1968", "1974", "1980", "1986", "1992", "1998"]),
        ([f"slice {i}" for i in range(100)], [f"slice {i}" for i in range(0, 100, 24)]),
        (["x" * 200], ["x" * 200]),
    ],
)
def test_labels_of_periods_are_thinned(periods, shown):
    positions, labels = thin_labels(periods, 85)
    assert labels == shown
    assert all(periods[i].startswith(label) for i, label in zip(positions, labels, strict=True))


def test_gaps_are_said_once_for_series_that_share_them():
    series = {"a": np.array([NAN, 1.0]), "b": np.array([NAN, 2.0]), "c": np.array([1.0, 1.0])}
    assert gaps(series, ["p", "q"]) == "Gaps: undefined for a, b in 1 of 2 periods (p)."
    assert gaps({"c": series["c"]}, ["p", "q"]) == ""


def test_long_names_lose_their_middle():
    assert shorten("abcdefghijklmnop", 7) == "abc…nop"
    assert shorten(12, 7) == "12"
