"""An item as the desk shows it to the analyst who is to label it."""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from transcendent.explaining.wording import sentence
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.pages.desk_queue import title_of
from transcendent.gate.quarantine import Quarantine

_SCALES = (0.01, 0.1, 1.0)


class PBar(NamedTuple):
    """A p-value of a class as a bar of ``width`` percent, and what acceptance needs as a ``mark``.

    A full bar is a p-value of ``ends``.
    """

    label: str
    p: float
    width: float
    ends: float
    needs: float | None = None
    mark: float | None = None


class DeskItem(NamedTuple):
    """An item, and what its analyst may see and do.

    If ``blind``, what the detector said stays hidden until the analyst has answered. ``why_not`` says why it
    cannot be labelled, ``free`` whether it can be claimed.
    """

    item: dict[str, Any]
    title: str
    blind: bool
    mine: bool
    for_opinion: bool
    free: bool
    why_not: str | None
    left: float
    why: str
    bars: list[PBar]
    features: list[tuple[str, Any]]
    zeros: list[tuple[str, Any]]
    context: list[tuple[str, Any]]
    campaign: dict[str, Any] | None


def desk_item(quarantine: Quarantine, campaigns: CampaignLabels, number: int, who: str) -> DeskItem:
    """Return an item for an analyst; also operators answer before they see the detector's answer."""
    item = quarantine.show(number, who)
    until = item["held_until"]
    left = (until - datetime.now(UTC)).total_seconds() if item["holder"] and until else 0.0
    held_by = item["holder"] if left > 0 else None
    answered = _has_answered(item, who)
    mine = item["holder"] == who and not answered and not item["closed"]
    named = None if item["campaign"] is None else campaigns.get(item["campaign"]["id"])
    free = held_by in (None, who) and not mine and not item["closed"] and not answered
    if free and item["labelled"]:
        free = number in quarantine.hidden_from(who, [number])  # wants another opinion
    features, zeros = _features(item)
    return DeskItem(
        item=item,
        title=title_of(item["object_id"], item["context"]),
        blind=item["blind"],
        mine=mine,
        for_opinion=item["labelled"],
        free=free,
        why_not=None if mine else _why_not(item, who, held_by),
        left=max(0.0, left),
        why="" if item["blind"] else _why(item),
        bars=[] if item["blind"] else bars(item["p_values"] or {}, item["predicted"]),
        features=features,
        zeros=zeros,
        context=[(name, _cell(value)) for name, value in (item["context"] or {}).items()],
        campaign=named,
    )


def _has_answered(item: dict[str, Any], who: str) -> bool:
    if item["blind"] or not item["labelled"]:
        return False
    said = [each["author"] for each in item.get("opinions", [])]
    last = item["history"][-1] if item["history"] else None
    return who in said or (last is not None and (last["author"], last["action"]) == (who, "label"))


def _why_not(item: dict[str, Any], who: str, held_by: str | None) -> str:
    if _has_answered(item, who):
        return "You have labelled this."
    if item["closed"]:
        return "This is closed: its model is retired."
    if held_by is not None and held_by != who:
        return f"{held_by} holds this."
    return "This has a label already." if item["labelled"] else "Nobody holds this."


def _why(item: dict[str, Any]) -> str:
    """Return the decision in a sentence, from what is stored with the item."""
    pooled, budget = True, item["cutoff"] is not None  # is not stored: the sentence says less
    found = {**item, "label": item["predicted"], "requirements": [], "nearest": [], "metric": None}
    found |= {"votes": None, "pooled": pooled, "p_values": item["p_values"] or {}}
    return sentence(found, budget)


def bars(p_values: dict[str, float], predicted: Any, needs: float | None = None) -> list[PBar]:
    """Return p-values as bars of one scale; what acceptance ``needs`` is that of the predicted class."""
    highest = max([needs or 0.0, *(p or 0.0 for p in p_values.values())], default=0.0)
    scale = next((each for each in _SCALES if highest <= each), 1.0)
    found = []
    for label, p in p_values.items():
        own = needs if label == str(predicted) else None
        mark = None if own is None else round(100 * own / scale, 2)
        found.append(PBar(label, p or 0.0, round(100 * (p or 0.0) / scale, 2), scale, own, mark))
    return found


def explained_bars(found: dict[str, Any]) -> list[PBar]:
    """Return the p-values of an explanation as bars, with what acceptance needs."""
    needs = [each["needs"] for each in found["requirements"] if each["what"] == "credibility"]
    return bars(found["p_values"], found["label"], needs[0] if needs else None)


def _features(item: dict[str, Any]) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return the features by name or position, and apart from them those that are zero."""
    named = item["features"]
    if named is None:
        pairs = zip(item["positions"] or (), item["values"] or (), strict=True)
        named = {f"feature {position}": value for position, value in pairs}
    found = [(name, _cell(value)) for name, value in named.items()]
    zeros = [each for each in found if each[1] in (0, "0")]
    return [each for each in found if each[1] not in (0, "0")], zeros


def _cell(value: Any) -> Any:
    if value is None:
        return "–"
    return value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
