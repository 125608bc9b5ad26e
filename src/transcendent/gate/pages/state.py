"""The numbers of the wall, as plain data.

Every statement reads few rows, whatever the quarantine holds: counters, and summaries by day.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, text

from transcendent.gate.deployments import Deployment, needed
from transcendent.gate.intake import COPY
from transcendent.gate.processes import LIVE
from transcendent.gate.quarantine import queue_in

DAYS = 30
"""Days of a sparkline, today included."""
WEEK = 7
FEW = 1000
"""Objects of a deployment below which it is too early to say anything about drift or its budget."""
_GONE = 3600  # seconds after which a gate without a heartbeat is no longer listed
_MOST_ALARMS = 12

_NOW = "SELECT now()"
_MODELS = """
SELECT model.id, digest, name, first_used, added_at, budget FROM model
LEFT JOIN artifact ON artifact.model = model.id WHERE model.id = ANY(:models)
"""
_DEPLOYMENT = "SELECT id, model, action, settings FROM deployment WHERE id = :id"
_MADE = "SELECT id, made_at FROM deployment WHERE id = ANY(:deployments)"
# The deployment's budget, or else the artifact's own; without one, what calibration explains is the limit.
_MONITOR = """
SELECT objects, expected, log_value, moved, problem, (
    SELECT coalesce((settings ->> 'budget')::float8, artifact.budget) FROM deployment
    LEFT JOIN artifact ON artifact.model = deployment.model WHERE deployment.id = monitor.deployment
) AS budget FROM monitor WHERE deployment = :deployment
"""
# On the day of a promotion two deployments decide: the newer one is shown.
_MONITORED = """
SELECT DISTINCT ON (day) day, deployment, log_value, labels, wrong, unclear, low, high FROM monitor_day
WHERE day BETWEEN :first AND :last AND {} IS NOT NULL ORDER BY day, deployment DESC
"""
# On a day, labels of the days before count: if no more came since, nothing later was audited.
_UNTIL = """
(SELECT min(day) FROM monitor_day AS same
WHERE same.deployment = last.deployment AND same.labels = last.labels) - 1
"""
_ERROR = f"""
SELECT labels, wrong, unclear, low, high, {_UNTIL} AS until FROM monitor_day AS last
WHERE deployment = :deployment AND labels IS NOT NULL ORDER BY day DESC LIMIT 1
"""
_DRIFTED = """
SELECT DISTINCT (raised_at AT TIME ZONE 'UTC')::date AS day FROM alarm
WHERE kind = 'drift' AND raised_at >= CAST(:first AS date) - 1 ORDER BY day
"""
_DECIDED = """
SELECT day, deployment, sum(objects)::bigint AS objects, sum(rejected)::bigint AS rejected FROM decided_day
WHERE day BETWEEN :first AND :last GROUP BY day, deployment ORDER BY day
"""
_WAITED = "SELECT day, waiting FROM waiting_day WHERE day BETWEEN :first AND :last ORDER BY day"
_WORK = """
SELECT day, sum(labels)::bigint AS labels, sum(caught)::bigint AS caught, sum(inferred)::bigint AS inferred,
    sum(outside)::bigint AS outside, sum(seconds) AS seconds
FROM work WHERE day BETWEEN :first AND :last GROUP BY day ORDER BY day
"""
_COUNTED_FROM = "SELECT day FROM work_from"
_COMPARED = "SELECT shadow, found FROM compared WHERE active = :active"
_ALARM_ROWS = """
SELECT alarm.id, alarm.deployment, digest AS model, kind, alarm.moved, raised_at, acknowledged_at,
    acknowledged_by, alarm.reason
FROM alarm JOIN deployment ON deployment.id = alarm.deployment JOIN model ON model.id = deployment.model
"""
_ALARMS = f"""
{_ALARM_ROWS} WHERE alarm.deployment = :deployment OR acknowledged_at IS NULL
ORDER BY alarm.deployment IS DISTINCT FROM :deployment, acknowledged_at IS NOT NULL, alarm.id DESC
LIMIT {_MOST_ALARMS}
"""
_ALARM = f"{_ALARM_ROWS} WHERE alarm.id = :number"
_RAISED = f"{_ALARM_ROWS} WHERE raised_at >= :start AND raised_at < :end ORDER BY alarm.id"
_GATES = """
SELECT host, pid, version, process.deployment, digest AS model, action, problem, p99, started_at, seen_at,
    seen_at > now() - make_interval(secs => :live) AS up
FROM process LEFT JOIN deployment ON deployment.id = process.deployment
LEFT JOIN model ON model.id = deployment.model
WHERE seen_at > now() - make_interval(secs => :gone) AND NOT EXISTS (
    SELECT FROM process AS after WHERE after.host = process.host AND after.started_at > process.seen_at)
ORDER BY host, started_at, process.id
"""
# A rollback deploys the model of the deployment before the last one.
_PROMOTED = """
SELECT made.id, action, made_at, made.author, made.reason, digest AS model, name,
    coalesce(made.model = earlier AND made.model <> last, false) AS returned
FROM (
    SELECT deployment.*, lag(model) OVER own AS last, lag(model, 2) OVER own AS earlier FROM deployment
    WHERE action IN ('active', 'observe', 'pinned') WINDOW own AS (PARTITION BY action = 'pinned' ORDER BY id)
) AS made
JOIN model ON model.id = made.model LEFT JOIN artifact ON artifact.model = model.id
WHERE made_at >= :start AND made_at < :end ORDER BY made.id
"""
_DECIDERS = f"""
SELECT deployment.id, digest, made_at, coalesce((settings ->> 'budget')::float8, artifact.budget) AS budget,
    (SELECT min(later.made_at) FROM deployment AS later WHERE deployment.action <> 'pinned'
        AND later.id > deployment.id AND later.action IN ('active', 'observe')) AS ended_at,
    audited.labels, wrong, unclear, low, high, until
FROM deployment JOIN model ON model.id = deployment.model LEFT JOIN artifact ON artifact.model = model.id
LEFT JOIN LATERAL (
    SELECT labels, wrong, unclear, low, high, {_UNTIL} AS until FROM monitor_day AS last
    WHERE last.deployment = deployment.id AND day BETWEEN :first AND :last AND labels > 0
    ORDER BY day DESC LIMIT 1
) AS audited ON true
WHERE deployment.id = ANY(:deployments) ORDER BY deployment.id
"""
_RECORDED_FROM = "SELECT min(day) FROM decided_day"


class Point(NamedTuple):
    """A number of a day, with its limits if it has any."""

    day: date
    value: float
    low: float | None = None
    high: float | None = None


class Moving(NamedTuple):
    """Whether new objects are unlike those of the calibration; ``evidence`` is a logarithm."""

    evidence: float | None = None
    objects: int = 0
    since: datetime | None = None
    problem: str | None = None
    moved: Sequence[str] = ()
    days: Sequence[Point] = ()
    alarms: Sequence[date] = ()

    @property
    def standing(self) -> Literal["moving", "calm", "early", "unknown"]:
        """What can be said."""
        if self.since is not None:
            return "moving"
        if self.evidence is None:
            return "unknown"
        return "early" if self.objects < FEW else "calm"


class Right(NamedTuple):
    """Whether accepted answers are right: the error of the audit against the promised one.

    Nothing that arrived after the day ``until`` was audited yet.
    """

    promised: float | None = None
    labels: int = 0
    wrong: int = 0
    unclear: int = 0
    low: float = 0.0
    high: float = 1.0
    alarm: datetime | None = None
    days: Sequence[Point] = ()
    until: date | None = None

    @property
    def standing(self) -> Literal["harm", "unpromised", "unknown", "unsure", "right"]:
        """What can be said."""
        if self.alarm is not None:
            return "harm"
        if self.promised is None:
            return "unpromised"
        if not self.labels:
            return "unknown"
        if self.low > self.promised:
            return "harm"
        return "right" if self.high <= self.promised else "unsure"


class Rejecting(NamedTuple):
    """What was decided and rejected in a week, against a budget, or what calibration explains."""

    objects: int = 0
    rejected: int = 0
    budget: float | None = None
    expected: float | None = None
    alarm: datetime | None = None
    days: Sequence[Point] = ()

    @property
    def share(self) -> float:
        """The share that was rejected."""
        return self.rejected / self.objects if self.objects else 0.0

    @property
    def points_over(self) -> int:
        """By how many points the share is above the budget; 0 if by less than one, or for few objects."""
        if self.budget is None or self.objects < FEW:
            return 0
        points = round(100 * (self.share - self.budget), 6)
        return round(points) if points >= 1 else 0


class Work(NamedTuple):
    """What analysts did: labels that stand, errors caught, labels that nobody had to give, and hours."""

    labels: int = 0
    caught: int = 0
    inferred: int = 0
    outside: int = 0
    hours: float = 0.0


class Keeping(NamedTuple):
    """Whether analysts keep up: what waits, and what they did in the last days, a week at most."""

    waiting: int = 0
    oldest: float | None = None
    week: Work = Work()
    counted_days: int = WEEK
    days: Sequence[Point] = ()
    copies: int = 0

    @property
    def backlog(self) -> float | None:
        """The days that what waits takes at this pace."""
        done = self.week.labels + self.week.inferred + self.week.outside
        return self.waiting * self.counted_days / done if done > 0 else None

    @property
    def standing(self) -> Literal["up", "behind", "idle"]:
        """Nothing old waits, or at most a week of work; or nobody works."""
        if not self.waiting or self.oldest is None or self.oldest < 86_400:
            return "up"
        if self.backlog is None:
            return "idle"
        return "up" if self.backlog <= WEEK else "behind"


class ShownModel(NamedTuple):
    """A model that decides, is a shadow, or decided before."""

    role: Literal["active", "observe", "pinned", "shadow", "before"]
    deployment: int
    number: int
    digest: str
    name: str | None
    added_at: datetime
    made_at: datetime
    rejected: float | None = None
    compared: Mapping[str, Any] | None = None

    @property
    def decides(self) -> bool:
        """Whether its answers count."""
        return self.role in ("active", "observe", "pinned")


class Wall(NamedTuple):
    """All of it, at a moment."""

    now: datetime
    moving: Moving = Moving()
    right: Right = Right()
    rejecting: Rejecting = Rejecting()
    keeping: Keeping = Keeping()
    models: Sequence[ShownModel] = ()
    alarms: Sequence[Mapping[str, Any]] = ()
    gates: Sequence[Mapping[str, Any]] = ()
    month: Work = Work()
    counted_from: date | None = None
    decided: Sequence[Point] = ()

    @property
    def active(self) -> ShownModel | None:
        """The model that decides."""
        return next((each for each in self.models if each.decides), None)

    @property
    def right_until(self) -> date | None:
        """The day until which answers were audited, if that says nothing about now.

        So it is if it ended before objects became unlike the calibration's, or a week ago.
        """
        until, since = self.right.until, self.moving.since
        if until is None:
            return None
        drifted = since is not None and until <= since.astimezone(UTC).date()
        return until if drifted or until < self.now.date() - timedelta(days=WEEK) else None

    @property
    def a_day(self) -> float:
        """The objects that are decided on a day, on average over those of a week with any."""
        counts = [each.value for each in self.decided if each.value]
        return sum(counts) / len(counts) if counts else 0.0


class MonthDay(NamedTuple):
    """A day of a month; what is not known is None."""

    day: date
    objects: int | None
    rejected: int | None
    work: Work
    waiting: int | None
    error: Point | None


class Decider(NamedTuple):
    """A deployment that decided in a month, and what the audit has said of it since it was made."""

    deployment: int
    digest: str
    since: date
    budget: float | None
    objects: int
    rejected: int
    error: Right

    @property
    def wrong(self) -> tuple[float, float, float]:
        """About how many accepted answers of the month are wrong: the least, the estimate, the most."""
        found, accepted = self.error, self.objects - self.rejected
        return accepted * found.low, accepted * found.wrong / max(1, found.labels), accepted * found.high


class Month(NamedTuple):
    """A month for those who pay."""

    first: date
    now: datetime
    days: Sequence[MonthDay]
    work: Work
    objects: int
    rejected: int
    deciders: Sequence[Decider]
    promoted: Sequence[Mapping[str, Any]]
    alarms: Sequence[Mapping[str, Any]]
    counted_from: date | None
    recorded_from: date | None

    @property
    def is_recorded(self) -> bool:
        """Whether something of the month may be known."""
        began = self.recorded_from
        return began is not None and bool(self.days) and self.days[-1].day >= began


def read_wall(connection: Connection, pinned: int | None, promised: float | None) -> Wall:
    """Return the state of the wall.

    ``pinned`` is the deployment of this gate if it follows no others, ``promised`` the largest acceptable
    error.
    """
    queue = queue_in(connection)  # which also keeps the planner from scans
    now = connection.execute(text(_NOW)).scalar_one().astimezone(UTC)
    span = {"first": now.date() - timedelta(days=DAYS - 1), "last": now.date()}
    decided = connection.execute(text(_DECIDED), span).all()
    models = _models(connection, pinned, decided, now.date())
    deployment = next((each.deployment for each in models if each.decides), None)
    monitor = connection.execute(text(_MONITOR), {"deployment": deployment}).first()
    alarms = _rows(connection, _ALARMS, deployment=deployment)
    raised = {each["kind"]: each["raised_at"] for each in alarms if each["deployment"] == deployment}
    work = connection.execute(text(_WORK), {**span, "first": min(span["first"], now.date().replace(day=1))})
    by_day = {row.day: _work_of([row]) for row in work}
    counted_from = connection.execute(text(_COUNTED_FROM)).scalar()
    return Wall(
        now,
        _moving(connection, monitor, raised.get("drift"), span),
        _right(connection, deployment, promised, raised.get("harm"), span),
        _rejecting(monitor, decided, raised.get("rejections"), now.date()),
        _keeping(connection, queue, by_day, counted_from, span),
        models,
        alarms,
        _rows(connection, _GATES, live=LIVE, gone=_GONE),
        total([each for day, each in by_day.items() if day >= now.date().replace(day=1)]),
        counted_from,
        _by_day([row for row in decided if row.day > now.date() - timedelta(days=WEEK)], "objects"),
    )


def alarm_of(connection: Connection, number: int) -> dict[str, Any] | None:
    """Return an alarm."""
    return next(iter(_rows(connection, _ALARM, number=number)), None)


def _rows(connection: Connection, sql: str, **given: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(text(sql), given).mappings()]


def _by_day(rows: Sequence[Any], name: str) -> list[Point]:
    sums: dict[date, float] = {}
    for row in rows:
        sums[row.day] = sums.get(row.day, 0) + getattr(row, name)
    return [Point(day, n) for day, n in sums.items()]


def _work_of(rows: Sequence[Any]) -> Work:
    names = Work._fields[:-1]
    counts = {name: sum(getattr(row, name) for row in rows) for name in names}
    return Work(**counts, hours=sum(row.seconds for row in rows) / 3600)


def total(days: Sequence[Work]) -> Work:
    """Return the sums of days."""
    return Work(*(sum(values) for values in zip(*days, strict=True))) if days else Work()


def _models(
    connection: Connection, pinned: int | None, decided: Sequence[Any], today: date
) -> list[ShownModel]:
    """Return the model that decides, then shadows, then the one before."""
    plan = needed(connection)
    found: list[tuple[Any, Deployment]] = []
    if pinned is not None:
        own = connection.execute(text(_DEPLOYMENT), {"id": pinned}).first()
        found += [("pinned", Deployment(*own))] if own is not None else []
    elif plan.deciding is not None:
        found.append((plan.deciding.action, plan.deciding))
    active = None if not found else found[0][1]
    found += [("shadow", each) for each in plan.shadows]
    before = [each for each in plan.others if each.action != "prepare"]
    found += [("before", each) for each in before[:1] if pinned is None]
    given = {"models": [each.model for _, each in found], "deployments": [each.id for _, each in found]}
    known = {row.id: row for row in connection.execute(text(_MODELS), given)}
    made = {row.id: row.made_at for row in connection.execute(text(_MADE), given)}
    compared = {}
    if active is not None:
        rows = connection.execute(text(_COMPARED), {"active": active.model})
        compared = {row.shadow: row.found for row in rows}
    shown = []
    for role, each in found:
        row, comparison = known[each.model], compared.get(each.id)
        rejected = _share_of(decided, each.id, today)
        if comparison is not None and comparison["objects"]:
            rejected = comparison["shadow_rejected"] / comparison["objects"]
        added_at = row.added_at or row.first_used
        ids = each.id, each.model, row.digest, row.name
        shown.append(ShownModel(role, *ids, added_at, made[each.id], rejected, comparison))
    return shown


def _share_of(decided: Sequence[Any], deployment: int, today: date) -> float | None:
    """Return the share that a deployment rejected in its last week of these days."""
    own = [row for row in decided if row.deployment == deployment]
    recent = [row for row in own if row.day > own[-1].day - timedelta(days=WEEK) and row.day <= today]
    objects = sum(row.objects for row in recent)
    return sum(row.rejected for row in recent) / objects if objects else None


def _moving(connection: Connection, monitor: Any, since: datetime | None, span: Mapping[str, Any]) -> Moving:
    rows = connection.execute(text(_MONITORED.format("log_value")), span)
    days = [Point(row.day, row.log_value) for row in rows]
    alarms = connection.execute(text(_DRIFTED), span).scalars().all()
    if monitor is None:
        return Moving(since=since, days=days, alarms=alarms)
    moved = [str(each["feature"]) for each in monitor.moved[:3]]
    evidence = None if monitor.problem is not None else monitor.log_value
    return Moving(evidence, monitor.objects, since, monitor.problem, moved, days, alarms)


def _right(
    connection: Connection,
    deployment: int | None,
    promised: float | None,
    alarm: datetime | None,
    span: Mapping[str, Any],
) -> Right:
    rows = connection.execute(text(_MONITORED.format("nullif(labels, 0)")), span)
    days = [Point(row.day, row.wrong / row.labels, row.low, row.high) for row in rows]
    found = connection.execute(text(_ERROR), {"deployment": deployment}).first()
    known = {} if found is None else found._asdict()
    return Right(promised, **known, alarm=alarm, days=days)


def _rejecting(monitor: Any, decided: Sequence[Any], alarm: datetime | None, today: date) -> Rejecting:
    objects, rejected = (_by_day(decided, name) for name in ("objects", "rejected"))
    days = [
        Point(n.day, share.value / n.value) for n, share in zip(objects, rejected, strict=True) if n.value
    ]
    week = [row for row in decided if row.day > today - timedelta(days=WEEK)]
    sums = {name: sum(getattr(row, name) for row in week) for name in ("objects", "rejected")}
    budget, expected = (None, None) if monitor is None else (monitor.budget, monitor.expected)
    return Rejecting(**sums, budget=budget, expected=expected, alarm=alarm, days=days)


def _keeping(
    connection: Connection,
    queue: tuple[Mapping[int, int], Mapping[int, float]],
    by_day: Mapping[date, Work],
    counted_from: date | None,
    span: Mapping[str, Any],
) -> Keeping:
    waiting, ages = queue
    days = [Point(row.day, row.waiting) for row in connection.execute(text(_WAITED), span)]
    today: date = span["last"]
    week = total([each for day, each in by_day.items() if day > today - timedelta(days=WEEK)])
    counted = WEEK if counted_from is None else max(1, min(WEEK, (today - counted_from).days + 1))
    oldest = max(ages.values(), default=None)
    return Keeping(sum(waiting.values()), oldest, week, counted, days, waiting.get(COPY, 0))


def read_month(connection: Connection, first: date, promised: float | None) -> Month:
    """Return the month that begins on a day, up to now."""
    now = connection.execute(text(_NOW)).scalar_one().astimezone(UTC)
    end = (first + timedelta(days=31)).replace(day=1)
    span = {"first": first, "last": end - timedelta(days=1)}
    times = {
        "start": datetime(first.year, first.month, 1, tzinfo=UTC),
        "end": datetime(end.year, end.month, 1, tzinfo=UTC),
    }
    decided = connection.execute(text(_DECIDED), span).all()
    objects, rejected = (
        {each.day: int(each.value) for each in _by_day(decided, name)} for name in ("objects", "rejected")
    )
    work = {row.day: _work_of([row]) for row in connection.execute(text(_WORK), span)}
    waiting = {row.day: row.waiting for row in connection.execute(text(_WAITED), span)}
    audited = connection.execute(text(_MONITORED.format("nullif(labels, 0)")), span).all()
    errors = {row.day: Point(row.day, row.wrong / row.labels, row.low, row.high) for row in audited}
    last = min(span["last"], now.date())
    days = [
        MonthDay(
            day, objects.get(day), rejected.get(day), work.get(day, Work()), waiting.get(day), errors.get(day)
        )
        for day in (first + timedelta(days=i) for i in range((last - first).days + 1))
    ]
    return Month(
        first,
        now,
        days,
        total(list(work.values())),
        sum(objects.values()),
        sum(rejected.values()),
        _deciders(connection, decided, span, promised),
        _rows(connection, _PROMOTED, **times),
        _rows(connection, _RAISED, **times),
        connection.execute(text(_COUNTED_FROM)).scalar(),
        connection.execute(text(_RECORDED_FROM)).scalar(),
    )


def _deciders(
    connection: Connection, decided: Sequence[Any], span: Mapping[str, Any], promised: float | None
) -> list[Decider]:
    """Return the deployments that decided something in a month."""
    given = {**span, "deployments": sorted({row.deployment for row in decided})}
    return [_decider(row, decided, promised) for row in connection.execute(text(_DECIDERS), given)]


def _decider(row: Any, decided: Sequence[Any], promised: float | None) -> Decider:
    own = [each for each in decided if each.deployment == row.id]
    objects, rejected = (sum(getattr(each, name) for each in own) for name in ("objects", "rejected"))
    error = Right(promised)
    if row.labels is not None:
        until = row.until if row.ended_at is None else min(row.until, row.ended_at.astimezone(UTC).date())
        error = Right(promised, row.labels, row.wrong, row.unclear, row.low, row.high, until=until)
    return Decider(
        row.id, row.digest, row.made_at.astimezone(UTC).date(), row.budget, objects, rejected, error
    )
