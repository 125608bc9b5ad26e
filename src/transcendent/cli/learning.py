"""The commands of the loop: learn from the quarantine, and show what a learnt model would change."""

import getpass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from transcendent._utils.text import counted
from transcendent.cli import console, models, options, showing
from transcendent.cli.options import AsJson, Database, Trust, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from transcendent.gate.settings import GateSettings

OfModel = Annotated[
    str, Option(metavar="DIGEST", help="Only objects that this model decided; the first digits suffice.")
]


def learn(
    toml: options.Toml,
    artifact: Annotated[
        Path | None,
        Option(
            exists=True, dir_okay=False, help="Let this file learn (default: the model that gates serve)."
        ),
    ] = None,
    out: Annotated[
        Path | None, options.out("With --artifact: what to write (default: named after TOML, with -learnt).")
    ] = None,
    what: options.What = "judge",
    model: OfModel = "",
    database: Database = None,
    trust: Trust = None,
    public_key: options.PublicKey = None,
    strict: options.Strict = False,
    signing_key: options.SigningKey = None,
    as_json: AsJson = False,
    _quiet: options.Quiet = False,
) -> None:
    """Let the model that gates serve learn from the labels in the quarantine, and make it a shadow.

    It prints what would change, and promotes nothing. With --artifact, a file learns, as 'transcendent learn'
    does, and another file is written.
    """
    from transcendent.cli.artifacts import access_of
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings

    if out is not None and artifact is None:
        raise UsageError("--out needs --artifact: without it, the result goes into the database.")
    settings = read_settings(database=database, trusted=trust or None, public_key=public_key)
    with opened(settings.database.get_secret_value()) as engine:
        if artifact is None:
            _learn_to_shadow(engine, toml, what, model, settings, strict, signing_key, as_json)
            return
        given = (toml, artifact, out, what, access_of(trust, public_key, strict), signing_key, as_json)
        _learn_to_file(engine, model, settings.opinions, given)


def _learn_to_file(engine: "Engine", model: str, opinions: int, given: Any) -> None:
    from transcendent.cli.experiments import learn_from
    from transcendent.gate.export import export_labelled
    from transcendent.gate.learning import check_any

    with TemporaryDirectory() as folder:
        labels = Path(folder, "labelled.parquet")
        check_any(export_labelled(engine, labels, model=model, opinions=opinions), model, opinions)
        learn_from(labels, *given)


def _learn_to_shadow(
    engine: "Engine",
    toml: Path,
    what: str,
    model: str,
    settings: "GateSettings",
    strict: bool,
    signing_key: Path | None,
    as_json: bool,
) -> None:
    from transcendent.artifacts.signatures import required_key
    from transcendent.experiments import read
    from transcendent.gate.learning import NothingLearntError, ToLearn
    from transcendent.gate.learning import learn as run

    if required_key(settings.public_key) is not None and signing_key is None:
        raise UsageError(
            "a public key is required of artifacts here, so the learnt one must be signed: --signing-key KEY."
        )
    wanted = ToLearn(
        read(toml),
        what,  # type: ignore[arg-type]  # checked there
        settings.trusted,
        settings.public_key,
        strict,
        signing_key,
        settings.opinions,
        model,
    )
    try:
        found = run(engine, wanted, getpass.getuser())
    except NothingLearntError as error:
        console.say(str(error))
        if as_json:
            showing.show("", {"model": None, "reason": str(error)}, as_json)
        return
    showing.show(_in_words(found), found, as_json)
    digest = found["model"][:12]
    promote = f"transcendent gate model promote {digest} --reason TEXT"
    console.say(f"model {digest} is a shadow: '{promote}' lets it decide.")


def report(digest: models.Digest, database: Database = None, as_json: AsJson = False) -> None:
    """Show again what a model that has learnt would change, as it was when it had learnt."""
    from transcendent.gate.learning import report_of

    with models._connection(database) as connection:
        found = report_of(connection, digest)
    by = f"\nlearnt {found['learnt_at']:%Y-%m-%d %H:%M} by {found['author']}"
    showing.show(_in_words(found) + by, found, as_json)


def _in_words(found: dict[str, Any]) -> str:
    """Describe what a model has learnt from, and what it would change."""
    from transcendent._utils.listing import Listing
    from transcendent.experiments.survey import in_words

    labels, since, waiting = found["labels"], found["since"], found["waiting"]
    before = "the fit" if since["model"] is None else f"model {since['model'][:12]}"
    text = showing.lines(
        model=found["model"],
        learnt_from=f"{counted(labels['learnt'], 'labelled object')} ({found['what']})",
        left_out=in_words(labels["left_out"]) or None,
        by_label=in_words(labels["by_label"]),
        by_author=in_words(labels["by_author"]),
        by_origin=in_words(labels["by_origin"]),
        since=f"{before}: {since['new']:,} new, {since['changed']:,} changed, {since['gone']:,} gone",
        note=f"{since['outdated']:,} labels that the detector was taught no longer stand: --what both"
        if since["outdated"]
        else None,
        old_model=found["base"],
    )
    other = f", {waiting['other_columns']:,} with other columns left out" if waiting["other_columns"] else ""
    head = f"\n\n{counted(waiting['items'], 'waiting object')}, by the old model's label{other}:\n"
    if waiting["problem"] is not None:
        return f"{text}{head}not compared: {waiting['problem']}"
    names = ("items", "rejected_before", "rejected_after", "newly_accepted", "newly_rejected", "other_label")
    rows = [(each["label"], *(f"{each[name]:,}" for name in names)) for each in waiting["changes"]]
    columns = ("label", *(name.replace("_", " ") for name in names))
    return text + head + (Listing(columns, rows).as_text() if rows else "none.")


def opinions_in(connection: "Connection", item: int | None) -> dict[str, Any]:
    """Return how analysts agree, in all or on an item."""
    from transcendent.gate.opinions import agreement, opinions_on

    if item is not None:
        return {"agreed": opinions_on(connection, [item])[item].agreed}
    return {f"opinions_{name}": value for name, value in agreement(connection)._asdict().items()}
