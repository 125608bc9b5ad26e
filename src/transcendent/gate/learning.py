"""The loop: the model that decides learns from all labels that stand, and the result becomes a shadow.

Each learning begins with the rows of the fit and takes every label that stands then, so a label that was
undone or changed since the last time teaches nothing any more. It never promotes.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, Engine, text

from transcendent._utils.extras import extra
from transcendent._utils.text import counted
from transcendent.artifacts import save
from transcendent.artifacts.sandbox import Access
from transcendent.decisions import Learner
from transcendent.errors import TranscendentError
from transcendent.experiments.experiment import Experiment
from transcendent.gate.deployments import Deployment, DeploymentError, needed
from transcendent.gate.export import export_labelled
from transcendent.gate.model import Model, load_model
from transcendent.gate.shadows import check_room, shadow
from transcendent.gate.stored import add, find, shown_as, stored_file
from transcendent.gate.waiting import WaitingJudge, changes_of

SHADOW = {"sample": 0.2, "audit": 0.5}
"""Settings of the shadow that a learnt model becomes, besides the budget of the model that decides."""

# In a transaction that only holds the lock, as long as learning takes: the work is done over other
# connections. A server may end transactions that are idle, which this one is.
_ALONE = """SELECT pg_try_advisory_xact_lock(1951555957)
FROM set_config('idle_in_transaction_session_timeout', '0', true)"""
# The last time is that of the model that decides: what it was taught itself, or what a later one was that
# has learnt from it.
_LAST = """
SELECT learning.items, learning.labels, model.digest FROM learning JOIN model ON model.id = learning.model
WHERE (learning.base = :model OR learning.model = :model) AND what = :what ORDER BY learning.id DESC LIMIT 1
"""
# The last time that the detector of a model was taught: by itself, or by one that it has learnt from.
_DETECTOR = """
WITH RECURSIVE line AS (
    (SELECT * FROM learning WHERE model = :model ORDER BY id DESC LIMIT 1)
    UNION ALL
    SELECT before.* FROM line JOIN LATERAL (
        SELECT * FROM learning WHERE learning.model = line.base AND learning.id < line.id
        ORDER BY id DESC LIMIT 1
    ) AS before ON line.what = 'judge'
)
SELECT items, labels FROM line WHERE what <> 'judge' ORDER BY id DESC LIMIT 1
"""
_ADD = """
INSERT INTO learning (base, model, what, items, labels, report, author)
VALUES (:base, :model, :what, :items, :labels, :report, :author)
"""
_REPORT = """
SELECT report, learning.author, learnt_at FROM learning JOIN model ON model.id = learning.model
WHERE model.digest = :digest ORDER BY learning.id DESC LIMIT 1
"""


class NothingLearntError(TranscendentError):
    """There is nothing new to learn from, or another process is learning."""


class ToLearn(NamedTuple):
    """What learns: ``what`` of the model that decides, from objects of models that begin with ``model``.

    ``trusted`` and ``public_key`` are those of the command: no row of the database widens them. ``opinions``
    is the setting of gates.
    """

    experiment: Experiment
    what: Learner
    trusted: Collection[str] = ()
    public_key: Path | None = None
    strict: bool = False
    signing_key: Path | None = None
    opinions: int = 1
    model: str = ""


class StandingLabels(NamedTuple):
    """Labels that stand, by item, and their numbers by class, author and origin."""

    taught: dict[int, str]
    counts: dict[str, dict[str, int]]


def learn(engine: Engine, wanted: ToLearn, author: str) -> dict[str, Any]:
    """Let the model that decides learn, register the result as a shadow, and return a report.

    Raises `NothingLearntError` if no label has changed since the last time, or another process is learning.
    """
    with _alone(engine) as guard:
        with engine.connect() as connection:
            deciding = _deciding(connection)
        with stored_file(engine, deciding.model) as stored, TemporaryDirectory() as folder:
            with shown_as(stored.path, stored.short):
                old = load_model(stored.path, wanted.trusted, wanted.public_key, stored.digest)
                access = Access(wanted.trusted, wanted.public_key, wanted.strict)
                base = access.open_and_try(stored.path)
            file = Path(folder, "labelled.parquet")
            labels = _export(engine, old, file, wanted)
            since = _since(engine, deciding.model, wanted.what, labels.taught)
            learnt = wanted.experiment.learn(
                base.rejector(wanted.trusted),
                file,
                what=wanted.what,
                train=base.manifest["notes"].get("train"),
            )
            said = f"{counted(learnt.n_learnt, 'labelled object')} ({wanted.what})"
            made = Path(folder, f"{wanted.experiment.toml.path.stem}-learnt")
            period, notes = base.manifest["training_period"], base.manifest["notes"] | {"learnt": said}
            save(learnt.rejector, made, training_period=period, notes=notes, signing_key=wanted.signing_key)
            guard.execute(text("SELECT 1"))  # the lock is lost with its connection
            given = (wanted.trusted, wanted.public_key, made.name, author, f"learnt from {said}")
            new = add(engine, made, *given)
        report = {
            "model": new.digest,
            "base": old.digest,
            "what": wanted.what,
            "labels": {"learnt": learnt.n_learnt, "left_out": learnt.left_out, **labels.counts},
            "since": since,
            "waiting": _changes(engine, deciding, old, new),
        }
        return _register(engine, deciding, report, labels.taught, author)


def report_of(connection: Connection, digest: str) -> dict[str, Any]:
    """Return the report of the model whose digest begins so, as it was written when the model had learnt."""
    model = find(connection, digest)
    found = connection.execute(text(_REPORT), {"digest": model.digest}).first()
    if found is None:
        raise DeploymentError(f"model {model.digest[:12]} was not made by 'transcendent gate learn'.")
    return {**found.report, "author": found.author, "learnt_at": found.learnt_at}


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """Hold the lock of learning; raise if another process has it."""
    with engine.begin() as guard:
        if not guard.execute(text(_ALONE)).scalar_one():
            raise NothingLearntError("another process is learning: nothing was done.")
        yield guard


def _deciding(connection: Connection) -> Deployment:
    plan = needed(connection)
    if plan.deciding is None:
        raise DeploymentError(
            "no model is promoted, so there is none to learn from: run 'transcendent gate model add' and "
            "'transcendent gate model promote'. To let a file learn, name it: --artifact FILE."
        )
    check_room(plan)  # before hours of learning
    return plan.deciding


def _export(engine: Engine, model: Model, file: Path, wanted: ToLearn) -> StandingLabels:
    """Write the labels that stand to a file, and return them."""
    n = export_labelled(
        engine,
        file,
        model=wanted.model,
        columns=model.layout.description(),
        opinions=wanted.opinions,
    )
    check_any(n, wanted.model, wanted.opinions)
    names = ["gate_item", "gate_label", "gate_author", "gate_audited", "gate_accepted", "gate_source"]
    table = extra("pyarrow.parquet", "gate").read_table(file, columns=names)
    items, labels, authors, *about = (table[name].to_pylist() for name in names)
    origins = [_origin(*each) for each in zip(*about, strict=True)]
    counted = {"by_label": labels, "by_author": authors, "by_origin": origins}
    counts = {name: dict(sorted(Counter(values).items())) for name, values in counted.items()}
    return StandingLabels(dict(zip(items, labels, strict=True)), counts)


def _origin(audited: bool, accepted: bool, source: str | None) -> str:
    """Return why an item was labelled; an accepted one is of the audit, or a shadow disagreed on it."""
    if source is not None:
        return "outside"
    return "audit" if audited else "disagreement" if accepted else "rejected"


def check_any(n: int, model: str, opinions: int) -> None:
    """Raise if no label was exported."""
    if not n:
        decided = f" that a model {model!r:.80} decided" if model else ""
        agreed = " that two analysts agree on" if opinions > 1 else ""
        raise ValueError(f"no object in the quarantine{decided} has a label{agreed} yet.")


def _since(engine: Engine, model: int, what: str, now: dict[int, str]) -> dict[str, Any]:
    """Compare labels with those of the last time; raise if they are the same.

    ``outdated`` is the number of labels that the detector was taught and that no longer stand: if the judge
    learns alone, the detector keeps them.
    """
    with engine.connect() as connection:
        last = connection.execute(text(_LAST), {"model": model, "what": what}).first()
        detector = connection.execute(text(_DETECTOR), {"model": model}).first()
    before = _taught(last)
    if last is not None and before == now:
        raise NothingLearntError(
            f"no label has changed since model {last.digest[:12]} has learnt: nothing was done."
        )
    kept = _taught(detector) if what == "judge" else {}
    return {
        "model": None if last is None else last.digest,
        "new": len(now.keys() - before.keys()),
        "changed": sum(label != now[item] for item, label in before.items() if item in now),
        "gone": len(before.keys() - now.keys()),
        "outdated": sum(now.get(item) != label for item, label in kept.items()),
    }


def _taught(row: Any) -> dict[int, str]:
    return {} if row is None else dict(zip(row.items, row.labels, strict=True))


def _changes(engine: Engine, deciding: Deployment, old: Model, new: Model) -> dict[str, Any]:
    budget = deciding.settings.get("budget")
    return changes_of(engine, WaitingJudge(old, budget, deciding.model), WaitingJudge(new, budget))


def _register(
    engine: Engine, deciding: Deployment, report: dict[str, Any], taught: dict[int, str], author: str
) -> dict[str, Any]:
    """Deploy a model as a shadow, note what it was taught, and return the report.

    In this order: a process that is killed in between has made a shadow too many, and labels are not lost.
    """
    with engine.connect() as connection:
        model = find(connection, report["model"])
    settings = {**SHADOW, "budget": deciding.settings.get("budget")}
    number = shadow(engine, model, settings, author, f"learnt ({report['what']})")
    report = {**report, "deployment": number}
    given = {"base": deciding.model, "model": model.number, "what": report["what"], "author": author}
    given |= {"items": list(taught), "labels": list(taught.values()), "report": Jsonb(report)}
    with engine.begin() as connection:
        connection.execute(text(_ADD), given)
    return report
