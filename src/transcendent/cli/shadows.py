"""The commands about shadows of the model that decides: shadow, compare."""

import getpass
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from transcendent._utils.text import as_percent
from transcendent.cli import console, showing
from transcendent.cli.models import Digest, Reason
from transcendent.cli.options import AsJson, Database

if TYPE_CHECKING:
    from transcendent.gate.comparing import Bounds, ModelComparison


def shadow(
    digest: Digest,
    reason: Reason,
    sample: Annotated[float, Option(help="Share of the objects that it decides, too.")] = 0.2,
    audit: Annotated[
        float, Option(help="Share of the objects on which it disagrees that is drawn for a label.")
    ] = 0.5,
    budget: Annotated[
        float | None, Option(help="Share of the traffic to reject (default: the artifact's own rule).")
    ] = None,
    database: Database = None,
) -> None:
    """Let gates decide a sample of their traffic with another model, too, to compare it."""
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings
    from transcendent.gate.shadows import shadow as deploy
    from transcendent.gate.stored import find

    with opened(read_settings(database=database).database.get_secret_value()) as engine:
        with engine.connect() as connection:
            model = find(connection, digest)
        settings = {"sample": sample, "audit": audit, "budget": budget}
        number = deploy(engine, model, settings, getpass.getuser(), reason)
    traffic = "all traffic" if sample == 1 else f"{as_percent(sample)} of the traffic"
    console.say(
        f"deployment {number}: model {model.digest[:12]} ({model.name}) is a shadow of {traffic}: "
        "see 'transcendent gate model compare'."
    )


def compare(
    a: Annotated[str, Argument(metavar="A", help="A model's digest; the first digits suffice.")],
    b: Annotated[str, Argument(metavar="B", help="The other model: one was the other's shadow.")],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Compare a shadow with the model that decided: what they reject, and who was right."""
    from transcendent.gate.comparing import compare as compared
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings

    settings = read_settings(database=database)
    with opened(settings.database.get_secret_value()) as engine, engine.connect() as connection:
        found = compared(connection, a, b)
    data = {**found._asdict(), "conclusion": conclusion(found)}
    showing.show(_in_words(found), data, as_json)


def _in_words(found: "ModelComparison") -> str:
    from transcendent._utils.listing import Listing

    a, b = found.a[:12], found.b[:12]
    until = "" if found.until is None else f" until {found.until:%Y-%m-%d %H:%M} UTC"
    shares = [
        _rejected(found, digest, n)
        for digest, n in ((found.a, found.a_rejected), (found.b, found.b_rejected))
    ]
    head = showing.lines(
        objects=f"{found.objects:,}, from {found.since:%Y-%m-%d %H:%M}{until}",
        shadow=f"{found.shadow[:12]}; {found.undecided:,} not decided by it, {found.dropped:,} dropped",
        rejected="; ".join(shares),
        disagreements=f"{found.disagreements:,}",
    )
    rows = [
        (
            *(outcome if outcome is not None else "rejected" for outcome in (cell.a, cell.b)),
            *(f"{n:,}" for n in (cell.objects, cell.drawn, cell.labels, cell.unclear)),
            _share(cell.a_share),
            _share(cell.b_share),
        )
        for cell in found.cells
    ]
    sums = (
        f"{sum(getattr(cell, name) for cell in found.cells):,}" for name in ("drawn", "labels", "unclear")
    )
    rows.append(("all", "", f"{found.disagreements:,}", *sums, _share(found.a_share), _share(found.b_share)))
    columns = (a, b, "objects", "drawn", "labels", "unclear", f"{a} right", f"{b} right")
    table = Listing(columns, rows, texts=(b,))
    return f"{head}\n\n{table.as_text()}\n\n{conclusion(found)}"


def _rejected(found: "ModelComparison", digest: str, n: int) -> str:
    """Return the share that a model rejects, with a note if it will still change."""
    from transcendent.gate.comparing import SETTLED

    share = f"{n / found.objects:.1%}" if found.objects else "–"
    note = ""
    if digest == found.shadow and not found.settled:
        note = f" (not settled: a budget needs about {SETTLED:,} objects in each gate)"
    return f"{digest[:12]}: {share}{note}"


def _share(share: "Bounds | None") -> str:
    return "unknown" if share is None else showing.percents(share.low, share.high, 0)


def conclusion(found: "ModelComparison") -> str:
    """Return what the comparison shows, in a sentence."""
    if not found.disagreements:
        return "They never disagreed."
    if found.better is not None:
        named = [(found.a[:12], _share(found.a_share)), (found.b[:12], _share(found.b_share))]
        (one, share), (other, rest) = named if found.better == "a" else named[::-1]
        return f"Where they disagree, {one} was right more often: {share} of the time, {other} {rest}."
    nothing, so_far = "Nothing can be concluded", "if the shares stay as they are"
    if not any(cell.labels for cell in found.cells):
        return f"{nothing}: none of the drawn objects has a label that counts yet."
    if found.more_labels is None:
        return f"{nothing}, and 10,000 more labels would not change that {so_far}."
    return f"{nothing}: about {found.more_labels:,} more labels of drawn objects would show it {so_far}."


COMMANDS: dict[str, Callable[..., None]] = {"shadow": shadow, "compare": compare}
