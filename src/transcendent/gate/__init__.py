"""The gate: a service that decides objects, and stores the rejected ones until they are labelled.

Start one with ``transcendent gate serve``. All its state is in PostgreSQL.
"""

from transcendent.gate.client import GateClient
from transcendent.gate.export import Labelled, read_labelled

__all__ = ["GateClient", "Labelled", "read_labelled"]
