"""The desk: where analysts see why objects wait, and label them."""

import re
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from transcendent.errors import TranscendentError
from transcendent.gate import wire
from transcendent.gate.access import Caller
from transcendent.gate.bodies import RefusedError
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.explanations import Explanations
from transcendent.gate.pages.desk_items import DeskItem, desk_item, explained_bars
from transcendent.gate.pages.desk_queue import queue_of
from transcendent.gate.pages.own_actions import (
    followed,
    labelled_today,
    last_to_undo,
    own_actions,
    take_back,
)
from transcendent.gate.pages.web import Form, Visitor, page_router, render, to
from transcendent.gate.quarantine import NoItemError, Quarantine

router = page_router()
_SOURCES = re.compile(r"audit|alone|opinions|campaign:[0-9a-f-]{1,64}|")
_KEYS = "123456789"


class Desk:
    """What the desk's pages need of the gate, for the visitor of a request."""

    def __init__(self, request: Request, caller: Caller) -> None:
        state = request.app.state
        self.request, self.who, self.caller = request, caller.name, caller
        self.engine, self.settings = state.engine, state.settings
        self.quarantine: Quarantine = state.quarantine
        self.campaigns: CampaignLabels = state.campaigns

    def page(self, template: str, done: str = "", undone: str = "", **given: Any) -> Response:
        """Return a page with the analyst's labels today, what they can undo, and what was just done."""
        with self.engine.connect() as connection:
            given["today"] = labelled_today(connection, self.who)
            given["last"] = last_to_undo(connection, self.who)
            said = given["last"] if done else None
            if undone and not undone.isdecimal():
                said = next((each for each in own_actions(connection, self.who, 1)), None)
            given["followed"] = [] if said is None else followed(connection, self.who, said)
        return render(self.request, template, done=done, undone=undone, said=said, **given)

    def item(self, number: int) -> DeskItem:
        """Return an item for the visitor."""
        return desk_item(self.quarantine, self.campaigns, number, self.who)

    def claim_next(self, source: str, **told: str) -> Response:
        """Claim the next item of a source, and lead to it, or to the queue if there is none."""
        given: dict[str, Any] = {"among": source} if source in ("audit", "alone") else {}
        if source == "opinions" and self.settings.opinions > 1:
            given = {"opinions": True}
        elif source.startswith("campaign:"):
            given = {"campaign": source.partition(":")[2]}
        try:
            item = self.quarantine.claim_next(self.who, **given)
        except NoItemError:  # a campaign that has become part of another one
            item = None
        if item is None:
            return to(f"/desk?{urlencode({**told, 'empty': source or 'any'})}")
        return to(_path(item, source, **told))


async def _desk(request: Request, caller: Visitor) -> Desk:
    return Desk(request, caller)  # not in a thread: it only looks


OwnDesk = Annotated[Desk, Depends(_desk)]


def _path(number: int, source: str, **told: str) -> str:
    given = {**({"from": source} if source else {}), **told}
    return f"/desk/items/{number}" + (f"?{urlencode(given)}" if given else "")


def _source(given: str) -> str:
    return given if _SOURCES.fullmatch(given) else ""


From = Annotated[str, Query(alias="from")]
Told = Annotated[str, Query(pattern="^([0-9]{1,9}|answer|item|)$")]


@router.get("/desk")
def queue(
    desk: OwnDesk, only: str = "", empty: str = "", done: Told = "", undone: Told = "", given: Told = ""
) -> Response:
    """Show what waits, by campaign."""
    new = only == "new"
    opinions = desk.settings.opinions > 1
    found = queue_of(desk.engine, desk.quarantine, desk.campaigns, desk.who, opinions=opinions, new=new)
    told = {"done": done, "undone": undone, "given_back": given, "reasons": desk.settings.reasons}
    return desk.page("desk.html", here="/desk", queue=found, new=new, empty=empty, **told)


@router.post("/desk/claim")
def claim(desk: OwnDesk, form: Form) -> Response:
    """Claim the next item in order, and lead to it."""
    return desk.claim_next(_source(form.get("from", "")))


@router.post("/desk/release")
def release(desk: OwnDesk) -> Response:
    """Give back all items that the analyst holds."""
    return to(f"/desk?given={len(desk.quarantine.release(desk.who))}")


@router.get("/desk/mine")
def mine(desk: OwnDesk) -> Response:
    """Show what the analyst has done last."""
    with desk.engine.connect() as connection:
        actions = own_actions(connection, desk.who)
    return desk.page("mine.html", here="/desk/mine", actions=actions)


@router.post("/desk/undo")
def undo(desk: OwnDesk, form: Form) -> Response:
    """Take back an action of the analyst's own, and lead to its item."""
    which = form.get("which", "")
    if not re.fullmatch(r"(item:[0-9]{1,18}|campaign:[0-9a-f-]{1,64}|)", which):
        raise HTTPException(422, "the form does not say what to undo.")
    item, n = take_back(desk.engine, desk.quarantine, desk.campaigns, desk.caller, which)
    if item is None:
        return to(f"/desk?undone={n}")
    return to(_path(item, _source(form.get("from", "")), undone="item"))


@router.get("/desk/items/{item}")
async def show(
    desk: OwnDesk,
    item: wire.ItemId,
    source: From = "",
    explained: bool = False,
    done: Told = "",
    undone: Told = "",
) -> Response:
    """Show an item: why it waits, what it is like, and what can be done with it."""
    why = await _explanation(desk, item) if explained else None
    if why is not None and why["blind"]:
        why = None
    return await run_in_threadpool(_item_page, desk, item, _source(source), why, done=done, undone=undone)


def _item_page(
    desk: Desk, number: int, source: str, explained: dict[str, Any] | None, **told: str
) -> Response:
    found, settings = desk.item(number), desk.settings
    given = {"labels": _labels(desk, found), "reasons": settings.reasons, "lease": settings.lease}
    shown: dict[str, Any] = {"here": "", "found": found, "source": source, "explained": explained}
    return desk.page("desk_item.html", **shown, **given, **told)


def _labels(desk: Desk, found: DeskItem) -> list[tuple[str, str]]:
    """Return the labels in the order of the classes, each with its key."""
    names = dict.fromkeys([*map(str, found.item["classes"]), *desk.settings.labels])
    return [(name, _KEYS[i] if i < len(_KEYS) else "") for i, name in enumerate(names)]


@router.get("/desk/items/{item}/explanation")
async def explain(desk: OwnDesk, item: wire.ItemId) -> Response:
    """Return the part of an item's page that takes longer than the rest."""
    why = await _explanation(desk, item)
    if why["blind"]:
        raise HTTPException(403, "it is explained once you have labelled it.")
    found = await run_in_threadpool(desk.item, item) if why["problem"] else None
    return await run_in_threadpool(render, desk.request, "desk_why.html", found=found, explained=why)


async def _explanation(desk: Desk, item: int) -> dict[str, Any]:
    """Return an explanation, or what is wrong with it."""
    explanations: Explanations = desk.request.app.state.explanations
    try:
        why = await explanations.of(item, desk.who)
    except RefusedError as error:
        return {"problem": error.detail, "blind": False}
    except NoItemError:
        raise
    except TranscendentError as error:
        return {"problem": str(error), "blind": False}
    return {"problem": None, **why, "bars": explained_bars(why)}


@router.post("/desk/items/{item}/claim")
def take(desk: OwnDesk, item: wire.ItemId, form: Form) -> Response:
    """Claim one item."""
    desk.quarantine.take(desk.who, item)
    return to(_path(item, _source(form.get("from", ""))))


@router.post("/desk/items/{item}/renew")
def renew(desk: OwnDesk, item: wire.ItemId) -> Response:
    """Renew the lease of an item, or say why it is lost."""
    if item in desk.quarantine.renew(desk.who, [item]):
        return JSONResponse({"left": desk.settings.lease})
    return JSONResponse({"lost": desk.item(item).why_not})


def _remarks(form: dict[str, str]) -> dict[str, str | None]:
    return {name: form.get(name, "").replace("\r\n", "\n").strip() or None for name in ("reason", "note")}


def _checked(kind: type[wire.Skip], form: dict[str, str], **given: str) -> dict[str, Any]:
    """Return a label with its reason and note, checked as those of the API are."""
    try:
        return TypeAdapter(kind).validate_python(_remarks(form) | given).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        raise HTTPException(422, f"{first['loc'][0]}: {first['msg']}.") from None


@router.post("/desk/items/{item}/label")
def label(desk: OwnDesk, item: wire.ItemId, form: Form) -> Response:
    """Label an item, and go on to the next one."""
    desk.quarantine.resolve(desk.who, item, **_checked(wire.Resolve, form, label=form.get("label", "")))
    return desk.claim_next(_source(form.get("from", "")), done="answer" if "blind" in form else "1")


@router.post("/desk/items/{item}/skip")
def skip(desk: OwnDesk, item: wire.ItemId, form: Form) -> Response:
    """Leave an item to others, and go on to the next one."""
    desk.quarantine.skip(desk.who, item, **_checked(wire.Skip, form))
    return desk.claim_next(_source(form.get("from", "")), done="1")


@router.post("/desk/campaigns/{campaign}/label")
def label_campaign(desk: OwnDesk, campaign: wire.CampaignId, form: Form) -> Response:
    """Label the members of a campaign, also the one that the analyst has open."""
    given = _checked(wire.Resolve, form, label=form.get("all", ""))
    item = form.get("item", "")
    opened = [int(item)] if re.fullmatch(r"[0-9]{1,18}", item) else []
    released = desk.quarantine.release(desk.who, opened)
    try:
        desk.campaigns.resolve(desk.who, campaign, **given)
    except TranscendentError:
        with suppress(TranscendentError):  # somebody else may have claimed it meanwhile
            for each in released:
                desk.quarantine.take(desk.who, each)
        raise
    return to("/desk?done=1")
