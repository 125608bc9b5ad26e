"""Print where a gate's processor time goes: the stages of a request of 100 apps, in one process.

TRANSCENDENT_DATA=... python benchmarks/gate/stages.py

Processor time of this process for an object, the least of 20 turns over 4,000 apps of 2013, four requests
at a time as under load. HTTP is not in it: it is what `load.py` shows beyond the sum.
"""

import gc
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import apps

from transcendent.gate.bodies import read_objects, to_answers, write_answer
from transcendent.gate.database import connect, migrate
from transcendent.gate.features import read_rows
from transcendent.gate.intake import Draw, keep, register, to_keep
from transcendent.gate.minutes import MinuteCounts
from transcendent.gate.model import load_model
from transcendent.gate.moving import RowRange

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import cluster_in

ROWS, BATCH, TOGETHER, TURNS = 4000, 100, 4, 20


class Clock:
    """Adds up the processor time of stages."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)

    def __call__(self, stage: str, work: Any, *arguments: Any) -> Any:
        """Run a stage."""
        started = time.process_time()
        found = work(*arguments)
        self.spent[stage] += time.process_time() - started
        return found


def bodies(turn: int, given: list[dict[str, Any]]) -> list[bytes]:
    """Return the apps as requests, under new ids."""
    objects = [{"id": f"turn{turn}-{i}", **each} for i, each in enumerate(given)]
    parts = (objects[i : i + BATCH] for i in range(0, len(objects), BATCH))
    return [json.dumps({"objects": part}, separators=(",", ":")).encode() for part in parts]


def main() -> None:
    with tempfile.TemporaryDirectory() as name, cluster_in(Path(name) / "postgres") as server:
        apps.fit(Path(name) / "gate.transcendent")
        model, engine = load_model(Path(name) / "gate.transcendent"), connect(server.url)
        migrate(engine)
        number, draw, (given, _) = register(engine, model), Draw(b"secret", 0.01), apps.objects_to_send(ROWS)
        gc.freeze()  # as the gate does
        turns = []
        for turn in range(TURNS):
            clock, sent, counts = Clock(), bodies(turn, given), MinuteCounts()
            for start in range(0, len(sent), TOGETHER):
                objects = []
                for body in sent[start : start + TOGETHER]:
                    objects += clock("JSON to Python", read_objects, body, 1000)
                parsed = clock("Python to rows", read_rows, model.layout, objects)
                ids, (group,) = parsed.ids, parsed.groups
                clock("decide alone", model.rejector.decide, group.rows)
                decisions = clock("decide, observe", model.decide, group.rows)
                rows = [RowRange(group.rows, 0, len(ids)).sample(ids[0])]
                clock("what moved", counts.observe, (), model.watched, rows)
                answers = clock("answers", to_answers, ids, decisions)
                senders = ["sensor"] * len(ids)
                kept = clock("what to keep", to_keep, number, draw, ids, senders, group.rows, decisions)
                for i in range(0, len(ids), BATCH):
                    part = slice(i, i + BATCH)
                    clock("answers to JSON", write_answer, model.digest, answers[part], ids[part], {})
                clock("insert and commit", keep, engine, list(kept.values()))
            turns.append(clock.spent)
        engine.dispose()
    least = {stage: min(turn[stage] for turn in turns) * 1e6 / ROWS for stage in turns[0]}
    print(f"{'decide alone':16} {least.pop('decide alone'):5.2f} µs an object, for comparison")
    total = sum(least.values())
    for stage, spent in least.items():
        print(f"{stage:16} {spent:5.2f} µs an object  {spent / total:4.0%}")
    print(f"{'in all':16} {total:5.2f} µs: at most {1e6 / total:,.0f} objects a second with one core")


if __name__ == "__main__":
    main()
