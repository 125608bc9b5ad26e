"""The package as people meet it: its names, its size to import, its wheel."""

import email.policy
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement

import transcendent
from tests.watched.sockets import sockets_of

ROOT = Path(__file__).parents[1]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = DECLARED["project"]
REPOSITORY = "https://example.org/transcendent"
BESIDE = {".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml"}
CACHES = shutil.ignore_patterns("__pycache__")
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
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    for name in ("version", "license", "keywords"):
        assert cited[name] == PROJECT[name]
    assert cited["abstract"] == PROJECT["description"]
    assert cited["authors"] == PROJECT["authors"]
    (paper,) = cited["references"]
    section = (ROOT / "README.md").read_text().partition("## Cite")[2].partition("\n## ")[0]
    assert f"version = {{{PROJECT['version']}}}" in section
    assert paper["doi"] in section
    assert paper["title"] in section.replace("{TRANSCEND}", "TRANSCEND")


def test_the_repository_has_one_address():
    """CITATION.cff may name it, too."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    declared = DECLARED["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    assert cited.get("repository-code", "") == declared


def test_errors_name_extras_that_exist():
    sources = (path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = {name for source in sources for name in re.findall(r'extra\("[^"]+", "([^"]+)"', source)}
    assert named
    assert named <= set(PROJECT["optional-dependencies"])


def brought(extra):
    """Return what an extra installs, and the extras that it stands for."""
    packages, extras = set(), {extra}
    for line in PROJECT["optional-dependencies"][extra]:
        need = Requirement(line)
        if need.name != PROJECT["name"]:
            packages.add(need.name)
            continue
        for other in need.extras:
            more = brought(other)
            packages, extras = packages | more[0], extras | more[1]
    return packages, extras


def test_all_brings_every_extra():
    assert brought("all")[1] == set(PROJECT["optional-dependencies"])


def documented():
    """Return the text of every page and example, and the Python in it."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = [path.read_text("utf-8") for path in pages]
    blocks = [
        block for text in texts for block in re.findall(r"```(?:python|pycon)\n(.*?)```", text, re.DOTALL)
    ]
    examples = [path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.py")]
    return "\n".join(texts), "\n".join(blocks + examples)


def test_all_brings_what_documented_examples_import():
    """A package that it does not bring is in a line to install it."""
    text, code = documented()
    lines = re.findall(r"^(?:>>> |\.\.\. )? *(?:from|import) (\w+)", code, re.MULTILINE)
    packages = {Requirement(line).name for line in PROJECT["dependencies"]} | brought("all")[0]
    modules = {"scikit-learn": "sklearn", "mlflow-skinny": "mlflow"}
    known = {modules.get(name, name).replace("-", "_") for name in packages} | {"transcendent"}
    installed = " ".join(re.findall(r"pip install (.*)", text)).replace("-", "_")
    for name in set(lines) - known - set(sys.stdlib_module_names):
        assert name in installed, name


def readme_session():
    text = (ROOT / "README.md").read_text()
    block = re.search(r"```(?:python|pycon)\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [line[4:] for line in block[1].splitlines() if line.startswith((">>> ", "... "))]


def test_the_readme_session_is_short():
    assert len(readme_session()) <= 12


def run(*command, folder):
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def copied(folder, *, mode, seconds):
    """Return a copy of what is built, with other permissions and times."""
    folder.mkdir()
    for name in ("src", *BESIDE):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name, **({"ignore": CACHES} if copy is shutil.copytree else {}))
    for path in folder.rglob("*"):
        os.utime(path, (seconds, seconds))
        if path.is_file():
            path.chmod(mode)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source archive, and the wheel made from it."""
    folder = tmp_path_factory.mktemp("built")
    run("uv", "build", "--quiet", "--out-dir", str(folder / "dist"), str(ROOT), folder=folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.mark.slow
def test_the_same_sources_make_the_same_files(built, wheel, tmp_path):
    """And the wheel made from the sources is the one made from their archive."""
    (archive,) = built.glob("*.tar.gz")
    for i, kind in enumerate(("--wheel", "--sdist")):
        sources = copied(tmp_path / f"sources{i}", mode=0o600 + 0o44 * i, seconds=1e9 * (1 + i))
        run(
            "uv", "build", kind, "--quiet", "--out-dir", str(tmp_path / "dist"), str(sources), folder=tmp_path
        )
    for path in (wheel, archive):
        assert (tmp_path / "dist" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_what_is_in_the_wheel_and_the_source_archive(built, wheel):
    sources = [path for path in (ROOT / "src/transcendent").rglob("*.*") if path.suffix != ".pyc"]
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {str(path.relative_to(ROOT / "src")) for path in sources}
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == {f"src/{name}" for name in held} | BESIDE | {"PKG-INFO"}


@pytest.mark.slow
def test_the_metadata_is_complete(tmp_path):
    sources = copied(tmp_path / "sources", mode=0o644, seconds=1e9)
    declared = (sources / "pyproject.toml").read_text("utf-8")
    placed = re.sub('^repository = ".*?"', f'repository = "{REPOSITORY}"', declared, flags=re.MULTILINE)
    (sources / "pyproject.toml").write_text(placed)
    run("uv", "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(sources), folder=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name), policy=email.policy.default)
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    said = {name.lower(): metadata.get_all(name) for name in metadata}
    assert said["version"] == [transcendent.__version__]
    assert said["summary"] == [PROJECT["description"]]
    assert said["license-expression"] == ["BSD-3-Clause"]
    assert said["requires-python"] == [PROJECT["requires-python"]]
    assert set(said["provides-extra"]) == set(PROJECT["optional-dependencies"])
    assert said["author"] == ["The Transcendent authors"]
    urls = dict(line.split(", ") for line in said["project-url"])
    assert set(urls) == {"Repository", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(REPOSITORY) for url in urls.values())
    assert said["description-content-type"] == ["text/markdown"]
    _check_links(metadata.get_payload())


def _check_links(text):
    """On a package index, only absolute links and links to a place on the page lead anywhere."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r'\]\(([^)\s]+)|(?:href|src|srcset)="([^"\s]+)', prose)
    targets = [one or other for one, other in targets]
    ours = [target for target in targets if target.startswith(f"{REPOSITORY}/")]
    assert len(ours) > 10
    for target in ours:
        kind, tag, path = target.removeprefix(f"{REPOSITORY}/").split("/", 2)
        assert (ROOT / path.partition("#")[0]).exists(), target
        assert tag == f"v{transcendent.__version__}"
        assert (kind == "raw") == path.endswith((".svg", ".png"))
    assert all(target.startswith(("https://", "#")) for target in targets)
    assert "](docs/" not in prose


@pytest.mark.slow
def test_the_wheel_runs_the_readme_with_the_core_dependencies_only(wheel, tmp_path):
    run("uv", "venv", "--quiet", "--python", sys.executable, "empty", folder=tmp_path)
    python = str(tmp_path / "empty/bin/python")
    run("uv", "pip", "install", "--quiet", "--python", python, str(wheel), folder=tmp_path)
    listed = ("uv", "pip", "list", "--quiet", "--python", python, "--format", "freeze")
    names = {line.partition("==")[0] for line in run(*listed, folder=tmp_path).split()}
    assert {"numpy", "scipy", "scikit-learn", "joblib", "transcendent"} <= names
    assert names.isdisjoint({"pandas", "polars", "pyarrow", "matplotlib", "lightgbm"})
    (tmp_path / "session.py").write_text("\n".join(readme_session()))
    run(python, "-W", "error", "session.py", folder=tmp_path)
