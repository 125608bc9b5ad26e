"""What rejection asks of people, and who pays for it, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tests.report.test_report import random_backtest
from tests.report.test_words import backtest_of, cells
from transcendent import GuaranteedSearch
from transcendent.decisions import InWords
from transcendent.report.findings import find
from transcendent.report.results import staffing_results
from transcendent.report.words import of_classes, sentences
from transcendent.report.workload import broken_promise, looks, paid_by, workload, workload_tile


def rejecting(numbers, unit="month", objects=1000):
    """Findings of periods with so many rejected objects each, some of them errors."""
    accepted = [i >= number for number in numbers for i in range(objects)]
    n, period = len(accepted), np.repeat(range(len(numbers)), objects)
    wrong = [i % 7 == 0 for i in range(n)]
    return find(backtest_of([0] * n, wrong, accepted, period=period, unit=unit), minutes=6)


def test_objects_a_month_and_hours_at_the_pace_that_is_given():
    assert workload(rejecting([100, 100, 400])) == (
        "200 objects a month to look at (6.6 a day): 20 hours at 6 minutes each. In the busiest month, "
        "2020-03, 400 objects: 40 hours."
    )
    assert workload(rejecting([100, 102, 98])) == (
        "100 objects a month to look at (3.3 a day): 10 hours at 6 minutes each."
    )
    assert workload_tile(rejecting([100, 102, 98])) == (
        "objects a month to look at",
        "100",
        "10 hours at 6 minutes each",
    )
    found = rejecting([100, 102, 98])
    without = replace(found, manifest={**found.manifest, "unlabelled": 1763})
    assert workload(without).endswith("each. Not counted: 1,763 objects without a label or a date.")
    assert workload(rejecting([0, 0])) == "There is nothing to look at."
    assert "at 1 minute each" in workload(replace(rejecting([10]), minutes=1))


@pytest.mark.parametrize(
    ("unit", "periods", "expected"),
    [
        ("week", 10, (100 * 365.2425 / 12 / 7, "month")),
        ("week", 3, (100 / 7, "day")),
        ("day", 60, (100 * 365.2425 / 12, "month")),
        ("quarter", 2, (100 / 3, "month")),
        ("year", 1, (100 / 12, "month")),
        (None, 4, (100, "period")),
    ],
)
def test_other_periods_are_turned_into_months_or_days(unit, periods, expected):
    number, of = looks(rejecting([100] * periods, unit))
    assert (number, of) == (pytest.approx(expected[0]), expected[1])


def test_a_class_that_pays_is_named():
    """A search that promises few errors among the accepted may reject nearly all of the rare class."""
    costly = find(
        backtest_of(*cells((900, 0, 0, 1), (15, 1, 1, 1), (80, 1, 1, 0), (5, 1, 0, 0), (20, 0, 1, 0)))
    )
    assert paid_by(costly) == (
        "Class 1 pays for it: 85% of its objects are rejected, though only 10% of all are. For these the "
        "detector gives no answer until someone has looked."
    )
    fair = find(backtest_of(*cells((800, 0, 0, 1), (85, 0, 0, 0), (85, 1, 1, 1), (15, 1, 0, 0))))
    assert paid_by(fair) == ""


def test_a_guarantee_that_drift_broke_is_said_to_be_broken():
    result = backtest_of(*cells((900, 0, 0, 1), (50, 1, 0, 1), (50, 1, 0, 0)))
    assert broken_promise(find(result)) == ""
    for promised, expected in ((0.01, "The guarantee did not hold: at most 1.0% of the kept"), (0.06, "")):
        said = {"ICE": InWords("judges", "", "", promised)._asdict()}
        broken = broken_promise(find(replace(result, manifest=result.manifest | {"in_words": said})))
        assert broken.partition(" answers")[0] == expected
    assert GuaranteedSearch(0.02).promised_error == 0.02
    assert GuaranteedSearch(0.02, promise="fnr").promised_error is None


def test_of_many_classes_the_highest_and_the_lowest_share_are_said():
    f = find(random_backtest(4000, classes=[f"family {i}" for i in range(6)], pos_label="family 4"))
    shares = np.array([0.1, 0.5, np.nan, 0.2, 0.3, 0.9])
    rare = replace(f, class_sizes=np.array([50, 50, 0, 50, 50, 3]))
    assert of_classes(rare, shares) == (
        "30% of class family 4, at most 50% of class family 1, at least 10% of class family 0"
    )


def test_the_staffing_table_is_that_of_the_curve():
    result = random_backtest(3000, 6, pos_label="malware")
    f = find(result, minutes=12)
    rows = dict(staffing_results(f).rows)
    wrong = result.answers["ICE"].labels != result.y
    for rate in (0.05, 0.3):
        kept = result.kept_at("ICE", rate)
        a_day = rate * 3000 / (6 * 365.2425 / 12)
        shown = [cell.text for cell in rows[f"{rate:.0%}"]]
        assert shown[0] == f"{a_day:.1f}"
        assert float(shown[1]) == pytest.approx(a_day / 5, rel=0.05)
        assert shown[2] == f"{(wrong * (1 - kept)).sum() / wrong.sum():.1%}"
        assert shown[3] == f"{(1 - kept).sum() / (wrong * (1 - kept)).sum():.1f}"
        assert shown[4] == f"{(wrong * kept).sum() / kept.sum():.1%}"
        malware = result.y == "malware"
        assert shown[5:] == [f"{1 - kept[of].mean():.1%}" for of in (malware, ~malware)]
    own = rows[next(name for name in rows if name.startswith("as it rejects"))]
    assert own[2].text == f"{result.summary()['errors_caught'][0]:.1%}"


def test_each_rejector_has_a_sentence_of_its_own():
    said = {"ICE": {"judges": "judges", "rejects": "of each period 15%", "under_drift": ""}}
    result = random_backtest(rejectors=("ICE", "own", "unknown"), in_words=said)
    result.manifest["rejectors"] = {"own": "Mine(limit=3)"}
    assert sentences(find(result)) == [
        ("ICE", "judges, and rejects of each month 15%"),
        ("own", "is Mine(limit=3)"),
    ]
