"""Explanations in words: the sentence, the text and the HTML."""

import html
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transcendent._utils.listing import Listing
from transcendent._utils.text import WIDTH, shorten, some, visible

if TYPE_CHECKING:
    from transcendent.explaining.campaigns import Campaign
    from transcendent.explaining.explanation import Explanation
    from transcendent.explaining.known_objects import Neighbour

_METHODS = {
    "exact": "exact",
    "paths": "exact (path contributions of the library)",
    "occlusion": "by occlusion",
}
_BASES = {
    "usual values": "an object with usual values",
    "average": "the average training object",
    "no values": "no features at all",
}
_DOUBTS = {
    "like nothing known": "it is unlike the calibration objects",
    "opinions disagree": "its measures disagree",
}
_MAX_NAMES = 8
_AS_NEAR = 1e-6  # distances in single precision


def sentence(found: Mapping[str, Any], within_budget: bool) -> str:
    """Return the explanation in one sentence."""
    parts = [_verdict(found, within_budget), *_other_class(found)]
    doubt = None if found["accepted"] else found["doubt"]
    if doubt in _DOUBTS:
        parts.append(_DOUBTS[doubt])
    if found["nearest"]:
        like = _like(found["nearest"], found["metric"])
        if doubt == "like nothing known" and like.startswith("it has"):  # it was labelled since
            parts[-1] += ", but " + like.removeprefix("it ")
        else:
            parts.append(like)
    return "; ".join(parts) + "."


def _like(nearest: "Sequence[Neighbour]", metric: str) -> str:
    """Return what the object is like: the nearest known object, how near it is, and other labels."""
    closest, counts = nearest[0], Counter(each.label for each in nearest)
    labels = list(
        dict.fromkeys(each.label for each in nearest if each.distance <= closest.distance + _AS_NEAR)
    )
    same = closest.distance == 0 and metric != "cosine"  # which is 0 for multiples, too
    like = "closest to" if len(labels) == 1 else "equally close to"
    when = "" if closest.time is None or len(labels) > 1 else f" of {closest.time}"
    notes = [] if same else [f"distance {closest.distance:.3f}"]
    if len(counts) > 1:
        notes.append(_mixed(counts, labels[0] if len(labels) == 1 else None))
    more = f" ({'; '.join(notes)})" if notes else ""
    return f"{'it has the same features as' if same else like} {' and '.join(map(str, labels))}{when}{more}"


def _mixed(counts: "Counter[Any]", label: Any) -> str:
    """Return how many of the nearest have a label, by default the most common one; or that labels tie."""
    (first, most), *others = counts.most_common()
    total = sum(counts.values())
    if others[0][1] == most:
        listed = ", ".join(f"{n} {each}" for each, n in [(first, most), *others])
        return f"the {total} nearest are divided: {listed}"
    label = first if label is None else label
    return f"{counts[label]} of the {total} nearest {'is' if counts[label] == 1 else 'are'} {label}"


def _verdict(found: Mapping[str, Any], within_budget: bool) -> str:
    label, accepted = found["label"], found["accepted"]
    called = f"Accepted: called {label};" if accepted else f"Doubted: called {label}, but"
    if found["votes"] is not None and not within_budget:
        votes, folds = found["votes"]
        needed = f" ({found['requirements'][0].needs:.0f} needed)" if found["requirements"] else ""
        return f"{called} {votes or 'none'} of {folds} folds accept{'s' if votes < 2 else ''} it{needed}"
    if not found["p_values"]:
        return f"{called} with a credibility of {found['credibility']:.3g}"
    short = [each.what for each in found["requirements"] if each.has < each.needs]
    breaks_tie = within_budget and len(found["requirements"]) > 1
    if short == ["confidence"] and not breaks_tie:
        return f"{called} another class fits too well"
    if within_budget and not accepted:
        called += " among the least trusted of its period:"
    has, needs = found["credibility"], _needed_credibility(found)
    only = "only " if not accepted and 0 < has < 0.5 else ""
    of_class = "" if found["pooled"] else " of that class"
    looks = in_words(has, f"calibration objects{of_class}", needs)
    needed = "" if needs is None else f" ({_in_many(needs, _base(has, needs))} needed)"
    return f"{called} {only}{looks} at least as strange{needed}"


def _needed_credibility(found: Mapping[str, Any]) -> float | None:
    """Return the threshold that a rejected object misses, if it is one of credibility."""
    missed = [each for each in found["requirements"] if each.has < each.needs]
    if found["accepted"] or not missed or missed[0].what != "credibility":
        return None
    return float(missed[0].needs)


def _other_class(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the class that fits best, if that is not the label of a rejected object."""
    if not found["p_values"] or found["accepted"]:
        return
    best = max(found["p_values"], key=found["p_values"].__getitem__)
    own, other = found["p_values"][found["label"]], found["p_values"][best]
    if other > own:
        yield f"{best} fits better (p-value {figure(other)} against {figure(own)})"


def in_words(share: float, what: str, other: float | None = None) -> str:
    """Return a share of objects as a number in a hundred or more, with a verb: 3 in 1,000 objects look.

    The number is as precise as it takes to tell the share from the ``other``.
    """
    if share <= 0:
        return f"no {what.replace('objects', 'object')} looks"
    if share >= 1:
        return f"all {what} look"
    base = _base(share, other)
    count = round(share * base)
    if count == base:
        return f"almost all {what} look"
    return f"{_in_many(share, base)} {what} look{'s' if count <= 1 else ''}"


def _base(share: float, other: float | None) -> int:
    for base in (100, 1000):
        count = round(share * base)
        if (share * base >= 1 or share <= 0) and (other is None or count != round(other * base)):
            return base
    return 10_000


def _in_many(share: float, base: int) -> str:
    return f"{round(share * base) or 'less than 1'} in {base:,}"


def figure(p: float) -> str:
    """Return a p-value or share with three digits."""
    return "0" if p == 0 else f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"


def as_text(why: "Explanation") -> str:
    """Return the sentence and its numbers."""
    blocks = [
        textwrap.fill(why.sentence, WIDTH),
        "\n".join(f"{name:<11}{said}" for name, said in _facts(why)),
    ]
    for title, listing, notes in _listings(why):
        below = [textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in notes]
        blocks.append("\n".join([title, listing.as_text(), *below]))
    return visible("\n\n".join(block for block in blocks if block), keep="\n")


def as_html(why: "Explanation") -> str:
    """Return the sentence and its numbers for a notebook."""
    facts = "".join(f"<li>{html.escape(name)}: {html.escape(said)}</li>" for name, said in _facts(why))
    tables = "".join(listing.as_html(title, notes) for title, listing, notes in _listings(why))
    return f"<div><p><strong>{html.escape(why.sentence)}</strong></p><ul>{facts}</ul>{tables}</div>"


def campaign_as_html(campaign: "Campaign") -> str:
    """Return a campaign's sentence, its ids and the features that its members share, for a notebook."""
    facts = {"id": campaign.id, "medoid": f"object {campaign.medoid}"}
    facts |= {"split from": campaign.split_from} if campaign.split_from is not None else {}
    facts |= {"joined by": some(campaign.merged, _MAX_NAMES)} if campaign.merged else {}
    items = "".join(f"<li>{name}: {html.escape(visible(said))}</li>" for name, said in facts.items())
    rows = [
        (shorten(visible(feature.name), 60), f"{feature.share_of_rest:.1%}") for feature in campaign.features
    ]
    shared = Listing(["feature", "of the rest"], rows).as_html("what all members have") if rows else ""
    said = html.escape(visible(str(campaign)))
    return f"<div><p><strong>{said}</strong></p><ul>{items}</ul>{shared}</div>"


def _facts(why: "Explanation") -> Iterator[tuple[str, str]]:
    if why.doubt is not None and not why.accepted:
        yield "doubt", why.doubt
    if why.p_values:
        yield "p-values", _p_values(why.p_values)
    for name, p_values in why.members.items():
        yield "  by", f"{name} ({_p_values(p_values)})"
    for needed in why.requirements:
        digits = ".0f" if needed.what == "votes" else ".4g"
        is_p_value = needed.what == "credibility" and why.p_values
        what = f"credibility (the p-value of {why.label})" if is_p_value else needed.what
        has = f"{needed.has:{digits}}"
        if needed.has == needed.needs and not why.accepted and len(why.requirements) == 1:
            has = "as much, but the budget does not accept all that have"
        yield "needed", f"{what}: at least {needed.needs:{digits}}; it has {has}"


def _p_values(p_values: Mapping[Any, float]) -> str:
    ordered = sorted(p_values.items(), key=lambda each: -each[1])
    return some([f"{label}: {figure(p)}" for label, p in ordered], _MAX_NAMES)


def _listings(why: "Explanation") -> Iterator[tuple[str, Listing, list[str]]]:
    if why.nearest:
        yield _nearest(why)
    if why.strange:
        rows = [
            [
                each.name,
                _value(each.value),
                _value(each.usual),
                f"{each.n_alike} of {why.n_compared}",
                _signed(each.effect),
            ]
            for each in why.strange
        ]
        title = (
            f"unusual values, compared with the {why.n_compared} nearest known objects labelled {why.label}"
        )
        yield title, Listing(["feature", "here", "usual", "alike", "makes it stranger by"], rows), []
    if why.score is not None:
        yield _of_score(why)


def _nearest(why: "Explanation") -> tuple[str, Listing, list[str]]:
    rows = [
        [
            str(each.label),
            each.time or "–",
            f"{each.distance:.3f}",
            str(each.position if each.id is None else each.id),
        ]
        for each in why.nearest
    ]
    notes = []
    for said, names in (("only here", why.only_here), ("only there", why.only_there)):
        if names:
            notes.append(f"{said}: {some([shorten(name, 60) for name in names], _MAX_NAMES)}")
    named = "position" if why.nearest[0].id is None else "id"
    distance = "distance by columns" if why.metric == "columns" else f"{why.metric} distance"
    return "nearest known objects", Listing(["label", "time", distance, named], rows), notes


def _of_score(why: "Explanation") -> tuple[str, Listing, list[str]]:
    score = why.score
    assert score is not None
    rows = [
        [each.name, _value(each.value), _signed(each.amount)]
        for each in [*score.speak_for, *score.speak_against]
    ]
    if score.others:
        rows.append(["all other features", "", _signed(score.others)])
    if score.rest:
        rows.append(["not explained by single features", "", _signed(score.rest)])
    rows.append([f"start: {_BASES[score.base_of]}", "", _signed(score.base)])
    rows.append([f"= {score.of}", "", _signed(score.score)])
    sides = f"{why.label} (+) and for {score.against} (-)"
    title = f"what speaks for {sides} in the detector's score, {_METHODS[score.method]}"
    return title, Listing(["feature", "value", "amount"], rows), []


def _signed(amount: float | None) -> str:
    return "–" if amount is None else f"{amount:+.3g}"


def _value(value: Any) -> str:
    if value is None:
        return "missing"
    return f"{value:.5g}" if isinstance(value, float) else shorten(value, 30)
