"""The package as people meet it: its names, its size to import, its wheel."""

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import transcendent

ROOT = Path(__file__).parents[1]
PUBLIC = [
    "transcendent",
    "transcendent.measures",
    "transcendent.leave_one_out",
    "transcendent.thresholds",
    "transcendent.evaluators",
    "transcendent.baselines",
    "transcendent.metrics",
    "transcendent.temporal",
    "transcendent.datasets",
    "transcendent.plots",
]


@pytest.mark.parametrize("module", PUBLIC)
def test_all_names_exist(module):
    for name in importlib.import_module(module).__all__:
        assert hasattr(importlib.import_module(module), name)


def test_a_name_has_one_place_to_import_it_from():
    names = [name for module in PUBLIC for name in importlib.import_module(module).__all__]
    assert sorted(set(names)) == sorted(names)


def test_the_first_screen_of_the_api():
    assert set(transcendent.__all__) >= {
        "InductiveEvaluator",
        "CrossConformalEvaluator",
        "TransductiveEvaluator",
        "ScoreEvaluator",
        "ExactSearch",
        "RandomSearch",
        "GridSearch",
        "QuartileSearch",
        "Decisions",
    }


def test_every_public_name_is_documented():
    for module in PUBLIC:
        for name in importlib.import_module(module).__all__:
            assert getattr(importlib.import_module(module), name).__doc__, f"{module}.{name}"


def test_every_public_name_is_in_the_reference():
    entries = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text(), re.MULTILINE)
    for module in PUBLIC:
        for name in importlib.import_module(module).__all__:
            assert f"{module}.{name}" in entries


def test_every_module_imports_with_the_core_alone():
    """Extras are imported where they are used, never at the top of a module."""
    modules = [m.name for m in pkgutil.walk_packages(transcendent.__path__, "transcendent.")]
    script = (
        "import sys\n"
        "for extra in ('pandas', 'polars', 'pyarrow', 'matplotlib', 'lightgbm', 'xgboost', 'dask'):\n"
        "    sys.modules[extra] = None\n"
        "import importlib\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def readme_session():
    text = (ROOT / "README.md").read_text()
    block = re.search(r"```(?:python|pycon)\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [line[4:] for line in block[1].splitlines() if line.startswith((">>> ", "... "))]


def test_the_readme_session_is_short():
    assert len(readme_session()) <= 12


@pytest.mark.slow
def test_the_wheel_runs_the_readme_with_the_core_dependencies_only(tmp_path):
    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("uv", "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    run("uv", "venv", "--quiet", "--python", sys.executable, "empty")
    python = str(tmp_path / "empty/bin/python")
    run("uv", "pip", "install", "--quiet", "--python", python, str(wheel))
    installed = run("uv", "pip", "list", "--quiet", "--python", python, "--format", "freeze")
    names = {line.partition("==")[0] for line in installed.split()}
    assert {"numpy", "scipy", "scikit-learn", "joblib", "transcendent"} <= names
    assert names.isdisjoint({"pandas", "polars", "pyarrow", "matplotlib", "lightgbm"})
    (tmp_path / "session.py").write_text("\n".join(readme_session()))
    run(python, "-W", "error", "session.py")
