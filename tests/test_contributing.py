"""What contributors are told and given: the layers in CONTRIBUTING.md, workflows and hooks, one thread."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def test_the_layers_described_are_those_of_the_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    block = re.search(r"```\n(__main__\n.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    described = [re.split(r" {2,}", line)[0] for line in block[1].splitlines()]
    assert described == contract["layers"]


@pytest.mark.slow
def test_numerical_libraries_use_one_thread():
    script = """
import scipy.linalg, sklearn.ensemble
from threadpoolctl import threadpool_info
assert {pool["num_threads"] for pool in threadpool_info()} == {1}
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("workflow", ["quick", "full"])
def test_a_workflow_runs_the_script_of_its_name(workflow):
    written = yaml.safe_load((ROOT / f".github/workflows/{workflow}.yml").read_text("utf-8"))
    commands = [step.get("run", "") for job in written["jobs"].values() for step in job["steps"]]
    assert [command for command in commands if command.startswith(f"bash .ci/{workflow}")]


def test_hooks_run_the_tools_of_the_environment():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert all(hook["entry"].startswith(".venv/bin/") for hook in local["hooks"])
