"""Which models decide: rows that are only added, each with an author and a reason."""

from typing import Any, NamedTuple

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, text


class Deployment(NamedTuple):
    """A row of the table: what is done with a model, and the settings that matter."""

    id: int
    model: int
    action: str
    settings: dict[str, Any]


_ROWS = "SELECT id, model, action, settings FROM deployment"


def deploy(
    connection: Connection, model: int, action: str, settings: dict[str, Any], author: str, reason: str
) -> int:
    """Add a deployment, and return its number."""
    sql = """INSERT INTO deployment (model, action, settings, author, reason)
    VALUES (:model, :action, :settings, :author, :reason) RETURNING id"""
    given = {"model": model, "action": action, "settings": Jsonb(settings), "author": author}
    return int(connection.execute(text(sql), {**given, "reason": reason}).scalar_one())


def pinned(connection: Connection, model: int, settings: dict[str, Any]) -> int:
    """Return the deployment of gates that were started with an artifact and these settings."""
    # Two gates that start at once must not add two.
    connection.execute(text("SELECT pg_advisory_xact_lock(2, :model)"), {"model": model})
    sql = f"{_ROWS} WHERE model = :model AND action = 'pinned' AND settings = :settings ORDER BY id DESC"
    found = connection.execute(text(sql), {"model": model, "settings": Jsonb(settings)}).first()
    if found is not None:
        return int(found.id)
    return deploy(connection, model, "pinned", settings, "gate", "started with an artifact")
