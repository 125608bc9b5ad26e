"""Explanations of items: what was decided and why, beside labelled objects that are alike.

They are computed on request, one at a time, in a thread and with a copy of the model, so that no decision
waits for one.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import structlog
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from transcendent._utils.text import shorten
from transcendent.decisions import Decisions, RankedBy, declared
from transcendent.errors import TranscendentError
from transcendent.explaining import Explanation, explain
from transcendent.explaining.explanation import Requirement
from transcendent.explaining.known_objects import TELLS_USUAL
from transcendent.gate.batcher import Batcher
from transcendent.gate.blinding import blind_explanation
from transcendent.gate.bodies import RefusedError
from transcendent.gate.known_items import ComparedObjects, KnownItems, takes_sparse
from transcendent.gate.model import Model, load_model
from transcendent.gate.quarantine import ConflictError, NoItemError, Quarantine
from transcendent.gate.reference import reference_of, rows_from
from transcendent.gate.settings import GateSettings
from transcendent.gate.stored import NotStoredError, load_stored
from transcendent.tables.bad_rows import first_line

MAX_WAITING = 8
"""Limit on the requests for explanations that wait."""
MAX_EACH = 2
"""Limit on those of one analyst."""
LOAD_EVERY = 60.0
"""Seconds between two loads of models that the gate does not serve: each takes seconds of a core."""
_LONGEST_REST = 1.0  # seconds of rest after an explanation, as long as it took
_MAX_MODELS = 2  # copies that are kept
_MAX_LISTED, _LONGEST = 200, 300  # entries of a list and characters of a text in an answer

_ITEM = """
SELECT item.model AS number, model.digest, object_id, payload.label, accepted, credibility, confidence, votes,
    doubt, p_values, payload.features, payload.cutoff, cutoff.number AS found, cutoff.rank, cutoff.second,
    cutoff.share
FROM item JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model
LEFT JOIN cutoff ON cutoff.number = payload.cutoff WHERE item.id = :item AND payload.id = :item
"""
_WAITS = "SELECT EXISTS (SELECT FROM item WHERE id = ANY(:items) AND state = 0)"
_SCORES_ONLY = (
    "This model judges a detector's scores: it has no features to compare with labelled objects, or to weigh."
)
_FEW_KNOWN = (
    f"Fewer than {TELLS_USUAL} labelled objects, or one class of them, do not tell what is usual: the "
    "detector's score is not compared with usual values."
)
_NOTHING_KNOWN = "There is no labelled object with these columns to compare with."

log = structlog.get_logger("transcendent.gate")


class _CutoffRule(NamedTuple):
    """What a cutoff required of an object, and a note about it; None if thresholds decided."""

    requirements: list[Requirement] | None
    note: str | None = None


class ItemExplainer:
    """Explains the decisions about items, as they are stored.

    ``served`` returns the models that are loaded, and ``load`` loads the one with a number from the database.
    One thread at a time may use it.
    """

    def __init__(
        self,
        engine: Engine,
        quarantine: Quarantine,
        known: KnownItems,
        served: Callable[[], Iterable[Model]],
        load: Callable[[int], Model],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._quarantine, self._known = engine, quarantine, known
        self._served, self._load, self._clock = served, load, clock
        self._models: dict[str, Model] = {}
        self._loaded_at = -math.inf

    def explain(self, item: int, who: str | None = None) -> dict[str, Any]:
        """Return the explanation of an item as JSON values; ``who`` is an analyst who may not see all labels.

        If a label was undone, or has become hidden from the analyst, since labels were read, they are read
        again.
        """
        with self._engine.connect() as connection:
            row = connection.execute(text(_ITEM), {"item": item}).mappings().first()
        if row is None:
            raise NoItemError(f"item {item} does not exist.")
        about = {"item": item, "object_id": row["object_id"], "model": row["digest"]}
        if self._quarantine.blind_items([item], who):
            return {**about, **blind_explanation()}
        model = self._model(item, row["number"], row["digest"])
        for again in (False, True):
            compared = self._known.of(model, who, again=again)
            why, notes = _explained(item, row, model, compared)
            near = [compared.items[each.position] for each in why.nearest]
            shown = [each for each in near if each is not None]
            if not self._outdated(who, shown):
                break
        told = _bounded(why.to_dict())
        for each, own in zip(told["nearest"], near, strict=True):
            each["item"] = own
        return {**about, **told, "blind": False, "notes": notes, "text": "\n\n".join([str(why), *notes])}

    def _outdated(self, who: str | None, items: list[int]) -> bool:
        """Return whether one of the items has no label any more, or one that the reader must not see."""
        with self._engine.connect() as connection:
            waits = bool(connection.execute(text(_WAITS), {"items": items}).scalar_one())
        return waits or bool(self._quarantine.hidden_from(who, items))

    def _model(self, item: int, number: int, digest: str) -> Model:
        """Return a copy of the model that decided an item; load it if it is not served."""
        if digest not in self._models:
            served = next((each for each in self._served() if each.digest == digest), None)
            # A copy, since the model decides in one thread at a time, and no decision may wait.
            made = self._other(item, number, digest) if served is None else _copied(served)
            while len(self._models) >= _MAX_MODELS:
                del self._models[next(iter(self._models))]
            self._models[digest] = made
        return self._models[digest]

    def _other(self, item: int, number: int, digest: str) -> Model:
        if (wait := self._loaded_at + LOAD_EVERY - self._clock()) > 0:
            raise RefusedError(
                503, f"model {digest[:12]} is not served and must be loaded: try again in {wait:.0f} seconds."
            )
        self._loaded_at = self._clock()
        try:
            return self._load(number)
        except NotStoredError:
            there = ", ".join(each.digest[:12] for each in self._served()) or "none"
            raise ConflictError(
                f"item {item} was decided by model {digest[:12]}, whose artifact is not in the database, nor "
                f"served or given (these are: {there}). Store it with 'transcendent gate model add FILE', or "
                f"name it: transcendent gate quarantine explain {item} --artifact FILE."
            ) from None
        except TranscendentError as error:
            raise ConflictError(
                f"item {item} was decided by model {digest[:12]}, which this gate does not serve and cannot "
                f"load: {error!s:.300}"
            ) from None


def explain_once(engine: Engine, settings: GateSettings, item: int) -> dict[str, Any]:
    """Return the explanation of an item, with the artifact of the settings or else one of the database."""
    quarantine = Quarantine(engine)
    known = KnownItems(engine, quarantine, reference_of(settings))
    access = settings.trusted, settings.public_key
    served = [] if settings.artifact is None else [load_model(settings.artifact, *access)]
    explainer = ItemExplainer(
        engine, quarantine, known, lambda: served, lambda number: load_stored(engine, number, *access)
    )
    return explainer.explain(item)


def _copied(model: Model) -> Model:
    return replace(model, rejector=deepcopy(model.rejector), observer=None, lock=Lock())


def _explained(item: int, row: Any, model: Model, compared: ComparedObjects) -> tuple[Explanation, list[str]]:
    """Return the explanation of a stored decision, and what else there is to say.

    Known objects that the model cannot decide are left out.
    """
    notes = [] if compared.problem is None else [compared.problem]
    if model.scores is not None:
        notes.append(_SCORES_ONLY)
    elif compared.known is None:
        notes.append(_NOTHING_KNOWN)
    itself = compared.items.index(item) if item in compared.items else None
    rows = rows_from(model.layout, [bytes(row["features"])], sparse=takes_sparse(model))
    try:
        if model.scores is not None:
            rows, _ = model.scores.read(rows)
        decisions = _stored_decisions(row, model, rows)
        rule = _rule(row, decisions)
        notes += [] if rule.note is None else [rule.note]
        given: dict[str, Any] = {"names": model.layout.names_to_show, "decisions": decisions}
        given["requirements"] = rule.requirements
        if compared.known is not None:
            try:
                why = explain(model.rejector, rows, 0, compared.known, itself=itself, **given)
                return why, notes if compared.known.tells_usual else [*notes, _FEW_KNOWN]
            except ValueError as error:
                notes.append(f"It is not compared with labelled objects: {first_line(error)}")
        return explain(model.rejector, rows, 0, **given), notes
    except (ValueError, TypeError) as error:
        raise ConflictError(f"item {item} cannot be explained: {first_line(error)}") from error


def _stored_decisions(row: Any, model: Model, rows: Any) -> Decisions:
    """Return the decision that is stored, which may be that of a cutoff."""
    classes = np.asarray(declared(model.rejector).fitted.classes)
    code = list(map(str, classes.tolist())).index(row["label"])
    p_values = None if row["p_values"] is None else np.frombuffer(row["p_values"], dtype="<f8")[None]
    # Only a cutoff ranks objects. How, is not stored.
    ranked_by: RankedBy = "credibility" if row["cutoff"] is None else model.rejector.decide(rows).ranked_by
    return Decisions(
        labels=classes[[code]],
        accepted=np.array([row["accepted"]]),
        credibility=np.array([row["credibility"]]),
        confidence=np.array([row["confidence"]]),
        classes=classes,
        p_values=p_values,
        votes=None if row["votes"] is None else np.array([row["votes"]]),
        ranked_by=ranked_by,
        doubts=None if row["doubt"] is None else np.array([row["doubt"]]),
    )


def _rule(row: Any, decisions: Decisions) -> _CutoffRule:
    """Return what the cutoff required that decided an item; ties are broken by the other rank, then drawn."""
    number = row["cutoff"]
    if number is None:
        return _CutoffRule(None)
    if row["found"] is None:
        return _CutoffRule([], f"Cutoff {number}, which decided, is no longer stored.")
    if row["rank"] is None:
        return _CutoffRule(
            [], f"Cutoff {number} rejected {row['share']:.1%} of all objects, whatever their rank."
        )
    names = [decisions.ranked_by, "confidence" if decisions.ranked_by == "credibility" else "credibility"]
    has = [float(decisions.ranking[0]), float(decisions.second_ranking[0])]
    first, second = (
        Requirement(*each) for each in zip(names, has, (row["rank"], row["second"]), strict=True)
    )
    if has[0] != row["rank"]:
        return _CutoffRule([first])
    if has[1] != row["second"]:
        return _CutoffRule([first, second])
    drawn = f"It ties with cutoff {number}, which rejects {row['share']:.1%} of such objects by a draw."
    return _CutoffRule([first, second], drawn)


def _bounded(value: Any, longest: int = _LONGEST) -> Any:
    """Return JSON values with long texts shortened, and long lists cut."""
    if isinstance(value, str):
        return shorten(value, longest)
    if isinstance(value, list):
        return [_bounded(each) for each in value[:_MAX_LISTED]]
    if not isinstance(value, dict):
        return value
    return {name: _bounded(each, 1000 if name == "sentence" else _LONGEST) for name, each in value.items()}


@dataclass(eq=False)
class _Wanted:
    """A request for an explanation."""

    item: int
    who: str | None
    future: "asyncio.Future[dict[str, Any]]"


class Explanations:
    """Explains items in a thread of its own, one at a time; requests beyond a few are refused."""

    def __init__(self, explainer: ItemExplainer, timeout: float) -> None:
        self._explainer, self._timeout = explainer, timeout
        self._waiting: list[_Wanted] = []
        self._lock = Lock()
        self._thread = Batcher(self._work, lambda _: 1, 1, "explain")

    async def of(self, item: int, who: str | None) -> dict[str, Any]:
        """Return the explanation of an item, as `ItemExplainer.explain` does, or raise `RefusedError`."""
        request = _Wanted(item, who, asyncio.get_running_loop().create_future())
        self._put(request)
        try:
            return await asyncio.wait_for(request.future, self._timeout)
        except TimeoutError:
            raise RefusedError(
                503, f"there was no explanation within {self._timeout:g} seconds: try again later."
            ) from None

    def _put(self, request: _Wanted) -> None:
        """Add a request; operators, who have no name here, share all places."""
        with self._lock:
            own = sum(each.who == request.who for each in self._waiting)
            if len(self._waiting) >= MAX_WAITING:
                raise RefusedError(503, "too many explanations are waiting: try again later.")
            if request.who is not None and own >= MAX_EACH:
                raise RefusedError(503, f"{own} explanations for you are waiting: try again later.")
            self._waiting.append(request)
        self._thread.put([request])

    def _work(self, requests: list[_Wanted]) -> None:
        for each in requests:
            began = time.perf_counter()
            with self._lock:
                self._waiting.remove(each)
            if each.future.cancelled():  # it timed out, or its client has left
                continue
            found: dict[str, Any] | Exception
            try:
                found = self._explainer.explain(each.item, each.who)
            except (TranscendentError, RefusedError, SQLAlchemyError) as error:
                found = error
            except Exception as error:
                # Its message may quote an object.
                log.error("an explanation failed", item=each.item, error=type(error).__name__)
                found = ConflictError(
                    f"item {each.item} cannot be explained: a {type(error).__name__} occurred."
                )
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                each.future.get_loop().call_soon_threadsafe(_settle, each.future, found)
            # However many are requested, half of the time is left to decisions, which share the interpreter.
            time.sleep(min(time.perf_counter() - began, _LONGEST_REST))


def _settle(future: "asyncio.Future[dict[str, Any]]", found: dict[str, Any] | Exception) -> None:
    if future.done():
        return
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
