"""From a table to a decision, as documented, without any data but what the package writes."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from transcendent.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs/reference/command_line.md").read_text()
SECTION = PAGE.partition("## From a table to a decision")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^transcendent ([^#\n]+)", SECTION, re.MULTILINE)
(TOML,) = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRANSCENDENT_DATA", raising=False)

    def run(line, code=0):
        done = CliRunner().invoke(app, shlex.split(line), env={"COLUMNS": "200"})
        assert done.exit_code == code, done.output
        return done

    return run


def test_the_commands_of_the_page_run_in_order(run, tmp_path):
    said = {line.split()[0]: run(line).stdout for line in COMMANDS}
    assert list(said) == ["example", "init", "data", "backtest", "report", "fit", "decide"]
    assert (tmp_path / "objects.toml").read_text() == TOML
    assert "3,000 objects in 6 periods, 2020-05 to 2020-10" in said["backtest"]
    assert (tmp_path / "objects/report.html").stat().st_size > 10_000
    decided, new = pd.read_csv("decisions.csv"), pd.read_csv("new.csv")
    assert decided["id"].tolist() == new["id"].tolist()
    assert 0 < decided["accepted"].sum() < len(new) == 1000


def test_the_python_of_the_readme_names_no_data_set():
    assert "load_" not in (Path(__file__).parents[2] / "README.md").read_text()


def test_an_example_replaces_nothing(run, tmp_path):
    (tmp_path / "new.csv").write_text("mine")
    assert "new.csv exists" in run("example", code=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]
