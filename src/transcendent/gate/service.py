"""Decide the objects of requests: requests that wait are decided in one call and committed together."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from threading import Lock
from typing import Any

import numpy as np
import psycopg
import scipy.sparse as sp
import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from transcendent.decisions import Decisions
from transcendent.gate.batcher import Batcher
from transcendent.gate.bodies import NoJSONError, RefusedError, read_objects, to_answers, write_answer
from transcendent.gate.database import DatabaseError
from transcendent.gate.features import Group, Parsed
from transcendent.gate.intake import Kept, keep, tiers_of, to_keep
from transcendent.gate.metrics import AnswerCounts, Metrics
from transcendent.gate.model import Model
from transcendent.gate.moving import RowRange, WatchedFeatures, parts_of
from transcendent.gate.serving import Serving
from transcendent.gate.shadowing import Answered, Offered, Shadows
from transcendent.gate.traffic import Counted, Ruling
from transcendent.monitoring import ObservedDecisions
from transcendent.tables.bad_rows import find_failing

_MAX_DECIDED = 256 << 10  # bytes of requests that are decided in one call
_MAX_COMMITTED = 8 << 20  # bytes of requests that are committed in one transaction
_SMALL = 8 << 10  # bytes: the event loop decides requests up to this size,
_SHORT = 0.005  # as long as a call takes at most this many seconds
_OPEN = (
    180.0  # seconds for which a minute may be open: its gates flush it, or count as dead, and one folds it
)
_OUTCOME = itemgetter("label", "accepted")

NO_MODEL = "no model is active: run 'transcendent gate model add' and 'transcendent gate model promote'."

log = structlog.get_logger("transcendent.gate")


@dataclass(eq=False)
class Pending:
    """A request that waits for its answer."""

    body: bytes
    sender: str
    future: "asyncio.Future[tuple[int, bytes]]"
    objects: list[Any] = field(default_factory=list)
    answer: tuple[int, bytes] = (500, b"")
    kept: list[Kept] = field(default_factory=list)
    serving: Serving | None = None  # what decided it, until it is counted
    counted: Counted | None = None
    tally: AnswerCounts | None = None
    cells: list[int] = field(default_factory=list)
    offered: Offered | None = None
    parts: list[RowRange] = field(default_factory=list)
    rejected: int = 0
    error: Exception | None = None


class Service:
    """Decides objects with the model that it serves, and stores the rejected ones before it answers.

    While ``serving`` is None, all requests are refused, for the reason in ``no_model``. ``observe`` takes a
    deployment, the cells of its answered objects, the features to watch and their rows, for the monitors;
    ``count`` takes a deployment and the numbers of objects that it has decided and rejected; ``shadows``
    compare what was answered. New requests are refused while more than ``max_waiting`` bytes
    wait.
    """

    def __init__(
        self,
        engine: Engine,
        serving: Serving | None = None,
        *,
        max_objects: int,
        timeout: float,
        max_waiting: int,
        metrics: Metrics | None = None,
        observe: Callable[[int, list[int], WatchedFeatures | None, list[RowRange]], None] | None = None,
        count: Callable[[int, int, int], None] = lambda *_: None,
        shadows: Shadows | None = None,
    ) -> None:
        self.serving, self.no_model, self._engine = serving, NO_MODEL, engine
        self._before: list[tuple[float, Serving]] = []  # until when each was served
        self._metrics, self._observe, self._add = metrics or Metrics(), observe, count
        self._shadows = shadows
        self._lock, self._uses = Lock(), Counter[Serving]()
        self._small: list[Pending] = []
        self._took = math.inf
        self._max_objects, self._timeout, self._max_waiting = max_objects, timeout, max_waiting
        self._deciding = Batcher(self._decide, _size, _MAX_DECIDED, "decide")
        self._retrying = Batcher(self._retry, _size, 1, "retry")
        self._searching = Batcher(self._search, _size, 1, "search")
        self._committing = Batcher(self._commit, _size, _MAX_COMMITTED, "commit")
        self._threads = self._deciding, self._retrying, self._searching, self._committing
        self._commit_began: float | None = None

    @property
    def alive(self) -> bool:
        """Whether all threads are running."""
        return all(thread.alive for thread in self._threads) and (self.serving is None or self.serving.alive)

    def monitored(self) -> dict[int, Model]:
        """Return the model that is served and those before, whose last minute is open, by deployment."""
        with self._lock:
            known = [each for _, each in self._before]
            if self.serving is not None:
                known.append(self.serving)
        return {each.deployment: each.model for each in known if each.deployment is not None}

    @property
    def committing_for(self) -> float:
        """Seconds since the current commit began, 0 if there is none."""
        began = self._commit_began
        return 0.0 if began is None else time.monotonic() - began

    def close(self) -> None:
        """Finish the requests that wait, and stop."""
        for thread in self._threads:
            thread.close()
        if self.serving is not None:
            self.serving.close()

    def replace(self, serving: Serving) -> None:
        """Serve something else from the next batch on."""
        with self._lock:
            now = time.monotonic()
            self._before = [each for each in self._before if each[0] > now - _OPEN]
            if self.serving is not None:
                self._before.append((now, self.serving))
            self.serving = serving
            self._took = math.inf  # nobody knows how long its calls take, so a thread makes the first

    def uses(self, serving: Serving) -> bool:
        """Return whether requests that it decided are not answered yet."""
        with self._lock:
            return self._uses[serving] > 0

    async def answer(self, body: bytes, sender: str) -> tuple[int, bytes]:
        """Return the status and body of the answer to a request, or raise `RefusedError`."""
        if self.serving is None:
            raise RefusedError(503, self.no_model)
        if sum(thread.waiting for thread in self._threads) > self._max_waiting:
            raise RefusedError(503, "too many requests are waiting: try again later.")
        job = Pending(body, sender, asyncio.get_running_loop().create_future())
        if len(body) > _SMALL or self._took > _SHORT or any(thread.busy for thread in self._threads[:3]):
            self._deciding.put([job])
        else:
            self._small.append(job)
            if len(self._small) == 1:
                job.future.get_loop().call_soon(self._decide_small)
        try:
            return await asyncio.wait_for(job.future, self._timeout)
        except TimeoutError:
            raise RefusedError(
                503, f"there was no answer within {self._timeout:g} seconds: try again."
            ) from None

    def _decide_small(self) -> None:
        """Answer small requests on the event loop, all in one call; if that fails, a thread answers them.

        Handing a request to a thread and back takes longer than most detectors need for one object.
        """
        jobs, self._small = self._small, []
        if (read := self._read(jobs)) and not self._is_answered(read):
            self._deciding.put(read)

    def _decide(self, jobs: list[Pending]) -> None:
        """Answer requests in one call, and in parts if that fails.

        Most failures are a missing value or a number that is too large. So requests that stand out by their
        largest value are tried one by one, and the others again together. If that fails as well, failing
        parts are halved, in a limited number of calls, and the rest is tried one by one. Other threads try
        and search single requests, so that no later request waits for that.
        """
        jobs = self._read(jobs)
        if not jobs or self._is_answered(jobs):
            return
        if len(jobs) == 1:
            self._searching.put(jobs)
            return
        others, outliers = _split_outliers(jobs, [self._largest(job) for job in jobs])
        self._retrying.put(outliers)
        failing, unknown = find_failing(
            len(others),
            lambda part: not self._is_answered([others[i] for i in part]),
            1 + 2 * len(others).bit_length(),
        )
        self._searching.put([others[i] for i in failing])
        self._retrying.put([others[i] for i in unknown])

    def _read(self, jobs: list[Pending]) -> list[Pending]:
        """Parse requests, unless that was done before; return those that could be parsed."""
        read = []
        for job in jobs:
            if job.future.cancelled():
                continue
            try:
                job.objects = job.objects or read_objects(job.body, self._max_objects)
                read.append(job)
            except NoJSONError:
                self._searching.put([job])
            except RefusedError as error:
                job.error = error
                self._pass_on([job])
        return read

    def _is_answered(self, jobs: list[Pending]) -> bool:
        """Answer requests in one call and pass them on; return False if the call fails."""
        started = time.perf_counter()
        try:
            self._answer(jobs)
        except Exception:
            return False
        finally:
            if sum(map(_size, jobs)) <= _MAX_DECIDED // 8:
                self._took = time.perf_counter() - started
        self._pass_on(jobs)
        return True

    def _largest(self, job: Pending) -> float:
        """Return the largest absolute value in a request; infinity if a value is missing or unreadable."""
        try:
            model = self._serving().model
            rows = [group.rows for group in model.read(job.objects).groups]
            rows = [each.select_dtypes("number") if hasattr(each, "iloc") else each for each in rows]
            values = [np.abs(each.data if sp.issparse(each) else np.asarray(each)) for each in rows]
            return float(max((np.nan_to_num(each, nan=np.inf).max(initial=0) for each in values), default=0))
        except Exception:
            return np.inf

    def _retry(self, jobs: list[Pending]) -> None:
        """Answer requests one by one; another thread searches those that fail."""
        for job in jobs:
            if not job.future.cancelled() and not self._is_answered([job]):
                self._searching.put([job])

    def _search(self, jobs: list[Pending]) -> None:
        """Answer requests one by one, and find the bad objects in each."""
        jobs = [job for job in jobs if not job.future.cancelled()]
        for job in jobs:
            try:
                job.objects = job.objects or read_objects(job.body, self._max_objects, leniently=True)
                self._answer([job], search=True)
            except RefusedError as error:
                job.error = error
            except Exception as error:
                log.exception("the model failed")
                job.error = error
        self._pass_on(jobs)

    def _pass_on(self, jobs: list[Pending]) -> None:
        self._committing.put([job for job in jobs if job.kept])
        self._finish([job for job in jobs if not job.kept])

    def _serving(self) -> Serving:
        if self.serving is None:
            raise RefusedError(503, self.no_model)
        return self.serving

    def _answer(self, jobs: list[Pending], *, search: bool = False) -> None:
        """Decide the objects of several requests, all with what is served now, and set their answers."""
        with self._lock:  # what is not in use may be closed
            serving = self._serving()
            self._uses[serving] += len(jobs)
        try:
            self._answer_with(serving, jobs, search=search)
        except Exception:
            self._release(serving, len(jobs))
            raise
        for job in jobs:
            job.serving = serving

    def _release(self, serving: Serving, n: int) -> None:
        with self._lock:
            self._uses[serving] -= n
            if not self._uses[serving]:
                del self._uses[serving]

    def _answer_with(self, serving: Serving, jobs: list[Pending], *, search: bool) -> None:
        model, traffic = serving.model, serving.traffic
        parsed = model.read([each for job in jobs for each in job.objects])
        decided: list[tuple[Group, Decisions]] = []
        for read in parsed.groups:
            group = model.refuse_missing(read, parsed.problems)
            if len(group.places) == 0:
                continue
            decided += model.search(group, parsed.problems) if search else [(group, model.decide(group.rows))]
        if traffic is None:
            self._set_answers(serving, jobs, parsed, Ruling(decided))
            return
        ruling = traffic.rule([(job.sender, len(job.objects)) for job in jobs], decided)
        try:
            self._set_answers(serving, jobs, parsed, ruling)
        except Exception:
            traffic.release(ruling.counted)
            raise
        for job, counted in zip(jobs, ruling.counted, strict=True):
            job.counted = counted

    def _set_answers(self, serving: Serving, jobs: list[Pending], parsed: Parsed, ruling: Ruling) -> None:
        """Set the answers of requests, and what to keep."""
        model = serving.model
        answers: list[dict[str, Any] | None] = [None] * len(parsed.ids)
        ends = np.cumsum([len(job.objects) for job in jobs])
        kept: list[tuple[Pending, Kept]] = []
        cells: list[tuple[Pending, int]] = []
        parts: list[tuple[Pending, RowRange]] = []
        rejected: Counter[Pending] = Counter()
        for part, decisions in ruling.decided:
            places = part.places.tolist()
            ids = [parsed.ids[place] for place in places]
            for place, answer in zip(places, to_answers(ids, decisions), strict=True):
                if serving.observed:
                    answer["accepted"] = True
                answers[place] = {**answer, "kept": False} if place in ruling.over else answer
            outside = {} if model.ranges is None else model.ranges.outside(part.rows)
            for row, names in outside.items():
                answers[places[row]] = {**(answers[places[row]] or {}), "outside": names}
            owners = np.searchsorted(ends, part.places, side="right")
            whose = [jobs[owner] for owner in owners.tolist()]
            rejected.update(jobs[owner] for owner in owners[decisions.rejected].tolist())
            senders = [job.sender for job in whose]
            if isinstance(decisions, ObservedDecisions):
                cells += zip(whose, decisions.cells.tolist(), strict=True)
                found = parts_of(part.rows, owners)
                parts += [(jobs[owner], each.sample(ids[each.start])) for owner, each in found.items()]
            origins = {i: parsed.origins[p] for i, p in enumerate(places) if p in parsed.origins}
            given = serving.number, serving.draw, ids, senders, part.rows, decisions, ruling.cutoff
            stored = to_keep(*given, origins=origins, older=serving.older)
            kept += [(whose[i], each) for i, each in stored.items() if places[i] not in ruling.over]
        start, answered = 0, Answered(serving, parsed.ids, parsed.origins, ruling, time.monotonic())
        compares = self._shadows is not None and bool(self._shadows.standing)
        for job, end in zip(jobs, ends.tolist(), strict=True):
            problems = {p - start: problem for p, problem in parsed.problems.items() if start <= p < end}
            ids = parsed.ids[start:end]
            job.answer = write_answer(
                model.digest, answers[start:end], ids, problems, ruling.cutoff, observed=serving.observed
            )
            outcomes = Counter(map(_OUTCOME, filter(None, answers[start:end])))
            job.tally = AnswerCounts(model.digest, outcomes, len(problems))
            job.rejected, job.offered = rejected[job], None
            if compares:
                job.offered = Offered(answered, start, job.sender, job.objects, len(job.body))
            start = end
        for job, each in kept:  # only now: if anything above fails, the requests are answered again
            job.kept.append(each)
        for job, cell in cells:
            job.cells.append(cell)
        for job, rows in parts:
            job.parts.append(rows)

    def _commit(self, jobs: list[Pending]) -> None:
        gone = [job for job in jobs if job.future.cancelled()]  # such as those that timed out
        self._count(gone, answered=False)
        jobs = [job for job in jobs if job not in gone]
        if not jobs:
            return
        kept = [each for job in jobs for each in job.kept]
        self._commit_began = began = time.monotonic()
        try:
            keep(self._engine, kept)
        except (SQLAlchemyError, psycopg.Error, DatabaseError) as error:
            detail = str(getattr(error, "orig", error)).partition("\n")[0]  # later lines may quote objects
            log.error("nothing was kept", error=type(error).__name__, detail=detail[:300])
            for job in jobs:
                job.error = RefusedError(
                    503, "the database cannot be reached, so nothing was kept: try again later."
                )
        except Exception as error:
            log.error("nothing was kept", error=type(error).__name__)
            for job in jobs:
                job.error = error
        finally:
            self._commit_began = None
        stored = all(job.error is None for job in jobs)
        self._metrics.count_commit(time.monotonic() - began, len(kept), stored=stored)
        self._finish(jobs)

    def _finish(self, jobs: list[Pending]) -> None:
        """Set the answers of requests, in one call of their event loop, and count those without an error."""
        for answered in (True, False):
            self._count([job for job in jobs if (job.error is None) == answered], answered=answered)
        if jobs:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                jobs[0].future.get_loop().call_soon_threadsafe(_set_results, jobs)

    def _count(self, jobs: list[Pending], *, answered: bool) -> None:
        """Count requests for the model that decided them, which may be another one than now."""
        for serving in {job.serving for job in jobs if job.serving is not None}:
            own = [job for job in jobs if job.serving is serving]
            if serving.traffic is not None:
                counted = [job.counted for job in own if job.counted is not None]
                serving.traffic.finish(counted) if answered else serving.traffic.release(counted)
            if answered and self._observe is not None and serving.deployment is not None:
                # Objects without an answer are sent again, and would count twice.
                cells = [cell for job in own for cell in job.cells]
                parts = [part for job in own for part in job.parts]
                self._observe(serving.deployment, cells, serving.model.watched, parts)
            if answered and serving.deployment is not None:
                decided = sum(sum(job.tally.outcomes.values()) for job in own if job.tally is not None)
                self._add(serving.deployment, decided, sum(job.rejected for job in own))
            if answered and self._shadows is not None:
                with suppress(Exception):  # a shadow must not break an answer
                    self._shadows.offer([job.offered for job in own if job.offered is not None])
            self._release(serving, len(own))
        for job in jobs:
            job.serving = None
        for job in jobs if answered else ():
            if job.tally is not None and not job.future.cancelled():
                self._metrics.count_answer(job.tally, tiers_of(job.kept))


def _size(job: Pending) -> int:
    return len(job.body)


def _split_outliers(jobs: list[Pending], sizes: list[float]) -> tuple[list[Pending], list[Pending]]:
    """Split requests at the largest step between their sizes; at most half of them are above it."""
    order = np.argsort(sizes, kind="stable")
    steps = np.diff(np.log1p(np.minimum(sizes, np.finfo(float).max))[order])
    above = 1 + int(np.argmax(steps[::-1][: max(1, len(jobs) // 2)]))
    return [jobs[i] for i in order[:-above]], [jobs[i] for i in order[-above:]]


def _set_results(jobs: list[Pending]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.answer)
