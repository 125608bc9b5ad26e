"""What goes over the wire, as the description of the API has it."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from transcendent.gate.features import LONGEST_ID
from transcendent.gate.quarantine import LONGEST_LABEL, LONGEST_NOTE, MOST_CLAIMED

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
Label = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_LABEL, pattern=_PRINTABLE)]
Short = Annotated[str, StringConstraints(max_length=LONGEST_LABEL, pattern=_PRINTABLE)]
Note = Annotated[str, StringConstraints(max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")]
ItemId = Annotated[int, Field(ge=0, lt=2**63)]
Number = float | None


class Message(BaseModel):
    """A message with nothing in it but what is described."""

    model_config = ConfigDict(extra="forbid")


class Dense(Message):
    """An object with one value a feature."""

    id: str = Field(min_length=1, max_length=LONGEST_ID)
    values: list[Number]


class Sparse(Message):
    """An object with the features that are not zero."""

    id: str = Field(min_length=1, max_length=LONGEST_ID)
    positions: list[Annotated[int, Field(ge=0)]]
    values: list[Number]


class Named(Message):
    """An object with values by the names of features."""

    id: str = Field(min_length=1, max_length=LONGEST_ID)
    features: dict[str, Number]


class Objects(Message):
    """Objects to decide about."""

    objects: list[Dense | Sparse | Named]


def objects_schema() -> dict[str, Any]:
    """Return the schema of `Objects` without references: the body is read by hand, so nothing else has it."""
    schema = Objects.model_json_schema()
    schema["properties"]["objects"]["items"]["anyOf"] = list(schema.pop("$defs").values())
    return schema


class Decision(BaseModel):
    """The detector's answer about an object, and whether to trust it."""

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
    """What is wrong, and where."""

    field: str
    message: str
    id: str | None = None


class Trouble(BaseModel):
    """Why a request was not answered; of decisions, those that could be made (null where none could)."""

    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None
    model: str | None = None
    decisions: list[Decision | None] | None = None


class Claim(Message):
    """How many items to claim, and whether those that the caller has skipped are among them."""

    count: int = Field(1, ge=1, le=MOST_CLAIMED)
    skipped: bool = False


class Items(Message):
    """Items of the quarantine; null means all that are held."""

    items: list[ItemId] | None = Field(None, max_length=1000)


class Resolve(Message):
    """A label, and why."""

    label: Label
    reason: Short | None = None
    note: Note | None = None


class Skip(Message):
    """Why an item is passed on."""

    reason: Short | None = None
    note: Note | None = None


class Undo(Message):
    """Why a label is taken back."""

    note: Note | None = None


class Action(BaseModel):
    """A line of the history of labels."""

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
    """An object in the quarantine, with the history of its labels."""

    history: list[Action]


class ClaimedItems(BaseModel):
    """Claimed items; how many more one may hold; if fewer than asked for, what others hold and until when."""

    items: list[Item]
    room: int
    held: int
    next_free: datetime | None


class ItemIds(BaseModel):
    """Ids of items."""

    items: list[int]


class Counts(BaseModel):
    """How many items wait, by why they do, are held, and have labels."""

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
    """Whether the gate lives, or is ready."""

    status: str
    problem: str | None = None
