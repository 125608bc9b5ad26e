"""The wall: what is going on, in ten seconds, and a month on one page for the one who pays."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from fastapi import HTTPException, Path, Request, Response
from sqlalchemy import Engine

from transcendent._utils.text import as_percent, counted, visible
from transcendent.gate.pages.sparklines import day
from transcendent.gate.pages.state import DAYS, Month, Wall, alarm_of, read_month, read_wall
from transcendent.gate.pages.verdict import band_in_words, share, tiles, tone, verdict
from transcendent.gate.pages.web import Form, Visitor, page_router, render, to
from transcendent.gate.paging import AlarmError, acknowledge

router = page_router()
Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
LONGEST_REASON = 2000
_LISTED = 6  # promotions and alarms of a month, so that it fits a page of paper
_MODELS = 3  # whose error a month lists
_SAID = {
    "acknowledged": "The alarm is acknowledged.",
    "retired": "The shadow is retired: gates drop it within seconds.",
}


def state_of(request: Request) -> Wall:
    """Return the state of the wall, as this gate sees it."""
    state = request.app.state
    serving = state.service.serving
    pinned = serving.deployment if state.model is not None and serving is not None else None
    engine: Engine = state.engine
    with engine.connect() as connection:
        return read_wall(connection, pinned, state.settings.promised_error)


def reason_in(form: dict[str, str]) -> tuple[str, str | None]:
    """Return the reason in a form, and what is wrong with it."""
    reason = form.get("reason", "").strip()
    if not reason:
        return reason, "say why: others will read it."
    if len(reason) > LONGEST_REASON or "\0" in reason:
        return reason.replace("\0", ""), f"the reason must be text of at most {LONGEST_REASON:,} characters."
    return visible(reason, "\n\r\t"), None


@router.get("/wall")
def wall(request: Request, _: Visitor, said: str = "") -> Response:
    """Show the wall."""
    found = state_of(request)
    given: dict[str, Any] = {
        "verdict": verdict(found),
        "tone": tone(found),
        "tiles": tiles(found),
        "first": day(found.now.date() - timedelta(days=DAYS - 1)),
        "month": f"{found.now:%Y-%m}",
        "said": _SAID.get(said),
    }
    return render(request, "wall.html", here="/wall", wall=found, share=share, **given)


@router.get("/wall/month/{month}")
def month(request: Request, _: Visitor, month: str) -> Response:
    """Show a month, to print."""
    try:
        first = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        raise HTTPException(404, "a month is written as 2026-11.") from None
    if not 2000 <= first.year < 2200 or month != f"{first:%Y-%m}":
        raise HTTPException(404, "a month is written as 2026-11.")
    engine: Engine = request.app.state.engine
    with engine.connect() as connection:
        found = read_month(connection, first, request.app.state.settings.promised_error)
    given: dict[str, Any] = {
        "month": found,
        "band": band_in_words,
        "share": share,
        "counted": counted,
        "listed": _LISTED,
        "budgets": list(dict.fromkeys(as_percent(each.budget) for each in found.deciders if each.budget)),
        **_errors(found),
    }
    return render(request, "month.html", **given, **_around(found))


def _errors(found: Month) -> dict[str, Any]:
    """Return the newest models with an error, the number of earlier ones, and what was accepted unaudited."""
    known = [each for each in found.deciders if each.error.labels]
    others = [each for each in found.deciders if not each.error.labels]
    unaudited = sum(each.objects - each.rejected for each in others)
    return {"errors": known[-_MODELS:], "earlier": len(known[:-_MODELS]), "unaudited": unaudited}


def _around(found: Month) -> dict[str, Any]:
    """Return the names of the months before and after; None if that is to come."""
    before, after = found.first - timedelta(days=1), _next(found.first)
    return {
        "before": f"{before:%Y-%m}",
        "after": f"{after:%Y-%m}" if after <= found.now.date() else None,
        "is_over": after <= found.now.date(),
    }


def _next(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)


@router.get("/wall/alarms/{number}")
def alarm_page(request: Request, _: Visitor, number: Number) -> Response:
    """Show an alarm, and ask what the operator makes of it."""
    return _alarm(request, number)


def _alarm(request: Request, number: int, status: int = 200, **given: str | None) -> Response:
    with request.app.state.engine.connect() as connection:
        found = alarm_of(connection, number)
    if found is None:
        raise HTTPException(404, f"there is no alarm {number}.")
    given = {"problem": None, "reason": "", **given}
    return render(request, "alarm.html", status, alarm=found, longest=LONGEST_REASON, **given)


@router.post("/wall/alarms/{number}")
def acknowledge_alarm(request: Request, caller: Visitor, number: Number, form: Form) -> Response:
    """Note that an operator knows of an alarm."""
    reason, problem = reason_in(form)
    if problem is not None:
        return _alarm(request, number, 422, problem=problem, reason=reason)
    try:
        acknowledge(request.app.state.engine, number, caller.name, reason)
    except AlarmError as error:
        return _alarm(request, number, 409, problem=str(error), reason=reason)
    return to("/wall?said=acknowledged")
