"""The verdict of the wall: a sentence for every state, which never contradicts it."""

import itertools
import math
import re
from datetime import UTC, date, datetime, timedelta

import pytest
from markupsafe import Markup

from transcendent.gate.pages.sparklines import Chart, in_words, sparkline
from transcendent.gate.pages.state import (
    Keeping,
    Moving,
    Point,
    Rejecting,
    Right,
    ShownModel,
    Wall,
    Work,
)
from transcendent.gate.pages.verdict import evidence, share, span, tiles, tone, verdict

NOW = datetime(2026, 11, 18, 16, 4, tzinfo=UTC)
SINCE = datetime(2026, 11, 3, 14, 20, tzinfo=UTC)
ACTIVE = ShownModel("active", 1, 1, "f" * 64, "apps", SINCE, SINCE)
SHADOW = ShownModel("shadow", 2, 2, "a" * 64, None, NOW, NOW, 0.1, {"better": "shadow"})
CALM, MOVED = Moving(0.3, 5000), Moving(8.4, 5000, SINCE)
UNKNOWN = [Moving(), Moving(0.3, 230), Moving(None, 5000, None, "it has no calibration")]
RIGHT = Right(0.02, 402, 4, 0, 0.006, 0.019)
TODAY = MOVED._replace(since=NOW)
HARM = [RIGHT._replace(alarm=SINCE), Right(None, alarm=SINCE), Right(0.02, 400, 40, 0, 0.05, 0.2)]
UNSURE = [Right(0.02, 12, 0, 0, 0.0, 0.3), Right(0.02), Right(), Right(None, 12, 0, 0, 0.0, 0.01)]
WEEK = Work(70, 5, 0, 0, 5.3)
KEEPING = [
    Keeping(),
    Keeping(312, 7 * 3600.0, WEEK),
    Keeping(7000, 9e5, WEEK),
    Keeping(3, 9e5),
    Keeping(3, 9e5, Work()._replace(inferred=1)),
]
ALARM = {"kind": "settling", "acknowledged_at": None}


def audited(until):
    return RIGHT._replace(until=until)


def wall(moving=CALM, right=RIGHT, keeping=KEEPING[0], **given):
    given = {"models": [ACTIVE], "gates": [{"up": True}], **given}
    return Wall(NOW, moving, right, Rejecting(1000, 148, 0.15), keeping, **given)


@pytest.mark.parametrize(
    ("state", "expected", "look"),
    [
        (
            wall(),
            "Nothing shows that the world has moved, and the answers that are accepted are still right.",
            "good",
        ),
        (
            wall(MOVED),
            "New kinds of objects have been arriving since 3 November, but the answers that are accepted are "
            "still right.",
            "warn",
        ),
        (
            wall(MOVED, HARM[0]),
            "New kinds of objects have been arriving since 3 November, and more accepted answers are wrong "
            "than the promised 2%.",
            "bad",
        ),
        (
            wall(CALM, HARM[0]),
            "Nothing shows that the world has moved, but more accepted answers are wrong than the promised "
            "2%.",
            "bad",
        ),
        (
            wall(MOVED, models=[ACTIVE, SHADOW]),
            "New kinds of objects have been arriving since 3 November, but the answers that are accepted are "
            "still right; a shadow that is right more often is ready to be promoted.",
            "warn",
        ),
        (
            wall(UNKNOWN[0], UNSURE[1]),
            "It is not known yet whether the world is moving; no audited answer counts yet, so nobody knows "
            "whether accepted ones are right.",
            "plain",
        ),
        (
            wall(CALM, UNSURE[0], KEEPING[2]),
            "Nothing shows that the world has moved; too few accepted answers are audited to say whether "
            "they keep the promised 2%; analysts do not keep up with what waits.",
            "warn",
        ),
        (
            wall(CALM, Right(), gates=[{"up": True}, {"up": False}]),
            "Nothing shows that the world has moved; no limit on wrong answers is set, so nobody watches "
            "whether accepted ones are right; 1 of 2 gates not heard of for 10 seconds.",
            "warn",
        ),
        (
            wall(TODAY, audited(date(2026, 11, 17))),
            "New kinds of objects have been arriving since 18 November; the accepted answers were right "
            "until 17 November.",
            "warn",
        ),
        (
            wall(MOVED, audited(date(2026, 11, 3))),
            "New kinds of objects have been arriving since 3 November; the accepted answers were right until "
            "3 November.",
            "warn",
        ),
        (
            wall(MOVED, audited(date(2026, 11, 17))),
            "New kinds of objects have been arriving since 3 November, but the answers that are accepted are "
            "still right.",
            "warn",
        ),
        (
            wall(CALM, audited(date(2026, 11, 9))),
            "Nothing shows that the world has moved; the accepted answers were right until 9 November.",
            "plain",
        ),
        (
            wall(UNKNOWN[1], UNSURE[1], models=[ACTIVE._replace(made_at=NOW)]),
            "It is too early to say whether the world has moved since the promotion at 16:04 (230 objects); "
            "no audited answer counts yet, so nobody knows whether accepted ones are right.",
            "plain",
        ),
        (wall(models=[]), "No model decides yet: an operator adds one and promotes it.", "plain"),
    ],
)
def test_each_state_has_its_sentence(state, expected, look):
    assert (verdict(state), tone(state)) == (expected, look)


def states():
    """All combinations of what the parts may say."""
    rejecting = [Rejecting(), Rejecting(10, 2, 0.15), Rejecting(10, 9, None, 0.1, SINCE)]
    return itertools.product(
        [CALM, MOVED, MOVED._replace(evidence=None, problem="none"), *UNKNOWN],
        [RIGHT, *HARM, *UNSURE],
        rejecting,
        KEEPING,
        [[], [ACTIVE], [ACTIVE, SHADOW], [SHADOW]],
        [[], [ALARM], [{**ALARM, "acknowledged_at": NOW}]],
        [[], [{"up": True}], [{"up": False}, {"up": True}]],
    )


def test_no_state_has_an_empty_or_contradictory_sentence():
    for moving, right, rejecting, keeping, models, alarms, gates in states():
        state = Wall(NOW, moving, right, rejecting, keeping, models, alarms, gates)
        said, look = verdict(state), tone(state)
        assert re.fullmatch(r"[A-Z][^.]*(\d\.\d[^.]*)*\.", said), said
        assert "  " not in said
        assert ";;" not in said
        assert "None" not in said
        has_harm = right.alarm is not None or (right.labels and right.promised and right.low > right.promised)
        if not any(each.decides for each in models):
            assert said.startswith("No model decides")
            continue
        assert ("still right" in said) == (right.standing == "right")
        assert ("more accepted answers are wrong" in said) == bool(has_harm)
        assert not (has_harm and "still right" in said)
        assert ("have been arriving since" in said) == (moving.since is not None)
        assert ("Nothing shows" in said) == (moving.standing == "calm")
        assert (look == "bad") == bool(has_harm)
        assert not (look == "good" and (alarms[:1] == [ALARM] or moving.since or rejecting.alarm))


def test_every_tile_of_every_state_is_complete_and_no_tile_is_green_in_harm():
    for moving, right, rejecting, keeping, *_ in {each[:4] for each in states()}:
        shown = tiles(Wall(NOW, moving, right, rejecting, keeping))
        assert len({each.question for each in shown}) == 4
        for each in shown:
            assert each.answer.strip()
            assert "None" not in each.answer + each.detail
            assert each.tone in ("good", "bad", "warn", "plain")
        assert (shown[0].tone == "bad") == (moving.since is not None)
        assert (shown[1].tone == "bad") == (right.standing == "harm")


def test_a_new_deployment_is_not_green():
    first, second, *_ = tiles(wall(UNKNOWN[1], UNSURE[1], models=[ACTIVE._replace(made_at=NOW)]))
    assert (first.answer, first.tone, second.tone) == ("Too early to say", "plain", "plain")
    assert first.detail.startswith("since the promotion at 16:04 (230 objects); 1,000 objects are needed")
    calm = tiles(wall())[0]
    assert (calm.tone, calm.detail.partition(";")[0]) == (
        "good",
        "since the promotion on 3 November (5,000 objects)",
    )
    pinned = tiles(wall(models=[ACTIVE._replace(role="pinned")]))[0]
    assert pinned.detail.startswith("since its start on 3 November")


def test_the_box_says_until_when_answers_were_audited():
    for until, look in ((date(2026, 11, 16), "good"), (date(2026, 11, 9), "plain")):
        tile = tiles(wall(right=audited(until)))[1]
        assert f"from 402 audited until {until.day} Nov" in tile.detail
        assert tile.tone == look


@pytest.mark.parametrize(
    ("objects", "rejected", "said", "look"),
    [
        (10_000, 1400, "4 points over the budget of 10%; 1,400 of 10,000", "warn"),
        (10_000, 1100, "1 point over the budget of 10%; ", "warn"),
        (10_000, 1099, "within the budget of 10% (over from a point above it); ", "plain"),
        (999, 400, "the budget is 10%; 400 of 999", "plain"),
    ],
)
def test_a_share_is_judged_against_the_budget(objects, rejected, said, look):
    tile = tiles(wall()._replace(rejecting=Rejecting(objects, rejected, 0.1)))[2]
    assert tile.detail.startswith(said)
    assert tile.tone == look


def test_what_waits_is_in_days_of_work_and_the_oldest_apart():
    keeping = Keeping(45, 8 * 86_400.0, Work(60, 5, 20, 0, 5.3), copies=16)
    tile = tiles(wall(keeping=keeping))[3]
    assert tile.answer == "45 wait"
    assert tile.detail == (
        "4 days of work at this pace (limit 7 days); 16 of the 45 are copies; 60 labels in 7 days, about 5.3 "
        "analyst hours (estimated); the oldest has waited 8 days"
    )


def test_without_a_promise_the_wall_says_how_to_set_one():
    detail = tiles(wall(right=Right()))[1].detail
    assert detail.startswith("no limit is promised: set promised_error")


def days(*values):
    return [Point(date(2026, 11, 1) + timedelta(days=i), v) for i, v in enumerate(values) if v is not None]


def chart(points, **given):
    return Chart(points, NOW.date(), 30, lambda value: f"{value:g}", **given)


def test_sparklines_break_where_days_are_unknown_and_say_what_they_show():
    made = sparkline(chart(days(1, 2, None, 4, None, 3, 2), limit=3, limit_in_words="Alarm at 3"))
    assert isinstance(made, Markup)
    assert made.count("<polyline") == 3
    assert made.count('class="limit"') == 1
    assert "style=" not in made
    said = "From 1 on 1 Nov to 2 on 7 Nov; highest 4 on 4 Nov. Alarm at 3."
    assert f'aria-label="{said}"' in made
    assert in_words(chart([])) == "Nothing is known of the last 30 days."
    assert "<polyline" not in sparkline(chart([]))
    assert in_words(chart(days(5))) == "Only one day is known: 5 on 1 Nov."


def test_sparklines_mark_alarms_that_the_value_of_the_day_does_not_show():
    marks = [date(2026, 10, 1), date(2026, 11, 4)]
    made = sparkline(chart(days(1, 2, 1, 1), marks=marks))
    assert made.count('class="alarm"') == 1
    assert 'Alarm on 4 Nov."' in made
    moving = CALM._replace(alarms=marks, days=days(1, 2))
    tile = tiles(wall(moving))[0]
    assert 'class="alarm"' in tile.chart
    assert "log axis" in tile.legend


def test_sparklines_stay_in_their_box():
    points = [Point(each.day, each.value, each.value - 3, each.value + 900) for each in days(-2, 0, 1e9, 3)]
    for limit in (None, 0.0, 1e12, math.inf):
        made = sparkline(chart(points, limit=limit))
        for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", made):
            assert 0 <= float(x) <= 250
            assert 0 <= float(y) <= 60


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (evidence(math.log(4310)), "4,310"),
        (evidence(0.0), "1.0"),
        (evidence(-50.0), "<0.1"),
        (evidence(500.0), "10²¹⁷"),
        (share(0.148), "15%"),
        (share(0.0114), "1.1%"),
        (share(0.0), "0%"),
        (share(1e-6), "<0.1%"),
        (span(25_300), "7 hours"),
        (span(0.2), "0 seconds"),
        (span(86_400), "1 day"),
    ],
)
def test_numbers_are_written_for_people(said, expected):
    assert said == expected
