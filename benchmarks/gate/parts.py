"""The PostgreSQL server and the gates of the tests, for measurements."""

import sys
from pathlib import Path

sys.path.append(
    str(Path(__file__).parents[2])
)  # the tests are there; a script only finds modules beside itself

from tests.gate.processes import Cluster, Gate, cluster_in, free_port

__all__ = ["Cluster", "Gate", "cluster_in", "free_port"]
