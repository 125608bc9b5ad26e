"""Compare two models, one of which was the shadow of the other: what they reject, and who was right.

Where they disagree, some objects were drawn for a label at random. Of those of a *cell*, a pair of outcomes,
the first ones in the order of the draw that all have labels are a simple random sample of the cell. So each
cell has an exact interval for the share in which a model is right, and the cells are weighted by their true
numbers of objects. Labels that exist for other reasons, such as those of rejected objects, would favour
whoever disagrees with rejections.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, NamedTuple

from scipy.stats import beta
from sqlalchemy import Connection, text

from transcendent.gate.deployments import DeploymentError
from transcendent.gate.disagreements import THIS_HOUR, Outcome
from transcendent.gate.stored import find

LEVEL = 0.95
"""Probability that all intervals of a comparison hold."""
SETTLED = 2000
"""Objects in each gate after which the cutoff of a shadow with a budget hardly depends on where it began."""

# Only the newest deployment of a shadow counts: another one may have another sample, draw or budget.
_COUNTS = """
SELECT hour, process, undecided, dropped, active_outcomes, shadow_outcomes, counts, shadow_counts.shadow,
    shadow.model AS shadow_model, coalesce((shadow.settings ->> 'budget')::float8, artifact.budget) AS budget
FROM shadow_counts JOIN deployment AS active ON active.id = shadow_counts.active
JOIN deployment AS shadow ON shadow.id = shadow_counts.shadow
LEFT JOIN artifact ON artifact.model = shadow.model
WHERE active.model IN (:a, :b) AND shadow.model IN (:a, :b) AND active.model <> shadow.model
ORDER BY shadow_counts.shadow DESC
"""
# The label of an item is its last action, if that is a label. Labels that nobody gave prove nothing.
_DRAWN = """
SELECT active_outcome, shadow_outcome, draw, disagreement.item,
    CASE WHEN last.action = 'label' AND inferred.label IS NULL THEN last.label END AS label
FROM disagreement JOIN deployment AS active ON active.id = disagreement.active
LEFT JOIN LATERAL (
    SELECT id, action, label.label FROM label WHERE label.item = disagreement.item
    ORDER BY label.id DESC LIMIT 1
) AS last ON true
LEFT JOIN inferred ON inferred.label = last.id
WHERE shadow = :shadow AND active.model IN (:a, :b) AND hour < :until
"""
_CLASSES = "SELECT classes FROM model WHERE id IN (:a, :b)"


class DrawnItem(NamedTuple):
    """An item drawn for a label: the outcomes of both models, its place in the draw, and its label if any."""

    a: Outcome
    b: Outcome
    draw: float
    number: int
    label: str | None


class Bounds(NamedTuple):
    """An interval of a share."""

    low: float = 0.0
    high: float = 1.0

    @property
    def others(self) -> "Bounds":
        """The interval of the rest."""
        return Bounds(1 - self.high, 1 - self.low)


class ComparedCell(NamedTuple):
    """Objects with one pair of outcomes that differ.

    ``drawn`` items are to be labelled, and the labels of the first ``labels`` of them count: in ``a_right``
    and ``b_right`` of them a model is right, and ``unclear`` ones are counted both ways. The shares are
    None if nothing is known.
    """

    a: Outcome
    b: Outcome
    objects: int
    drawn: int = 0
    labels: int = 0
    unclear: int = 0
    a_right: int = 0
    b_right: int = 0
    a_share: Bounds | None = None
    b_share: Bounds | None = None


class JudgedCells(NamedTuple):
    """The cells, the share of all disagreements in which each is right, and who is right more often."""

    cells: list[ComparedCell]
    a_share: Bounds
    b_share: Bounds
    better: str | None


class ModelComparison(NamedTuple):
    """How two models compare on the objects that both have decided; outcomes are labels or None (rejected).

    ``better`` is ``"a"``, ``"b"`` or None if nothing can be concluded; ``more_labels`` is then about the
    number that would show it, None if that is unknown or too large. ``settled`` is False if the shadow has a
    budget, and gates have not yet seen enough objects for its rate to hold.
    """

    a: str
    b: str
    shadow: str
    since: datetime
    until: datetime | None
    objects: int
    undecided: int
    dropped: int
    a_rejected: int
    b_rejected: int
    settled: bool
    disagreements: int
    cells: list[ComparedCell]
    a_share: Bounds
    b_share: Bounds
    better: str | None
    more_labels: int | None


def compare(connection: Connection, a: str, b: str) -> ModelComparison:
    """Compare two models, given by the first digits of their digests."""
    first, second = find(connection, a), find(connection, b)
    models = {"a": first.number, "b": second.number}
    rows = connection.execute(text(_COUNTS), models).mappings().all()
    if not rows:
        raise DeploymentError(
            f"models {first.digest[:12]} and {second.digest[:12]} were not compared: one of them has to "
            "decide while the other is its shadow ('transcendent gate model shadow')."
        )
    rows = [row for row in rows if row["shadow"] == rows[0]["shadow"]]
    until = _end(connection, min(row["hour"] for row in rows))
    rows = [row for row in rows if row["hour"] < until]
    turned = rows[0]["shadow_model"] == first.number  # the outcomes of the shadow are those of a
    counts = _counts(rows, turned)
    given = {**models, "shadow": rows[0]["shadow"], "until": until}
    drawn = (_turn(DrawnItem(*row), turned) for row in connection.execute(text(_DRAWN), given))
    of_both = connection.execute(text(_CLASSES), models).scalars()
    judged = judge(counts, drawn, {str(label) for classes in of_both for label in classes})
    return ModelComparison(
        first.digest,
        second.digest,
        (first if turned else second).digest,
        _time(min(row["hour"] for row in rows)),
        _time(until) if until < _NEVER else None,
        counts.total(),
        sum(row["undecided"] for row in rows),
        sum(row["dropped"] for row in rows),
        sum(n for (outcome, _), n in counts.items() if outcome is None),
        sum(n for (_, outcome), n in counts.items() if outcome is None),
        rows[0]["budget"] is None or counts.total() >= SETTLED * len({row["process"] for row in rows}),
        sum(cell.objects for cell in judged.cells),
        *judged,
        more_labels(judged),
    )


_NEVER = 1 << 40


def _end(connection: Connection, first: int) -> int:
    """Return the hour up to which objects count: before today (UTC), unless all of them are of today.

    New items land anywhere in the order of the draw. Until analysts have labelled them they would cut the
    run of labelled ones short.
    """
    now = int(connection.execute(text(THIS_HOUR)).scalar_one())
    today = now - now % 24
    return today if first < today else _NEVER


def _time(hour: int) -> datetime:
    return datetime.fromtimestamp(3600 * hour, UTC)


def _counts(rows: Iterable[Mapping[Any, Any]], turned: bool) -> Counter[tuple[Outcome, Outcome]]:
    counts: Counter[tuple[Outcome, Outcome]] = Counter()
    for row in rows:
        for active, shadow, n in zip(
            row["active_outcomes"], row["shadow_outcomes"], row["counts"], strict=True
        ):
            counts[(shadow, active) if turned else (active, shadow)] += n
    return counts


def _turn(item: DrawnItem, turned: bool) -> DrawnItem:
    return item._replace(a=item.b, b=item.a) if turned else item


def judge(
    counts: Mapping[tuple[Outcome, Outcome], int], drawn: Iterable[DrawnItem], classes: Collection[str]
) -> JudgedCells:
    """Return who is right where two models disagree, from numbers of objects by cell and drawn items.

    A label that is not a class, such as ``unclear``, says neither that an answer is right nor that it is
    wrong. A model that rejects is right if the other's label is wrong.
    """
    items: dict[tuple[Outcome, Outcome], list[DrawnItem]] = defaultdict(list)
    for each in drawn:
        items[each.a, each.b].append(each)
    # Counts of a process that was killed may be lost, but not the items.
    sizes = {cell: max(counts.get(cell, 0), len(items[cell])) for cell in {**counts, **items}}
    cells = [
        _label_cell(*cell, n, items[cell], classes)
        for cell, n in sorted(sizes.items(), key=lambda each: (-each[1], str(each[0])))
        if cell[0] != cell[1] and n
    ]
    return _judge(cells)


def _label_cell(
    a: Outcome, b: Outcome, n: int, items: Sequence[DrawnItem], classes: Collection[str]
) -> ComparedCell:
    ordered = sorted(items, key=lambda item: (item.draw, item.number))
    labels = [item.label for item in takewhile(lambda item: item.label is not None, ordered)]
    clear = [label for label in labels if label in classes]
    a_right, b_right = (
        sum(label == own if own is not None else label != other for label in clear)
        for own, other in ((a, b), (b, a))
    )
    return ComparedCell(a, b, n, len(items), len(labels), len(labels) - len(clear), a_right, b_right)


def _judge(cells: Sequence[ComparedCell]) -> JudgedCells:
    """Add the intervals, which hold together with probability `LEVEL` (Bonferroni)."""
    # If one of them rejects, the other's interval is the rest of its own.
    intervals = sum(1 if None in (cell.a, cell.b) else 2 for cell in cells)
    alpha = (1 - LEVEL) / max(1, intervals)
    judged = [_add_shares(cell, alpha) for cell in cells]
    a_share, b_share = (_weighted(judged, place) for place in ("a_share", "b_share"))
    better = "a" if a_share.low > b_share.high else "b" if b_share.low > a_share.high else None
    return JudgedCells(judged, a_share, b_share, better)


def _add_shares(cell: ComparedCell, alpha: float) -> ComparedCell:
    if not cell.labels:
        return cell
    a_share = _exact(cell.a_right, cell, alpha)
    b_share = a_share.others if None in (cell.a, cell.b) else _exact(cell.b_right, cell, alpha)
    return cell._replace(a_share=a_share, b_share=b_share)


def _exact(right: int, cell: ComparedCell, alpha: float) -> Bounds:
    """Return the interval of Clopper and Pearson, with unclear labels counted both ways.

    The sample is drawn without replacement, which varies less; what was labelled is known for certain.
    """
    n, high = cell.labels, right + cell.unclear
    lower = float(beta.ppf(alpha / 2, right, n - right + 1)) if right else 0.0
    upper = float(beta.ppf(1 - alpha / 2, high + 1, n - high)) if high < n else 1.0
    return Bounds(max(lower, right / cell.objects), min(upper, 1 - (n - high) / cell.objects))


def _weighted(cells: Sequence[ComparedCell], name: str) -> Bounds:
    """Return the share in all cells, weighted by their objects; a cell without labels may be anything."""
    total = sum(cell.objects for cell in cells)
    if not total:
        return Bounds()
    shares = [(cell.objects, getattr(cell, name) or Bounds()) for cell in cells]
    low, high = (sum(n * share[end] for n, share in shares) / total for end in (0, 1))
    return Bounds(low, high)


def more_labels(judged: JudgedCells) -> int | None:
    """Return about how many further labels would show who is right more often, if shares stay as they are.

    None if it is known, if there are no labels yet, or if 10,000 would not suffice.
    """
    total = sum(cell.objects for cell in judged.cells)
    if judged.better is not None or not any(cell.labels for cell in judged.cells):
        return None
    for more in (25, 50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000):
        cells = [_grown(cell, round(more * cell.objects / total), judged.cells) for cell in judged.cells]
        if _judge(cells).better is not None:
            return more
    return None


def _grown(cell: ComparedCell, more: int, cells: Sequence[ComparedCell]) -> ComparedCell:
    """Return a cell with more labels; one without any gets those of the others."""
    like = [cell] if cell.labels else cells
    n, known = min(cell.labels + more, cell.objects), sum(each.labels for each in like)
    unclear, a_right, b_right = (
        round(n * sum(getattr(each, name) for each in like) / known)
        for name in ("unclear", "a_right", "b_right")
    )
    return cell._replace(
        labels=n, unclear=min(unclear, n - max(a_right, b_right)), a_right=a_right, b_right=b_right
    )
