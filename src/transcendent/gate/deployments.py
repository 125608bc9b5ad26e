"""Which models decide: rows that are only added, each with an author and a reason."""

from typing import Any, NamedTuple, Self

from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, text

from transcendent.errors import TranscendentError

# Models have numbers from 1.
LOCK = "SELECT pg_advisory_xact_lock(2, 0)"
"""SQL of a lock, for deployments that depend on others: one of them at a time is written."""


class DeploymentError(TranscendentError, ValueError):
    """A model cannot be deployed."""


class DeploymentSettings(BaseModel):
    """The settings of a deployment, which hold for all gates that follow it.

    ``audit`` is the share of accepted objects that is kept for an audit. ``budget`` is the share of the
    traffic to reject, in place of the artifact's own budget or thresholds.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    audit: float = Field(ge=0, le=1)
    budget: float | None = Field(None, gt=0, lt=1)

    @classmethod
    def read(cls, given: Any) -> Self:
        """Check the settings of a row; a newer version may have written some that this one does not know."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise DeploymentError(f"its settings cannot be used: {where or 'all'}: {first['msg']}.") from None


class ShadowSettings(DeploymentSettings):
    """The settings of a shadow.

    ``sample`` is the share of objects that it decides, too, and ``audit`` the share of those on which it
    disagrees that is drawn for a label.
    """

    sample: float = Field(gt=0, le=1)


class Deployment(NamedTuple):
    """A row of the table: what is done with a model, and the settings that matter."""

    id: int
    model: int
    action: str
    settings: dict[str, Any]


_ROWS = "SELECT id, model, action, settings FROM deployment"
_IS_RETIRED = """EXISTS (
    SELECT FROM deployment AS later
    WHERE later.model = deployment.model AND later.action = 'retire' AND later.id > deployment.id
)"""
# The newest of these rows decides. The one before stays loaded, so that a rollback is quick.
_DECIDING = "WHERE action IN ('active', 'observe') ORDER BY id DESC LIMIT 2"
_PREPARED = "WHERE action = 'prepare' ORDER BY id DESC LIMIT 1"
# The newest row of a model that was neither retired nor promoted since.
_SHADOWS = f"""{_ROWS} WHERE action = 'shadow' AND NOT EXISTS (
    SELECT FROM deployment AS later WHERE later.model = deployment.model AND later.id > deployment.id
        AND later.action IN ('shadow', 'active', 'observe', 'retire')
) ORDER BY id LIMIT :most"""
_UNLESS_RETIRED = f"SELECT * FROM ({{}}) AS deployment WHERE NOT {_IS_RETIRED} ORDER BY id DESC"


MAX_SHADOWS = 4
"""Shadows that gates decide with at a time; further ones are refused."""


class Needed(NamedTuple):
    """What gates that follow the deployments need: the row that decides, others to load, and shadows."""

    deciding: Deployment | None
    others: list[Deployment]
    shadows: list[Deployment]


def needed(connection: Connection) -> Needed:
    """Return the deployments whose models gates need now."""
    found = connection.execute(text(f"{_ROWS} {_DECIDING}")).first()
    deciding = None if found is None else Deployment(*found)
    before, prepared = (
        [Deployment(*row) for row in connection.execute(text(_UNLESS_RETIRED.format(f"{_ROWS} {each}")))]
        for each in (_DECIDING, _PREPARED)
    )
    since = 0 if deciding is None else deciding.id
    others = [each for each in prepared if each.id > since] + [each for each in before if each.id < since]
    rows = connection.execute(text(_SHADOWS), {"most": MAX_SHADOWS})
    shadows = [
        each for each in map(Deployment._make, rows) if deciding is None or each.model != deciding.model
    ]
    return Needed(deciding, others, shadows)


def deploy(
    connection: Connection, model: int, action: str, settings: dict[str, Any], author: str, reason: str
) -> int:
    """Add a deployment, and return its number."""
    sql = """INSERT INTO deployment (model, action, settings, author, reason)
    VALUES (:model, :action, :settings, :author, :reason) RETURNING id"""
    given = {"model": model, "action": action, "settings": Jsonb(settings), "author": author}
    return int(connection.execute(text(sql), {**given, "reason": reason}).scalar_one())


def pinned(connection: Connection, model: int, settings: dict[str, Any]) -> Deployment:
    """Return the deployment of gates that were started with an artifact and these settings."""
    # Two gates that start at once must not add two.
    connection.execute(text("SELECT pg_advisory_xact_lock(2, :model)"), {"model": model})
    sql = f"{_ROWS} WHERE model = :model AND action = 'pinned' AND settings = :settings ORDER BY id DESC"
    found = connection.execute(text(sql), {"model": model, "settings": Jsonb(settings)}).first()
    if found is not None:
        return Deployment(*found)
    number = deploy(connection, model, "pinned", settings, "gate", "started with an artifact")
    return Deployment(number, model, "pinned", settings)
