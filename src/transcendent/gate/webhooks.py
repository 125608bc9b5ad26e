"""Send events to other systems, signed as Standard Webhooks, each at least once.

For each event that a target wants there is a row in `delivery`, which is deleted when the target has answered
with success. A process claims rows for the time of a lease and sends them outside any transaction: one that
stays open would hold back the events that can be read. If the process dies, another one sends what it had
claimed when the lease is over.
"""

import base64
import hashlib
import hmac
import random
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import orjson
import structlog
from sqlalchemy import Engine, text

from transcendent import __version__
from transcendent._utils.extras import extra
from transcendent.gate.events import Cursor, Events, newest_place, places_after
from transcendent.gate.targets import AddressError, WebhookTarget, resolve

EVERY = 1.0  # seconds between two looks for what is due
TIMEOUT = 10.0  # seconds for an attempt
# As Standard Webhooks recommends: ten attempts within three days.
PAUSES = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
MAX_WAITING = 10_000  # deliveries of a target; further events wait in their own table
MAX_SHOWN = 100

_CLAIMED = 20  # deliveries that a process claims at once,
_SENDING = 20.0  # and seconds after which it gives back those that it has not sent
_SHORT = 1000  # bytes of an answer
_LEASE = _SENDING + 4 * TIMEOUT  # name servers may take longer than an attempt

log = structlog.get_logger("transcendent.gate")

# Only one process at a time makes the deliveries of a target: the others pass.
_LAST = "SELECT transaction, number, place FROM webhook WHERE target = :target FOR UPDATE SKIP LOCKED"
_WAITING = "SELECT count(*) FROM delivery WHERE target = :target AND NOT dead"
_MAKE = """
INSERT INTO delivery (target, transaction, number, place)
SELECT :target, * FROM unnest(CAST(:transactions AS bigint[]), CAST(:numbers AS bigint[]),
    CAST(:places AS bigint[]))
"""
_MOVE = """
UPDATE webhook SET transaction = :transaction, number = :number, place = :place WHERE target = :target
"""
# An attempt counts when it begins: a process that dies of one has made it.
_CLAIM = """
UPDATE delivery SET tries = tries + 1, due_at = now() + make_interval(secs => :lease)
WHERE id IN (
    SELECT id FROM delivery WHERE target = :target AND NOT dead AND due_at <= now()
    ORDER BY due_at, id LIMIT :count FOR UPDATE SKIP LOCKED
)
RETURNING id, transaction, number, place, tries
"""
_FAIL = """
UPDATE delivery SET due_at = now() + make_interval(secs => :pause), dead = :dead, problem = :problem
WHERE id = :id
"""
_GIVE_BACK = "UPDATE delivery SET tries = tries - 1, due_at = now() WHERE id = ANY(:ids)"
_OF_TARGET = "(CAST(:target AS text) IS NULL OR target = :target)"
_FAILED = "FILTER (WHERE NOT dead AND problem IS NOT NULL)"  # and will be sent again
_COUNT = f"""
SELECT target, count(*) FILTER (WHERE NOT dead) AS waiting, count(*) FILTER (WHERE dead) AS dead,
    min(due_at) {_FAILED} AS next_attempt, (array_agg(problem ORDER BY due_at, id) {_FAILED})[1] AS problem
FROM webhook LEFT JOIN delivery USING (target) WHERE {_OF_TARGET} GROUP BY target ORDER BY target
"""
_DEAD = f"""
SELECT target, transaction, number, place, tries, problem FROM delivery WHERE dead AND {_OF_TARGET}
ORDER BY id DESC LIMIT :limit
"""
_RETRY = f"""
UPDATE delivery SET dead = false, tries = 0, due_at = now(), problem = NULL WHERE dead AND {_OF_TARGET}
"""


class Webhook:
    """Sends events to a target; several processes may do so at once.

    ``pauses`` are the seconds after each failed attempt; after the last attempt a delivery is given up.
    """

    def __init__(
        self,
        engine: Engine,
        events: Events,
        target: WebhookTarget,
        *,
        pauses: Sequence[float] = PAUSES,
        timeout: float = TIMEOUT,
    ) -> None:
        self.target = target
        self._engine, self._events, self._pauses = engine, events, pauses
        self._timeout, self._end = timeout, 0.0
        # Unlike httpx, this knows no proxies, which would connect to addresses that were not checked.
        httpcore2 = extra("httpcore2", "gate-client")
        backend = _InTime(httpcore2.SyncBackend(), self._left)
        self._http = httpcore2.ConnectionPool(network_backend=backend)
        self._failing = False
        self._stopped = Event()

    def stop(self) -> None:
        """Stop `work` after the delivery under way."""
        self._stopped.set()

    def close(self) -> None:
        """Close the connections, once `work` has ended."""
        self._http.close()

    def work(self) -> None:
        """Make deliveries of new events, and send what is due."""
        self.make()
        while not self._stopped.is_set() and self.send():
            self.make()

    def make(self) -> None:
        """Make deliveries of the events since the last time. A new target gets those from now on."""
        name = {"target": self.target.name}
        with self._engine.begin() as connection:
            last = connection.execute(text(_LAST), name).first()
            if last is None:
                start = {**newest_place(connection)._asdict(), **name}
                sql = """INSERT INTO webhook VALUES (:target, :transaction, :number, :place)
                ON CONFLICT DO NOTHING"""
                connection.execute(text(sql), start)
                return
            if connection.execute(text(_WAITING), name).scalar_one() >= MAX_WAITING:
                return
            rows = places_after(connection, Cursor(*last), 1000)
            if not rows:
                return
            wanted = [row for row in rows if row["kind"] in self.target.kinds]
            columns = {
                f"{each}s": [row[each] for row in wanted] for each in ("transaction", "number", "place")
            }
            connection.execute(text(_MAKE), {**columns, **name})
            end = {each: rows[-1][each] for each in ("transaction", "number", "place")}
            connection.execute(text(_MOVE), {**end, **name})

    def send(self) -> int:
        """Send some of what is due, and return how many deliveries there were."""
        given = {"target": self.target.name, "lease": _LEASE, "count": _CLAIMED}
        with self._engine.begin() as connection:
            claimed = sorted(connection.execute(text(_CLAIM), given))
        if not claimed:
            return 0
        places = [Cursor(each.transaction, each.number, each.place) for each in claimed]
        events, end = self._events.at(places), time.monotonic() + _SENDING
        for done, (each, place) in enumerate(zip(claimed, places, strict=True)):
            if self._stopped.is_set() or time.monotonic() > end:
                self._give_back([later.id for later in claimed[done:]])
                break
            event = events.get(place)
            # The item of an event may have been deleted meanwhile: there is nothing left to send.
            self._note(each, None if event is None else self._post(event))
        return len(claimed)

    def _post(self, event: dict[str, Any]) -> str | None:
        """Send an event; return what went wrong, or None."""
        self._end = time.monotonic() + self._timeout
        try:
            status = self._answer(event)
        except AddressError as error:
            return str(error)
        except Exception as error:  # whatever it is must count as an attempt, or it would repeat for ever
            return f"no answer ({type(error).__name__})"
        return None if 200 <= status < 300 else f"status {status}"

    def _answer(self, event: dict[str, Any]) -> int:
        """Send an event; return the status of the answer."""
        body, parts = orjson.dumps(event), self.target.address
        address = resolve(self.target)
        netloc = f"[{address}]" if ":" in address else address
        url = parts._replace(netloc=netloc if parts.port is None else f"{netloc}:{parts.port}").geturl()
        headers = {
            "host": parts.netloc,
            "content-type": "application/json",
            "user-agent": f"transcendent-gate/{__version__}",
            **sign(self.target.secrets, event["id"], int(time.time()), body),
        }
        # Only the status matters; a short answer is read so that the connection can be used again.
        asked = {"content": body, "headers": headers, "extensions": {"sni_hostname": parts.hostname}}
        with self._http.stream("POST", url, **asked) as answer:
            length = {name.lower(): value for name, value in answer.headers}.get(b"content-length", b"")
            if length.isdigit() and int(length[:9]) <= _SHORT:
                answer.read()
            return int(answer.status)

    def _left(self) -> float:
        """Return the seconds left for the attempt under way; never 0, which would mean not to wait."""
        return max(0.001, self._end - time.monotonic())

    def _note(self, delivery: Any, problem: str | None) -> None:
        """Delete a delivery that arrived; set the time of the next attempt of one that did not."""
        if problem is None:
            self._failing = False
            with self._engine.begin() as connection:
                connection.execute(text("DELETE FROM delivery WHERE id = :id"), {"id": delivery.id})
            return
        dead = delivery.tries > len(self._pauses)
        pause = 0.0 if dead else self._pauses[delivery.tries - 1] * random.uniform(1, 1.2)
        given = {"id": delivery.id, "pause": pause, "dead": dead, "problem": problem[:300]}
        with self._engine.begin() as connection:
            connection.execute(text(_FAIL), given)
        if dead or not self._failing:
            said = "a delivery was given up" if dead else "a delivery failed"
            log.warning(said, webhook=self.target.name, problem=problem)
        self._failing = True

    def _give_back(self, ids: list[int]) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(_GIVE_BACK), {"ids": ids})


class _InTime:
    """A network backend of httpcore, or a stream of it, whose every step has only the time that is left.

    Its own timeouts hold for each step: an answer could come byte by byte, for hours.
    """

    def __init__(self, inner: Any, left: Callable[[], float]) -> None:
        self._inner, self._left = inner, left

    def connect_tcp(self, **given: Any) -> "_InTime":
        return _InTime(self._inner.connect_tcp(**{**given, "timeout": self._left()}), self._left)

    def start_tls(self, **given: Any) -> "_InTime":
        return _InTime(self._inner.start_tls(**{**given, "timeout": self._left()}), self._left)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return bytes(self._inner.read(max_bytes, self._left()))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._inner.write(buffer, self._left())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def sign(secrets: Sequence[bytes], name: str, moment: int, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks: a signature by each secret."""
    signed = f"{name}.{moment}.".encode() + body
    digests = [hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets]
    return {
        "webhook-id": name,
        "webhook-timestamp": str(moment),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(each).decode()}" for each in digests),
    }


def list_deliveries(engine: Engine, target: str | None = None) -> dict[str, Any]:
    """Count the deliveries of each target that wait or were given up, and return the latest of these.

    If deliveries that wait have failed, ``next_attempt`` is the time of the next attempt at one of these, and
    ``problem`` is why the one before it failed.
    """
    with engine.connect() as connection:
        counts = connection.execute(text(_COUNT), {"target": target}).mappings()
        targets = [dict(row) for row in counts]
        rows = connection.execute(text(_DEAD), {"target": target, "limit": MAX_SHOWN}).mappings().all()
    dead = [
        {
            "event": str(Cursor(row["transaction"], row["number"], row["place"])),
            **{name: row[name] for name in ("target", "tries", "problem")},
        }
        for row in rows
    ]
    return {"targets": targets, "dead": dead}


def retry_dead(engine: Engine, target: str | None = None) -> int:
    """Send deliveries that were given up again, and return their number."""
    with engine.begin() as connection:
        return connection.execute(text(_RETRY), {"target": target}).rowcount
