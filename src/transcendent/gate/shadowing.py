"""Shadows: models that decide a sample of the traffic after it was answered, to be compared with the answers.

Requests only add to a bounded queue; what does not fit is dropped and counted. One thread decides what is in
the queue, a few objects at a time. So a shadow that is slow, fails or answers nonsense changes no answer.
"""

import hashlib
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Engine, text

from transcendent._utils.arrays import FloatArray
from transcendent.decisions import Decisions
from transcendent.gate.cutoff import Interval, Rule, decide_by, next_cutoff, sample_ranks
from transcendent.gate.deployments import Deployment, ShadowSettings
from transcendent.gate.disagreements import Compared, Comparisons, Drawn, Outcome
from transcendent.gate.features import Group, Problems
from transcendent.gate.intake import Kept, as_kept
from transcendent.gate.metrics import Metrics
from transcendent.gate.model import Model, with_budget
from transcendent.gate.origin import Origin
from transcendent.gate.serving import Serving
from transcendent.gate.traffic import Ruling

MAX_OBJECTS = 20_000
"""Limit on the objects that wait for shadows, sampled or not."""
MAX_BYTES = 16 << 20
"""Limit on the size of their requests."""
MAX_KNOWN = 100_000
"""Ids of the sample that a gate remembers."""
_GATHER = 0.25  # seconds in which objects gather: a call with many costs little more than one with few
_AT_ONCE = 256  # objects in a call, so that no request waits long for the interpreter lock
_MOVE_AFTER = 100  # objects after which the cutoff of a shadow moves
_CLOSE_TIMEOUT = 5.0  # seconds for what waits when the gate stops


class Answered(NamedTuple):
    """Requests that were answered together: what decided them, ids and origins by place, and the ruling.

    ``at`` is a time of `time.monotonic`.
    """

    serving: Serving
    ids: list[Any]
    origins: Mapping[int, Origin]
    ruling: Ruling
    at: float


class Offered(NamedTuple):
    """An answered request: the place of its first object, its sender, its objects, and its size in bytes."""

    answered: Answered
    start: int
    sender: str
    objects: list[Any]
    size: int


class Fate(NamedTuple):
    """Two numbers in [0, 1): one says whether an object is in the sample, the other whether it is drawn."""

    sample: float
    draw: float


@dataclass(frozen=True, eq=False)
class Sampled:
    """An object of the sample, and what was decided about it: its row and its outcome."""

    answered: Answered
    sender: str
    place: int
    given: Any
    fate: Fate
    part: Group
    decisions: Decisions
    row: int
    outcome: Outcome

    @property
    def active(self) -> int | None:
        """The deployment that decided it."""
        return self.answered.serving.deployment

    def is_for(self, shadow: "Shadow") -> bool:
        """Return whether a shadow decides it, too."""
        return self.fate.sample < shadow.settings.sample and self.answered.serving.number != shadow.number


class Fates:
    """Draws objects by a keyed hash of their ids: an id has the same fate in every process."""

    def __init__(self, secret: bytes) -> None:
        self._start = hashlib.blake2b(key=secret, digest_size=16)

    def __call__(self, name: str, below: float = 1.0) -> Fate | None:
        """Return the fate of the object with this id, None if it is not in a sample of this share."""
        hashed = self._start.copy()
        hashed.update(name.encode())
        digest = hashed.digest()
        sample = _number(digest[:8])
        return Fate(sample, _number(digest[8:])) if sample < below else None


def _number(digest: bytes) -> float:
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


class OwnCutoff:
    """Holds a shadow to its budget, by the objects that this process has given to it.

    It is in memory alone: a model may decide at other gates at the same time, whose counts are not touched.
    """

    def __init__(self, rule: Rule, secret: bytes) -> None:
        self._rule, self._secret = rule, secret
        self._intervals: list[Interval] = []
        self._ranks: list[FloatArray] = []
        self._rejected = 0
        self._cutoff, _ = next_cutoff(rule, None, [])

    def decide(self, rows: Any, decisions: Decisions) -> Decisions:
        """Return a rejector's decisions about rows, but with what the cutoff rejects."""
        decided = decide_by(self._cutoff, rows, decisions, self._secret)
        self._ranks.append(np.column_stack([decided.ranking, decided.second_ranking]))
        self._rejected += int(np.count_nonzero(decided.rejected))
        if (n := sum(map(len, self._ranks))) >= _MOVE_AFTER:
            sample = sample_ranks(np.concatenate(self._ranks))
            self._intervals.insert(0, Interval(sample, n, self._rejected, n))
            self._cutoff, used = next_cutoff(self._rule, self._cutoff, self._intervals)
            del self._intervals[used:]
            self._ranks, self._rejected = [], 0
        return decided


class Shadow:
    """A model that is compared with the one that decides, under the settings of its deployment."""

    def __init__(self, deployment: Deployment, model: Model, secret: bytes) -> None:
        self.settings = ShadowSettings.read(deployment.settings)
        self.deployment, self.number = deployment.id, deployment.model
        self.model = replace(model, observer=None)  # monitors are those of the model that decides
        budget = self.settings.budget
        rule = model.rule if budget is None else with_budget(model, budget)
        self._cutoff = None if rule is None else OwnCutoff(rule, secret)

    def outcomes(self, objects: list[Any]) -> dict[int, Outcome]:
        """Return what it would have decided, by place; objects that it cannot decide are left out."""
        parsed, found = self.model.read(objects), dict[int, Outcome]()
        for read in parsed.groups:
            group = self.model.refuse_missing(read, parsed.problems)
            for part, decisions in self._decide(group, parsed.problems) if len(group.places) else ():
                found.update(zip(part.places.tolist(), outcomes_of(decisions), strict=True))
        return found

    def _decide(self, group: Group, problems: Problems) -> list[tuple[Group, Decisions]]:
        try:
            decided = [(group, self.model.decide(group.rows))]
        except (ValueError, TypeError):
            decided = self.model.search(group, problems)
        if self._cutoff is None:
            return decided
        return [(part, self._cutoff.decide(part.rows, decisions)) for part, decisions in decided]


def outcomes_of(decisions: Decisions, rows: Any = slice(None)) -> list[Outcome]:
    """Return the labels of objects that are accepted, None for the others."""
    pairs = zip(decisions.labels[rows].tolist(), decisions.accepted[rows].tolist(), strict=True)
    return [str(label) if accepted else None for label, accepted in pairs]


class Shadows:
    """The shadows of a gate, and the thread that compares them with what was answered.

    ``standing`` is replaced as a whole, and a call takes it once.
    """

    def __init__(self, secret: bytes, comparisons: Comparisons, metrics: Metrics | None = None) -> None:
        self.secret, self.standing = secret, tuple[Shadow, ...]()
        self._fates, self._comparisons, self._metrics = Fates(secret), comparisons, metrics or Metrics()
        self._lock, self._closed = Lock(), Event()
        self._queue: deque[Offered] = deque()
        self._known: dict[tuple[int | None, float], None] = {}
        self._objects = self._bytes = 0
        self._thread: Thread | None = None

    def replace(self, standing: Sequence[Shadow]) -> None:
        """Compare with other shadows from now on."""
        for each in standing:
            self._metrics.expect_shadow(each.model.digest)
        self.standing, self._known = tuple(standing), {}
        if self._thread is None and standing:
            self._thread = Thread(target=self._run, name="shadows", daemon=True)
            self._thread.start()

    def offer(self, offered: Iterable[Offered]) -> None:
        """Let the shadows decide the objects of answered requests later; drop those that do not fit."""
        with self._lock:
            for each in offered:
                n = len(each.objects)
                if self._objects + n > MAX_OBJECTS or self._bytes + each.size > MAX_BYTES:
                    for shadow in self.standing:
                        self._count(each.answered.serving.deployment, shadow, Compared(dropped=n))
                    continue
                self._queue.append(each)
                self._objects += n
                self._bytes += each.size

    def close(self) -> None:
        """Compare what waits, for a few seconds, and stop."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT)

    def _run(self) -> None:
        while not self._closed.wait(_GATHER):
            with suppress(Exception):  # the thread must survive
                self.work()
        with suppress(Exception):
            self.work()

    def work(self) -> None:
        """Compare all that waits."""
        sampled: list[Sampled] = []
        while (offered := self._take()) is not None:
            sampled += self._sample(offered)
            while len(sampled) >= _AT_ONCE:
                self._compare(sampled[:_AT_ONCE])
                del sampled[:_AT_ONCE]
        if sampled:
            self._compare(sampled)

    def _take(self) -> Offered | None:
        with self._lock:
            if not self._queue:
                return None
            offered = self._queue.popleft()
            self._objects -= len(offered.objects)
            self._bytes -= offered.size
            return offered

    def _sample(self, offered: Offered) -> list[Sampled]:
        """Return the objects of a request that a shadow decides."""
        answered, sampled = offered.answered, list[Sampled]()
        most = max((shadow.settings.sample for shadow in self.standing), default=0.0)
        end = offered.start + len(offered.objects)
        for part, decisions in answered.ruling.decided:
            rows = np.flatnonzero((offered.start <= part.places) & (part.places < end)).tolist()
            chosen = [
                (row, place, fate)
                for row, place in zip(rows, part.places[rows].tolist(), strict=True)
                if (fate := self._fates(answered.ids[place], most)) is not None
                and not self._is_known(answered.serving.deployment, fate)
            ]
            outcomes = outcomes_of(decisions, [row for row, _, _ in chosen])
            for (row, place, fate), outcome in zip(chosen, outcomes, strict=True):
                given = offered.objects[place - offered.start]
                where = place, given, fate, part, decisions, row
                sampled.append(Sampled(answered, offered.sender, *where, outcome))
        return sampled

    def _is_known(self, active: int | None, fate: Fate) -> bool:
        """Return whether an id came before: it is labelled once, so it must not count again."""
        known, key = self._known, (active, fate.draw)
        if key in known:
            return True
        known[key] = None
        if len(known) > MAX_KNOWN:
            del known[next(iter(known))]
        return False

    def _compare(self, sampled: list[Sampled]) -> None:
        """Let each shadow decide its part of the sample, and count; rest as long as that took."""
        began = time.perf_counter()
        compared: dict[tuple[int | None, Shadow], Compared] = defaultdict(Compared)
        disagreeing: dict[Sampled, list[tuple[Shadow, Outcome]]] = defaultdict(list)
        for shadow in self.standing:
            mine = [each for each in sampled if each.is_for(shadow)]
            outcomes = _outcomes(shadow, [each.given for each in mine])
            for place, each in enumerate(mine):
                counts = compared[each.active, shadow]
                if each.place in each.answered.ruling.over:  # it has no item that could be labelled
                    counts.dropped += 1
                    continue
                if place not in outcomes:
                    counts.undecided += 1
                    continue
                outcome = outcomes[place]
                counts.cells[each.outcome, outcome] += 1
                if outcome != each.outcome and each.fate.draw < shadow.settings.audit:
                    disagreeing[each].append((shadow, outcome))
        drawn = _drawn(disagreeing)
        for (active, shadow), counts in compared.items():
            mine_drawn = [each for each in drawn if (each.active, each.shadow) == (active, shadow.deployment)]
            self._count(active, shadow, counts, mine_drawn)
        self._closed.wait(time.perf_counter() - began)

    def _count(
        self, active: int | None, shadow: Shadow, compared: Compared, drawn: Sequence[Drawn] = ()
    ) -> None:
        if active is not None:
            self._comparisons.add(active, shadow.deployment, compared, drawn)
            self._metrics.count_compared(shadow.model.digest, _results(compared))


def _outcomes(shadow: Shadow, objects: list[Any]) -> dict[int, Outcome]:
    """Return what a shadow would have decided; nothing if it fails."""
    try:
        return shadow.outcomes(objects) if objects else {}
    except Exception:
        return {}


def _drawn(disagreeing: Mapping[Sampled, Sequence[tuple[Shadow, Outcome]]]) -> list[Drawn]:
    """Return objects that were drawn, once for each shadow that disagrees."""
    parts: dict[int, list[Sampled]] = defaultdict(list)
    for each in disagreeing:
        parts[id(each.part)].append(each)
    return [
        Drawn(
            kept,
            each.active or 0,
            shadow.deployment,
            each.fate.draw,
            each.outcome,
            outcome,
            each.answered.at,
        )
        for part in parts.values()
        for each, kept in zip(part, _kept(part, disagreeing), strict=True)
        for shadow, outcome in disagreeing[each]
    ]


def _results(compared: Compared) -> Counter[str]:
    counts = Counter(undecided=compared.undecided, dropped=compared.dropped)
    for (first, second), n in compared.cells.items():
        counts["agreed" if first == second else "disagreed"] += n
    return counts


def _kept(
    sampled: Sequence[Sampled], disagreeing: Mapping[Sampled, Sequence[tuple[Shadow, Outcome]]]
) -> list[Kept]:
    """Return objects of one part as they are stored: behind the audit, with their chance of being kept."""
    first = sampled[0]
    answered, rate = first.answered, first.answered.serving.draw.rate
    rows = {each.row: each for each in sampled}
    chances = [1 - (1 - rate) * (1 - _chance(shadow for shadow, _ in disagreeing[each])) for each in sampled]
    return as_kept(
        answered.serving.number,
        {row: answered.ids[each.place] for row, each in rows.items()},
        {row: each.sender for row, each in rows.items()},
        first.part.rows,
        first.decisions,
        answered.ruling.cutoff,
        {row: answered.origins[e.place] for row, e in rows.items() if e.place in answered.origins},
        np.array(list(rows)),
        [1 + each.fate.draw for each in sampled],
        chances,
        [True] * len(sampled),
    )


def _chance(shadows: Iterable[Shadow]) -> float:
    """Return the chance that an object is drawn on which these shadows disagree."""
    area = top = 0.0
    for sample, audit in sorted(
        ((each.settings.sample, each.settings.audit) for each in shadows), reverse=True
    ):
        if audit > top:
            area, top = area + sample * (audit - top), audit
    return area


def shadow_secret(engine: Engine) -> bytes:
    """Return the key of the sample."""
    with engine.connect() as connection:
        return bytes(connection.execute(text("SELECT value FROM secret WHERE name = 'shadow'")).scalar_one())
