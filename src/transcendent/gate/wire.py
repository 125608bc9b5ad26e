"""Requests and responses of the API."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from transcendent.gate.features import LONGEST_ID
from transcendent.gate.quarantine import LONGEST_LABEL, LONGEST_NOTE, MAX_CLAIMED

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
Label = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_LABEL, pattern=_PRINTABLE)]
Short = Annotated[str, StringConstraints(max_length=LONGEST_LABEL, pattern=_PRINTABLE)]
Note = Annotated[str, StringConstraints(max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")]
ItemId = Annotated[int, Field(ge=0, lt=2**63)]
ObjectId = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Number = float | None


class Message(BaseModel):
    """A request body without undeclared fields."""

    model_config = ConfigDict(extra="forbid")


class Dense(Message):
    """An object with one value per feature."""

    id: ObjectId
    values: list[Number]


class Sparse(Message):
    """An object with the features that are not zero."""

    id: ObjectId
    positions: list[Annotated[int, Field(ge=0)]]
    values: list[Number]


class Named(Message):
    """An object with values by feature name."""

    id: ObjectId
    features: dict[str, Number]


class DecideRequest(Message):
    """Objects to decide about."""

    objects: list[Dense | Sparse | Named]


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


class Decided(BaseModel):
    """Decisions in the order of the objects."""

    model: str
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
    decisions: list[Decision | None] | None = None


class Claim(Message):
    """The number of items to claim, and whether to include those that the caller has skipped."""

    count: int = Field(1, ge=1, le=MAX_CLAIMED)
    skipped: bool = False


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


class Undo(Message):
    """Why a label or a skip is taken back."""

    note: Note | None = None


class Action(BaseModel):
    """An entry in an item's history."""

    id: int
    action: str
    label: str | None
    reason: str | None
    note: str | None
    author: str
    written_at: datetime


class Item(BaseModel):
    """An object in the quarantine."""

    id: int
    object_id: str
    sender: str
    received_at: datetime
    holder: str | None
    held_until: datetime | None
    predicted: str
    accepted: bool
    audit: bool
    labelled: bool
    credibility: float
    confidence: float
    votes: int | None
    doubt: str | None
    p_values: list[float] | None
    probability: float
    model: str
    classes: list[str | int | float | bool]
    positions: list[int]
    values: list[Number]


class ShownItem(Item):
    """An object in the quarantine, with its history."""

    history: list[Action]


class ClaimedItems(BaseModel):
    """Claimed items, and the number of further items that the caller may hold.

    If there are fewer than requested, ``held`` and ``next_free`` tell what others hold and until when.
    """

    items: list[Item]
    room: int
    held: int
    next_free: datetime | None


class ItemIds(BaseModel):
    """Ids of items."""

    items: list[int]


class QueueCounts(BaseModel):
    """The numbers of items that wait, in all and by tier, are held, and have labels."""

    waiting: int
    audit: int
    rejected: int
    skipped: int
    held: int
    labelled: int


class Served(BaseModel):
    """The model that decides."""

    digest: str
    rejector: str
    classes: list[str | int | float | bool]
    features: dict[str, Any]
    created: str


class Health(BaseModel):
    """Whether the gate is alive or ready."""

    status: str
