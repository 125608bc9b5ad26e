"""Campaigns among the rejected objects of a backtest and, in hindsight, how many labels they mix."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import indexable

from transcendent._utils.arrays import IntArray, count_rows, take_rows
from transcendent._utils.provenance import digest_rows
from transcendent._utils.text import counted
from transcendent.decisions import Answers
from transcendent.explaining import Campaigns, find_campaigns
from transcendent.report.results import Cell, Results
from transcendent.report.words import UNDEFINED, percent, plain
from transcendent.temporal.repeated import RepeatedBacktest
from transcendent.temporal.result import Backtest

MAX_OBJECTS = 20_000
MAX_VALUES = 800_000
"""Values other than 0 of the objects that are grouped, which decide how long it takes."""

_MAX_SHOWN = 10
_MAX_NAMED = 3
_N_SHUFFLES = 20


@dataclass(frozen=True)
class CampaignFigures:
    """A campaign with the periods of its first and last member, and the true label that most of them have."""

    id: str
    size: int
    n_contents: int
    first: str
    last: str
    label: Any
    share: float
    radius: float
    features: tuple[str, ...]


@dataclass(frozen=True)
class Hindsight:
    """What campaigns there were among the newest rejected objects of the first rejector and seed.

    ``n_grouped`` of ``n_rejected`` objects were compared, as ``how`` says. ``purity`` is the share of the
    members whose true label is that of most members of their campaign, and ``by_chance`` that of random
    groups of the same sizes; both are NaN without campaigns.
    """

    rejector: str
    seed: int | None
    n_rejected: int
    n_grouped: int
    n_members: int
    n_campaigns: int
    purity: float
    by_chance: float
    how: str
    largest: tuple[CampaignFigures, ...]


def has_rows(result: Backtest | RepeatedBacktest, X: Any) -> bool:
    """Return whether X has the rows that were tested, as far as the backtest recorded them."""
    _, first = _first_run(result)
    known = first.manifest.get("tested")
    if isinstance(X, Answers) or count_rows(X) <= first.rows.max(initial=-1):
        return False
    return known is None or digest_rows(indexable(X)[0], first.rows) == known


def look_back(result: Backtest | RepeatedBacktest, X: Any, names: Any = None) -> Hindsight | None:
    """Find the campaigns among the rejected; None if fewer than two objects were rejected."""
    if not has_rows(result, X):
        raise ValueError(
            "X does not have the rows that were tested. Pass the X of the backtest: the same rows, in the "
            "same order and of the same type."
        )
    seed, first = _first_run(result)
    X = indexable(X)[0]
    name, answer = next(iter(first.answers.items()))
    rejected = np.flatnonzero(answer.rejected)  # the periods are in order
    if len(rejected) < 2:
        return None
    newest = rejected[-_most_at_once(X, first.rows[rejected]) :]
    found = find_campaigns(take_rows(X, first.rows[newest]), times=first.period[newest], names=names)
    labels = np.searchsorted(first.classes, first.y[newest])
    members = np.concatenate([np.empty(0, dtype=np.intp), *(campaign.rows for campaign in found)])
    sizes = np.array([campaign.size for campaign in found], dtype=np.intp)
    return Hindsight(
        rejector=name,
        seed=seed,
        n_rejected=len(rejected),
        n_grouped=len(newest),
        n_members=len(members),
        n_campaigns=len(found),
        purity=_purity(labels[members], sizes),
        by_chance=_purity_by_chance(labels, sizes),
        how=found.how,
        largest=_figures(found, first, labels),
    )


def campaign_results(found: Hindsight) -> Results | None:
    """Return the largest campaigns, one row each; None if there are none."""
    if not found.largest:
        return None
    rows = [(each.id, _cells(each)) for each in found.largest]
    columns = ["Campaign", "Objects", "Contents", "First seen", "Last seen"]
    columns += ["Label of most", "Its share", "Radius", "All of them have"]
    caption = (
        f"The {len(rows)} largest of {counted(found.n_campaigns, 'campaign')}"
        if found.n_campaigns > len(rows)
        else "All campaigns, the largest first"
    )
    notes = [
        "Contents: members that differ from each other. Radius: the largest distance of a member from the "
        "one in the middle. All of them have: what every member has and at most 5% of the other rejected "
        f"objects; {UNDEFINED} if there is nothing of the kind."
    ]
    return Results("campaigns", caption, columns, rows, notes=notes)


def campaign_sentences(found: Hindsight) -> list[str]:
    """Return how many of the rejected belong to campaigns, how pure these were, and how it was done."""
    seed = "" if found.seed is None else f" with seed {found.seed}"
    newest = f"the newest {found.n_grouped:,} of " if found.n_grouped < found.n_rejected else ""
    of_these = f"{newest}{found.n_rejected:,} objects that {plain(found.rejector)} rejected{seed}"
    if not found.n_campaigns:
        return [f"There are no campaigns among {of_these}: no two belong together.", found.how]
    return [
        f"{percent(found.n_members / found.n_grouped)} of {of_these} belong to "
        f"{counted(found.n_campaigns, 'campaign')} of two or more. In hindsight, "
        f"{percent(found.purity, 1)} of these objects have the true label of most of their campaign; in "
        f"groups of the same sizes, drawn at random, {percent(found.by_chance)} would.",
        found.how,
    ]


def _cells(each: CampaignFigures) -> list[Cell]:
    named = [plain(name) for name in each.features[:_MAX_NAMED]]
    more = f" and {len(each.features) - len(named)} more" if len(each.features) > len(named) else ""
    return [
        Cell(f"{each.size:,}"),
        Cell(f"{each.n_contents:,}"),
        Cell(plain(each.first, 24)),
        Cell(plain(each.last, 24)),
        Cell(plain(each.label, 24)),
        Cell(percent(each.share)),
        Cell(f"{each.radius:.2f}"),
        Cell(", ".join(named) + more if named else UNDEFINED),
    ]


def _first_run(result: Backtest | RepeatedBacktest) -> tuple[int | None, Backtest]:
    """Return the result of the first seed, and the seed if there are several."""
    if isinstance(result, RepeatedBacktest):
        return next(iter(result.results.items()))
    return None, result


def _most_at_once(X: Any, rows: IntArray) -> int:
    """Return the number of rows, the last ones, that can be grouped in seconds; at least two."""
    rows = rows[-MAX_OBJECTS:]
    if sp.issparse(X):
        values = np.diff(X.indptr)[rows]
    else:
        shape = getattr(X, "shape", ())
        values = np.full(len(rows), np.prod(shape[1:], dtype=np.intp))
    return max(2, int(np.sum(np.cumsum(values[::-1]) <= MAX_VALUES)))


def _figures(found: Campaigns, result: Backtest, labels: IntArray) -> tuple[CampaignFigures, ...]:
    figures = []
    for campaign in found[:_MAX_SHOWN]:
        counts = np.bincount(labels[campaign.rows])
        most = int(counts.argmax())
        figures.append(
            CampaignFigures(
                id=campaign.id,
                size=campaign.size,
                n_contents=campaign.n_contents,
                first=result.periods[campaign.first_seen],
                last=result.periods[campaign.last_seen],
                label=result.classes[most],
                share=counts[most].item() / campaign.size,
                radius=campaign.radius,
                features=tuple(feature.name for feature in campaign.features),
            )
        )
    return tuple(figures)


def _purity(labels: IntArray, sizes: IntArray) -> float:
    """Return the share of objects, group after group, that have the most frequent label of their group."""
    if not len(sizes):
        return float("nan")
    group = np.repeat(np.arange(len(sizes)), sizes)
    pairs, counts = np.unique(np.stack([group, labels]), axis=1, return_counts=True)
    most = np.zeros(len(sizes), dtype=np.intp)
    np.maximum.at(most, pairs[0], counts)
    return float(most.sum() / len(labels))


def _purity_by_chance(labels: IntArray, sizes: IntArray) -> float:
    generator, n = np.random.default_rng(0), int(sizes.sum())
    drawn = [_purity(generator.permutation(labels)[:n], sizes) for _ in range(_N_SHUFFLES)]
    return float(np.mean(drawn))
