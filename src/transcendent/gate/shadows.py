"""Deploy a model as a shadow of the one that decides."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, text

from transcendent.gate.deployments import (
    LOCK,
    MAX_SHADOWS,
    DeploymentError,
    Needed,
    ShadowSettings,
    deploy,
    needed,
)
from transcendent.gate.stored import Known


def shadow(engine: Engine, model: Known, settings: Mapping[str, Any], author: str, reason: str) -> int:
    """Let gates decide a sample of their traffic with a model, too; return the number of the deployment."""
    ShadowSettings.read(dict(settings))
    with engine.begin() as connection:
        connection.execute(text(LOCK))
        plan = needed(connection)
        if plan.deciding is not None and plan.deciding.model == model.number:
            raise DeploymentError(f"model {model.digest[:12]} decides: it cannot be its own shadow.")
        check_room(plan, model.number)
        return deploy(connection, model.number, "shadow", dict(settings), author, reason)


def check_room(plan: Needed, model: int | None = None) -> None:
    """Raise if there are too many shadows for another one, unless it is a shadow already."""
    if sum(each.model != model for each in plan.shadows) >= MAX_SHADOWS:
        raise DeploymentError(
            f"there are {MAX_SHADOWS} shadows already: retire one with 'transcendent gate model retire'."
        )
