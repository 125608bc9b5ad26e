"""The state that a command of an earlier release wrote is taken up."""

import json
import shutil

import numpy as np
import pytest

from tests.monitoring.write_v1 import V1, table, watch

pytestmark = [
    pytest.mark.filterwarnings("ignore::transcendent.errors.ArtifactVersionWarning"),
    pytest.mark.usefixtures("tried_here"),
]


def test_a_state_file_is_taken_up(tmp_path):
    state = shutil.copy(V1 / "state.json", tmp_path)
    assert "was taken before" in watch(V1 / "objects.csv", state, V1).output
    table(np.load(V1 / "later.npz")["X"]).to_csv(tmp_path / "later.csv", index=False)
    assert "300 objects" in watch(tmp_path / "later.csv", state, V1).output
    assert len(json.loads((tmp_path / "state.json").read_text())["files"]) == 2
