"""Requests that are answered together: neither waits for ever, nor fails for another's sake."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from transcendent.artifacts import open_artifact
from transcendent.gate.features import Group, Layout
from transcendent.gate.intake import Draw, register
from transcendent.gate.model import load_model
from transcendent.gate.service import RefusedError, Service


class Moody:
    """A rejector that takes its time, and fails on rows that begin with 13."""

    def __init__(self, rejector, seconds=0.0):
        self.rejector, self.seconds, self.calls = rejector, seconds, []

    def decide(self, rows):
        self.calls.append(len(rows))
        time.sleep(self.seconds)
        if (rows[:, 0] == 13).any():
            raise RuntimeError("out of luck")
        return self.rejector.decide(rows)


@pytest.fixture
def start(engine, artifact, rejector, monkeypatch):
    """A function that starts a service with a moody rejector."""
    monkeypatch.setenv("TRANSCENDENT_GATE_TRIED", open_artifact(artifact).digest)
    model = load_model(Path(artifact))
    started = []

    def start_one(seconds_to_decide=0.0, **given):
        moody = replace(model, rejector=Moody(rejector, seconds_to_decide))
        limits = {"most_objects": 100, "seconds": 20, "most_waiting": 1 << 20, **given}
        started.append(Service(moody, register(engine, moody), engine, Draw(b"secret", 0), **limits))
        return started[-1]

    yield start_one
    for each in started:
        each.close()


def body(name, row):
    return json.dumps({"objects": [{"id": name, "values": list(row)}]}).encode()


def answers(service, bodies):
    async def all_at_once():
        return await asyncio.gather(*(service.answer(b, "sensor") for b in bodies), return_exceptions=True)

    return asyncio.run(all_at_once())


def test_requests_that_wait_are_decided_in_one_call(start, problem):
    service = start(0.1)
    found = answers(service, [body(f"o{i}", row) for i, row in enumerate(problem[0][:30])])
    assert [status for status, _ in found] == [200] * 30
    assert sum(service.model.rejector.calls) == 30
    assert len(service.model.rejector.calls) <= 3


def test_a_request_that_the_model_fails_on_fails_alone(start, problem, engine, rejector):
    service = start(0.05)
    rows = problem[0][1000:1040].copy()
    rows[7, 0] = rows[21, 0] = 13
    found = answers(service, [body(f"o{i}", row) for i, row in enumerate(rows)])
    failed = [i for i, each in enumerate(found) if isinstance(each, RuntimeError)]
    assert failed == [7, 21]
    rejected = {f"o{i}" for i in range(40) if i not in failed and not rejector.decide(rows[[i]]).accepted[0]}
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT object_id FROM payload")).scalars().all()
    assert sorted(kept) == sorted(rejected)


def test_a_request_is_answered_in_time_or_refused(start, problem):
    service = start(0.5, seconds=0.1)
    (refused,) = answers(service, [body("o", problem[0][0])])
    assert isinstance(refused, RefusedError)
    assert (refused.status, str(refused)) == (503, "there was no answer within 0.1 seconds: try again.")


def test_requests_are_refused_while_too_many_wait(start, problem):
    service = start(0.3, most_waiting=2000)
    found = answers(service, [body(f"o{i}", row) for i, row in enumerate(problem[0][:60])])
    refused = [each for each in found if isinstance(each, RefusedError)]
    assert 0 < len(refused) < 60
    assert {each.status for each in refused} == {503}
    assert all(status == 200 for status, _ in (each for each in found if isinstance(each, tuple)))


def test_what_was_begun_is_finished_before_the_end(start, problem, engine):
    service = start(0.2)

    async def close_meanwhile():
        asked = [
            asyncio.create_task(service.answer(body(f"o{i}", row), "sensor"))
            for i, row in enumerate(problem[0][1000:1020])
        ]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(service.close)
        return await asyncio.gather(*asked)

    found = asyncio.run(close_meanwhile())
    assert {status for status, _ in found} == {200}
    assert not service.alive


def test_rows_that_lack_the_same_values_are_refused_in_a_few_calls(start, problem):
    service = start()
    rows = problem[0][:600].copy()
    rows[::2, 3] = np.nan
    problems = {}
    pieces = service.model.decide(Group(np.arange(600), rows), problems)
    assert sorted(problems) == list(range(0, 600, 2))
    assert sorted(np.concatenate([places for places, _, _ in pieces])) == list(range(1, 600, 2))
    assert len(service.model.rejector.calls) < 10


def test_a_misspelt_name_costs_little():
    names = [f"feature number {i} of many" for i in range(5000)]
    layout = Layout(5000, names)
    objects = [{"id": str(i), "features": {"feature nmber 7 of many": 1}} for i in range(1000)]
    started = time.perf_counter()
    parsed = layout.read(objects)
    assert time.perf_counter() - started < 5
    assert len(parsed.problems) == 1000
    assert max(len(each.message) for each in parsed.problems.values()) < 200
