"""Requests and responses of the API."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from transcendent._utils.dates import as_moment
from transcendent.gate.features import LONGEST_ID
from transcendent.gate.members import LOOKS_NEEDED
from transcendent.gate.quarantine import LONGEST_LABEL, LONGEST_NOTE, MAX_CLAIMED

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
Label = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_LABEL, pattern=_PRINTABLE)]
Short = Annotated[str, StringConstraints(max_length=LONGEST_LABEL, pattern=_PRINTABLE)]
Note = Annotated[str, StringConstraints(max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")]
ItemId = Annotated[int, Field(ge=0, lt=2**63)]
ObjectId = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_ID, pattern=_PRINTABLE)]
CampaignId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{1,64}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{0,64}$")]
Number = float | None
Cell = bool | float | str | None
Answer = str | int | float | bool
Moment = Annotated[datetime, BeforeValidator(as_moment)]


class Message(BaseModel):
    """A request body without undeclared fields."""

    model_config = ConfigDict(extra="forbid")


class Sent(Message):
    """An object to decide about, and what analysts are shown beside its features."""

    id: ObjectId
    context: dict[str, Any] | None = None
    seen_at: datetime | None = None


class Dense(Sent):
    """An object with one value per feature."""

    values: list[Number]


class Sparse(Sent):
    """An object with the features that are not zero."""

    positions: list[Annotated[int, Field(ge=0)]]
    values: list[Number]


class Named(Sent):
    """An object with values by feature name."""

    features: dict[str, Cell]


class Scored(Sent):
    """An object with a detector's scores by column, its label, and features to show."""

    scores: dict[str, float]
    label: str | float | bool | None = None
    features: dict[str, Cell] | None = None


class DecideRequest(Message):
    """Objects to decide about."""

    objects: list[Dense | Sparse | Named | Scored]


def objects_schema() -> dict[str, Any]:
    """Return the schema of `DecideRequest` without references, whose targets the OpenAPI document lacks."""
    schema = DecideRequest.model_json_schema()
    schema["properties"]["objects"]["items"]["anyOf"] = list(schema.pop("$defs").values())
    return schema


class Decision(BaseModel):
    """The detector's label for an object, and whether to trust it."""

    id: str
    label: str | int | float | bool
    accepted: bool
    credibility: float
    confidence: float
    votes: int | None
    doubt: str | None
    kept: bool = True
    outside: list[str | int] | None = None


class Decided(BaseModel):
    """Decisions in the order of the objects, and the cutoff by which a budget made them.

    If ``observed``, all objects are answered as accepted.
    """

    model: str
    cutoff: int | None = None
    observed: bool = False
    decisions: list[Decision]


class FieldError(BaseModel):
    """A problem with a field."""

    field: str
    message: str
    id: str | None = None


class ProblemDetails(BaseModel):
    """Why a request failed. ``decisions`` has those that could be made, and null for bad objects."""

    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None
    model: str | None = None
    cutoff: int | None = None
    observed: bool = False
    decisions: list[Decision | None] | None = None


class Claim(Message):
    """The number of items to claim, and whether to include those that the caller has skipped.

    With ``opinions``, items that have a label and want the opinion of another analyst. With ``campaign``,
    members of it that chance draws, of contents that have no label; by default three.
    """

    count: int = Field(1, ge=1, le=MAX_CLAIMED)
    skipped: bool = False
    opinions: bool = False
    campaign: CampaignId | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "Claim":
        if self.opinions and self.campaign is not None:
            raise ValueError("give one of opinions and campaign")
        if self.campaign is not None and "count" not in self.model_fields_set:
            self.count = LOOKS_NEEDED
        return self


class Items(Message):
    """Items of the quarantine; null means all that are held."""

    items: list[ItemId] | None = Field(None, max_length=1000)


class Skip(Message):
    """Why an item is skipped."""

    reason: Short | None = None
    note: Note | None = None


class Resolve(Skip):
    """A label, and the reason for it."""

    label: Label


class LabelFromOutside(Message):
    """Another system's label of an item, or of the kept objects with an id."""

    item: ItemId | None = None
    object_id: ObjectId | None = None
    sender: ObjectId | None = None
    label: Label
    source: Annotated[Short, StringConstraints(min_length=1)]
    reason: Short | None = None
    teach: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> "LabelFromOutside":
        if (self.item is None) == (self.object_id is None):
            raise ValueError("give one of item and object_id")
        return self


class Undo(Message):
    """Why a label or a skip is taken back."""

    note: Note | None = None


class Action(BaseModel):
    """An entry in an item's history.

    If nobody gave the label, ``inferred`` is how it follows, and ``inferred_from`` has the items from whose
    labels.
    """

    id: int
    action: str
    label: str | None
    reason: str | None
    note: str | None
    author: str
    written_at: datetime
    inferred: str | None = None
    inferred_from: list[int] | None = None


class CampaignOfItem(BaseModel):
    """The campaign of an item: how many contents it has, and how many that chance draws are opened."""

    id: str
    contents: int
    opened: int
    needed: int


class SuggestedLabel(BaseModel):
    """The label of the nearest resolved item: who gave it, when, and how far away the item is.

    The distance is 0 for the same features, and below 1 for rows of zeros and ones that share some. If
    ``contested``, people have given items with the same features as that one different labels.
    """

    label: str
    author: str
    labelled_at: datetime
    distance: float
    item: int
    contested: bool


class Item(BaseModel):
    """An object in the quarantine.

    Features are given by name: all, or if there are many those that are not zero, and ``more_features`` is
    the number of those left out. If the model has no names, they are given by position. If the model judges
    scores, ``scores`` has them, and features are those that were sent to be shown. ``copies`` is the number
    of other waiting items with the same features, up to 10,000, which get the label of this one.

    While ``blind``, the item checks answers, and an analyst sees neither the decision nor what belongs to it.
    """

    id: int
    object_id: str
    sender: str
    received_at: datetime
    holder: str | None
    held_until: datetime | None
    predicted: str | None
    accepted: bool | None
    audit: bool
    blind: bool = False
    labelled: bool
    closed: bool
    credibility: float | None
    confidence: float | None
    votes: int | None
    doubt: str | None
    p_values: dict[str, float] | None
    probability: float | None
    model: str
    cutoff: int | None
    classes: list[str | int | float | bool]
    positions: list[int] | None
    values: list[Number] | None
    scores: dict[str, float] | None
    features: dict[str, Cell] | None
    more_features: int
    context: dict[str, Any] | None
    seen_at: datetime | None
    copies: int | None = 0
    campaign: CampaignOfItem | None = None
    suggestion: SuggestedLabel | None = None


class OutsideLabelled(BaseModel):
    """A label of another system, and whether the item has it now; otherwise it is only recorded."""

    item: int
    label: str
    source: str
    reason: str | None
    teach: bool
    author: str
    written_at: datetime
    settled: bool


class Opinion(BaseModel):
    """Another analyst's label of an item."""

    label: str
    author: str
    written_at: datetime


class ShownItem(Item):
    """An object in the quarantine, with its last actions, and the opinions that the caller may see.

    ``earlier`` is the number of actions and labels of other systems before those that are listed.
    """

    history: list[Action]
    outside: list[OutsideLabelled]
    earlier: int = 0
    opinions: list[Opinion] = []


class NearObject(BaseModel):
    """A labelled object that an item is like; ``item`` is null for those of the reference file."""

    item: int | None
    position: int
    id: str | None
    label: Answer
    time: str | None
    distance: float


class RequiredValue(BaseModel):
    """A value that decided: what the item has, and the least that is accepted."""

    what: str
    has: float
    needs: float


class UnusualValue(BaseModel):
    """An unusual value of an item; ``effect`` is how much stranger it makes the item."""

    name: str
    value: Cell
    usual: Cell
    n_alike: int
    effect: float | None


class ScorePart(BaseModel):
    """The part of the detector's score that a feature contributes."""

    name: str
    value: Cell
    amount: float | None


class DetectorScore(BaseModel):
    """The detector's score for the label against another class, and the features that make most of it."""

    method: str
    of: str
    base_of: str
    against: Answer
    score: float | None
    base: float | None
    speak_for: list[ScorePart]
    speak_against: list[ScorePart]
    others: float | None
    rest: float | None


class ExplainedItem(BaseModel):
    """Why an item was rejected or accepted: the attributes of an `Explanation`, and the same as ``text``.

    ``notes`` say what is missing, and why. While the item is ``blind``, there is nothing else.
    """

    item: int
    object_id: str
    model: str
    blind: bool = False
    sentence: str | None
    label: Answer | None
    accepted: bool | None
    credibility: float | None
    confidence: float | None
    doubt: str | None
    p_values: dict[str, float | None]
    members: dict[str, dict[str, float | None]]
    pooled: bool | None
    votes: tuple[int, int] | None
    requirements: list[RequiredValue]
    metric: str | None
    nearest: list[NearObject]
    only_here: list[str]
    only_there: list[str]
    n_compared: int | None
    strange: list[UnusualValue]
    score: DetectorScore | None
    notes: list[str]
    text: str


class ClaimedItems(BaseModel):
    """Claimed items, and the number of further items that the caller may hold.

    If there are fewer than requested, ``held`` and ``next_free`` tell what others hold and until when.
    """

    items: list[Item]
    room: int
    held: int
    next_free: datetime | None


class KeptObject(BaseModel):
    """What became of an object. ``item`` and ``inferred_from`` are null for clients.

    If nobody gave the label, ``inferred`` is how it follows: ``copy``, ``campaign`` or ``settled``.
    ``predicted`` and ``label`` are null for analysts who are to label an object with this id that checks
    answers.
    """

    item: int | None
    object_id: str
    sender: str
    received_at: datetime
    predicted: str | None
    model: str
    state: Literal["waiting", "held", "labelled", "closed"]
    label: str | None
    labelled_at: datetime | None
    inferred: str | None = None
    inferred_from: list[int] | None = None


class ItemIds(BaseModel):
    """Ids of items."""

    items: list[int]


class QueueCounts(BaseModel):
    """The numbers of items that wait, in all and by tier, are held, have labels, and are closed.

    Copies wait with another item, which has the same features, and get its label.
    Items that are held for a second opinion have a label, and count as held, too.
    ``over`` is the number of rejected objects that were not kept, because of `max_kept`. ``in_campaigns`` is
    the number of contents that wait in ``campaigns``: items with the same features are one.
    """

    waiting: int
    audit: int
    rejected: int
    skipped: int
    copies: int
    held: int
    labelled: int
    closed: int
    over: int
    campaigns: int
    in_campaigns: int


class ListedCampaign(BaseModel):
    """A campaign: what it looks like, and what people have found out about it.

    ``waiting`` counts its items that wait, with ``copies``. ``unlike`` counts members that were drawn and
    got a label that is no class or that another system gave: others are opened in their place. ``labels``
    counts those that people gave its contents. ``label`` is the one that it can be given now; if none,
    ``missing`` says why. ``proves`` is what the opened members prove.
    """

    id: str
    described: dict[str, Any]
    found_at: datetime
    waiting: int
    copies: int
    contents: int
    opened: int
    needed: int
    unlike: int
    labels: dict[str, int]
    label: str | None
    missing: str | None
    proves: str | None


class CampaignLabelled(BaseModel):
    """The number of items that got a label as members of a campaign, or lost it if there is no label."""

    campaign: str
    label: str | None
    items: int


class Event(BaseModel):
    """What happened. ``data`` has the item's number, what its row still holds, and what was done."""

    id: str
    type: str
    timestamp: datetime
    data: dict[str, Any]


class EventPage(BaseModel):
    """Events, and the id after which the next ones come."""

    events: list[Event]
    next: str


class Limits(BaseModel):
    """Limits on the objects and bytes of a request."""

    objects: int
    bytes: int


class Served(BaseModel):
    """The model that decides, and its deployment. If ``observed``, all objects are answered as accepted."""

    digest: str
    deployment: int | None
    observed: bool
    rejector: str
    budget: float | None
    classes: list[str | int | float | bool]
    features: dict[str, Any]
    created: str
    limits: Limits


class CutoffMade(BaseModel):
    """What decided: objects that rank lower were rejected, and a share of those that tie with it.

    Without a rank, all objects tied. ``decided`` and ``rejected`` are the counts that it was made from.
    """

    number: int
    model: str
    rank: float | None
    second: float | None
    share: float
    decided: int
    rejected: int
    made_at: datetime


class Health(BaseModel):
    """Whether the gate is alive or ready."""

    status: str
