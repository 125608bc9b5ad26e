"""Decisions about requests: read together, decided together, committed together."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import psycopg
import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from transcendent.decisions import DOUBTS, Decisions
from transcendent.gate.features import Problem
from transcendent.gate.intake import Draw, Kept, keep, to_keep
from transcendent.gate.model import Model
from transcendent.gate.together import Together

_TOGETHER = 256 << 10  # bytes of requests that are decided at once
_COMMITTED = 8 << 20  # bytes of requests that are committed at once

log = structlog.get_logger("transcendent.gate")


class RefusedError(Exception):
    """A request is not answered: a status, and what to say."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


@dataclass
class Job:
    """A request: its body, who sent it, and what becomes of it."""

    body: bytes
    sender: str
    future: "asyncio.Future[tuple[int, bytes]]"
    objects: list[Any] = field(default_factory=list)
    answer: tuple[int, bytes] = (500, b"")
    kept: list[Kept] = field(default_factory=list)
    error: Exception | None = None


class Service:
    """Decides about objects with a model, and keeps the rejected ones before it answers.

    Parameters
    ----------
    model : Model
        Decides.
    number : int
        Of the model in the database.
    engine : Engine
        Of the database.
    draw : Draw
        Chooses accepted objects for the audit.
    most_objects : int
        Refuse requests of more.
    seconds : float
        Answer within this time, or not at all.
    most_waiting : int
        Refuse requests while so many bytes of others wait.
    """

    def __init__(
        self,
        model: Model,
        number: int,
        engine: Engine,
        draw: Draw,
        *,
        most_objects: int,
        seconds: float,
        most_waiting: int,
    ) -> None:
        self.model, self.engine = model, engine
        self._number, self._draw = number, draw
        self._most_objects, self._seconds, self._most_waiting = most_objects, seconds, most_waiting
        self._deciding = Together(self._decide, lambda job: len(job.body), _TOGETHER, "decide")
        self._committing = Together(self._commit, lambda job: len(job.body), _COMMITTED, "commit")

    @property
    def alive(self) -> bool:
        """Whether both threads still work."""
        return self._deciding.alive and self._committing.alive

    def close(self) -> None:
        """Finish what was begun, and stop."""
        self._deciding.close()
        self._committing.close()

    async def answer(self, body: bytes, sender: str) -> tuple[int, bytes]:
        """Return status and body of the answer to a request; raise `RefusedError` if there is none."""
        if self._deciding.waiting + self._committing.waiting > self._most_waiting:
            raise RefusedError(503, "too many requests wait: try again later.")
        job = Job(body, sender, asyncio.get_running_loop().create_future())
        self._deciding.put([job])
        try:
            return await asyncio.wait_for(job.future, self._seconds)
        except TimeoutError:
            raise RefusedError(
                503, f"there was no answer within {self._seconds:g} seconds: try again."
            ) from None

    def _decide(self, jobs: list[Job]) -> None:
        jobs = [job for job in jobs if not job.future.cancelled()]
        for job in jobs:
            try:
                job.objects = read_objects(job.body, self._most_objects)
            except Exception as error:
                job.error = error
        self._answer_all([job for job in jobs if job.error is None])
        self._committing.put([job for job in jobs if job.kept])
        _finish([job for job in jobs if not job.kept])

    def _answer_all(self, jobs: list[Job]) -> None:
        """Answer requests together; one by one if that fails, so that only the one to blame does."""
        try:
            self._answer(jobs)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    job.kept.clear()
                    self._answer_all([job])
                return
            log.exception("the model failed")
            jobs[0].error = error

    def _answer(self, jobs: list[Job]) -> None:
        """Decide the objects of several requests, and write down each answer."""
        objects = [each for job in jobs for each in job.objects]
        parsed = self.model.layout.read(objects)
        answers: list[dict[str, Any] | None] = [None] * len(objects)
        ends = np.cumsum([len(job.objects) for job in jobs])
        for group in parsed.groups:
            for places, rows, decisions in self.model.decide(group, parsed.problems):
                ids = [parsed.ids[place] for place in places.tolist()]
                for place, answer in zip(places.tolist(), to_answers(ids, decisions), strict=True):
                    answers[place] = answer
                self._choose(jobs, np.searchsorted(ends, places, side="right"), ids, rows, decisions)
        start = 0
        for job, end in zip(jobs, ends.tolist(), strict=True):
            problems = {p - start: found for p, found in parsed.problems.items() if start <= p < end}
            job.answer = write_answer(self.model.digest, answers[start:end], parsed.ids[start:end], problems)
            start = end

    def _choose(self, jobs: list[Job], owners: Any, ids: list[str], rows: Any, decisions: Decisions) -> None:
        whose = [jobs[owner] for owner in owners.tolist()]
        senders = [job.sender for job in whose]
        kept = to_keep(self.model, self._number, self._draw, ids, senders, rows, decisions)
        for place, each in kept.items():
            whose[place].kept.append(each)

    def _commit(self, jobs: list[Job]) -> None:
        jobs = [job for job in jobs if not job.future.cancelled()]  # nobody waits for these
        if not jobs:
            return
        try:
            keep(self.engine, [each for job in jobs for each in job.kept])
        except (SQLAlchemyError, psycopg.Error) as error:
            said = str(getattr(error, "orig", error)).partition("\n")[0]  # what follows may quote objects
            log.error("nothing was kept", error=type(error).__name__, detail=said[:300])
            for job in jobs:
                job.error = RefusedError(
                    503, "the database cannot be reached, so nothing was kept: try again later."
                )
        except Exception as error:
            log.error("nothing was kept", error=type(error).__name__)
            for job in jobs:
                job.error = error
        _finish(jobs)


def _finish(jobs: list[Job]) -> None:
    """Hand answers to those who wait for them, in one call of each event loop."""
    by_loop: dict[Any, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, done in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(_hand_over, done)


def _hand_over(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.answer)


def read_objects(body: bytes, most: int) -> list[Any]:
    """Return the objects of a request."""
    try:
        said = orjson.loads(body)
    except ValueError as error:
        raise RefusedError(400, f"the body is not JSON: {error!s:.200}") from None
    if type(said) is not dict or said.keys() != {"objects"} or type(said["objects"]) is not list:
        raise RefusedError(422, 'the body is {"objects": [...]}, with nothing else in it.')
    if len(said["objects"]) > most:
        raise RefusedError(413, f"{len(said['objects']):,} objects; a request has at most {most:,}.")
    return list(said["objects"])


def to_answers(ids: list[str], decisions: Decisions) -> list[dict[str, Any]]:
    """Return the decisions, one dictionary an object."""
    n = len(decisions)
    doubts: list[str | None] = [None] * n
    if decisions.doubts is not None:
        kinds = zip(decisions.doubts.tolist(), decisions.accepted.tolist(), strict=True)
        doubts = [None if accepted else DOUBTS[kind] for kind, accepted in kinds]
    columns = zip(
        ids,
        decisions.labels.tolist(),
        decisions.accepted.tolist(),
        decisions.credibility.tolist(),
        decisions.confidence.tolist(),
        [None] * n if decisions.votes is None else decisions.votes.tolist(),
        doubts,
        strict=True,
    )
    return [
        {
            "id": name,
            "label": label,
            "accepted": accepted,
            "credibility": credibility,
            "confidence": confidence,
            "votes": votes,
            "doubt": doubt,
        }
        for name, label, accepted, credibility, confidence, votes, doubt in columns
    ]


def write_answer(
    model: str, answers: list[dict[str, Any] | None], ids: list[Any], problems: dict[int, Problem]
) -> tuple[int, bytes]:
    """Return status and body: 200, or 422 if there are problems; the other objects have their decisions."""
    if not problems:
        return 200, orjson.dumps({"model": model, "decisions": answers})
    errors = [
        {
            "field": f"objects[{place}]" + (f".{problem.field}" if problem.field else ""),
            "id": ids[place] if type(ids[place]) is str and len(ids[place]) < 1000 else None,
            "message": problem.message,
        }
        for place, problem in sorted(problems.items())
    ]
    detail = f"{len(errors)} of {len(answers)} objects cannot be decided; errors says why."
    return 422, orjson.dumps(
        {
            "title": "Unprocessable",
            "status": 422,
            "detail": detail,
            "errors": errors,
            "model": model,
            "decisions": answers,
        }
    )
