"""Campaigns of the quarantine: which contents that wait belong together.

Every few minutes, one process of all gates reads the newest contents that wait and those of known campaigns,
groups them, and writes what has changed. No lock is held while it computes. It starts another process for
that, unless there are few contents: reading and grouping 20,000 in a thread would delay answers.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, Engine, text

from transcendent.gate.database import connect
from transcendent.gate.grouping import FoundCampaign, GroupedContents, group_all
from transcendent.gate.opinions import opinions_on
from transcendent.tables.layout import Layout

EVERY = 300.0
"""Seconds between two passes."""
LOOKS = 15.0
"""Seconds between two looks whether a pass is due."""
_MAX_WAITING, _MAX_KNOWN = 20_000, 5_000
_FEW = 200  # contents that take less time than starting a process
_TIMEOUT = 240  # seconds
_RUN = "from transcendent.gate.campaigns import make_pass; make_pass()"

# The row is a lease as well: if the process dies, another one begins after the same time. Without new items,
# labels, deletions or dropped months there is nothing to do.
_BEGIN = """
UPDATE grouped SET started_at = clock_timestamp() FROM (
    SELECT concat_ws(' ', (SELECT max(item) FROM item_content), (SELECT max(id) FROM label),
        (SELECT concat(count(*), '-', sum(items + examples)) FROM deletion),
        (SELECT min(number) FROM month)) AS now
) AS state
WHERE started_at <= now() - make_interval(secs => :every) AND seen <> state.now
RETURNING started_at, state.now AS seen
"""
_IS_MORE = "SELECT count(*) > :few FROM (SELECT FROM content LIMIT :few + 1) AS first"
_END = "UPDATE grouped SET seen = :seen WHERE started_at = :started_at"
_WAITS = "item.state = 0 AND item.tier < 3"
# Only rows of ones can be near: the first byte of encoded features is 1. Contents of known campaigns that do
# not wait have labels, or got them from others: with them, campaigns keep their ids.
_CONTENTS = f"""
SELECT content.key, content.label, content.labelled, content.campaign, item.id AS item, item.model,
    item.received_at, payload.credibility, payload.features
FROM (
    (SELECT content.key, item.id FROM item JOIN item_content AS known ON known.item = item.id
    JOIN content ON content.key = known.key AND content.leader = item.id
    WHERE {_WAITS} AND NOT content.contested ORDER BY item.id DESC LIMIT {_MAX_WAITING})
    UNION ALL
    (SELECT content.key, item.id FROM content JOIN item ON item.id = content.leader
    WHERE content.campaign IS NOT NULL AND NOT content.contested AND NOT ({_WAITS})
    ORDER BY item.id DESC LIMIT {_MAX_KNOWN})
) AS chosen JOIN content ON content.key = chosen.key JOIN item ON item.id = chosen.id
JOIN payload ON payload.id = chosen.id
WHERE get_byte(payload.features, 0) = 1 ORDER BY item.id
"""
_MODELS = "SELECT id, features - 'dtypes' AS features, classes FROM model WHERE id = ANY(:models)"
_STORED = "SELECT key, campaign FROM content WHERE campaign IS NOT NULL"
# (3, 2) excludes those who find contents, who change several rows of `content`, too: two processes that meet
# them in different orders could deadlock. (3, 3) excludes those who label a campaign.
_LOCK = """
SELECT set_config('idle_in_transaction_session_timeout', '60s', true), pg_advisory_xact_lock(3, 2),
    pg_advisory_xact_lock(3, 3)
"""
_MINE = "SELECT FROM grouped WHERE started_at = :started_at"
_ASSIGN = """
UPDATE content SET campaign = CASE WHEN NOT contested THEN new.campaign END
FROM unnest(CAST(:keys AS bytea[]), CAST(:campaigns AS text[])) AS new (key, campaign)
WHERE content.key = new.key
"""
# What a campaign came from is known only to the pass that found it.
_DESCRIBE = """
INSERT INTO campaign AS known (id, described)
SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:described AS jsonb[])) AS new (id, described)
ON CONFLICT (id) DO UPDATE SET described = excluded.described || jsonb_build_object(
    'split_from', coalesce(nullif(excluded.described->'split_from', 'null'), known.described->'split_from'),
    'merged', coalesce(nullif(excluded.described->'merged', '[]'), known.described->'merged'))
WHERE known.described - '{split_from,merged}'::text[] <> excluded.described - '{split_from,merged}'::text[]
    OR excluded.described->'split_from' <> 'null' OR excluded.described->'merged' <> '[]'
"""
_SPLIT = """
UPDATE campaign SET looks_after = (SELECT coalesce(max(id), 0) FROM label) WHERE id = ANY(:ids)
"""
_EMPTY = "DELETE FROM campaign WHERE NOT EXISTS (SELECT FROM content WHERE content.campaign = campaign.id)"


class Pass(NamedTuple):
    """A pass that this process has begun: when, and what there was to see."""

    started_at: datetime
    seen: str


class GatheredContents(NamedTuple):
    """Contents to group: their rows by columns and classes, and the campaigns of all contents by key."""

    groups: list[list[Any]]
    names: list[Sequence[str] | None]
    stored: dict[bytes, str]


class Grouping:
    """Groups what waits. With ``opinions=2``, labels that two analysts do not agree on split nothing."""

    def __init__(self, engine: Engine, opinions: int = 1) -> None:
        self._engine, self._opinions = engine, opinions
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def work(self) -> None:
        """Group what waits if that is due."""
        self.regroup(EVERY)

    def regroup(self, every: float = 0) -> bool:
        """Group what waits if the last pass is long enough ago, and there is news; return whether it was."""
        with self._engine.begin() as connection:
            begun = connection.execute(text(_BEGIN), {"every": every}).first()
            is_more = connection.execute(text(_IS_MORE), {"few": _FEW}).scalar_one()
        if begun is None:
            return False
        if is_more:
            self._start_pass(Pass(*begun))
        else:
            self.make(Pass(*begun))
        return True

    def make(self, begun: Pass) -> None:
        """Make a pass that was begun."""
        with self._engine.connect() as connection:
            gathered, labels = self._gather(connection)
        given = [
            _to_group(rows, names, labels, gathered.stored)
            for rows, names in zip(gathered.groups, gathered.names, strict=True)
        ]
        self._write(begun, gathered, group_all(given))

    def stop(self) -> None:
        """End a pass under way, and begin no other."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()

    def _start_pass(self, begun: Pass) -> None:
        """Make a pass in another process, and wait for its end."""
        given = {
            "url": self._engine.url.render_as_string(hide_password=False),
            "opinions": self._opinions,
            "begun": [begun.started_at.isoformat(), begun.seen],
        }
        command, pipe = [sys.executable, "-c", _RUN], subprocess.PIPE
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, stdin=pipe, stderr=pipe, env=environment) as process:
            self._process = process
            if self._stopped:
                process.kill()
            try:
                said = process.communicate(json.dumps(given).encode(), _TIMEOUT)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        if process.returncode and not self._stopped:
            last = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"the process ended with {process.returncode}: {last:.200}")

    def _gather(self, connection: Connection) -> tuple[GatheredContents, Mapping[int, str | None]]:
        rows = connection.execute(text(_CONTENTS)).all()
        models = connection.execute(text(_MODELS), {"models": list({row.model for row in rows})}).all()
        alike = {row.id: json.dumps([_columns(row.features), row.classes], sort_keys=True) for row in models}
        layouts = {alike[row.id]: Layout.described(row.features) for row in models}
        by_layout: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            by_layout[alike[row.model]].append(row)
        stored = {bytes(row.key): row.campaign for row in connection.execute(text(_STORED))}
        names = [layouts[each].names_to_show for each in by_layout]
        labels: dict[int, str | None] = {row.labelled: row.label for row in rows if row.label is not None}
        if self._opinions > 1:
            labels = {item: said.agreed for item, said in opinions_on(connection, list(labels)).items()}
        return GatheredContents(list(by_layout.values()), names, stored), labels

    def _write(self, begun: Pass, gathered: GatheredContents, found: list[list[FoundCampaign]]) -> None:
        """Write what has changed, unless another process has begun a later pass."""
        campaigns = dict.fromkeys(gathered.stored)
        for rows, of_layout in zip(gathered.groups, found, strict=True):
            campaigns |= {bytes(rows[i].key): each.id for each in of_layout for i in each.rows}
        changed = {key: name for key, name in campaigns.items() if gathered.stored.get(key) != name}
        described = {
            each.id: {**each.described, "medoid": rows[each.medoid].item}
            for rows, of_layout in zip(gathered.groups, found, strict=True)
            for each in of_layout
        }
        with self._engine.begin() as connection:
            connection.execute(text(_LOCK))
            if connection.execute(text(_MINE), {"started_at": begun.started_at}).first() is None:
                return
            given = {"keys": list(changed), "campaigns": list(changed.values())}
            connection.execute(text(_ASSIGN), given)
            texts = [Jsonb(each) for each in described.values()]
            connection.execute(text(_DESCRIBE), {"ids": list(described), "described": texts})
            parts = _parts(gathered, campaigns)
            connection.execute(text(_SPLIT), {"ids": parts})
            connection.execute(text(_EMPTY))
            connection.execute(text(_END), begun._asdict())


def _columns(described: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in described.items() if key != "shown_names"}


def _parts(gathered: GatheredContents, campaigns: Mapping[bytes, str | None]) -> list[str]:
    """Return the campaigns with contents of one that a label has left since the pass before."""
    homes: dict[str, set[str | None]] = defaultdict(set)
    for row in (row for rows in gathered.groups for row in rows):
        if row.campaign is not None and row.label is not None:
            homes[row.campaign].add(campaigns.get(bytes(row.key)))
    split = {name for name, found in homes.items() if len(found) > 1}
    stored = gathered.stored.items()
    return sorted({str(home) for key, name in stored if name in split and (home := campaigns[key])})


def _to_group(
    rows: list[Any],
    names: Sequence[str] | None,
    labels: Mapping[int, str | None],
    stored: Mapping[bytes, str],
) -> GroupedContents:
    own = {row.campaign for row in rows}
    return GroupedContents(
        features=[bytes(row.features) for row in rows],
        times=[int(row.received_at.timestamp()) for row in rows],
        p_values=[row.credibility for row in rows],
        labels=[labels.get(row.labelled) for row in rows],
        campaigns=[row.campaign for row in rows],
        names=None if names is None else list(names),
        taken=sorted(set(stored.values()) - own),
    )


def make_pass() -> None:
    """Make the pass that the standard input describes, at a low priority."""
    with suppress(AttributeError, OSError):
        os.nice(10)
    given = json.load(sys.stdin)
    started_at, seen = given["begun"]
    engine = connect(given["url"], 1, timeout=_TIMEOUT)
    Grouping(engine, given["opinions"]).make(Pass(datetime.fromisoformat(started_at), seen))
    engine.dispose()
