"""Promote, roll back and retire from the wall: first what will change, then a reason, then how it goes."""

from collections.abc import Mapping
from datetime import date, datetime
from threading import Lock, Thread
from typing import Any, NamedTuple, Self

import psycopg
import structlog
from fastapi import HTTPException, Request, Response
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from transcendent._utils.text import counted
from transcendent.gate.deployments import DeploymentError, needed
from transcendent.gate.pages.sparklines import day
from transcendent.gate.pages.state import FEW, ShownModel, Wall
from transcendent.gate.pages.verdict import share
from transcendent.gate.pages.wall import LONGEST_REASON, Number, reason_in, state_of
from transcendent.gate.pages.web import Form, Visitor, page_router, render, to
from transcendent.gate.promotion import (
    Plan,
    Prepared,
    audit_now,
    budget_of_shadow,
    complete,
    gates_that_follow,
    plan_before,
    prepare,
    retire,
)
from transcendent.gate.stored import Known, find

WAIT = 60.0
"""Seconds for all gates to load a model."""
_GRACE = 5.0  # seconds after which nobody waits any more
_MOST = 100  # refusals that are remembered

_PREPARED = """
SELECT deployment.id, deployment.model, digest, name, deployment.author, deployment.reason,
    made_at,
    extract(epoch FROM now() - made_at)::float8 AS age
FROM deployment JOIN model ON model.id = deployment.model LEFT JOIN artifact ON artifact.model = model.id
WHERE deployment.id = :number AND action = 'prepare'
"""
_DONE = """
SELECT id, action, made_at FROM deployment
WHERE id > :number AND model = :model AND action IN ('active', 'observe') ORDER BY id LIMIT 1
"""
_COMPARED_BEFORE = """
SELECT found FROM compared JOIN deployment ON deployment.id = compared.shadow
WHERE compared.active = :before AND deployment.model = :now ORDER BY compared.made_at DESC LIMIT 1
"""

log = structlog.get_logger("transcendent.gate")
router = page_router()


class Change(NamedTuple):
    """What another model changes, in objects that both have decided; ``now`` is the model that decides."""

    objects: int
    since: date
    differ: int
    other_label: int
    rejected_now: int
    rejected_then: int
    labels: int
    right_now: int
    right_then: int
    better: str | None
    settled: bool
    a_day: float

    @classmethod
    def of(cls, found: Mapping[str, Any] | None, a_day: float, new: str = "shadow") -> Self | None:
        """Return the change from a stored comparison in which the new model was the shadow, or the other."""
        if not found or not found["objects"]:
            return None
        old = "active" if new == "shadow" else "shadow"
        better = {None: None, new: "then", old: "now"}[found["better"]]
        return cls(
            found["objects"],
            datetime.fromisoformat(found["since"]).date(),
            found["differ"],
            found["other_label"],
            found[f"{old}_rejected"],
            found[f"{new}_rejected"],
            found["labels"] - found["unclear"],
            found[f"{old}_right"],
            found[f"{new}_right"],
            better,
            found["settled"],
            a_day,
        )

    @property
    def one_in(self) -> int | None:
        """One in how many objects gets another answer; None if none does."""
        return round(self.objects / self.differ) if self.differ else None

    @property
    def shares(self) -> tuple[str, str]:
        """The shares that are rejected now and then, as they are written."""
        return share(self.rejected_now / self.objects), share(self.rejected_then / self.objects)

    @property
    def more_a_day(self) -> float:
        """How many more objects a day are rejected then; 0 if the shares look the same."""
        if self.shares[0] == self.shares[1]:
            return 0.0
        return self.a_day * (self.rejected_then - self.rejected_now) / self.objects


class Promotions:
    """Promotions under way in this process, and why those before were refused."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock = engine, Lock()
        self._refused: dict[int, str] = {}

    def start(self, prepared: Prepared) -> None:
        """Wait for the gates in a thread, and deploy."""
        Thread(target=self._complete, args=[prepared], name="promotion", daemon=True).start()

    def refusal(self, number: int) -> str | None:
        """Return why a promotion was refused, if this process knows."""
        with self._lock:
            return self._refused.get(number)

    def _complete(self, prepared: Prepared) -> None:
        try:
            complete(self._engine, prepared, WAIT)
        except DeploymentError as error:
            self._refuse(prepared.number, str(error))
        except (SQLAlchemyError, psycopg.Error) as error:
            log.warning("a promotion failed", deployment=prepared.number, error=type(error).__name__)
            self._refuse(prepared.number, "the database could not be reached: try again.")

    def _refuse(self, number: int, why: str) -> None:
        with self._lock:
            self._refused[number] = why
            if len(self._refused) > _MOST:
                del self._refused[min(self._refused)]


class Asked(NamedTuple):
    """A change that an operator is asked to confirm."""

    kind: str
    model: ShownModel
    active: ShownModel | None
    change: Change | None
    plan: Plan | None
    follow: int

    @property
    def over(self) -> int:
        """The deployment that decides, 0 if none does."""
        return 0 if self.active is None else self.active.deployment


def _shown(wall: Wall, digest: str, role: str) -> ShownModel:
    if wall.active is not None and wall.active.role == "pinned":
        raise HTTPException(409, "this gate was started with an artifact: it follows no promotions.")
    for each in wall.models:
        if each.role == role and each.digest.startswith(digest):
            return each
    raise HTTPException(404, f"no {role} has a model whose digest begins with {digest!r:.80}.")


def _promotion(request: Request, digest: str) -> Asked:
    """Return what promoting a shadow does; it answers as the model that decides, active or observed."""
    wall = state_of(request)
    model = _shown(wall, digest, "shadow")
    with request.app.state.engine.connect() as connection:
        known = find(connection, model.digest)
        audit = audit_now(connection, request.app.state.settings.audit)
        budget = budget_of_shadow(connection, known.number)
        deciding = needed(connection).deciding
        action = "active" if deciding is None else deciding.action
        plan = Plan(known, action, {"audit": audit, "budget": budget})
        follow = len(gates_that_follow(connection, known.number))
    return Asked("promote", model, wall.active, Change.of(model.compared, wall.a_day), plan, follow)


def _roll_back(request: Request) -> Asked:
    wall = state_of(request)
    model = _shown(wall, "", "before")
    with request.app.state.engine.connect() as connection:
        try:
            plan = plan_before(connection)
        except DeploymentError as error:
            raise HTTPException(409, str(error)) from None
        now = 0 if wall.active is None else wall.active.number
        found = connection.execute(text(_COMPARED_BEFORE), {"before": model.number, "now": now}).scalar()
        follow = len(gates_that_follow(connection, model.number))
    return Asked("roll-back", model, wall.active, Change.of(found, wall.a_day, "active"), plan, follow)


def _retirement(request: Request, digest: str) -> Asked:
    wall = state_of(request)
    model = _shown(wall, digest, "shadow")
    return Asked("retire", model, wall.active, Change.of(model.compared, wall.a_day), None, 0)


def _page(request: Request, asked: Asked, status: int = 200, **words: str | None) -> Response:
    given: dict[str, Any] = {"problem": None, "reason": "", **words}
    given |= {"share": share, "counted": counted, "day": day}
    return render(request, "confirm.html", status, asked=asked, few=FEW, longest=LONGEST_REASON, **given)


@router.get("/wall/promote/{digest}")
def promote_page(request: Request, _: Visitor, digest: str) -> Response:
    """Say what promoting a shadow will change."""
    return _page(request, _promotion(request, digest))


@router.post("/wall/promote/{digest}")
def promote(request: Request, caller: Visitor, digest: str, form: Form) -> Response:
    """Begin to promote a shadow."""
    return _begin(request, _promotion(request, digest), caller.name, form)


@router.get("/wall/roll-back")
def roll_back_page(request: Request, _: Visitor) -> Response:
    """Say what returning to the model before will change."""
    return _page(request, _roll_back(request))


@router.post("/wall/roll-back")
def roll_back(request: Request, caller: Visitor, form: Form) -> Response:
    """Begin to return to the model before."""
    return _begin(request, _roll_back(request), caller.name, form)


def _begin(request: Request, asked: Asked, who: str, form: dict[str, str]) -> Response:
    """Let gates load what was confirmed, and show how that goes; refuse if something else decides by now."""
    reason, problem = reason_in(form)
    if problem is not None:
        return _page(request, asked, 422, problem=problem, reason=reason)
    if form.get("over") != str(asked.over) or asked.plan is None:
        problem = "another model decides by now than when you opened this page: read it again."
        return _page(request, asked, 409, problem=problem, reason=reason)
    try:
        prepared = prepare(request.app.state.engine, asked.plan, who, reason, asked.over or None)
    except DeploymentError as error:
        return _page(request, asked, 409, problem=str(error), reason=reason)
    promotions: Promotions = request.app.state.promotions
    promotions.start(prepared)
    return to(f"/wall/promotions/{prepared.number}")


@router.get("/wall/retire/{digest}")
def retire_page(request: Request, _: Visitor, digest: str) -> Response:
    """Say what retiring a shadow means."""
    return _page(request, _retirement(request, digest))


@router.post("/wall/retire/{digest}")
def retire_shadow(request: Request, caller: Visitor, digest: str, form: Form) -> Response:
    """Retire a shadow."""
    asked, (reason, problem) = _retirement(request, digest), reason_in(form)
    if problem is not None:
        return _page(request, asked, 422, problem=problem, reason=reason)
    model = asked.model
    known = Known(model.number, model.digest, model.name or "", None)
    try:
        retire(request.app.state.engine, known, caller.name, reason)
    except DeploymentError as error:
        return _page(request, asked, 409, problem=str(error), reason=reason)
    return to("/wall?said=retired")


@router.get("/wall/promotions/{number}")
def promotion_page(request: Request, _: Visitor, number: Number) -> Response:
    """Show how a promotion goes, from any gate: what it needs to know is in the database."""
    promotions: Promotions = request.app.state.promotions
    with request.app.state.engine.connect() as connection:
        given = _progress(connection, number, promotions.refusal(number))
    if given is None:
        raise HTTPException(404, f"deployment {number} is no promotion.")
    return render(request, "promotion.html", **given)


def _progress(connection: Connection, number: int, refusal: str | None) -> dict[str, Any] | None:
    found = connection.execute(text(_PREPARED), {"number": number}).first()
    if found is None:
        return None
    done = connection.execute(text(_DONE), {"number": number, "model": found.model}).first()
    gates = gates_that_follow(connection, found.model)
    if done is None and refusal is None and found.age > WAIT + _GRACE:
        refusal = (
            f"it was not promoted within {WAIT:g} seconds: a gate had not loaded it, or the one that waited "
            "for it was stopped. The model before goes on."
        )
    refusal = None if done else refusal
    return {"prepared": found, "done": done, "gates": gates, "refusal": refusal, "wait": WAIT}
