"""Check the lines of `gate events --format ocsf` and `--format ecs` against the published schemas.

python benchmarks/gate/findings.py

OCSF: py-ocsf-models from PyPI reads every line. ECS: npm's @elastic/ecs, an old and a new version, lists all
fields with their types and allowed values; this needs npm and node. Events of every kind are checked, with
hostile text in every field that a sender or an analyst can fill.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from py_ocsf_models.events.findings.detection_finding import DetectionFinding

from transcendent.gate.findings import as_ecs, as_ocsf
from transcendent.gate.targets import KINDS

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.told import DEPLOYED, HOSTILE, RAISED, event_of

PACKAGES = ("8.11.5", "9.4.0")  # around the version that the lines name
_TEXTS = ("keyword", "match_only_text", "wildcard")


def events() -> Iterator[dict[str, Any]]:
    yield from (DEPLOYED, RAISED)
    for kind in set(KINDS) - {"deployed", "alarm"}:
        for text in ("plain", *HOSTILE):
            about = dict.fromkeys(("object_id", "sender", "author", "reason", "label"), text)
            yield event_of(kind, **about, context={text: text})


def fields_of(version: str) -> dict[str, Any]:
    """Return the fields of ECS by their dotted names, as npm's package lists them."""
    with tempfile.TemporaryDirectory() as folder:
        packed = run("npm", "pack", "--silent", f"@elastic/ecs@{version}", folder=folder).split()[-1]
        run("tar", "xzf", packed, folder=folder)
        print_all = "process.stdout.write(JSON.stringify(require('./package').EcsFlat))"
        return dict(json.loads(run("node", "-e", print_all, folder=folder)))


def run(*command: str, folder: str) -> str:
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def leaves(told: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in told.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{before}{name}.")
        else:
            yield before + name, value


def problems_of(told: dict[str, Any], fields: dict[str, Any]) -> list[str]:
    """Return what ECS says against an event; names below `transcendent` are ours."""
    found = dict(leaves({name: value for name, value in told.items() if name != "transcendent"}))
    required = {name for name, field in fields.items() if field.get("required")}
    wrong = [f"{name} is missing" for name in sorted(required - found.keys())]
    for name, value in found.items():
        if (field := fields.get(name)) is None:
            wrong.append(f"{name} is not in ECS")
            continue
        if isinstance(value, list) != ("array" in field["normalize"]):
            wrong.append(f"{name} is a list, or should be one")
        values = value if isinstance(value, list) else [value]
        if field["type"] == "date":
            datetime.fromisoformat(value)
        elif field["type"] not in _TEXTS or not all(isinstance(each, str) for each in values):
            wrong.append(f"{name} is no {field['type']}")
        if allowed := {each["name"] for each in field.get("allowed_values", ())}:
            wrong += [f"{name} must not be {each}" for each in values if each not in allowed]
    categories = {each["name"]: each for each in fields["event.category"]["allowed_values"]}
    for category in found["event.category"]:
        expected = categories[category]["expected_event_types"]
        wrong += [f"{category} has no type {each}" for each in found["event.type"] if each not in expected]
    return wrong


def main() -> None:
    given = list(events())
    findings = [(event, line) for event in given if (line := as_ocsf(event)) is not None]
    for event, line in findings:
        read = DetectionFinding.model_validate_json(line)
        assert read.unmapped == event["data"], event
    others = len(given) - len(findings)
    print(f"OCSF: {len(findings)} lines are valid and read back equal; {others} events are no findings")
    for version in PACKAGES:
        fields = fields_of(version)
        assert "event.nonsense is not in ECS" in problems_of(
            {"event": {"nonsense": "", "category": [], "type": []}}, fields
        )
        for event in given:
            told = json.loads(as_ecs(event))
            assert problems_of(told, fields) == [], (event, problems_of(told, fields))
            assert told["transcendent"] == event["data"], event
        print(f"ECS: {len(given)} lines agree with the {len(fields):,} fields of @elastic/ecs {version}")


if __name__ == "__main__":
    main()
