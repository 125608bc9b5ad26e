"""What a release has made public is still there: names, parameters, commands, settings, metrics, events.

python -m tests.cli.test_released    # at a release: writes what is public now
"""

import importlib
import inspect
import json
import re
import tomllib
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from tests.cli.test_documented import EXPERIMENTS
from tests.gate.test_metrics import documented
from tests.test_package import PUBLIC
from transcendent import Decisions, Rejector, errors
from transcendent.cli.app import app
from transcendent.cli.console import EXIT_CODES
from transcendent.decisions import DOUBTS
from transcendent.experiments import read
from transcendent.gate.access import ROLES
from transcendent.gate.settings import GateSettings
from transcendent.gate.targets import KINDS, WebhookTarget

HERE = Path(__file__).parent
RELEASED = json.loads(path.read_text()) if (path := HERE / "released.json").exists() else {}
ROOT = HERE.parents[1]


def _public():
    """Return what is public now, as JSON holds it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        "names": dict(sorted(_names())),
        "commands": dict(_commands(get_command(app), "transcendent")),
        "exit codes": list(EXIT_CODES),
        "experiments": EXPERIMENTS,
        "columns of decisions": list(_decisions().to_dict()),
        "kinds of doubt": list(DOUBTS),
        "settings of a gate": list(GateSettings.model_fields),
        "settings of a webhook": list(WebhookTarget.model_fields),
        "roles": list(ROLES),
        "events": list(KINDS),
        "metrics": {name: [kind, sorted(labels)] for name, (kind, labels) in documented().items()},
        "extras": list(project["optional-dependencies"]),
    }


def _names():
    """Yield names with their parameters; None for what is not called."""
    for module in [*PUBLIC, "transcendent.errors"]:
        imported = importlib.import_module(module)
        own = imported.__all__ if module in PUBLIC else [name for name, _ in _errors()]
        for name in own:
            value = getattr(imported, name)
            yield f"{module}.{name}", _parameters(value)
            if inspect.isclass(value):
                yield from _members(f"{module}.{name}", value)


def _errors():
    return [(name, each) for name, each in vars(errors).items() if inspect.isclass(each) and name[0] != "_"]


@cache
def _listed():
    """Return the members of classes that the reference lists."""
    page = (ROOT / "docs/reference/api.md").read_text()
    entry = r"^::: (\S+)\n    options:\n      members: \[(.*)\]$"
    return {name: re.findall(r"\w+", members) for name, members in re.findall(entry, page, re.MULTILINE)}


def _members(path, cls):
    """Yield the members of a class that the reference shows, and its documented attributes."""
    section = r"Attributes\n *-+\n(.*?)(\n\n *\w+\n *-+\n|\Z)"
    described = re.search(section, inspect.getdoc(cls) or "", re.DOTALL)
    attributes = re.findall(r"^([\w, ]+) : ", described[1] if described else "", re.MULTILINE)
    members = {each for names in attributes for each in names.split(", ")} | {*_listed().get(path, ())}
    if issubclass(cls, Rejector):  # what evaluators share is listed once
        members |= {name for name in _listed()["transcendent.InductiveEvaluator"] if hasattr(cls, name)}
    for name in members:
        member = inspect.getattr_static(cls, name, None)
        called = None if isinstance(member, property | cached_property) else getattr(cls, name, None)
        yield f"{path}.{name}", _parameters(called)


def _parameters(value):
    if not callable(value):
        return None
    try:
        given = inspect.signature(value).parameters.values()
    except ValueError:  # a class of C
        return None
    named = [each for each in given if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    named = [each for each in named if each.name not in ("self", "cls")]
    return {
        "positional": [each.name for each in named if each.kind != each.KEYWORD_ONLY],
        "by name": sorted(each.name for each in named if each.kind == each.KEYWORD_ONLY),
        "needed": sorted(each.name for each in named if each.default is each.empty),
        "any": any(each.kind == each.VAR_KEYWORD for each in given),
    }


def _commands(command, path):
    """Yield commands with their arguments, in order, and their options."""
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from _commands(each, f"{path} {name}")
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    yield (
        path,
        {
            "arguments": [each.name for each in arguments],
            "options": sorted(name for each in options for name in (*each.opts, *each.secondary_opts)),
            "needed": sorted(each.name for each in command.params if each.required),
        },
    )


def _as_text(public):
    """Return JSON with a line for each name, so that what changes is easy to see."""
    sections = []
    for what, given in public.items():
        start, end = "[]" if isinstance(given, list) else "{}"
        lines = [json.dumps(each if start == "[" else {each: given[each]}) for each in given]
        inside = ",\n  ".join(line if start == "[" else line[1:-1] for line in lines)
        sections.append(f"{json.dumps(what)}: {start}\n  {inside}\n {end}")
    return "{\n " + ",\n ".join(sections) + "\n}\n"


def _decisions():
    """Return decisions that have all columns."""
    one, column = np.ones(1), np.ones((1, 2))
    return Decisions(
        labels=np.array(["a"]), accepted=one > 0, credibility=one, confidence=one, p_values=column,
        votes=np.ones(1, int), doubts=np.zeros(1, int), classes=np.array(["a", "b"]),
    )  # fmt: skip


def test_every_name_is_there_and_is_called_as_before():
    now = dict(_names())
    assert RELEASED["names"].keys() <= now.keys()
    for name, old in RELEASED["names"].items():
        if old is not None:
            new = now[name]
            assert new["positional"][: len(old["positional"])] == old["positional"], name
            assert new["any"] or {*old["by name"]} <= {*new["by name"], *new["positional"]}, name
            assert {*new["needed"]} <= {*old["needed"]}, name


def test_every_command_is_there_and_is_called_as_before():
    now = dict(_commands(get_command(app), "transcendent"))
    assert RELEASED["commands"].keys() <= now.keys()
    for command, old in RELEASED["commands"].items():
        assert now[command]["arguments"][: len(old["arguments"])] == old["arguments"], command
        assert {*old["options"]} <= {*now[command]["options"]}, command
        assert {*now[command]["needed"]} <= {*old["needed"]}, command


@pytest.mark.parametrize("text", RELEASED.get("experiments", ()))
def test_every_experiment_is_understood(text, tmp_path):
    (tmp_path / "experiment.toml").write_text(text)
    assert read(tmp_path / "experiment.toml").rejectors


def test_everything_else_is_there():
    now = _public()
    for what in RELEASED.keys() - {"names", "commands", "experiments"}:
        old = RELEASED[what]
        assert not [name for name in old if name not in now[what]], what
    assert RELEASED["metrics"].items() == {name: now["metrics"][name] for name in RELEASED["metrics"]}.items()
    kinds = RELEASED["kinds of doubt"]
    assert now["kinds of doubt"][: len(kinds)] == kinds  # which are stored as positions


if __name__ == "__main__":
    (HERE / "released.json").write_text(_as_text(_public()))
