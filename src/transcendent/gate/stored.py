"""Artifacts in the database, from which gates load models.

They are in the database, not in a folder, so that all hosts have them, one backup has all, and none is
missing when its deployment is committed.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, text

from transcendent.errors import ArtifactError
from transcendent.gate.deployments import DeploymentError, needed
from transcendent.gate.intake import register
from transcendent.gate.model import Model, load_model
from transcendent.gate.processes import live_processes

MAX_BYTES = 256 << 20
"""Limit on the size of an artifact."""
_PART = 4 << 20  # bytes that are read at once, so that heartbeats over the same connection do not wait long

# The digest does not cover the signature, so a file that was signed later replaces the one before.
_ADD = """
INSERT INTO artifact (model, content, name, rejector, budget, author, reason)
VALUES (:model, :content, :name, :rejector, :budget, :author, :reason)
ON CONFLICT (model) DO UPDATE SET content = excluded.content, name = excluded.name,
    author = excluded.author, reason = excluded.reason, added_at = now()
"""
_READ = "SELECT substring(content FROM :start FOR :size) FROM artifact WHERE model = :model"
_SIZE = """SELECT digest, octet_length(content) AS size
FROM model LEFT JOIN artifact ON artifact.model = model.id WHERE model.id = :model"""
_LIST = """
SELECT id AS number, digest, name, rejector, budget, author, artifact.reason, added_at,
    octet_length(content) AS bytes,
    (SELECT action FROM deployment WHERE deployment.model = model.id AND action <> 'pinned'
     ORDER BY deployment.id DESC LIMIT 1) AS action
FROM artifact JOIN model ON model.id = artifact.model ORDER BY added_at, id
"""


class NotStoredError(ArtifactError):
    """A model that was served from a file has no artifact in the database."""


class Known(NamedTuple):
    """A model that has an artifact in the database; ``budget`` is the artifact's own."""

    number: int
    digest: str
    name: str
    budget: float | None


def add(
    engine: Engine,
    path: Path,
    trusted: Collection[str],
    public_key: Path | None,
    name: str,
    author: str,
    reason: str,
) -> Model:
    """Verify an artifact, try it out, and store it; return its model."""
    if (size := path.stat().st_size) > MAX_BYTES:
        raise ArtifactError(
            f"{path} has {size >> 20:,} MB, and the database takes artifacts of up to {MAX_BYTES >> 20} MB: "
            f"start gates with the file instead: transcendent gate serve {path}"
        )
    content = path.read_bytes()
    with TemporaryDirectory() as folder:  # a copy, so that what is stored is what was verified
        copy = Path(folder, path.name)
        copy.write_bytes(content)
        model = _load(copy, path, trusted, public_key)
    given = {
        "model": register(engine, model),
        "content": content,
        "name": name,
        "rejector": model.manifest["rejector"],
        "budget": None if model.rule is None else model.rule.rate,
        "author": author,
        "reason": reason,
    }
    with engine.begin() as connection:
        connection.execute(text(_ADD), given)
    return model


def load_stored(engine: Engine, number: int, trusted: Collection[str], public_key: Path | None) -> Model:
    """Load a model from the database under a gate's own settings; raise `ArtifactError` if it is refused."""
    with stored_file(engine, number) as stored:
        return _load(stored.path, stored.short, trusted, public_key, stored.digest)


class StoredFile(NamedTuple):
    """An artifact of the database in a temporary file, and the digest that it should have."""

    path: Path
    digest: str

    @property
    def short(self) -> str:
        """What errors call it."""
        return f"model {self.digest[:12]}"


@contextmanager
def stored_file(engine: Engine, number: int) -> Iterator[StoredFile]:
    """Write the artifact of a model to a temporary file; nothing about it is checked yet."""
    with engine.connect() as connection:
        found = connection.execute(text(_SIZE), {"model": number}).one()
    with TemporaryDirectory() as folder:  # which only this user may enter
        stored = StoredFile(Path(folder, "artifact"), found.digest)
        if found.size is None:
            raise NotStoredError(
                f"{stored.short} has no artifact: add it with 'transcendent gate model add'."
            )
        if found.size > MAX_BYTES:
            raise ArtifactError(f"{stored.short} has {found.size >> 20:,} MB, more than {MAX_BYTES >> 20}.")
        with stored.path.open("wb") as file:
            for start in range(1, found.size + 1, _PART):
                given = {"model": number, "start": start, "size": _PART}
                with engine.connect() as connection:
                    file.write(connection.execute(text(_READ), given).scalar_one())
        yield stored


def _load(
    path: Path, shown: Any, trusted: Collection[str], public_key: Path | None, digest: str | None = None
) -> Model:
    with shown_as(path, shown):
        return load_model(path, trusted, public_key, digest)


@contextmanager
def shown_as(path: Path, shown: Any) -> Iterator[None]:
    """Let errors about a temporary file name ``shown`` in its place."""
    try:
        yield
    except ArtifactError as error:
        raise type(error)(str(error).replace(str(path), str(shown))) from None


def find(connection: Connection, digest: str) -> Known:
    """Return the model whose digest begins so."""
    rows = connection.execute(text(_LIST)).all()
    found = [row for row in rows if digest and row.digest.startswith(digest)]
    if len(found) != 1:
        raise DeploymentError(
            f"{len(found) or 'no'} models begin with {digest!r:.80}; those that were added are "
            f"{', '.join(row.digest[:12] for row in rows[-20:]) or 'none'}."
        )
    return Known(found[0].number, found[0].digest, found[0].name, found[0].budget)


def list_models(connection: Connection) -> list[dict[str, Any]]:
    """Return the models in the order in which they were added, with state and number of live processes."""
    plan, processes = needed(connection), live_processes(connection)
    prepared = [each.model for each in plan.others if each.action == "prepare"]
    listed = []
    for row in connection.execute(text(_LIST)).mappings():
        state = "retired" if row["action"] == "retire" else None
        if row["number"] in [each.model for each in plan.shadows]:
            state = "shadow"
        if row["number"] in prepared:
            state = "prepared"
        if plan.deciding is not None and plan.deciding.model == row["number"]:
            state = plan.deciding.action
        loaded = sum(row["number"] in each["loaded"] for each in processes)
        shown = {name: value for name, value in row.items() if name not in ("number", "action")}
        listed.append({**shown, "state": state, "processes": loaded})
    return listed
