"""Run commands, and read what their processes did with sockets."""

import os
import subprocess
from pathlib import Path


def watching(log):
    """Return an environment whose Python processes log sockets to a file."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "WATCHED_SOCKETS": str(log)}


def sockets_of(command, folder):
    """Run a command in a folder, and return the log of its sockets."""
    log = folder / "sockets.log"
    log.touch()
    done = subprocess.run(command, cwd=folder, env=watching(log), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return log.read_text()
