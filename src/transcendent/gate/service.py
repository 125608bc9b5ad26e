"""Decisions about requests: read together, decided together, committed together."""

import asyncio
import json
import math
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
import psycopg
import scipy.sparse as sp
import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from transcendent.decisions import DOUBTS, Decisions
from transcendent.gate.database import DatabaseError
from transcendent.gate.features import Group, Problem
from transcendent.gate.intake import Draw, Kept, keep, to_keep
from transcendent.gate.model import Model
from transcendent.gate.together import Together

_TOGETHER = 256 << 10  # bytes of requests that are decided at once
_COMMITTED = 8 << 20  # bytes of requests that are committed at once
_SMALL, _SHORT = 8 << 10, 0.005  # bytes of a request, and seconds of a call, that the event loop may decide

log = structlog.get_logger("transcendent.gate")


class RefusedError(Exception):
    """A request is not answered: a status, and what to say."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class NoJSONError(RefusedError):
    """The body of a request is not JSON."""


@dataclass(eq=False)
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
        self._small: list[Job] = []
        self._took = math.inf
        self._most_objects, self._seconds, self._most_waiting = most_objects, seconds, most_waiting
        self._deciding = Together(self._decide, lambda job: len(job.body), _TOGETHER, "decide")
        self._retrying = Together(self._retry, lambda job: len(job.body), 1, "retry")
        self._searching = Together(self._search, lambda job: len(job.body), 1, "search")
        self._committing = Together(self._commit, lambda job: len(job.body), _COMMITTED, "commit")

    @property
    def alive(self) -> bool:
        """Whether all threads still work."""
        return all(thread.alive for thread in self._threads)

    def close(self) -> None:
        """Finish what was begun, and stop."""
        for thread in self._threads:
            thread.close()

    @property
    def _threads(self) -> "tuple[Together[Job], ...]":
        return self._deciding, self._retrying, self._searching, self._committing

    async def answer(self, body: bytes, sender: str) -> tuple[int, bytes]:
        """Return status and body of the answer to a request; raise `RefusedError` if there is none."""
        if sum(thread.waiting for thread in self._threads) > self._most_waiting:
            raise RefusedError(503, "too many requests wait: try again later.")
        job = Job(body, sender, asyncio.get_running_loop().create_future())
        if len(body) > _SMALL or self._took > _SHORT or any(thread.busy for thread in self._threads[:3]):
            self._deciding.put([job])
        else:
            self._small.append(job)
            if len(self._small) == 1:
                job.future.get_loop().call_soon(self._decide_small)
        try:
            return await asyncio.wait_for(job.future, self._seconds)
        except TimeoutError:
            raise RefusedError(
                503, f"there was no answer within {self._seconds:g} seconds: try again."
            ) from None

    def _decide_small(self) -> None:
        """Answer small requests that came at once, on the event loop; a thread takes them if that fails.

        To hand a request to a thread and back takes longer than most detectors need for one object.
        """
        jobs, self._small = self._small, []
        read = self._read(jobs)
        if read and not self._is_answered(read):
            self._deciding.put(read)

    def _decide(self, jobs: list[Job]) -> None:
        """Answer requests together; other threads take those that fail, so that none waits for them."""
        self._answer_together(self._read(jobs))

    def _read(self, jobs: list[Job]) -> list[Job]:
        """Read the objects of requests; return those that have some to be decided."""
        read = []
        for job in jobs:
            if job.future.cancelled():
                continue
            try:
                job.objects = read_objects(job.body, self._most_objects)
                read.append(job)
            except NoJSONError:
                self._searching.put([job])
            except RefusedError as error:
                job.error = error
                self._pass_on([job])
        return read

    def _answer_together(self, jobs: list[Job]) -> None:
        """Answer requests in one call, and in parts if that fails.

        Most that fail have a missing value or too large a number. So requests that stand out by their largest
        values are tried one by one, and the others again together. If that fails, too, parts that fail are
        halved, in a limited number of calls, and what is left is tried one by one.
        """
        if not jobs or self._is_answered(jobs):
            return
        if len(jobs) == 1:
            self._searching.put(jobs)
            return
        others, outstanding = _outstanding(jobs, [self._largest(job) for job in jobs])
        self._retrying.put(outstanding)
        parts = deque([others])
        for _ in range(1 + 2 * len(others).bit_length()):
            if not parts:
                break
            part = parts.popleft()
            if self._is_answered(part):
                continue
            if len(part) == 1:
                self._searching.put(part)
            else:
                parts += [part[: len(part) // 2], part[len(part) // 2 :]]
        for part in parts:
            self._retrying.put(part)

    def _is_answered(self, jobs: list[Job]) -> bool:
        """Answer requests in one call, and pass them on; return False if that fails."""
        started = time.perf_counter()
        try:
            self._answer(jobs)
        except Exception:
            return False
        finally:
            if sum(len(job.body) for job in jobs) <= _TOGETHER // 8:
                self._took = time.perf_counter() - started
        self._pass_on(jobs)
        return True

    def _largest(self, job: Job) -> float:
        """Return the largest absolute value of a request, infinite if one is missing or it cannot be read."""
        try:
            rows = [group.rows for group in self.model.layout.read(job.objects).groups]
            values = [np.abs(each.data if sp.issparse(each) else np.asarray(each)) for each in rows]
            return float(max((np.nan_to_num(each, nan=np.inf).max(initial=0) for each in values), default=0))
        except Exception:
            return np.inf

    def _retry(self, jobs: list[Job]) -> None:
        """Answer each of some requests alone; another thread searches those that fail."""
        for job in jobs:
            if not job.future.cancelled() and not self._is_answered([job]):
                self._searching.put([job])

    def _search(self, jobs: list[Job]) -> None:
        """Answer each of some requests alone, and find out what is wrong in it."""
        jobs = [job for job in jobs if not job.future.cancelled()]
        for job in jobs:
            try:
                job.objects = job.objects or read_objects(job.body, self._most_objects, leniently=True)
                self._answer([job], search=True)
            except RefusedError as error:
                job.error = error
            except Exception as error:
                log.exception("the model failed")
                job.error = error
        self._pass_on(jobs)

    def _pass_on(self, jobs: list[Job]) -> None:
        self._committing.put([job for job in jobs if job.kept])
        _finish([job for job in jobs if not job.kept])

    def _answer(self, jobs: list[Job], *, search: bool = False) -> None:
        """Decide the objects of several requests, and write down each answer."""
        objects = [each for job in jobs for each in job.objects]
        parsed = self.model.layout.read(objects)
        answers: list[dict[str, Any] | None] = [None] * len(objects)
        ends = np.cumsum([len(job.objects) for job in jobs])
        kept: list[tuple[Job, Kept]] = []
        for group in parsed.groups:
            for part, decisions in self._decide_group(group, parsed.problems, search):
                places = part.places.tolist()
                ids = [parsed.ids[place] for place in places]
                for place, answer in zip(places, to_answers(ids, decisions), strict=True):
                    answers[place] = answer
                whose = [jobs[owner] for owner in np.searchsorted(ends, part.places, side="right").tolist()]
                kept += self._choose(whose, ids, part.rows, decisions)
        start = 0
        for job, end in zip(jobs, ends.tolist(), strict=True):
            problems = {p - start: found for p, found in parsed.problems.items() if start <= p < end}
            job.answer = write_answer(self.model.digest, answers[start:end], parsed.ids[start:end], problems)
            start = end
        for job, each in kept:  # last, since what failed is answered again
            job.kept.append(each)

    def _decide_group(
        self, group: Group, problems: dict[int, Problem], search: bool
    ) -> list[tuple[Group, Decisions]]:
        group = self.model.refuse_missing(group, problems)
        if len(group.places) == 0:
            return []
        return self.model.search(group, problems) if search else [(group, self.model.decide(group.rows))]

    def _choose(
        self, whose: list[Job], ids: list[str], rows: Any, decisions: Decisions
    ) -> list[tuple[Job, Kept]]:
        senders = [job.sender for job in whose]
        kept = to_keep(self.model, self._number, self._draw, ids, senders, rows, decisions)
        return [(whose[place], each) for place, each in kept.items()]

    def _commit(self, jobs: list[Job]) -> None:
        jobs = [job for job in jobs if not job.future.cancelled()]  # nobody waits for these
        if not jobs:
            return
        try:
            keep(self.engine, [each for job in jobs for each in job.kept])
        except (SQLAlchemyError, psycopg.Error, DatabaseError) as error:
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


def _outstanding(jobs: list[Job], sizes: list[float]) -> tuple[list[Job], list[Job]]:
    """Part requests at the largest step between sizes; those above it are at most half of all."""
    order = np.argsort(sizes, kind="stable")
    steps = np.diff(np.log1p(np.minimum(sizes, np.finfo(float).max))[order])
    above = 1 + int(np.argmax(steps[::-1][: max(1, len(jobs) // 2)]))
    return [jobs[i] for i in order[:-above]], [jobs[i] for i in order[-above:]]


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


def read_objects(body: bytes, most: int, *, leniently: bool = False) -> list[Any]:
    """Return the objects of a request; of one that is not quite JSON only if it is read leniently."""
    said = _read_leniently(body) if leniently else _read(body)
    if type(said) is not dict or said.keys() != {"objects"} or type(said["objects"]) is not list:
        raise RefusedError(422, 'the body is {"objects": [...]}, with nothing else in it.')
    if len(said["objects"]) > most:
        raise RefusedError(413, f"{len(said['objects']):,} objects; a request has at most {most:,}.")
    return list(said["objects"])


def _read(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise NoJSONError(400, f"the body is not JSON: {error!s:.200}") from None


def _read_leniently(body: bytes) -> Any:
    """Return what JSON says beside NaN, infinite numbers or halves of characters, which some programs write.

    Python's reader takes them, and is many times slower.
    """
    try:
        return json.loads(body.decode(), parse_constant=_Constant, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return _read(body)  # which says what is wrong


class _Constant(NamedTuple):
    """NaN or Infinity, which is not a number to the gate: a missing value is null."""

    name: str

    def __repr__(self) -> str:
        return self.name


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) < 20 else float(digits)  # which may be infinite


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
            "field": _as_text(f"objects[{place}]" + (f".{problem.field}" if problem.field else "")),
            "id": _as_text(ids[place]) if type(ids[place]) is str and len(ids[place]) < 1000 else None,
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


def _as_text(said: str) -> str:
    """Return what was sent so that it can be written: halves of characters cannot."""
    return said.encode(errors="backslashreplace").decode()
