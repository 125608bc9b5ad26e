"""The commands of the gate that show its monitors, and show and acknowledge alarms."""

import getpass
import math
from typing import Annotated, Any

import typer
from typer import Argument, Option

from transcendent._utils.text import counted
from transcendent.cli import console, showing
from transcendent.cli.options import AsJson, Database, UsageError

group = typer.Typer(help="Show the alarms of monitors, and acknowledge them.", invoke_without_command=True)


def monitors(database: Database = None, as_json: AsJson = False) -> None:
    """Show what the monitors of each deployment have seen, and why some deployments have none."""
    from transcendent.gate.auditing import harm_in
    from transcendent.gate.database import opened
    from transcendent.gate.folding import list_monitors
    from transcendent.gate.settings import read_settings

    settings = read_settings(database=database)
    promised = settings.promised_error
    with opened(settings.database.get_secret_value()) as engine, engine.connect() as connection:
        found = list_monitors(connection)
        for each in found:
            each["harm"] = None
            if promised is not None:
                each["harm"] = _harm(harm_in(connection, each["deployment"], promised))
    blocks = [_in_lines(each, promised) for each in found]
    showing.show("\n\n".join(blocks) or "no deployment has a monitor yet.", {"monitors": found}, as_json)


def _harm(harm: Any) -> dict[str, Any]:
    right, wrong = harm.unclear_right, harm.unclear_wrong
    return {
        "labels": right.labels,
        "unclear": harm.unclear,
        "wrong": right.wrong,
        "low": right.kept_error.low,
        "high": wrong.kept_error.high,
        "log_value": right.log_value,
        "alarm": right.alarm is not None,
        "alarm_if_unclear_is_wrong": wrong.alarm is not None,
    }


def _in_lines(found: dict[str, Any], promised: float | None) -> str:
    """Describe a monitor."""
    from transcendent.gate.folding import THRESHOLD

    watched: dict[str, Any] = {"not_monitored": found["problem"]}
    if found["problem"] is None or found["objects"]:
        n, rejected = found["objects"], found["rejected"]
        limit = "" if found["expected"] is None else f", expected at most {found['expected']:.1%}"
        watched["objects"] = f"{n:,}"
        alarm_at = _evidence(math.log(THRESHOLD))
        watched["evidence_of_drift"] = f"{_evidence(found['log_value'])}, alarm at {alarm_at}"
        watched["below_thresholds"] = f"{rejected / n:.1%}{limit}" if n else "nothing decided yet"
        watched["moved"] = "; ".join(map(_moved_in_words, found["moved"][:5])) or None
    return showing.lines(
        deployment=f"{found['deployment']} ({found['state']}), model {found['model'][:12]}",
        **watched,
        harm="no promised_error is set" if promised is None else _harm_in_words(found["harm"], promised),
        alarms=", ".join(found["alarms"]) or "none",
    )


def _moved_in_words(moved: dict[str, Any]) -> str:
    if moved["moved"] is None:
        return f"{moved['feature']} (now always missing)"
    return f"{moved['feature']} {moved['moved']:+.2f} ({moved['fit']:.4g} → {moved['now']:.4g})"


def _harm_in_words(harm: dict[str, Any], promised: float) -> str:
    if not harm["labels"]:
        return f"no label of the audit counts yet; promised at most {promised:.2%}"
    doubt = "; possible, if unclear answers are wrong" if harm["alarm_if_unclear_is_wrong"] else ""
    return (
        f"{showing.percents(harm['low'], harm['high'], 2)} of accepted answers wrong "
        f"({counted(harm['labels'], 'label')}, {harm['unclear']:,} unclear), "
        f"promised at most {promised:.2%}{doubt if not harm['alarm'] else ''}"
    )


def _evidence(log_value: float) -> str:
    return f"e^{round(log_value, 1) + 0.0:g}"  # adding 0 makes -0 a plain 0


def alarms(context: typer.Context, database: Database = None, as_json: AsJson = False) -> None:
    """Show the alarms of monitors, and acknowledge them."""
    from transcendent._utils.listing import Listing
    from transcendent.gate.paging import list_alarms

    if context.invoked_subcommand is not None:
        return
    with _opened(database) as engine:
        found = list_alarms(engine)
    rows = [
        (
            str(each["id"]),
            str(each["deployment"]),
            each["kind"],
            f"{each['raised_at']:%Y-%m-%d %H:%M}",
            f"{each['at']:,}",
            _evidence(each["log_value"]),
            ", ".join(str(moved["feature"]) for moved in each["moved"][:3]),
            "" if each["acknowledged_at"] is None else f"{each['acknowledged_by']}: {each['reason']}",
        )
        for each in found
    ]
    head = ("alarm", "deployment", "kind", "raised", "at", "evidence", "moved", "acknowledged")
    texts = ("kind", "raised", "evidence", "moved", "acknowledged")
    text = Listing(head, rows, texts=texts).as_text() if rows else "no alarms."
    showing.show(text, {"alarms": found}, as_json)


def acknowledge(
    number: Annotated[int, Argument(metavar="N", help="The number of the alarm.")],
    reason: Annotated[str, Option(help="What you make of it.")],
    database: Database = None,
) -> None:
    """Note that you know of an alarm."""
    from transcendent.gate.paging import acknowledge as note

    if not reason.strip():
        raise UsageError("--reason: must not be empty.")
    with _opened(database) as engine:
        note(engine, number, getpass.getuser(), reason)
    console.say(f"alarm {number} is acknowledged.")


def _opened(database: str | None) -> Any:
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings

    return opened(read_settings(database=database).database.get_secret_value())
