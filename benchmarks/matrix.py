"""Install the wheel into empty environments, and run README's Python there.

python benchmarks/matrix.py                      # with every Python from 3.11 on that is installed
python benchmarks/matrix.py ~/.pyenv/versions/*/bin/python

Each Python gets two environments: one with the oldest libraries that pyproject.toml allows and that have
wheels for it, one with the newest. It ends with an error if README fails anywhere.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NEEDED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["artifacts"]]
SHOWN = ("numpy", "scipy", "scikit-learn", "skops")
VERSION = "import sys; print(*sys.version_info[:3], sep='.')"


def found() -> list[str]:
    """Return the Pythons of the PATH and of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    named = [shutil.which(f"python3.{minor}") for minor in range(11, 20)]
    return [*filter(None, named), *map(str, sorted(pyenv.glob("versions/*/bin/python")))]


def by_version(pythons: list[str]) -> dict[str, str]:
    """Return one Python for each version that the project supports, in order."""
    versions = {}
    for python in pythons:
        done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=False)
        if done.returncode == 0 and (version := numbers(done.stdout)) >= numbers(PROJECT["requires-python"]):
            versions[version] = python
    return {".".join(map(str, version)): versions[version] for version in sorted(versions)}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def readme() -> str:
    """Return the Python of all sessions in README."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


def tried(python: str, resolution: str, wheel: Path, folder: Path) -> list[str]:
    """Return the versions that README ran with, in an environment of its own."""
    run("uv", "venv", "--quiet", "--python", python, "empty", folder=folder)
    inside = str(folder / "empty/bin/python")
    options = ("--quiet", "--python", inside, "--only-binary", ":all:", "--resolution", resolution)
    run("uv", "pip", "install", *options, str(wheel), *NEEDED, folder=folder)
    listed = run("uv", "pip", "list", "--quiet", "--python", inside, "--format", "freeze", folder=folder)
    versions = dict(line.split("==") for line in listed.split() if "==" in line)
    (folder / "session.py").write_text(readme())
    run(inside, "session.py", folder=folder)
    return [versions[name] for name in SHOWN]


def main(pythons: list[str]) -> None:
    failed = False
    print(f"| Python | libraries | {' | '.join(SHOWN)} | README |\n|{'---|' * (len(SHOWN) + 3)}")
    with tempfile.TemporaryDirectory() as built:
        run("uv", "build", "--wheel", "--quiet", "--out-dir", built, str(ROOT), folder=ROOT)
        (wheel,) = Path(built).glob("*.whl")
        for version, python in by_version(pythons or found()).items():
            for name, resolution in (("oldest", "lowest-direct"), ("newest", "highest")):
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        versions, said = tried(python, resolution, wheel, Path(folder)), "runs"
                    except RuntimeError as error:
                        versions, said, failed = ["–"] * len(SHOWN), "fails", True
                        print(error, file=sys.stderr)
                print(f"| {version} | {name} | {' | '.join(versions)} | {said} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main(sys.argv[1:])
