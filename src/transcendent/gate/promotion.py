"""Deploy a model to all gates that follow, or none: promote, roll back, retire."""

import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, text

from transcendent.gate.deployments import (
    LOCK,
    Deployment,
    DeploymentError,
    DeploymentSettings,
    ShadowSettings,
    deploy,
    needed,
)
from transcendent.gate.processes import LIVE
from transcendent.gate.stored import Known
from transcendent.gate.traffic import restart_counts

_EVERY = 0.25  # seconds between looks at the processes

_FOLLOWING = """
SELECT process.id, host, pid, problem, :model = ANY(loaded) AS has_it
FROM process LEFT JOIN deployment ON deployment.id = process.deployment
WHERE seen_at > now() - make_interval(secs => :seconds) AND deployment.action IS DISTINCT FROM 'pinned'
ORDER BY started_at, process.id
"""
_LAST_BUDGET = """
SELECT CASE WHEN jsonb_typeof(settings -> 'budget') = 'number' THEN (settings ->> 'budget')::float8 END
    AS budget FROM deployment
WHERE model = :model AND action IN ('active', 'observe', 'pinned') ORDER BY id DESC LIMIT 1
"""
_BEFORE = """
SELECT deployment.id, deployment.model, action, settings, digest, coalesce(name, '–') AS name, budget
FROM deployment JOIN model ON model.id = deployment.model LEFT JOIN artifact ON artifact.model = model.id
WHERE action IN ('active', 'observe') ORDER BY deployment.id DESC LIMIT 2
"""
_PROCESSES = """
SELECT process.id, host, pid, version, process.deployment, action AS state, digest AS model,
    array(SELECT digest FROM model WHERE model.id = ANY(loaded) ORDER BY model.id) AS loaded,
    problem, started_at, seen_at
FROM process LEFT JOIN deployment ON deployment.id = process.deployment
LEFT JOIN model ON model.id = deployment.model
WHERE seen_at > now() - make_interval(secs => :seconds) ORDER BY started_at, process.id
"""


class Promoted(NamedTuple):
    """A model that decides from now on, and the number of gates that follow."""

    deployment: int
    model: Known
    action: str
    settings: dict[str, Any]
    gates: int


class Plan(NamedTuple):
    """What is to be deployed, and how."""

    model: Known
    action: str
    settings: dict[str, Any]


class Prepared(NamedTuple):
    """A model that gates load: the number of that deployment, and what decided when it was made."""

    number: int
    plan: Plan
    author: str
    reason: str
    before: Deployment | None


def promote(
    engine: Engine,
    model: Known,
    action: str,
    settings: dict[str, Any],
    author: str,
    reason: str,
    wait: float,
) -> Promoted:
    """Let gates load a model, and deploy it once all of them have; raise if one cannot, or takes too long.

    A deployment that somebody else makes meanwhile is not undone: this one is refused.
    """
    return complete(engine, prepare(engine, Plan(model, action, settings), author, reason), wait)


def prepare(engine: Engine, plan: Plan, author: str, reason: str, over: int | None = None) -> Prepared:
    """Let gates load a model; raise if another deployment decides than ``over``, if that is given."""
    DeploymentSettings.read(plan.settings)
    with engine.begin() as connection:
        connection.execute(text(LOCK))
        before = needed(connection).deciding
        if over is not None and (before is None or before.id != over):
            raise DeploymentError("another deployment was made meanwhile: look at it, and try again.")
        number = deploy(connection, plan.model.number, "prepare", plan.settings, author, reason)
    return Prepared(number, plan, author, reason, before)


def complete(engine: Engine, prepared: Prepared, wait: float) -> Promoted:
    """Deploy a model once all gates have loaded it; raise if one cannot, or takes too long."""
    model, action, settings = prepared.plan
    end = time.monotonic() + wait
    while True:
        with engine.begin() as connection:
            connection.execute(text(LOCK))
            _check_unchanged(connection, prepared.before)
            following = gates_that_follow(connection, model.number)
            lacking = [each for each in following if not each.has_it]
            if not lacking:
                _restart_counts(connection, model, settings)
                number = deploy(connection, model.number, action, settings, prepared.author, prepared.reason)
                return Promoted(number, model, action, settings, len(following))
        failed = [each for each in lacking if f"deployment {prepared.number}:" in (each.problem or "")]
        if failed or time.monotonic() >= end:
            raise DeploymentError(_refusal(model, failed or lacking, len(following), wait))
        time.sleep(_EVERY)


def gates_that_follow(connection: Connection, model: int) -> list[Any]:
    """Return the processes that follow the deployments, and whether each has loaded a model."""
    return list(connection.execute(text(_FOLLOWING), {"model": model, "seconds": LIVE}))


def audit_now(connection: Connection, otherwise: float) -> float:
    """Return the share that is audited now, or another one if nothing is deployed that says it."""
    deciding = needed(connection).deciding
    if deciding is None:
        return otherwise
    try:
        return DeploymentSettings.read(deciding.settings).audit
    except DeploymentError:  # such as a row that was written by hand
        return otherwise


def budget_of_shadow(connection: Connection, model: int) -> float | None:
    """Return the budget that a model has as a shadow, None if it is none or has no budget."""
    for each in needed(connection).shadows:
        if each.model == model:
            return ShadowSettings.read(each.settings).budget
    return None


def _check_unchanged(connection: Connection, before: Deployment | None) -> None:
    now = needed(connection).deciding
    if now is not None and now != before:
        raise DeploymentError(f"deployment {now.id} was made meanwhile: look at it, and try again.")


def _restart_counts(connection: Connection, model: Known, settings: dict[str, Any]) -> None:
    """Count from 0 if the budget changes: what was rejected within the one before is no debt of this one."""
    last = connection.execute(text(_LAST_BUDGET), {"model": model.number}).first()
    if last is None:
        return
    old = model.budget if last.budget is None else last.budget
    if old != (model.budget if settings["budget"] is None else settings["budget"]):
        restart_counts(connection, model.number)


def _refusal(model: Known, lacking: list[Any], n: int, wait: float) -> str:
    lines = [
        f"{each.host}, process {each.pid}: {each.problem or f'not loaded within {wait:g} seconds'}"
        for each in lacking
    ]
    first = f"model {model.digest[:12]} was not promoted: {len(lacking)} of {n} gates have not loaded it."
    return "\n".join([first, *lines, "The model before goes on."])


def rollback(engine: Engine, author: str, reason: str, wait: float) -> Promoted:
    """Deploy the model and settings of the deployment before, which undoes the last promotion or rollback."""
    with engine.connect() as connection:
        plan = plan_before(connection)
    return promote(engine, *plan, author, reason, wait)


def plan_before(connection: Connection) -> Plan:
    """Return what a rollback deploys; raise if there is nothing to return to."""
    rows = connection.execute(text(_BEFORE)).all()
    kept = [each.id for each in needed(connection).others]
    if len(rows) < 2:
        raise DeploymentError("there is no deployment before to return to.")
    before = rows[1]
    if before.id not in kept:
        raise DeploymentError(
            f"model {before.digest[:12]} was retired: promote a model with 'transcendent gate model promote'."
        )
    known = Known(before.model, before.digest, before.name, before.budget)
    return Plan(known, before.action, before.settings)


def retire(engine: Engine, model: Known, author: str, reason: str) -> None:
    """Let gates drop a model that is prepared, a shadow, or the one before; refuse the one that decides."""
    with engine.begin() as connection:
        connection.execute(text(LOCK))
        deciding = needed(connection).deciding
        if deciding is not None and deciding.model == model.number:
            raise DeploymentError(f"model {model.digest[:12]} decides: promote another one first.")
        deploy(connection, model.number, "retire", {}, author, reason)


def list_processes(connection: Connection) -> list[dict[str, Any]]:
    """Return the processes that live, what each serves, and the digests of the models that it has loaded."""
    return [dict(row) for row in connection.execute(text(_PROCESSES), {"seconds": LIVE}).mappings()]
