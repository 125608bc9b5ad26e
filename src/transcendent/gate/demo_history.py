"""Synthetic apps for the demo, and a history of them in a database, as if a gate had run for weeks."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pandas as pd
from sqlalchemy import Connection, Engine, text

from transcendent._utils.arrays import FloatArray
from transcendent.datasets import make_stream
from transcendent.gate.auditing import harm_in
from transcendent.gate.days import DecidedDays
from transcendent.gate.deployments import Deployment
from transcendent.gate.folding import error_of
from transcendent.gate.intake import audit_secret, keep, to_keep
from transcendent.gate.minutes import Minutes
from transcendent.gate.model import Model
from transcendent.gate.moving import RowRange
from transcendent.gate.serving import Serving, ServingMaker
from transcendent.monitoring.drift import ObservedDecisions

ANALYSTS = ("analyst-1", "analyst-2")
PROMISED = 0.2
"""The largest acceptable share of wrong answers among the accepted ones."""
_DAY, _PER_DAY = 86_400.0, 80
_LATE = 10  # days: campaigns begin then, and nobody has labelled them yet
_WAIT = 0.15  # share of other items of these days that nobody has labelled yet
_WRONG = 0.03  # share of labels that are wrong
_DRIFTED, _COPIES = 0.7, 0.08  # shares of changed apps, once there is drift, and of campaigns
_CLASSES = ("goodware", "banker", "spyware")
_NAMES = ("torch", "wallet", "parcel", "scanner", "keyboard", "cleaner", "recipes", "radio", "chess")
_FEATURES = {
    "permission": "SEND_SMS READ_SMS READ_CONTACTS RECORD_AUDIO CAMERA LOCATION GET_ACCOUNTS CALL_PHONE NFC "
    "ALERT_WINDOW BOOT_COMPLETED INSTALL_PACKAGES WRITE_SETTINGS VIBRATE BLUETOOTH WAKE_LOCK READ_CALENDAR",
    "calls": "Runtime.exec DexClassLoader Cipher.init Base64.decode getDeviceId Method.invoke "
    "sendTextMessage addJavascriptInterface MediaRecorder.start getPrimaryClip System.load "
    "getInstalledPackages Socket.connect getRunningTasks KeyStore.load MessageDigest.update",
    "has": "native-code packed-code hidden-icon overlay accessibility-service second-dex-file "
    "encrypted-assets root-check emulator-check advertisements push-messages",
}
FEATURES = [f"{kind} {name}" for kind, names in _FEATURES.items() for name in names.split()]

_RECEIVED = """
UPDATE item SET received_at = to_timestamp(:at) FROM payload
WHERE payload.id = item.id AND payload.object_id = ANY(:ids)
"""
_LABEL = """
WITH chosen AS (
    UPDATE item SET state = 1 FROM payload, unnest(CAST(:ids AS text[]), CAST(:labels AS text[]),
        CAST(:authors AS text[]), CAST(:ats AS float8[])) AS given (object_id, label, author, at)
    WHERE payload.object_id = given.object_id AND item.id = payload.id RETURNING item.id, given.*
)
INSERT INTO label (item, action, label, author, written_at)
SELECT id, 'label', label, author, to_timestamp(at) FROM chosen ORDER BY at
"""
# What a gate adds up once a day, or a minute: for labels, 45 seconds each.
_DAY_ENDS = """
WITH day AS (
    SELECT (to_timestamp(:at) AT TIME ZONE 'UTC')::date AS day
), waited AS (
    INSERT INTO waiting_day (day, waiting, taken_at)
    SELECT day, (SELECT count(*) FROM item WHERE state = 0), to_timestamp(:at) FROM day ON CONFLICT DO NOTHING
), worked AS (
    INSERT INTO work (day, seconds) SELECT day, 45 * :given FROM day
)
INSERT INTO monitor_day (deployment, day, labels, wrong, unclear, low, high)
SELECT :deployment, day, :labels, :wrong, :unclear, :low, :high FROM day
ON CONFLICT (deployment, day) DO UPDATE SET labels = excluded.labels, wrong = excluded.wrong,
    unclear = excluded.unclear, low = excluded.low, high = excluded.high
"""
_DEPLOYED = """
WITH counted AS (UPDATE work_from SET day = (to_timestamp(:at) AT TIME ZONE 'UTC')::date),
    added AS (UPDATE artifact SET added_at = to_timestamp(:at)),
    used AS (UPDATE model SET first_used = to_timestamp(:at))
UPDATE deployment SET made_at = to_timestamp(:at)
"""


class _App(NamedTuple):
    """Features of an app, and what it is; the apps of a campaign have a name and a signer in common."""

    bits: FloatArray
    label: str
    name: str = ""
    signer: str = ""


class Apps:
    """Apps that arrive: benign ones, two kinds of malware, and with the drift a new kind of one of them."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._of = {drifted: self._draw(drifted) for drifted in (False, True)}
        self._arrived: dict[str, _App] = {}
        self._campaigns: list[_App] = []

    def table(self, n: int) -> pd.DataFrame:
        """Return labelled apps from before the history, to fit a detector on."""
        apps = [next(self._of[False]) for _ in range(n)]
        frame = pd.DataFrame(np.array([app.bits for app in apps], dtype=int), columns=FEATURES)
        seen = np.linspace(time.time() - 210 * _DAY, time.time() - 31 * _DAY, n)
        names = [self._rng.bytes(32).hex() for _ in apps]
        return frame.assign(sha256=names, first_seen=list(map(_iso, seen)), label=[app.label for app in apps])

    def arrive(self, n: int, at: float, *, drifted: bool) -> list[dict[str, Any]]:
        """Return apps that arrive at a time, in seconds since 1970, as a request has them."""
        return [self._object(self._next(drifted), at) for _ in range(n)]

    def follow(self, name: str) -> None:
        """Let a malicious app be the first of a campaign, unless there are three at the time."""
        app = self._arrived[name]
        if app.label != "goodware" and not app.signer and len({each.signer for each in self._campaigns}) < 3:
            named = app._replace(name=self._choice(_NAMES), signer=self._rng.bytes(6).hex())
            self._campaigns += [named] * int(self._rng.integers(6, 20))

    def is_campaign(self, name: str) -> bool:
        """Return whether an app is one of a campaign."""
        return bool(self._arrived[name].signer)

    def said(self, name: str) -> str:
        """Return what an analyst says about an app."""
        right = self._rng.random() >= _WRONG
        return self._arrived[name].label if right else self._choice((*_CLASSES, "unclear"))

    def _choice(self, values: tuple[str, ...]) -> str:
        return str(self._rng.choice(values))

    def _next(self, drifted: bool) -> _App:
        """Return an app of a campaign, which differs by one feature or none, or another one."""
        if not self._campaigns or self._rng.random() >= _COPIES:
            return next(self._of[drifted and bool(self._rng.random() < _DRIFTED)])
        app = self._campaigns.pop(int(self._rng.integers(len(self._campaigns))))
        bits = app.bits.copy()
        bits[self._rng.integers(len(bits))] = self._rng.integers(2)
        return app._replace(bits=bits)

    def _object(self, app: _App, at: float) -> dict[str, Any]:
        name = self._rng.bytes(32).hex()
        self._arrived[name] = app
        context = {
            "name": f"com.example.{app.name or self._choice(_NAMES)}{self._rng.integers(100)}",
            "store": f"store-{self._rng.integers(1, 5)}",
            "signer": app.signer or self._rng.bytes(6).hex(),
            "link": f"https://tickets.example/{self._rng.integers(1000, 9999)}",
        }
        positions = np.flatnonzero(app.bits).tolist()
        given = {"id": name, "positions": positions, "values": [1] * len(positions)}
        return {**given, "context": context, "seen_at": _iso(at - float(self._rng.exponential(3600)))}

    def _draw(self, drifted: bool) -> Iterator[_App]:
        """Yield apps: each feature says on which side of a plane a row of a stream is."""
        rng, n = np.random.default_rng(3), 1000
        planes = rng.normal(size=(8, len(FEATURES))) * (rng.random((8, len(FEATURES))) < 0.3)
        planes[0] *= 2.5
        offsets = rng.uniform(0.5, 1.2, len(FEATURES)) * np.linalg.norm(planes, axis=0)
        drift: dict[str, Any] = {"pattern": "new_class", "concept": 0.3, "covariate": 0.3}
        while True:
            seed = int(self._rng.integers(1 << 31))
            stream = make_stream(2 * n, 2, n_features=8, random_state=seed, **drift)[n if drifted else 0 :][
                :n
            ]
            X, y = stream.X.copy(), stream.y
            sides = np.where(self._rng.random(n) < 0.5, 1.5, -1.5)
            X[:, 4] = 0.4 * X[:, 4] + np.where(y == 1, sides, 0.0)
            labels = np.select([y == 0, (y == 1) & (X[:, 4] > 0)], _CLASSES[:2], _CLASSES[2]).tolist()
            yield from map(_App, (X @ planes > offsets).astype(np.float64), labels)


def write_history(
    engine: Engine, model: Model, deployed: Deployment, apps: Apps, days: int, drift_at: float
) -> int:
    """Write what a gate would have written in some days until now; return the number of objects.

    Objects are decided, kept and counted by the parts of a gate, with a clock of their own. Then times are
    set back: those of the deployment and of items, whose numbers stay those of the current month. Analysts
    have labelled most of them. ``drift_at`` is when the drift begins.
    """
    now, clock = time.time(), [0.0]
    own = engine, uuid4(), lambda: clock[0]
    counts = Minutes(*own), DecidedDays(*own)
    serving = ServingMaker(engine, engine, audit_secret(engine), None)(deployed, model)
    with engine.begin() as connection:
        connection.execute(text(_DEPLOYED), {"at": now - (days + 1) * _DAY})
    try:
        for at in [now - 600 - age * _DAY for age in reversed(range(days))]:
            clock[0] = at
            kept = _decide(engine, serving, counts, apps.arrive(_PER_DAY, at, drifted=at >= drift_at))
            with engine.begin() as connection:
                connection.execute(text(_RECEIVED), {"at": at, "ids": list(kept)})
                error = error_of(harm_in(connection, deployed.id, PROMISED))  # of the days before
                given = _label(connection, apps, kept, at, (now - at) / _DAY)
                ends = {"at": at, "given": given, "deployment": deployed.id}
                connection.execute(text(_DAY_ENDS), {**ends, **error})
            for name in kept if at > now - _LATE * _DAY else ():
                apps.follow(name)
    finally:
        serving.close()
    return _PER_DAY * days


def _decide(
    engine: Engine, serving: Serving, counts: tuple[Minutes, DecidedDays], objects: list[dict[str, Any]]
) -> dict[str, bool]:
    """Decide objects as a gate does; return the ids of those that are kept, and whether they are accepted."""
    parsed = serving.model.read(objects)
    (group,), ids, (minutes, days) = parsed.groups, parsed.ids, counts
    observed = decisions = serving.model.decide(group.rows)
    cutoff, deployment = None, serving.deployment or 0
    if serving.traffic is not None:
        ruling = serving.traffic.rule([("store", len(ids))], [(group, decisions)])
        serving.traffic.finish(ruling.counted)
        serving.traffic.move()
        ((_, decisions),), cutoff = ruling.decided, ruling.cutoff
    if isinstance(observed, ObservedDecisions):
        rows = RowRange(group.rows, 0, len(ids)).sample(ids[0])
        minutes.add(deployment, observed.cells.tolist(), serving.model.watched, [rows])
    days.add(deployment, len(ids), int(decisions.rejected.sum()))
    for each in counts:
        each.flush()
    given = serving.number, serving.draw, ids, ["store"] * len(ids), group.rows, decisions, cutoff
    kept = to_keep(*given, origins=parsed.origins)
    keep(engine, list(kept.values()))
    return {ids[place]: bool(decisions.accepted[place]) for place in kept}


def _label(connection: Connection, apps: Apps, kept: dict[str, bool], at: float, age: float) -> int:
    """Let analysts label what was kept some days ago: nothing of the last day, no late campaigns.

    Returns the number of labels.
    """
    rng = np.random.default_rng(int(age))
    chosen = [
        name
        for name, accepted in kept.items()
        if age > 1 and (accepted or age > _LATE or not (apps.is_campaign(name) or rng.random() < _WAIT))
    ]
    given = {
        "ids": chosen,
        "labels": [apps.said(name) for name in chosen],
        "authors": [ANALYSTS[i % len(ANALYSTS)] for i in range(len(chosen))],
        "ats": (at + rng.uniform(600, 0.9 * _DAY, len(chosen))).tolist(),
    }
    connection.execute(text(_LABEL), given)
    return len(chosen)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
