"""Campaigns: rejected objects that belong together, so that they are looked at together."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, column_names, rows_by_code
from transcendent._utils.dates import as_times
from transcendent._utils.listing import Listing
from transcendent._utils.text import as_percent, counted, shorten, some, visible
from transcendent.explaining.content import Content
from transcendent.explaining.distances import JaccardIndex, connected_within
from transcendent.explaining.splitting import CONTESTED, label_numbers, split_by_label
from transcendent.explaining.wording import campaign_as_html

_ID_LENGTH = 12
_RARE = 0.05
_MAX_FEATURES = 10
_MAX_SHOWN = 10
_MAX_COMPARED = 1000


class SharedFeature(NamedTuple):
    """A feature that all members of a campaign have.

    Attributes
    ----------
    name : str
        Its column, with the value if there are others than zeros and ones.
    share_of_rest : float
        The share of the rest that has it, too.
    """

    name: str
    share_of_rest: float


class Spread(NamedTuple):
    """The range of some values, and their median.

    Attributes
    ----------
    low, median, high : float
        The lowest, the median and the highest value.
    """

    low: float
    median: float
    high: float


@dataclass(frozen=True, eq=False)
class Campaign:
    """Objects that belong together.

    Attributes
    ----------
    id : str
        Its name, which stays the same while its content is found again.
    rows : int array of shape (size,)
        Positions of its members among the objects, ascending.
    n_contents : int
        Number of members that differ from each other.
    medoid : int
        Position of the member that is closest to the others on average.
    radius : float
        The largest distance of a member from the medoid. Members are connected by steps, so it can exceed
        the distance of one step by far: then look at more of them.
    first_seen, last_seen : times or None
        The times of its first and last member.
    features : tuple of SharedFeature
        Features that all members have and at most 5% of the rest, the rarest first; at most ten.
    p_values : Spread or None
        The lowest, median and highest p-value of its members.
    split_from : str or None
        The id of the earlier campaign that a larger campaign kept when this one left it.
    merged : tuple of str
        The ids of earlier campaigns that are now part of this one.
    """

    id: str
    rows: IntArray
    n_contents: int
    medoid: int
    radius: float
    first_seen: Any = None
    last_seen: Any = None
    features: tuple[SharedFeature, ...] = ()
    p_values: Spread | None = None
    split_from: str | None = None
    merged: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.rows)

    def __str__(self) -> str:
        """Return one sentence about the campaign."""
        parts = [self._how_alike()]
        if self.first_seen is not None:
            parts[0] += f", seen {_span(self.first_seen, self.last_seen)}"
        if self.features:
            names = some([visible(feature.name) for feature in self.features], 3)
            parts.append(f"all have {names}, {_how_many(self.features[-1].share_of_rest)} of the rest")
        if self.p_values is not None:
            parts.append(f"p-values {self.p_values.low:.3g} to {self.p_values.high:.3g}")
        return "; ".join(parts) + "."

    def _repr_html_(self) -> str:
        return campaign_as_html(self)

    def _how_alike(self) -> str:
        objects = counted(self.size, "object")
        if self.size == 1:
            return f"{objects} left"
        if self.n_contents == 1:
            return f"{objects} with the same content"
        different = f"{self.n_contents:,} different objects"
        if self.n_contents < self.size:
            different = f"{objects}, {self.n_contents:,} of them different"
        return f"{different}, at most {self.radius:.2g} from the most typical one"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python values, for JSON."""
        times = {name: _plain(getattr(self, name)) for name in ("first_seen", "last_seen")}
        features = [feature._asdict() for feature in self.features]
        spread = None if self.p_values is None else self.p_values._asdict()
        plain = {"rows": self.rows.tolist(), "features": features, "p_values": spread, **times}
        return {"sentence": str(self), "size": self.size, **asdict(self), **plain}


@dataclass(frozen=True, repr=False, eq=False)
class Campaigns(Sequence[Campaign]):
    """The campaigns among n objects, the largest first; select one by position or id.

    Attributes
    ----------
    campaigns : tuple of Campaign
        The campaigns.
    ids : array of shape (n,)
        The id of each object's campaign, empty for objects that are alone.
    keys : array of shape (n,)
        The `content_keys` of the objects.
    distance : float
        The largest Jaccard distance of one step.
    n_exact : int
        Number of objects that were compared by exact content only, since they have other values than zeros
        and ones.
    """

    campaigns: tuple[Campaign, ...]
    ids: AnyArray
    keys: AnyArray
    distance: float
    n_exact: int

    def __len__(self) -> int:
        return len(self.campaigns)

    def __iter__(self) -> Iterator[Campaign]:
        return iter(self.campaigns)

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return self.campaigns[which]
        for campaign in self.campaigns:
            if campaign.id == which:
                return campaign
        raise KeyError(f"there is no campaign {which!r}.")

    @property
    def share(self) -> float:
        """Share of the objects that belong to a campaign; NaN when there are none."""
        return float(np.mean(self.ids != "")) if len(self.ids) else math.nan

    @property
    def id_of_key(self) -> dict[str, str]:
        """The id of the campaign of each content key: the ``before`` of the next day."""
        return {key: name for key, name in zip(self.keys.tolist(), self.ids.tolist(), strict=True) if name}

    @property
    def how(self) -> str:
        """How objects were compared, in one sentence."""
        if self.distance == 0:
            return "Objects with the same content belong together."
        if self.n_exact == len(self.ids):
            return "Exact content only: near content needs rows of zeros and ones."
        others = f"; {self.n_exact:,} with other values by exact content only" if self.n_exact else ""
        return f"Objects within a Jaccard distance of {self.distance:g} belong together{others}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python values, for JSON."""
        campaigns = [campaign.to_dict() for campaign in self.campaigns]
        return {"objects": len(self.ids), "share": self.share, "how": self.how, "campaigns": campaigns}

    def __repr__(self) -> str:
        listing, notes = self._listing()
        return "\n".join([self._headline(), *([listing.as_text()] if len(self) else []), *notes])

    def _repr_html_(self) -> str:
        listing, notes = self._listing()
        return listing.as_html(self._headline(), notes)

    def _headline(self) -> str:
        n = len(self.ids)
        share = f" ({self.share:.1%} of them)" if n else ""
        return f"{counted(n, 'object')}: {counted(len(self), 'campaign')}{share}"

    def _listing(self) -> tuple[Listing, list[str]]:
        rows = [
            (
                " ".join(
                    [visible(campaign.id), *(shorten(visible(f.name), 40) for f in campaign.features[:1])]
                ),
                f"{campaign.size:,}",
                f"{campaign.n_contents:,}",
                f"{campaign.radius:.2f}",
                "–" if campaign.first_seen is None else _span(campaign.first_seen, campaign.last_seen),
            )
            for campaign in self.campaigns[:_MAX_SHOWN]
        ]
        hidden = len(self) - _MAX_SHOWN
        notes = [f"… and {hidden:,} smaller ones"] if hidden > 0 else []
        return Listing(("campaign", "objects", "contents", "radius", "seen"), rows), [*notes, self.how]


def find_campaigns(
    X: Any,
    *,
    distance: float = 0.1,
    times: Any = None,
    p_values: Any = None,
    names: Any = None,
    before: "Campaigns | Mapping[str, str] | None" = None,
    reference: Any = None,
    labels: Any = None,
) -> Campaigns:
    """Find the objects that belong together, such as a day's rejects.

    Objects with the same content belong together, and so do rows of zeros and ones within a Jaccard distance:
    the share of the features of two objects that only one of them has. Groups are connected components: a
    member is near another member, not near all. Objects with other values are compared by exact content only.
    The order of the objects does not matter.

    A group with content of an earlier campaign keeps its id. Each id goes to one group and each group takes
    one id, those with the most contents in common first. So of a campaign that falls apart, the part with
    most of its contents keeps the id and the others get new ones (``split_from``). Of campaigns that grow
    together, the one with most contents in common gives its id (``merged`` names the others).

    Parameters
    ----------
    X : array, sparse matrix, frame or list of n rows
        The objects.
    distance : float
        The largest distance of near objects, from 0 (the same content) to less than 1.
    times : array of shape (n,) or None
        When each object was seen.
    p_values : array of shape (n,) or None
        The p-value of each object's label, such as ``decisions.credibility``.
    names : array of shape (features,) or None
        The names of the columns; by default those of a frame.
    before : Campaigns, mapping of content keys to ids, or None
        The campaigns found earlier.
    reference : rows like those of X, or None
        Objects to compare each campaign's features with; by default the other objects of ``X``.
    labels : sequence of n labels or None
        Labels that are known, None for the others. A group with different labels is split: each content goes
        to the nearest one with a label. A content that has two labels is in no campaign.

    Returns
    -------
    Campaigns
        Groups of at least two objects, and what is left of earlier campaigns; the largest first.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.explaining import find_campaigns
    >>> X = np.zeros((6, 40), dtype=int)
    >>> X[:4, :20], X[2, 20], X[4, 30:], X[5, 25:35] = 1, 1, 1, 1
    >>> found = find_campaigns(X, times=np.arange(6), names=[f"f{i}" for i in range(40)])
    >>> found.ids.tolist() == [found[0].id] * 4 + ["", ""]
    True
    >>> print(found[0])
    4 objects, 2 of them different, at most 0.048 from the most typical one, seen 0 to 3; all have f0, f1, f2
    and 7 more, none of the rest.
    """
    if isinstance(distance, bool) or not 0 <= distance < 1:
        raise ValueError(f"distance must be at least 0 and less than 1, not {distance!r}.")
    content = Content.of(X)
    given = _Given(
        None if times is None else as_times(times, len(content)),
        None if p_values is None else _checked_p_values(p_values, len(content)),
    )
    _, first, codes, counts = np.unique(
        content.keys, return_index=True, return_inverse=True, return_counts=True
    )
    unique, members = content[first], rows_by_code(codes, max(1, len(first)))
    binary = unique.are_binary()
    earlier = before.id_of_key if isinstance(before, Campaigns) else dict(before or {})
    known = label_numbers(labels, codes, len(first))
    chosen = _choose(unique, _group(unique, binary & (known != CONTESTED), distance, known), counts, earlier)
    matches = _match([unique.keys[contents].tolist() for contents in chosen], earlier)
    features = _features(unique, chosen, counts, _names(X, names, content), reference)
    campaigns = []
    for contents, match, shared in zip(chosen, matches, features, strict=True):
        centre, radius = _medoid(unique, contents, counts)
        rows = np.sort(np.concatenate([members[one] for one in contents]))
        described = given.describe(rows, members[centre])
        campaigns.append(
            Campaign(
                rows=rows,
                n_contents=len(contents),
                radius=radius,
                features=shared,
                **described,
                **match._asdict(),
            )
        )
    ids = np.full(len(content), "", dtype=f"U{max([1, *(len(match.id) for match in matches)])}")
    for campaign in campaigns:
        ids[campaign.rows] = campaign.id
    return Campaigns(tuple(campaigns), ids, content.keys, float(distance), int(counts[~binary].sum()))


class _Given(NamedTuple):
    """What is known of each object."""

    times: AnyArray | None
    p_values: FloatArray | None

    def describe(self, rows: IntArray, central: IntArray) -> dict[str, Any]:
        """Return the fields of a campaign that follow from its members, and from those at its centre."""
        times, p = self.times, self.p_values
        return {
            "medoid": int(central[0] if times is None else central[np.argmin(times[central])]),
            "first_seen": None if times is None else times[rows].min(),
            "last_seen": None if times is None else times[rows].max(),
            "p_values": None if p is None else Spread(*np.quantile(p[rows], [0, 0.5, 1]).tolist()),
        }


class _Match(NamedTuple):
    id: str
    split_from: str | None
    merged: tuple[str, ...]


def _group(unique: Content, binary: Any, distance: float, labels: IntArray) -> IntArray:
    """Return the number of each content's group; -1 for contents that are left out."""
    groups = np.where(labels == CONTESTED, -1, np.arange(len(unique)))
    if distance > 0 and binary.any():
        rows = np.flatnonzero(binary)
        # Each component is named by its first content, whose number no other group has.
        contents = unique.binary(rows)
        _, first, codes = np.unique(
            connected_within(contents, distance), return_index=True, return_inverse=True
        )
        groups[rows] = rows[split_by_label(contents, first[codes], labels[rows])]
    return groups


def _choose(unique: Content, groups: IntArray, counts: IntArray, earlier: dict[str, str]) -> list[IntArray]:
    """Return the contents of each campaign: groups of several objects, and those with earlier content."""
    names, codes = np.unique(groups, return_inverse=True)
    sizes = np.bincount(codes, weights=counts, minlength=len(names))
    known = np.isin(unique.keys, list(earlier)) if earlier else np.zeros(len(unique), dtype=bool)
    is_known = np.bincount(codes, weights=known, minlength=len(names)) > 0
    contents = rows_by_code(codes, len(names)) if len(names) else []
    order = np.argsort(-sizes, kind="stable")
    wanted = (names >= 0) & ((sizes > 1) | is_known)
    return [contents[group] for group in order if wanted[group]]


def _match(keys: list[list[str]], earlier: dict[str, str]) -> list[_Match]:
    """Return an id for each list of content keys, and what became of earlier ids."""
    common: Counter[tuple[str, int]] = Counter(
        (earlier[key], group) for group, own in enumerate(keys) for key in own if key in earlier
    )
    kept: dict[int, str] = {}
    homes: dict[str, int] = {}
    ranked = sorted(common, key=lambda pair: (-common[pair], pair))
    for name, group in ranked:
        if name not in homes and group not in kept:
            kept[group], homes[name] = name, group
    in_common: dict[int, list[str]] = {}
    for name, group in ranked:
        in_common.setdefault(group, []).append(name)
    used, matches = set(earlier.values()), []
    for group, own in enumerate(keys):
        others = [name for name in in_common.get(group, ()) if name != kept.get(group)]
        merged = tuple(name for name in others if name not in homes)
        new = group not in kept
        name = _new_id(own, used) if new else kept[group]
        used.add(name)
        matches.append(_Match(name, others[0] if new and others else None, merged))
    return matches


def _new_id(keys: list[str], used: set[str]) -> str:
    """Return the beginning of the first key; if that is the id of another campaign, of the next one."""
    for key in keys:
        if key[:_ID_LENGTH] not in used:
            return key[:_ID_LENGTH]
    return next(f"{keys[0]}-{n}" for n in range(2, len(used) + 3) if f"{keys[0]}-{n}" not in used)


def _features(
    unique: Content, chosen: list[IntArray], counts: IntArray, names: Any, reference: Any
) -> list[tuple[SharedFeature, ...]]:
    """Return for each campaign the features that all contents have and few of the rest."""
    n = len(unique)
    others = None if reference is None else Content.of(reference)
    if others is not None and others.numbers.shape[1] != unique.numbers.shape[1]:
        raise ValueError(
            f"reference has {others.numbers.shape[1]} columns, but X has {unique.numbers.shape[1]}."
        )
    items = (unique if others is None else _joined(unique, others)).items()
    own = items.rows[:n]
    totals = counts @ own if others is None else np.asarray(items.rows[n:].sum(axis=0)).ravel()
    binary = bool(unique.are_binary().all())
    found = []
    for contents in chosen:
        present, having = np.unique(own[contents].indices, return_counts=True)
        shared = present[having == len(contents)]
        size = counts[contents].sum() if others is None else 0  # of a reference the members are no part
        n_rest = (counts.sum() if others is None else len(others)) - size
        shares = (totals[shared] - size) / n_rest if n_rest else np.ones(len(shared))
        rarest = np.argsort(shares, kind="stable")[:_MAX_FEATURES]
        found.append(
            tuple(
                SharedFeature(_named(items.columns[item], items.values[item], names, binary), share)
                for item, share in zip(shared[rarest].tolist(), shares[rarest].tolist(), strict=True)
                if share <= _RARE
            )
        )
    return found


def _joined(above: Content, below: Content) -> Content:
    numbers = sp.vstack([above.numbers, below.numbers], format="csr")
    return Content(np.concatenate([above.keys, below.keys]), numbers, [*above.others, *below.others])


def _names(X: Any, names: Any, content: Content) -> list[str] | None:
    given = column_names(X) if names is None else [str(name) for name in names]
    if given is not None and len(given) != content.numbers.shape[1]:
        raise ValueError(f"there are {len(given)} names for {content.numbers.shape[1]} columns.")
    return given


def _named(column: int, value: Any, names: list[str] | None, binary: bool) -> str:
    name = f"column {column}" if names is None else names[column]
    if binary:
        return name
    if isinstance(value, float):
        return f"{name} missing" if math.isnan(value) else f"{name} = {value:g}"
    return f"{name} = {value!r}"


def _medoid(unique: Content, contents: IntArray, counts: IntArray) -> tuple[int, float]:
    """Return the content with the least mean distance to the members, and the largest distance from it.

    In a large campaign means are over 1,000 contents, evenly spread over the keys, which are random.
    """
    if len(contents) == 1:
        return int(contents[0]), 0.0
    rows = unique.binary(contents)
    some_of = np.unique(np.linspace(0, len(contents) - 1, min(len(contents), _MAX_COMPARED)).astype(int))
    weights = counts[contents[some_of]].astype(np.float64)
    totals = np.concatenate([block @ weights for _, block in JaccardIndex(rows[some_of]).distances(rows)])
    centre = int(np.argmin(totals))
    radius = max(float(block.max()) for _, block in JaccardIndex(rows[[centre]]).distances(rows))
    return int(contents[centre]), radius


def _checked_p_values(p_values: Any, n: int) -> FloatArray:
    values = np.asarray(p_values, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(
            f"p_values must have one entry per object: {(n,)}, got {values.shape}. Pass the p-values of the "
            "labels, such as decisions.credibility."
        )
    return values


def _span(first: Any, last: Any) -> str:
    first, last = (str(_plain(time)).replace("T", " ") for time in (first, last))
    return first if first == last else f"{first} to {last}"


def _how_many(share: float) -> str:
    return "none" if share == 0 else f"at most {as_percent(float(f'{share:.2g}'))}"


def _plain(time: Any) -> Any:
    return str(time) if isinstance(time, np.datetime64) else getattr(time, "item", lambda: time)()
