"""What all tests share, those in the documentation included."""

from unittest.mock import patch

import pytest


@pytest.fixture(autouse=True)
def examples_leave_nothing_behind(request, monkeypatch):
    """Neither files among the sources, nor shortcuts that other tests would take for the project's own."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    from transcendent.leave_one_out.registry import SHORTCUTS

    monkeypatch.chdir(request.getfixturevalue("tmp_path"))
    with patch.dict(SHORTCUTS):
        yield
