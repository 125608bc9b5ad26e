"""What another model would change for the objects that wait in the quarantine."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from psycopg.types.json import Jsonb
from sqlalchemy import Engine, text

from transcendent._utils.arrays import AnyArray, BoolArray
from transcendent.gate.cutoff import Cutoff, decide_by, next_cutoff
from transcendent.gate.features import decode
from transcendent.gate.intake import audit_secret
from transcendent.gate.model import Model, with_budget
from transcendent.tables.layout import Layout

SAMPLE = 5000
"""Number of objects that are looked at: the newest ones that wait."""
_AT_ONCE = 500

_WAITING = """
SELECT payload.features,
    model.features - '{dtypes,shown_names}'::text[]
    = CAST(:columns AS jsonb) - '{dtypes,shown_names}'::text[] AS same FROM (
    SELECT id, model FROM item WHERE state = 0 ORDER BY id DESC LIMIT :limit
) AS newest JOIN payload ON payload.id = newest.id JOIN model ON model.id = newest.model ORDER BY newest.id
"""
_CUTOFF = f"""
SELECT {", ".join(Cutoff._fields)} FROM cutoff WHERE model = :model ORDER BY number DESC LIMIT 1
"""


class WaitingJudge(NamedTuple):
    """A model, its budget if a deployment sets one, and its number if it has decided traffic."""

    model: Model
    budget: float | None
    number: int | None = None


class Outcomes(NamedTuple):
    """The labels of objects as text, and whether they are accepted."""

    labels: AnyArray
    accepted: BoolArray


def changes_of(engine: Engine, old: WaitingJudge, new: WaitingJudge) -> dict[str, Any]:
    """Return what a new model would decide otherwise about the objects that wait, by the old one's label.

    Both decide as they would now: by their thresholds, or within a budget by the newest cutoff. A model that
    has decided nothing yet has the cutoff that its calibration objects give.
    """
    given = {"columns": Jsonb(old.model.layout.description()), "limit": SAMPLE}
    with engine.connect() as connection:
        rows = connection.execute(text(_WAITING), given).all()
    encoded = [bytes(row.features) for row in rows if row.same]
    found: dict[str, Any] = {"items": len(encoded), "other_columns": len(rows) - len(encoded)}
    found |= {"problem": None, "changes": []}
    try:
        before, after = (_decide(engine, each, encoded) for each in (old, new))
    except (ValueError, TypeError) as error:  # a detector that cannot handle one of them
        # Its message may quote features, which must not outlive their objects.
        return found | {"problem": f"deciding them raised a {type(error).__name__}"}
    return found | {"changes": _compare(before, after)}


def _compare(before: Outcomes, after: Outcomes) -> list[dict[str, Any]]:
    compared = []
    for label in np.unique(before.labels).tolist():
        of_label = before.labels == label
        was, now = before.accepted[of_label], after.accepted[of_label]
        compared.append(
            {
                "label": label,
                "items": len(was),
                "rejected_before": int((~was).sum()),
                "rejected_after": int((~now).sum()),
                "newly_accepted": int((now & ~was).sum()),
                "newly_rejected": int((was & ~now).sum()),
                "other_label": int((after.labels[of_label] != label).sum()),
            }
        )
    return compared


def _decide(engine: Engine, judged: WaitingJudge, encoded: Sequence[bytes]) -> Outcomes:
    cutoff, secret = _cutoff(engine, judged), audit_secret(engine)
    labels, accepted = [np.empty(0, dtype=str)], [np.empty(0, dtype=bool)]
    for start in range(0, len(encoded), _AT_ONCE):
        part = [_as_object(judged.model.layout, each) for each in encoded[start : start + _AT_ONCE]]
        parsed = judged.model.read(part)
        for problem in parsed.problems.values():
            raise ValueError(problem.message)
        for group in parsed.groups:
            rows, decisions = _decided(judged.model, group.rows)
            if cutoff is not None:
                decisions = decide_by(cutoff, rows, decisions, secret)
            labels.append(np.array(list(map(str, decisions.labels.tolist()))))
            accepted.append(decisions.accepted)
    return Outcomes(np.concatenate(labels), np.concatenate(accepted))


def _decided(model: Model, rows: Any) -> tuple[Any, Any]:
    """Decide rows, sparse ones as dense if the detector takes no others."""
    try:
        return rows, model.decide(rows)
    except (ValueError, TypeError):
        if not sp.issparse(rows):
            raise
        dense = rows.toarray()
        return dense, model.decide(dense)


def _cutoff(engine: Engine, judged: WaitingJudge) -> Cutoff | None:
    rule = judged.model.rule if judged.budget is None else with_budget(judged.model, judged.budget)
    if rule is None:
        return None
    with engine.connect() as connection:
        found = connection.execute(text(_CUTOFF), {"model": judged.number}).first()
    return next_cutoff(rule, None, [])[0] if found is None else Cutoff(*found)


def _as_object(layout: Layout, encoded: bytes) -> dict[str, Any]:
    """Return an object in a form in which senders send it."""
    positions, values = (each.tolist() for each in decode(encoded))
    values = [None if value != value else value for value in values]
    if layout.names is None:
        return {"id": "0", "positions": positions, "values": values}
    known = dict(zip(positions, values, strict=True))
    return {"id": "0", "features": {name: known.get(place, 0.0) for place, name in enumerate(layout.names)}}
