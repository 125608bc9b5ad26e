"""What the pages say of files and commands is true of them."""

import re
from pathlib import Path

import pytest

from transcendent.cli.app import app
from transcendent.cli.console import EXIT_CODES
from transcendent.experiments import read

ROOT = Path(__file__).parents[2]
COMMAND_LINE = "docs/reference/command_line.md"
HOW_TO = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/how_to").glob("*.md"))
PAGES = {
    name: (ROOT / name).read_text()
    for name in ("README.md", COMMAND_LINE, "docs/reference/artifacts.md", *HOW_TO)
}
EXPERIMENTS = [
    block for page in PAGES.values() for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
]
COMMANDS = [
    line
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    for line in re.findall(r"^ *(transcendent [a-z].*)$", page.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("text", EXPERIMENTS)
def test_every_experiment_is_understood(text, tmp_path):
    (tmp_path / "experiment.toml").write_text(text)
    assert read(tmp_path / "experiment.toml").rejectors


def test_there_are_experiments_and_commands():
    assert len(EXPERIMENTS) >= 11
    assert len(COMMANDS) >= 80


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_and_option_exists(line):
    from typer.main import get_command

    words = line.partition("#")[0].split()
    command, place = get_command(app), 1
    while hasattr(command, "commands") and not words[place].startswith("--"):
        command, place = command.commands[words[place]], place + 1
    known = {option for parameter in command.params for option in getattr(parameter, "opts", [])}
    assert {word for word in words if word.startswith("--")} <= known


def test_exit_codes_are_those_of_the_page():
    listed = dict(re.findall(r"^\| (\d+) \| (.*?) \|$", PAGES[COMMAND_LINE], re.MULTILINE))
    assert {int(code): meaning for code, meaning in listed.items()} == {0: "done", **EXIT_CODES}


def test_every_command_is_in_the_table():
    documented = set(re.findall(r"^\| `transcendent (\w+)", PAGES[COMMAND_LINE], re.MULTILINE))
    groups = {group.name for group in app.registered_groups}
    assert documented == {command.callback.__name__ for command in app.registered_commands} | groups


def test_every_command_of_the_gate_is_in_its_section():
    from typer.main import get_command

    def paths(command, path):
        if not hasattr(command, "commands"):
            return {path}
        return set().union(*(paths(each, f"{path} {name}") for name, each in command.commands.items()))

    section = PAGES[COMMAND_LINE].partition("## The gate")[2].partition("\n## ")[0]
    gate = get_command(app).commands["gate"]
    assert all(re.search(f"^{path}\\b", section, re.MULTILINE) for path in paths(gate, "transcendent gate"))
