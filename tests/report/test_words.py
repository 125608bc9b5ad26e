"""The sentence the page opens with, in every case it has to be honest about."""

import numpy as np
import pytest

from transcendent.decisions import Decisions
from transcendent.report.findings import find
from transcendent.report.words import at_same_rate, distinct, percent, plain, uneven, verdict
from transcendent.temporal.result import Backtest


def backtest_of(y, labels, accepted, *, period=None, classes=(0, 1), pos_label=1, unit="month"):
    """A backtest of one rejector; credibility puts the rejected last."""
    y, labels, accepted = np.array(y), np.array(labels), np.array(accepted, dtype=bool)
    period = np.zeros(len(y), dtype=int) if period is None else np.array(period)
    credibility = np.where(accepted, 0.9, 0.1)
    return Backtest(
        periods=tuple(f"2020-{i + 1:02}" for i in range(period.max() + 1)),
        period=period,
        rows=np.arange(len(y)),
        y=y,
        answers={"ICE": Decisions(labels, accepted, credibility, credibility, np.unique(labels))},
        classes=np.array(classes),
        pos_label=pos_label,
        manifest={"period": unit},
    )


def cells(*groups):
    """y, labels and accepted from (how many, true, predicted, accepted)."""
    rows = [group[1:] for group in groups for _ in range(group[0])]
    return tuple(map(list, zip(*rows, strict=True)))


def said(result):
    return verdict(find(result))


def said_at_15(result):
    return at_same_rate(find(result))


HELPS = cells((600, 0, 0, 1), (200, 1, 1, 1), (40, 1, 0, 1), (80, 1, 0, 0), (80, 0, 1, 0))


def test_rejection_that_helps():
    assert said(backtest_of(*HELPS, period=[0] * 500 + [1] * 500)) == (
        "ICE would have rejected 16% of 1,000 objects in 2 months (25% of class 1, 12% of class 0) and "
        "caught "
        "80% of the detector's "
        "200 errors, "
        "against 16% if as many were rejected at random; F1 of the kept answers is 0.91 against 0.67 "
        "of all."
    )


def test_the_same_rate_for_all():
    assert said_at_15(backtest_of(*HELPS)) == (
        "At 15% rejected in every month (23% of class 1, 11% of class 0), where rejectors can be compared: "
        "75% of the errors caught, "
        "F1 of the "
        "kept answers 0.89."
    )


def test_no_better_than_chance():
    result = backtest_of(
        *cells((320, 0, 0, 1), (320, 1, 1, 1), (160, 1, 0, 1), (80, 0, 0, 0), (80, 1, 1, 0), (40, 1, 0, 0))
    )
    assert said(result) == (
        "ICE would have rejected 20% of 1,000 objects in 1 month (20% of class 1, 20% of class 0) and "
        "caught 20% of the detector's "
        "200 errors, "
        "not clearly more than the 20% expected if as many were rejected at random; F1 of the "
        "kept answers is 0.80, the same as of all."
    )


def test_worse_than_chance():
    result = backtest_of(
        *cells((300, 0, 0, 1), (100, 1, 1, 1), (190, 1, 0, 1), (400, 1, 1, 0), (10, 1, 0, 0))
    )
    assert said(result) == (
        "ICE would have rejected 41% of 1,000 objects in 1 month (59% of class 1, 0% of class 0) and "
        "caught 5.0% of the detector's "
        "200 errors, "
        "fewer than the 41% expected if as many were rejected at random; and F1 of the kept answers is "
        "0.51, lower than the 0.83 of all."
    )


def test_errors_are_caught_but_f1_falls():
    result = backtest_of(*cells((700, 0, 0, 1), (10, 1, 1, 1), (40, 1, 0, 1), (150, 1, 1, 0), (100, 0, 1, 0)))
    assert said(result).endswith(
        "against 25% if as many were rejected at random; but F1 of the kept answers is 0.33, "
        "lower than "
        "the 0.70 of all."
    )


def test_few_errors_are_counted_rather_than_shared():
    result = backtest_of(*cells((90, 0, 0, 1), (8, 1, 1, 1), (1, 1, 0, 0), (1, 0, 1, 1)))
    assert said(result).startswith(
        "ICE would have rejected 1.0% of 100 objects in 1 month (11% of class 1, 0% of class 0) and "
        "caught 1 of the detector's 2 errors, "
        "not clearly more than the 1.0% expected if as many were rejected at random; "
    )


def test_no_errors():
    right = cells((80, 0, 0, 1), (20, 1, 1, 0))
    assert said(backtest_of(*right)) == (
        "The detector made no error among 100 objects in 1 month: there was nothing to catch, and ICE would "
        "have rejected 20% of them for nothing."
    )
    assert said_at_15(backtest_of(*right)) == (
        "At 15% rejected in every month (75% of class 1, 0% of class 0), where rejectors can be compared: no "
        "errors to catch, F1 of the kept "
        "answers 1.00."
    )
    assert said(backtest_of(*cells((80, 0, 0, 1), (20, 1, 1, 1)))) == (
        "The detector made no error among 100 objects in 1 month: there was nothing to catch, and ICE would "
        "have rejected none."
    )


def test_nothing_rejected():
    assert said(backtest_of(*cells((80, 0, 0, 1), (10, 1, 1, 1), (1, 1, 0, 1)))) == (
        "ICE would have rejected none of 91 objects in 1 month, and so caught none of the detector's "
        "1 error; "
        "F1 stays 0.95."
    )


def test_everything_rejected():
    assert said(backtest_of(*cells((80, 0, 0, 0), (10, 1, 1, 0), (30, 1, 0, 0)))) == (
        "ICE would have rejected all of 120 objects in 1 month, and with them all of the detector's 30 "
        "errors; no answer is left, and F1 of the kept is undefined."
    )


def test_undefined_f1_says_why():
    kept_none = backtest_of(*cells((800, 0, 0, 1), (60, 1, 1, 0), (40, 1, 0, 0)))
    assert said(kept_none).endswith(
        "; F1 of the kept answers is undefined, since class 1 neither occurs nor is predicted among "
        "them, against 0.75 of all."
    )
    assert said_at_15(kept_none).endswith(
        "100% of the errors caught, F1 of the kept answers is undefined, since class 1 neither occurs "
        "nor is predicted among them."
    )
    never = backtest_of(*cells((80, 0, 0, 1), (10, 0, 2, 0)), classes=(0, 1, 2))
    assert said(never).endswith("; F1 is undefined, since class 1 neither occurs nor is predicted.")
    rejects_nothing = backtest_of(*cells((80, 0, 0, 1), (10, 0, 2, 1)), classes=(0, 1, 2))
    assert said(rejects_nothing).endswith("F1 is undefined, since class 1 neither occurs nor is predicted.")


def test_without_a_positive_class_it_is_about_accuracy():
    groups = cells(
        (300, "a", "a", 1), (300, "b", "b", 1), (200, "c", "c", 1), (20, "c", "a", 1), (80, "b", "a", 0)
    )
    result = backtest_of(*groups, classes=("a", "b", "c"), pos_label=None, unit="week")
    assert said(result) == (
        "ICE would have rejected 8.9% of 900 objects in 1 week (0% of class a, 21% of class b, 0% of class "
        "c) and caught 80% of the detector's 100 errors, "
        "against 8.9% if as many were rejected at random; accuracy of the kept answers is "
        "0.98 against "
        "0.89 of all."
    )
    assert "accuracy of the kept answers 0.9" in said_at_15(result)


def uneven_in(rates, objects=200, unit="month"):
    accepted = [i >= round(rate * objects) for rate in rates for i in range(objects)]
    n = len(accepted)
    period = np.repeat(range(len(rates)), objects)
    return uneven(find(backtest_of([0] * n, [0] * n, accepted, period=period, unit=unit)))


def test_periods_whose_rejection_rate_ran_away():
    assert uneven_in([0.15, 0.14, 0.16, 0.8, 0.15, 0.55, 0.15, 0.16]) == (
        "Not evenly: in 2 of 8 months it would have rejected 30% or more, up to 80% in 2020-04, while in a "
        "quarter of the months it rejected 15% or less."
    )
    assert uneven_in([0.1] * 4 + [0.6] * 5, unit=None).startswith(
        "Not evenly: in 5 of 9 periods it would have rejected 20% or more, up to 60% in 2020-05"
    )


@pytest.mark.parametrize(
    ("rates", "objects"),
    [([0.15, 0.2, 0.25, 0.18], 200), ([0.0] * 6, 200), ([0.7] * 3, 200), ([0.1, 0.1, 0.1, 0.3], 10)],
)
def test_an_even_rejection_rate_goes_without_saying(rates, objects):
    assert uneven_in(rates, objects) == ""


@pytest.mark.parametrize(
    ("share", "digits", "shown"),
    [
        (0.0, 0, "0%"),
        (1.0, 1, "100%"),
        (0.214, 0, "21%"),
        (0.214, 1, "21.4%"),
        (0.0049, 0, "0.5%"),
        (0.00001, 0, "<0.1%"),
        (0.99999, 0, ">99.9%"),
        (0.995, 0, "99.5%"),
        (float("nan"), 0, "–"),
    ],
)
def test_shares_never_round_to_nothing_or_everything(share, digits, shown):
    assert percent(share, digits) == shown


def test_names_are_made_presentable():
    assert plain("a\n\tb\x00c\u202ed") == "a b�c�d"
    assert plain("") == "(no name)"
    assert len(plain("x" * 1000)) == 48
    assert distinct(["x" * 100, "x" * 101, "y"]) == [plain("x" * 100), plain("x" * 100) + " (2)", "y"]
