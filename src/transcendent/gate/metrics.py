"""What a gate tells Prometheus about itself.

Counters are those of this process since it started. Gauges of the database are read when they are scraped,
at most once a second, and are the same at every gate.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from transcendent import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "transcendent_gate_"
KNOWN_FOR = 1  # seconds for which gauges are reused
TIERS = ("audit", "rejected", "skipped", "copy")
"""Names of the tiers of the queue, in the order of claims."""
ALARMS = ("drift", "rejections", "harm", "settling")
_DIGITS = 12  # of a model's digest
_DECISIONS = ("/v1/decisions", (200, 422, 503))
_RECENT, _FEW = 1000, 100  # requests that `slowest_percent` is of, and below which it is not known

_REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_COMMIT_OBJECTS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)

disable_created_metrics()  # a second series for every counter, which Prometheus does not read


class AnswerCounts(NamedTuple):
    """The decisions in the answer to a request: how many by label and whether accepted, and how many not."""

    model: str
    outcomes: Mapping[tuple[Any, bool], int]
    undecided: int = 0


class Metrics:
    """The metrics of a gate, in a registry of their own.

    ``refresh`` has functions that set gauges before a scrape; each is called at most once a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self.refresh: list[Callable[[], None]] = []
        self._clock, self._known_until, self._lock = clock, -math.inf, Lock()
        self._thread = ThreadPoolExecutor(1, "metrics")  # so that scrapes never wait for pages
        self._routes: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._outcomes: dict[tuple[str, Any, bool], Counter] = {}
        self._recent: deque[float] = deque(maxlen=_RECENT)
        ProcessCollector(registry=self.registry)
        self._make_counters()
        self._make_gauges()
        for status in _DECISIONS[1]:
            self._route(_DECISIONS[0], status)

    def _make_counters(self) -> None:
        self._requests = self._counter("requests", "Requests answered.", "route", "status")
        self._request_seconds = self._histogram(
            "request_duration_seconds", "Time from the head of a request to the end of its answer.",
            _REQUEST_SECONDS, "route",
        )  # fmt: skip
        self._objects = self._counter(
            "objects", "Objects decided in requests that were answered.", "model", "label", "decision"
        )
        self._undecided = self._counter("objects_undecided", "Objects that could not be decided.", "model")
        self._kept = self._counter("objects_kept", "Objects kept, again if sent again.", "model", "tier")
        self._commits = self._counter("commits", "Commits of objects.", "result")
        self._commit_seconds = self._histogram(
            "commit_duration_seconds", "Time of a commit, failed or not.", _COMMIT_SECONDS
        )
        self._commit_objects = self._histogram(
            "commit_objects", "Objects of a commit, failed or not.", _COMMIT_OBJECTS
        )
        self._actions = self._counter(
            "actions", "Labels, skips and undos of analysts.", "action", "author", "label"
        )
        self._compared = self._counter("shadow_objects", "Objects given to a shadow.", "model", "result")
        for result in ("stored", "failed"):
            self._commits.labels(result)

    def _make_gauges(self) -> None:
        self._info = self.gauge("info", "The gate's version and the model that decides.", "version", "model")
        self._ready = self.gauge("ready", "1 if the gate can decide and keep objects, as /readyz.")
        self._waiting = self.gauge("items_waiting", "Items that wait for a label.", "tier")
        self._oldest = self.gauge(
            "oldest_item_age_seconds", "Age of the item that has waited longest, 0 without one.", "tier"
        )
        self._budget = self.gauge("budget_ratio", "Share of objects that the budget rejects.", "model")
        self._rank = self.gauge("cutoff_rank", "Credibility below which objects are rejected.", "model")
        self._share = self.gauge(
            "cutoff_tied_ratio", "Share of the objects that tie with the cutoff that is rejected.", "model"
        )

        of = "deployment", "model"
        self._evidence = self.gauge("drift_log_evidence", "Logarithm of the evidence of drift.", *of)
        self._monitored = self.gauge("monitored_objects", "Objects that the drift monitor has seen.", *of)
        self._below = self.gauge(
            "below_thresholds_ratio", "Share of these that the evaluator's own thresholds reject.", *of
        )
        self._expected = self.gauge(
            "below_thresholds_expected_ratio", "Highest such share that calibration explains.", *of
        )
        self._alarms = self.gauge("alarms", "Alarms that stand, new or acknowledged.", *of, "kind", "state")

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(PREFIX + name, about, labels, registry=self.registry, buckets=buckets)

    def gauge(self, name: str, about: str, *labels: str) -> Gauge:
        """Return a new gauge; its name gets the prefix."""
        return Gauge(PREFIX + name, about, labels, registry=self.registry)

    async def scrape(self) -> bytes:
        """Return all metrics in the text format, from a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.page)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)

    def page(self) -> bytes:
        """Return all metrics in the text format."""
        with self._lock:
            if self._clock() >= self._known_until:
                for each in self.refresh:
                    each()
                self._known_until = self._clock() + KNOWN_FOR
            return generate_latest(self.registry)

    def _expect(self, model: str, classes: Sequence[Any]) -> None:
        """Start the counters of a model at 0: Prometheus does not see an increase from nothing."""
        for label in classes:
            for accepted in (True, False):
                self._outcome(model, label, accepted)
        self._undecided.labels(model[:_DIGITS])
        for tier in TIERS[:2]:
            self._kept.labels(model[:_DIGITS], tier)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request, and how long it took."""
        requests, durations = self._routes.get((route, status)) or self._route(route, status)
        requests.inc()
        durations.observe(seconds)
        if route == _DECISIONS[0]:
            self._recent.append(seconds)

    def slowest_percent(self) -> float | None:
        """Return the seconds that 99% of the last requests for decisions did not exceed (p99)."""
        recent = sorted(self._recent.copy())
        return recent[math.ceil(0.99 * len(recent)) - 1] if len(recent) >= _FEW else None

    def _route(self, route: str, status: int) -> tuple[Counter, Histogram]:
        found = self._requests.labels(route, str(status)), self._request_seconds.labels(route)
        self._routes[route, status] = found
        return found

    def count_answer(self, tally: AnswerCounts, kept: Mapping[int, int]) -> None:
        """Count the objects of a request that is answered; ``kept`` are those kept by tier."""
        for (label, accepted), n in tally.outcomes.items():
            found = self._outcomes.get((tally.model, label, accepted))
            (found or self._outcome(tally.model, label, accepted)).inc(n)
        if tally.undecided:
            self._undecided.labels(tally.model[:_DIGITS]).inc(tally.undecided)
        for tier, n in kept.items():
            self._kept.labels(tally.model[:_DIGITS], TIERS[tier]).inc(n)

    def _outcome(self, model: str, label: Any, accepted: bool) -> Counter:
        decision = "accepted" if accepted else "rejected"
        found = self._objects.labels(model[:_DIGITS], str(label), decision)
        self._outcomes[model, label, accepted] = found
        return found

    def count_commit(self, seconds: float, objects: int, *, stored: bool) -> None:
        """Count a commit, its time and its size."""
        self._commits.labels("stored" if stored else "failed").inc()
        self._commit_seconds.observe(seconds)
        self._commit_objects.observe(objects)

    def count_action(self, action: str, author: str, label: str | None = None) -> None:
        """Count a label, a skip or an undo."""
        self._actions.labels(action, author, label or "").inc()

    def expect_shadow(self, model: str) -> None:
        """Start the counters of a shadow at 0."""
        self.count_compared(model, dict.fromkeys(("agreed", "disagreed", "undecided", "dropped"), 0))

    def count_compared(self, model: str, results: Mapping[str, int]) -> None:
        """Count objects that were given to a shadow."""
        for result, n in results.items():
            self._compared.labels(model[:_DIGITS], result).inc(n)

    def show_model(self, model: str, classes: Sequence[Any], budget: float | None) -> None:
        """Show which model decides, and its budget."""
        self._expect(model, classes)
        for gauge in (self._info, self._budget, self._rank, self._share):
            gauge.clear()
        self._info.labels(__version__, model[:_DIGITS]).set(1)
        if budget is not None:
            self._budget.labels(model[:_DIGITS]).set(budget)

    def show_cutoff(self, model: str, rank: float | None, share: float) -> None:
        """Show the cutoff in force; without a rank all objects tie."""
        if rank is not None:
            self._rank.labels(model[:_DIGITS]).set(rank)
        self._share.labels(model[:_DIGITS]).set(share)

    def show_ready(self, ready: bool) -> None:
        """Show whether the gate is ready."""
        self._ready.set(ready)

    def show_queue(self, waiting: Mapping[int, int], ages: Mapping[int, float]) -> None:
        """Show what waits and for how long, by tier."""
        for tier, name in enumerate(TIERS):
            self._waiting.labels(name).set(waiting.get(tier, 0))
            self._oldest.labels(name).set(ages.get(tier, 0))

    def show_monitors(self, monitors: Sequence[Mapping[str, Any]]) -> None:
        """Show what the monitors of deployments have seen."""
        for each in monitors:
            of = str(each["deployment"]), each["model"][:_DIGITS]
            if each["problem"] is None:
                self._evidence.labels(*of).set(each["log_value"])
                self._monitored.labels(*of).set(each["objects"])
            if each["objects"]:
                self._below.labels(*of).set(each["rejected"] / each["objects"])
                self._expected.labels(*of).set(each["expected"])
            for kind in ALARMS:
                known = kind in each["acknowledged"]
                self._alarms.labels(*of, kind, "new").set(kind in each["alarms"] and not known)
                self._alarms.labels(*of, kind, "acknowledged").set(known)

    def hide_stored(self) -> None:
        """Show nothing of what the database says, such as while it cannot be read."""
        monitors = self._evidence, self._monitored, self._below, self._expected, self._alarms
        for gauge in (self._waiting, self._oldest, *monitors):
            gauge.clear()
