"""The runbook, with an image that is built, podman, PostgreSQL and nginx, which takes minutes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = ("podman", "runc", "mmdebstrap", "nginx", "openssl", "promtool")
PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.postgresql
def test_the_runbook_step_by_step():
    missing = [each for each in PROGRAMS if shutil.which(each, path=PATH) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or PROGRAMS)}")
    done = subprocess.run(
        [sys.executable, "deploy/rehearsal.py", "--objects", "200"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()][-2:] == ["restore", "pods"]
