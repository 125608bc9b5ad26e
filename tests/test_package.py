"""The package as people meet it: its names, its size to import, its wheel."""

import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

import transcendent
from tests.watched.sockets import sockets_of

ROOT = Path(__file__).parents[1]
PUBLIC = [
    "transcendent",
    "transcendent.measures",
    "transcendent.leave_one_out",
    "transcendent.thresholds",
    "transcendent.judging",
    "transcendent.baselines",
    "transcendent.metrics",
    "transcendent.monitoring",
    "transcendent.explaining",
    "transcendent.temporal",
    "transcendent.datasets",
    "transcendent.plots",
    "transcendent.artifacts",
    "transcendent.report",
    "transcendent.tables",
    "transcendent.batch",
    "transcendent.experiments",
    "transcendent.gate",
]
CORE_ALONE = """
import sys
extras = "pandas polars pyarrow matplotlib lightgbm xgboost dask skops cryptography jinja2 mlflow typer rich"
sys.modules.update(dict.fromkeys([*extras.split(), "fastapi", "httpx2", "sqlalchemy"]))
"""


@pytest.mark.parametrize("module", PUBLIC)
def test_all_names_exist(module):
    for name in importlib.import_module(module).__all__:
        assert hasattr(importlib.import_module(module), name)


def test_a_name_has_one_place_to_import_it_from():
    names = [name for module in PUBLIC for name in importlib.import_module(module).__all__]
    assert sorted(set(names)) == sorted(names)


def test_the_first_screen_of_the_api():
    evaluators = {
        "InductiveEvaluator",
        "TransductiveEvaluator",
        "CrossConformalEvaluator",
        "ScoreEvaluator",
    }
    searches = {"ExactSearch", "GuaranteedSearch", "RandomSearch", "GridSearch", "QuartileSearch"}
    others = {"Answers", "CombinedMeasure", "Decisions", "Rejector", "RejectionBudget", "StreamingBudget"}
    assert set(transcendent.__all__) == evaluators | searches | others | {"backtest", "save", "load"}


def test_metrics_are_imported_from_metrics():
    for name in ("F1", "ErrorRate", "Recall", "Metric"):
        assert not hasattr(transcendent, name)
        assert hasattr(transcendent.metrics, name)


@pytest.mark.slow
def test_dir_shows_the_public_names_and_subpackages_alone():
    """In a fresh interpreter, where each subpackage is reached without importing it by name."""
    subpackages = [module.partition(".")[2] for module in PUBLIC[1:]] + ["errors"]
    script = f"""
import transcendent
shown = [name for name in dir(transcendent) if not name.startswith("__")]
assert shown == sorted([*transcendent.__all__, *{subpackages}]), shown
for name in shown:
    assert getattr(transcendent, name) is not None
assert [name for name in dir(transcendent) if not name.startswith("__")] == shown
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_top_level_imports_nothing_by_itself():
    script = "import sys, transcendent; assert not {'sklearn', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_public_name_is_documented():
    for module in PUBLIC:
        for name in importlib.import_module(module).__all__:
            assert getattr(importlib.import_module(module), name).__doc__, f"{module}.{name}"


@pytest.mark.slow
def test_every_module_imports_with_the_core_alone():
    """Extras are imported where they are used, never at the top of a module."""
    modules = [m.name for m in pkgutil.walk_packages(transcendent.__path__, "transcendent.")]
    through_and_through = ("transcendent.cli.", "transcendent.gate.")
    modules = [name for name in modules if not name.startswith(through_and_through)]
    script = f"{CORE_ALONE}\nimport importlib\nfor name in {modules!r}: importlib.import_module(name)\n"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_help_does_not_wait_for_the_numerical_libraries():
    script = """
import sys
from transcendent.cli.app import app
app(["--help"], standalone_mode=False)
assert not {"numpy", "pandas", "scipy", "sklearn"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_what_is_imported_beside_scikit_learn():
    """Nothing of anybody else: no extra, and nothing that talks to a network."""
    script = """
import sys
from sklearn.svm import LinearSVC
before = set(sys.modules)
from transcendent import CrossConformalEvaluator, InductiveEvaluator, TransductiveEvaluator
from transcendent import backtest, load, save
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) - set(sys.stdlib_module_names) <= {"transcendent", "sklearn"}


@pytest.mark.slow
def test_no_network_socket_is_opened(tmp_path):
    """By importing, fitting, deciding, backtesting, saving, loading or reporting, in any process."""
    script = """
from sklearn.svm import LinearSVC
from transcendent import CrossConformalEvaluator, InductiveEvaluator, backtest, load, save
from transcendent.datasets import make_stream
from transcendent.report import write_report
stream = make_stream(600, n_periods=6, random_state=0)
cce = CrossConformalEvaluator(LinearSVC(), cv=3, n_jobs=2, random_state=0).fit(stream.X, stream.y)
save(cce, "cce.transcendent")
load("cce.transcendent").decide(stream.X)
saved = {"train": "2020-04", "folder": "b", "n_jobs": 2}
result = backtest(InductiveEvaluator(LinearSVC()), stream.X, stream.y, stream.times, **saved)
write_report(result, "report.html")
"""
    assert "network" not in sockets_of([sys.executable, "-W", "ignore", "-c", script], tmp_path)


@pytest.mark.parametrize(
    ("opened", "kind"),
    [
        ("socket.socket().close()", "network"),
        ("socket.getaddrinfo('127.0.0.1', 80)", "network"),
        ("socket.socketpair()", "local"),
        ("socket.socket(socket.AF_UNIX).bind('here')", "local"),
    ],
)
def test_sockets_of_every_process_are_heard(tmp_path, opened, kind):
    child = f"import socket; {opened}"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    heard = sockets_of([sys.executable, "-c", script], tmp_path).splitlines()
    assert {line.partition(" ")[0] for line in heard} == {kind}


def test_what_is_cited_is_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    for name in ("version", "license", "keywords"):
        assert cited[name] == project[name]
    assert cited["abstract"] == project["description"]
    (paper,) = cited["references"]
    section = (ROOT / "README.md").read_text().partition("## Cite")[2].partition("\n## ")[0]
    assert f"version = {{{project['version']}}}" in section
    assert paper["doi"] in section
    assert paper["title"] in section.replace("{TRANSCEND}", "TRANSCEND")


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
    sources = [path for path in (ROOT / "src/transcendent").rglob("*.*") if path.suffix != ".pyc"]
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {str(path.relative_to(ROOT / "src")) for path in sources}
    run("uv", "venv", "--quiet", "--python", sys.executable, "empty")
    python = str(tmp_path / "empty/bin/python")
    run("uv", "pip", "install", "--quiet", "--python", python, str(wheel))
    installed = run("uv", "pip", "list", "--quiet", "--python", python, "--format", "freeze")
    names = {line.partition("==")[0] for line in installed.split()}
    assert {"numpy", "scipy", "scikit-learn", "joblib", "transcendent"} <= names
    assert names.isdisjoint({"pandas", "polars", "pyarrow", "matplotlib", "lightgbm"})
    (tmp_path / "session.py").write_text("\n".join(readme_session()))
    run(python, "-W", "error", "session.py")
