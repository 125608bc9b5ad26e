"""States that earlier releases wrote are resumed."""

import json

import numpy as np
import pytest

from tests.monitoring.write_v1 import MONITORS, V1, audit, drift_of, harm_of, memory_of, table
from transcendent import load
from transcendent.explaining import CaseMemory
from transcendent.monitoring import DriftMonitor, HarmMonitor

pytestmark = [
    pytest.mark.slow,  # also since the oldest scikit-learn does not read what this one wrote
    pytest.mark.filterwarnings("ignore::transcendent.errors.ArtifactVersionWarning"),
]
STATES = json.loads((V1 / "states.json").read_text())
EXPECTED = json.loads((V1 / "expected.json").read_text())
ROWS = np.load(V1 / "later.npz")["X"]


@pytest.fixture
def ice():
    return load(V1 / "ice.transcendent")


def near(found, expected, name=""):
    """Check that two structures are equal but for rounding."""
    if isinstance(expected, dict):
        assert found.keys() >= expected.keys(), name
        for key, value in expected.items():
            near(found[key], value, f"{name}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), name
        for i, value in enumerate(expected):
            near(found[i], value, f"{name}[{i}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), name
    else:
        assert found == expected, name


@pytest.mark.parametrize("name", MONITORS)
def test_a_monitor_of_drift_goes_on(name, ice):
    monitor = DriftMonitor.from_json(STATES[name], ice)
    before, after = EXPECTED[name]
    near(drift_of(monitor), before)
    monitor.update(table(ROWS))
    near(drift_of(monitor), after)


def test_a_monitor_of_harm_goes_on():
    monitor = HarmMonitor.from_json(STATES["harm"])
    before, after = EXPECTED["harm"]
    near(harm_of(monitor), before)
    audit(monitor, range(10, 30), 0.4)
    near(harm_of(monitor), after)


def test_a_case_memory_suggests_and_settles_as_it_did():
    near(memory_of(CaseMemory.from_bytes((V1 / "memory.npz").read_bytes())), EXPECTED["memory"])
