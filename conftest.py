"""What all tests share, those in the documentation included."""

import pytest


@pytest.fixture(autouse=True)
def examples_write_elsewhere(request, monkeypatch):
    """Files that documented examples write do not end up among the sources."""
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
