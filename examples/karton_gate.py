"""A Karton service: it has a gate decide samples, and sends them on with the decision.

GATE_ADDRESS=https://gate.example GATE_TOKEN=tg_… python examples/karton_gate.py --config-file karton.ini

The token is a client's. A sample whose answer cannot be trusted goes on as rejected: no service should act on
the detector's label then. If the gate does not answer, the task crashes: run it again from Karton's
dashboard. An object that is sent again is kept once.
"""

import os
from typing import Any

import numpy as np
from karton.core import Karton, Task

from transcendent.gate import GateClient

SAMPLES = [{"type": "sample", "stage": "recognized"}]  # the tasks that this service gets


def features_of(content: bytes) -> dict[str, Any]:
    """Return the features of a sample as the gate takes them: replace this by those of your detector.

    Here they are the shares of bytes in 16 ranges.
    """
    counts = np.bincount(np.frombuffer(content, np.uint8) >> 4, minlength=16)
    return {"values": (counts / max(1, len(content))).tolist()}


class GateService(Karton):
    """Asks a gate about samples."""

    identity = "karton.transcendent-gate"
    filters = SAMPLES

    def process(self, task: Task) -> None:
        """Have the gate decide a sample, and send it on."""
        sample = task.get_resource("sample")
        about = {
            "id": sample.sha256,
            **features_of(sample.content),
            "context": {"name": (sample.name or "")[:200]},
        }
        with GateClient(os.environ["GATE_ADDRESS"], os.environ["GATE_TOKEN"]) as gate:
            (decision,) = gate.decide_objects([about])
        outcome = "accepted" if decision["accepted"] else "rejected"
        headers = {"type": "sample", "stage": "decided", "decision": outcome, "label": decision["label"]}
        self.send_task(Task(headers, payload={"sample": sample, "decision": decision}))


if __name__ == "__main__":
    GateService.main()
