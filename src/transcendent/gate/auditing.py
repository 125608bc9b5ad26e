"""The error among accepted answers, from the labels of the audit.

It is computed from all labels each time, so that a label that is taken back no longer counts.
"""

from collections.abc import Collection, Iterable
from datetime import date
from itertools import groupby, takewhile
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, text

from transcendent.monitoring import HarmMonitor

# Three kinds of audit items: those with a label, those that wait, of which only the first of a day matters,
# and closed ones, which will never have a label. The first and the last are found by the history of labels,
# the second by the index of waiting items, so that no table of items is read as a whole. An accepted item
# that was closed because another model had rejected it before was never drawn. Ranks of drawn objects are
# below 1, but those of rejected objects may be as well. A day counts once it is over: until then its sample
# grows. A model may be deployed again: a deployment ends with the next one that decides, unless it is that of
# gates that follow none.
_OF_DEPLOYMENT = "item.model = chosen.model AND item.received_at >= made_at AND item.received_at < ended_at"
_DAY = "(item.received_at AT TIME ZONE 'UTC')::date"
_ITEMS = f"""
WITH chosen AS (
    SELECT model, made_at, least(date_trunc('day', now(), 'UTC'), (
        SELECT min(later.made_at) FROM deployment AS later WHERE deployment.action <> 'pinned'
            AND later.id > deployment.id AND later.action IN ('active', 'observe')
    )) AS ended_at FROM deployment WHERE id = :deployment
), history AS (
    SELECT DISTINCT ON (item) item AS id, action, label, reason FROM label ORDER BY item, id DESC
), settled AS (
    SELECT {_DAY} AS day, item.rank, item.id, payload.label AS predicted,
        CASE WHEN item.state = 1 THEN history.label END AS label
    FROM chosen JOIN history ON true JOIN item ON item.id = history.id
    JOIN payload ON payload.id = item.id
    WHERE {_OF_DEPLOYMENT} AND payload.accepted AND item.rank < 1
        AND (item.state = 1 OR (item.state = 2 AND history.reason IS DISTINCT FROM 'accepted'))
), waiting AS (
    SELECT DISTINCT ON (1) {_DAY} AS day, item.rank, item.id, '' AS predicted, NULL::text AS label
    FROM chosen JOIN item ON true
    WHERE {_OF_DEPLOYMENT} AND item.rank < 1 AND item.state = 0 AND item.tier IN (0, 2)
        AND EXISTS (SELECT FROM payload WHERE payload.id = item.id AND payload.accepted)
    ORDER BY 1, 2, 3
)
SELECT * FROM settled UNION ALL SELECT * FROM waiting
"""
_CLASSES = (
    "SELECT classes FROM deployment JOIN model ON model.id = deployment.model WHERE deployment.id = :id"
)


class AuditItem(NamedTuple):
    """An accepted object that was drawn for the audit; ``label`` is None as long as it has no final label."""

    day: date
    rank: float
    number: int
    predicted: str
    label: str | None


class Harm(NamedTuple):
    """Two monitors: in one, answers whose label is unclear are right, in the other they are wrong."""

    unclear_right: HarmMonitor
    unclear_wrong: HarmMonitor
    unclear: int


def harm_of(items: Iterable[AuditItem], classes: Collection[str], promised: float) -> Harm:
    """Return the error among accepted answers, and its bounds, from audit items with labels.

    Of each day's items, in the order in which they were drawn, those before the first without a label count.
    Leaving out single items would keep the easy ones. A label that is not a class, such as ``unclear``, says
    neither that the answer is right nor that it is wrong.
    """
    harm = Harm(HarmMonitor(promised), HarmMonitor(promised), 0)
    for _, of_day in groupby(sorted(items, key=lambda item: item[:3]), lambda item: item.day):
        run = list(takewhile(lambda item: item.label is not None, of_day))
        unclear = np.array([item.label not in classes for item in run], dtype=bool)
        wrong = np.array([item.label != item.predicted for item in run], dtype=bool)
        harm.unclear_right.update(wrong & ~unclear)
        harm.unclear_wrong.update(wrong | unclear)
        harm = harm._replace(unclear=harm.unclear + int(unclear.sum()))
    return harm


def harm_in(connection: Connection, deployment: int, promised: float) -> Harm:
    """Return the error among the accepted answers of a deployment, up to yesterday (UTC)."""
    classes = connection.execute(text(_CLASSES), {"id": deployment}).scalar_one()
    rows = connection.execute(text(_ITEMS), {"deployment": deployment})
    return harm_of((AuditItem(*row) for row in rows), set(map(str, classes)), promised)
