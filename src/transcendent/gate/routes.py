"""The routes of the gate, and the roles that may call them."""

import os
import tempfile
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from transcendent.gate import wire
from transcendent.gate.access import BadTokenError, Caller, Role, Tokens
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.events import MAX_EVENTS, Cursor, Events
from transcendent.gate.explanations import Explanations
from transcendent.gate.export import ColumnsDifferError, export_labelled
from transcendent.gate.hosts import host_in
from transcendent.gate.metrics import CONTENT_TYPE
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.readiness import Readiness
from transcendent.gate.service import Service
from transcendent.gate.settings import is_loopback
from transcendent.gate.traffic import find_cutoff

VIEWERS: frozenset[Role] = frozenset(["analyst", "operator", "viewer"])
EVERYONE: frozenset[Role] = frozenset(["client", "analyst", "operator"])
CLIENTS: frozenset[Role] = frozenset(["client", "operator"])
ANALYSTS: frozenset[Role] = frozenset(["analyst", "operator"])
LABELLERS: frozenset[Role] = frozenset(["labeller", "operator"])
OPERATORS: frozenset[Role] = frozenset(["operator"])
WATCHERS: frozenset[Role] = frozenset(["metrics", "operator"])

RULES: dict[tuple[str, str], frozenset[Role] | None] = {
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): WATCHERS,
    ("GET", "/openapi.json"): EVERYONE,
    ("GET", "/v1/model"): EVERYONE,
    ("POST", "/v1/decisions"): CLIENTS,
    ("GET", "/v1/cutoffs/{number}"): EVERYONE,
    ("GET", "/v1/quarantine"): ANALYSTS,
    ("POST", "/v1/quarantine/claim"): ANALYSTS,
    ("GET", "/v1/quarantine/held"): ANALYSTS,
    ("POST", "/v1/quarantine/renew"): ANALYSTS,
    ("POST", "/v1/quarantine/release"): ANALYSTS,
    ("GET", "/v1/quarantine/{item}"): ANALYSTS,
    ("GET", "/v1/quarantine/{item}/explanation"): ANALYSTS,
    ("POST", "/v1/quarantine/{item}/resolve"): ANALYSTS,
    ("POST", "/v1/quarantine/{item}/skip"): ANALYSTS,
    ("POST", "/v1/quarantine/{item}/undo"): ANALYSTS,
    ("GET", "/v1/campaigns"): ANALYSTS,
    ("POST", "/v1/campaigns/{campaign}/resolve"): ANALYSTS,
    ("POST", "/v1/campaigns/{campaign}/undo"): ANALYSTS,
    ("GET", "/v1/labelled"): OPERATORS,
    ("GET", "/v1/events"): OPERATORS,
    ("POST", "/v1/labels"): LABELLERS,
    ("GET", "/v1/objects/{object_id}"): EVERYONE,
    ("GET", "/"): VIEWERS,
    ("GET", "/static/{name}"): None,
    ("GET", "/sign-in"): None,
    ("POST", "/sign-in"): None,
    ("GET", "/sign-in/link"): None,
    ("POST", "/sign-in/link"): None,
    ("POST", "/sign-out"): VIEWERS,
    ("GET", "/desk"): ANALYSTS,
    ("GET", "/desk/mine"): ANALYSTS,
    ("POST", "/desk/claim"): ANALYSTS,
    ("POST", "/desk/release"): ANALYSTS,
    ("POST", "/desk/undo"): ANALYSTS,
    ("GET", "/desk/items/{item}"): ANALYSTS,
    ("GET", "/desk/items/{item}/explanation"): ANALYSTS,
    ("POST", "/desk/items/{item}/claim"): ANALYSTS,
    ("POST", "/desk/items/{item}/renew"): ANALYSTS,
    ("POST", "/desk/items/{item}/label"): ANALYSTS,
    ("POST", "/desk/items/{item}/skip"): ANALYSTS,
    ("POST", "/desk/campaigns/{campaign}/label"): ANALYSTS,
    ("GET", "/wall"): VIEWERS,
    ("GET", "/wall/month/{month}"): VIEWERS,
    ("GET", "/wall/alarms/{number}"): OPERATORS,
    ("POST", "/wall/alarms/{number}"): OPERATORS,
    ("GET", "/wall/promote/{digest}"): OPERATORS,
    ("POST", "/wall/promote/{digest}"): OPERATORS,
    ("GET", "/wall/roll-back"): OPERATORS,
    ("POST", "/wall/roll-back"): OPERATORS,
    ("GET", "/wall/retire/{digest}"): OPERATORS,
    ("POST", "/wall/retire/{digest}"): OPERATORS,
    ("GET", "/wall/promotions/{number}"): OPERATORS,
}
"""Roles that may call a route; None means everybody. A route without a rule is always refused.

The paths from ``/`` on are pages, for browsers with a session; the others are for programs with a token.
"""

_ANYONE = Caller("anyone", "client")


def host_of(request: Request) -> str:
    """Return the host that a request is for, or nothing: ``request.url`` would guess one."""
    return host_in(request.headers.get("host", "")) or ""


async def authorise(request: Request) -> Caller:
    """Return the caller of a request if the route's rule allows it; raise otherwise."""
    allowed = RULES.get((request.method, request.scope["route"].path_format), frozenset())
    if allowed is None:
        return _ANYONE
    caller = await _caller(request)
    structlog.contextvars.bind_contextvars(caller=caller.name)
    if caller.role not in allowed:
        raise HTTPException(403, f"the role {caller.role} may not do this.")
    return caller


async def _caller(request: Request) -> Caller:
    tokens: Tokens | None = request.app.state.tokens
    if tokens is None:
        # A web page could otherwise send requests through a user's browser, as an operator.
        if "origin" in request.headers or not is_loopback(host_of(request)):
            raise HTTPException(403, "a gate without tokens answers only programs on this machine.")
        return Caller("local", "operator")
    _check_site(request)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise BadTokenError("a token is needed: send the header Authorization: Bearer tg_...")
    return await tokens.caller(token)


def _check_site(request: Request) -> None:
    """Raise if a page of another site sent what changes something: a proxy may add the token to all requests.

    Browsers say where a request comes from; programs say nothing.
    """
    if request.method == "GET":
        return
    host = request.headers.get("host", "").lower()
    own = (request.app.state.settings.public_url, f"http://{host}", f"https://{host}")
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if site in ("cross-site", "same-site") or (origin is not None and origin not in own):
        raise HTTPException(403, "the request was sent from a page of another site.")


Who = Annotated[Caller, Depends(authorise)]


def _quarantine(request: Request) -> Quarantine:
    quarantine: Quarantine = request.app.state.quarantine
    return quarantine


Items = Annotated[Quarantine, Depends(_quarantine)]


def _analyst(caller: Caller) -> str | None:
    """Return the name of a caller who may not see everything; None for operators."""
    return None if caller.role == "operator" else caller.name


_PROBLEM: dict[str, Any] = {
    "model": wire.ProblemDetails,
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {**_PROBLEM, "description": "The body is not JSON."},
    401: {**_PROBLEM, "description": "The token is missing or not valid."},
    403: {**_PROBLEM, "description": "The role may not do this."},
    404: {**_PROBLEM, "description": "The item does not exist."},
    409: {**_PROBLEM, "description": "The item is in another state."},
    413: {**_PROBLEM, "description": "The request is too large."},
    415: {**_PROBLEM, "description": "The header Content-Type is not application/json."},
    422: {**_PROBLEM, "description": "The request is not valid."},
    503: {**_PROBLEM, "description": "The gate or its database cannot answer now."},
}

# The dependency holds for every route, so that none can be added without a rule.
router = APIRouter(responses=_PROBLEMS, dependencies=[Depends(authorise)])


@router.get("/healthz", response_model=wire.Health)
async def healthz(request: Request) -> Any:
    """Check that the process and its threads are alive."""
    if not request.app.state.service.alive:
        raise HTTPException(503, "a thread of the gate has died: restart the gate.")
    return {"status": "alive"}


@router.get("/readyz", response_model=wire.Health)
async def readyz(request: Request) -> Any:
    """Check that objects can be decided and stored."""
    readiness: Readiness = request.app.state.readiness
    if found := await readiness.check():
        raise HTTPException(503, found)
    return {"status": "ready"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request, _: Who) -> Response:
    """Return the metrics of this process for Prometheus."""
    return Response(await request.app.state.metrics.scrape(), media_type=CONTENT_TYPE)


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request, _: Who) -> Any:
    """Describe the API."""
    return request.app.openapi()


@router.get("/v1/model", response_model=wire.Served)
async def model(request: Request, _: Who) -> Any:
    """Describe the model that decides."""
    serving, settings = request.app.state.service.serving, request.app.state.settings
    if serving is None:
        raise HTTPException(503, request.app.state.service.no_model)
    served = serving.model
    return {
        "digest": served.digest,
        "deployment": serving.deployment,
        "observed": serving.observed,
        "rejector": served.manifest["rejector"],
        "budget": None if served.rule is None else served.rule.rate,
        "classes": served.classes,
        "features": served.layout.description(),
        "created": served.manifest["created"],
        "limits": {"objects": settings.max_objects, "bytes": settings.max_bytes},
    }


_BODY = {"required": True, "content": {"application/json": {"schema": wire.objects_schema()}}}


@router.post("/v1/decisions", response_model=wire.Decided, openapi_extra={"requestBody": _BODY})
async def decide(request: Request, caller: Who) -> Response:
    """Decide objects; rejected ones are committed to the quarantine before the answer."""
    service: Service = request.app.state.service
    status, body = await service.answer(await request.body(), caller.name)
    kind = "application/json" if status == 200 else "application/problem+json"
    return Response(body, status, media_type=kind)


@router.get("/v1/cutoffs/{number}", response_model=wire.CutoffMade)
def cutoff(request: Request, _: Who, number: wire.ItemId) -> Any:
    """Show a cutoff of a budget."""
    found = find_cutoff(request.app.state.engine, number)
    if found is None:
        raise HTTPException(404, f"cutoff {number} does not exist.")
    return found


@router.get("/v1/quarantine", response_model=wire.QueueCounts)
def count(quarantine: Items, _: Who) -> Any:
    """Count the items."""
    return quarantine.counts()


@router.post("/v1/quarantine/claim", response_model=wire.ClaimedItems)
def claim(quarantine: Items, caller: Who, asked: wire.Claim) -> Any:
    """Hold free items for the time of a lease."""
    given = asked.model_dump(include={"skipped", "opinions", "campaign"})
    claimed = quarantine.claim(caller.name, asked.count, **given)
    return claimed._replace(items=quarantine.as_seen(claimed.items, _analyst(caller)))._asdict()


@router.get("/v1/quarantine/held", response_model=list[wire.Item])
def held(quarantine: Items, caller: Who) -> Any:
    """Show the items that the caller holds."""
    return quarantine.as_seen(quarantine.held(caller.name), _analyst(caller))


@router.post("/v1/quarantine/renew", response_model=wire.ItemIds)
def renew(quarantine: Items, caller: Who, asked: wire.Items) -> Any:
    """Restart the lease of items."""
    return {"items": quarantine.renew(caller.name, asked.items)}


@router.post("/v1/quarantine/release", response_model=wire.ItemIds)
def release(quarantine: Items, caller: Who, asked: wire.Items) -> Any:
    """Release items without a label."""
    return {"items": quarantine.release(caller.name, asked.items)}


@router.get("/v1/quarantine/{item}", response_model=wire.ShownItem)
def show(quarantine: Items, caller: Who, item: wire.ItemId) -> Any:
    """Show an item, its features and its history."""
    return quarantine.show(item, _analyst(caller))


@router.get("/v1/quarantine/{item}/explanation", response_model=wire.ExplainedItem)
async def explain(request: Request, caller: Who, item: wire.ItemId) -> Any:
    """Explain why an item was rejected or accepted, and what it is like."""
    explanations: Explanations = request.app.state.explanations
    return await explanations.of(item, _analyst(caller))


@router.post("/v1/quarantine/{item}/resolve", response_model=wire.Action)
def resolve(quarantine: Items, caller: Who, item: wire.ItemId, asked: wire.Resolve) -> Any:
    """Label an item that the caller holds."""
    return quarantine.resolve(caller.name, item, asked.label, reason=asked.reason, note=asked.note)


@router.post("/v1/quarantine/{item}/skip", response_model=wire.Action)
def skip(quarantine: Items, caller: Who, item: wire.ItemId, asked: wire.Skip) -> Any:
    """Move an item that the caller holds to the end of the queue, for others."""
    return quarantine.skip(caller.name, item, reason=asked.reason, note=asked.note)


@router.post("/v1/quarantine/{item}/undo", response_model=wire.Action)
def undo(quarantine: Items, caller: Who, item: wire.ItemId, asked: wire.Undo) -> Any:
    """Take back the last label or skip of an item: the caller's own, or anyone's for operators."""
    return quarantine.undo(caller.name, item, note=asked.note, anyone=caller.role == "operator")


def _campaigns(request: Request) -> CampaignLabels:
    campaigns: CampaignLabels = request.app.state.campaigns
    return campaigns


Campaigns = Annotated[CampaignLabels, Depends(_campaigns)]


@router.get("/v1/campaigns", response_model=list[wire.ListedCampaign])
def list_campaigns(campaigns: Campaigns, quarantine: Items, caller: Who) -> Any:
    """List the campaigns that wait, those with the most items for each look first."""
    found = campaigns.list()
    middles = [each["described"]["medoid"] for each in found]
    blind = quarantine.blind_items(middles, _analyst(caller))
    return [
        each | {"described": each["described"] | {"medoid": None}} if middle in blind else each
        for each, middle in zip(found, middles, strict=True)
    ]


@router.post("/v1/campaigns/{campaign}/resolve", response_model=wire.CampaignLabelled)
def resolve_campaign(
    campaigns: Campaigns, caller: Who, campaign: wire.CampaignId, asked: wire.Resolve
) -> Any:
    """Label the members of a campaign of which enough, drawn by chance, were opened and are alike."""
    return campaigns.resolve(caller.name, campaign, asked.label, reason=asked.reason, note=asked.note)


@router.post("/v1/campaigns/{campaign}/undo", response_model=wire.CampaignLabelled)
def undo_campaign(campaigns: Campaigns, caller: Who, campaign: wire.CampaignId) -> Any:
    """Take back the labels of a campaign's members: the caller's own, or anyone's for operators."""
    return campaigns.undo(caller.name, campaign, anyone=caller.role == "operator")


@router.get("/v1/objects/{object_id:path}", response_model=list[wire.KeptObject])
def find(quarantine: Items, caller: Who, object_id: wire.ObjectId) -> Any:
    """Show what became of an object: of the caller's own for clients, of any sender's for others."""
    sender, analyst = (caller.name if caller.role == role else None for role in ("client", "analyst"))
    if found := quarantine.find(object_id, sender, analyst):
        return found
    raise HTTPException(404, "no object with this id is kept: accepted objects are not, nor are old ones.")


@router.post("/v1/labels", response_model=list[wire.OutsideLabelled])
def label_outside(request: Request, caller: Who, asked: wire.LabelFromOutside) -> Any:
    """Take in another system's label of an object that is kept."""
    outside: OutsideLabels = request.app.state.outside
    return outside.add(caller.name, **asked.model_dump())


@router.get("/v1/events", response_model=wire.EventPage)
def events(
    request: Request,
    _: Who,
    after: wire.Short = "",
    limit: Annotated[int, Query(ge=1, le=MAX_EVENTS)] = 100,
) -> Any:
    """Return the events after one of them, in an order in which none is missed."""
    found: Events = request.app.state.events
    page = found.after(Cursor.read(after), limit)
    return {"events": page.events, "next": str(page.last)}


@router.get("/v1/labelled", response_class=StreamingResponse)
def labelled(
    request: Request,
    _: Who,
    model: wire.Digest = "",
    since: wire.Moment | None = None,
    teach: bool = False,
    inferred: bool = False,
) -> StreamingResponse:
    """Return labelled objects as a Parquet file: those of a model, or of all if their columns are equal.

    With ``since``, only those labelled at a date or time, or later. With ``teach``, only those whose label
    may teach. With ``inferred``, also those whose label nobody gave: it follows from others.
    """
    opinions = request.app.state.settings.opinions if teach else 1
    if since is not None and opinions > 1:
        raise HTTPException(422, "with second opinions, send either teach or since: agreement comes later.")
    file = tempfile.TemporaryFile()  # noqa: SIM115 - deleted with the last reference to it
    try:
        given: dict[str, Any] = {"model": model, "since": since, "opinions": opinions, "inferred": inferred}
        export_labelled(request.app.state.engine, file, **given)
    except ColumnsDifferError as error:
        raise HTTPException(422, str(error)) from None
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return StreamingResponse(
        iter(lambda: file.read(1 << 20), b""),
        headers={"content-length": str(size)},
        media_type="application/vnd.apache.parquet",
    )
