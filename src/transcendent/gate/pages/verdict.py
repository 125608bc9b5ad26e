"""The verdict of the wall: one sentence, made by rules from the state, and four questions with answers."""

import math
from datetime import UTC, date, datetime
from typing import NamedTuple

from markupsafe import Markup

from transcendent._utils.text import as_percent, counted
from transcendent.gate.folding import THRESHOLD
from transcendent.gate.pages.sparklines import Chart, day, sparkline
from transcendent.gate.pages.state import DAYS, FEW, WEEK, Right, Wall
from transcendent.gate.processes import LIVE

_NO_MODEL = "No model decides yet: an operator adds one and promotes it."
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_TIES = {  # what joins the two halves: bad news after bad news is no surprise
    ("moving", "right"): ", but ",
    ("moving", "harm"): ", and ",
    ("calm", "right"): ", and ",
    ("calm", "harm"): ", but ",
}


class Tile(NamedTuple):
    """A question with its answer, what that is measured by, and thirty days; ``tone`` is a class of style."""

    question: str
    answer: str
    detail: str
    tone: str
    chart: Markup
    legend: str


def verdict(wall: Wall) -> str:
    """Return one sentence: whether the world moves, whether accepted answers are right, what to do first."""
    if wall.active is None:
        return _NO_MODEL
    moving, right = wall.moving.standing, wall.right.standing
    first = _moving_in_words(wall)
    second = _right_in_words(wall.right)
    to_do = _to_do(wall)
    tie = _TIES.get((moving, right), "; ")
    if right == "right" and wall.right_until is not None:
        tie, second = "; ", f"the accepted answers were right until {long_day(wall.right_until)}"
    return f"{first}{tie}{second}{f'; {to_do}' if to_do else ''}."


def tone(wall: Wall) -> str:
    """Return the class of style of the verdict: the worst of what it says."""
    if wall.active is None:
        return "plain"
    if wall.right.standing == "harm":
        return "bad"
    if wall.moving.standing == "moving" or _to_do(wall):
        return "warn"
    known = (wall.moving.standing, wall.right.standing) == ("calm", "right")
    return "good" if known and wall.right_until is None else "plain"


def _moving_in_words(wall: Wall) -> str:
    moving = wall.moving
    if moving.since is not None:
        return f"New kinds of objects have been arriving since {long_day(moving.since)}"
    if moving.standing == "early":
        return f"It is too early to say whether the world has moved {_watched(wall)}"
    if moving.standing == "calm":
        return "Nothing shows that the world has moved"
    return "It is not known yet whether the world is moving"


def _watched(wall: Wall) -> str:
    """Return since when, and on how many objects, the monitor of the deployment that decides has watched."""
    n = counted(wall.moving.objects, "object")
    if wall.active is None:
        return f"({n})"
    made = wall.active.made_at.astimezone(UTC)
    on = f"at {made:%H:%M}" if made.date() == wall.now.date() else f"on {long_day(made)}"
    return f"since {'its start' if wall.active.role == 'pinned' else 'the promotion'} {on} ({n})"


def _right_in_words(right: Right) -> str:
    limit = "" if right.promised is None else f" the promised {as_percent(right.promised)}"
    return {
        "harm": f"more accepted answers are wrong than{limit or ' was promised'}",
        "unpromised": "no limit on wrong answers is set, so nobody watches whether accepted ones are right",
        "unknown": "no audited answer counts yet, so nobody knows whether accepted ones are right",
        "unsure": f"too few accepted answers are audited to say whether they keep{limit}",
        "right": "the answers that are accepted are still right",
    }[right.standing]


def _to_do(wall: Wall) -> str:
    """Return what most needs somebody, empty if nothing does."""
    new = {each["kind"] for each in wall.alarms if each["acknowledged_at"] is None}
    down = sum(not each["up"] for each in wall.gates)
    if down:
        return f"{down} of {counted(len(wall.gates), 'gate')} not heard of for {LIVE:g} seconds"
    if "settling" in new:
        return "settling has stopped, since too many of its labels were wrong"
    if wall.rejecting.alarm is not None:
        return "more is rejected than calibration explains"
    if wall.keeping.standing == "idle":
        return "nobody labels what waits"
    if wall.keeping.standing == "behind":
        return "analysts do not keep up with what waits"
    if any((each.compared or {}).get("better") == "shadow" for each in wall.models):
        return "a shadow that is right more often is ready to be promoted"
    return ""


def tiles(wall: Wall) -> list[Tile]:
    """Return the four questions."""
    return [_moving(wall), _right(wall), _rejecting(wall), _keeping(wall)]


def _tile(question: str, answer: str, detail: str, look: str, chart: Chart) -> Tile:
    return Tile(question, answer, detail, look, sparkline(chart), chart.limit_in_words)


def _moving(wall: Wall) -> Tile:
    moving, end = wall.moving, wall.now.date()
    legend = f"Alarm at {THRESHOLD:g}, log axis"
    chart = Chart(moving.days, end, DAYS, evidence, math.log(THRESHOLD), legend, marks=moving.alarms)
    limit = f"alarm at {THRESHOLD:g}: a false alarm is at most {1 / THRESHOLD:.0%} likely, ever"
    known = ""
    if moving.evidence is not None:
        known = f"evidence against “nothing has changed”: {evidence(moving.evidence)}; "
    answer, look = {
        "moving": (f"Since {'' if moving.since is None else day(moving.since)}", "bad"),
        "calm": ("Not that we can see", "good"),
        "early": ("Too early to say", "plain"),
        "unknown": ("Not known yet", "plain"),
    }[moving.standing]
    least = f"{FEW:,} objects are needed; " if moving.standing == "early" else ""
    detail = f"{_watched(wall)}; {least}{known}{limit}"
    if moving.standing == "unknown":
        detail = moving.problem or f"no object is counted yet; {limit}"
    return _tile("Is the world moving?", answer, detail, look, chart)


def _right(wall: Wall) -> Tile:
    right = wall.right
    limit = "" if right.promised is None else f"Promised: {as_percent(right.promised)}"
    chart = Chart(right.days, wall.now.date(), DAYS, share, right.promised, limit, 0.01)
    answer, look = "Not known yet", "plain"
    if right.labels:
        answer = f"{share(right.wrong / right.labels)} wrong"
        look = {"harm": "bad", "right": "good"}.get(right.standing, "plain")
        look = "plain" if look == "good" and wall.right_until is not None else look
    elif right.standing == "harm":
        answer, look = "No: see the alarm", "bad"
    return _tile("Are accepted answers still right?", answer, band_in_words(right), look, chart)


def band_in_words(right: Right, since: date | None = None) -> str:
    """Return the interval of the error, what it is from, perhaps since when, and the limit."""
    if right.promised is None and not right.labels:
        return "no limit is promised: set promised_error, such as promised_error = 0.02, and audit"
    limit = (
        "no limit is promised" if right.promised is None else f"promised at most {as_percent(right.promised)}"
    )
    if not right.labels:
        return f"no audited answer of a day that is over has a label yet; {limit}"
    unclear = f", {right.unclear:,} of them unclear" if right.unclear else ""
    until = "" if since is None else f" since {day(since)}"
    until += "" if right.until is None else f" until {day(right.until)}"
    band = f"between {share(right.low)} and {share(right.high)}"
    return f"{band}, from {right.labels:,} audited{until}{unclear}; {limit}"


def _rejecting(wall: Wall) -> Tile:
    found = wall.rejecting
    limit, legend, said = found.expected, "", "no budget is set"
    over = found.points_over
    if found.budget is not None:
        budget = as_percent(found.budget)
        limit, legend, said = found.budget, f"Budget: {budget}", f"the budget is {budget}"
        if over:
            said = f"{counted(over, 'point')} over the budget of {budget}"
        elif found.objects >= FEW:
            said = f"within the budget of {budget} (over from a point above it)"
    elif limit is not None:
        legend, said = f"Expected: {share(limit)}", f"calibration explains at most {share(limit)}"
    chart = Chart(found.days, wall.now.date(), DAYS, share, limit, legend, 0.01)
    answer, detail = "Not known yet", f"nothing was decided in 7 days; {said}"
    if found.objects:
        answer = share(found.share)
        detail = f"{said}; {found.rejected:,} of {found.objects:,} in 7 days"
    look = "bad" if found.alarm is not None else "warn" if over else "plain"
    return _tile("How much is rejected?", answer, detail, look, chart)


def _keeping(wall: Wall) -> Tile:
    keeping, week = wall.keeping, wall.keeping.week
    chart = Chart(keeping.days, wall.now.date(), DAYS, lambda n: f"{n:,.0f} waiting", None, "", 10)
    answer = f"{keeping.waiting:,} wait" if keeping.waiting else "Nothing waits"
    parts = []
    if keeping.waiting and keeping.backlog is not None:
        parts.append(f"{span(86_400 * keeping.backlog)} of work at this pace (limit {WEEK} days)")
    if keeping.copies:
        parts.append(f"{keeping.copies:,} of the {keeping.waiting:,} are copies")
    since = counted(keeping.counted_days, "day")
    hours = f"about {week.hours:.1f} analyst hours (estimated)"
    parts.append(f"{counted(week.labels, 'label')} in {since}, {hours}")
    if keeping.oldest is not None:
        parts.append(f"the oldest has waited {span(keeping.oldest)}")
    detail = "; ".join(parts)
    look = {"up": "good", "behind": "warn", "idle": "warn"}[keeping.standing]
    return _tile("Are analysts keeping up?", answer, detail, look, chart)


def evidence(log_value: float) -> str:
    """Return evidence as a number that people can read."""
    if log_value < math.log(0.05):
        return "<0.1"
    if log_value < math.log(1e6):
        value = math.exp(log_value)
        return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
    exponent = f"{log_value / math.log(10):.0f}"
    return "10" + exponent.translate(_RAISED)


def share(value: float) -> str:
    """Return a share in percent, with a digit after the point below 10."""
    if 0 < value < 0.0005:
        return "<0.1%"
    return f"{value:.1%}" if value < 0.0995 and value else f"{value:.0%}"


def span(seconds: float) -> str:
    """Return a time in words: the largest unit of which there is one."""
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(round(seconds / size), name)
    return counted(round(seconds), "second")


def long_day(of: date) -> str:
    """Return a day, or that of a time, such as 3 November."""
    return f"{of.astimezone(UTC) if isinstance(of, datetime) else of:%-d %B}"
