"""What all tests share, those in the documentation included."""

import os
import sys
from unittest.mock import patch

import pytest

collect_ignore = ["docs/learn/tutorials/gate.md"]  # tests/gate/test_tutorial.py runs it, beside a gate

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is imported; what tests start inherits it


def pytest_addoption(parser):
    """Add ``--full``."""
    parser.addoption("--full", action="store_true", help="run the tests marked full, too")


def pytest_collection_modifyitems(config, items):
    """Mark tests that need PostgreSQL, and pages; leave out long versions unless ``--full`` is given."""
    for item in items:
        if "server" in item.fixturenames:
            item.add_marker("postgresql")
        if item.path.suffix == ".md":  # pages run for seconds, and cannot mark themselves
            item.add_marker("slow")
    if not config.getoption("--full"):
        long = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.fixture(autouse=True)
def examples_leave_nothing_behind(request, monkeypatch):
    """Neither files among the sources, nor figures, nor shortcuts. They do not find the public data."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    from transcendent.leave_one_out.registry import SHORTCUTS

    monkeypatch.chdir(request.getfixturevalue("tmp_path"))
    monkeypatch.delenv("TRANSCENDENT_DATA", raising=False)
    with patch.dict(SHORTCUTS):
        yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
