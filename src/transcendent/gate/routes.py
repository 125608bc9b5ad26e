"""The routes of the gate, and who may call them."""

import os
import tempfile
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import StreamingResponse

from transcendent.gate import wire
from transcendent.gate.access import BadTokenError, Caller, Role, Tokens
from transcendent.gate.export import export_labelled
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.readiness import Readiness
from transcendent.gate.service import Service
from transcendent.gate.settings import is_loopback

EVERYONE: frozenset[Role] = frozenset(["client", "analyst", "operator"])
CLIENTS: frozenset[Role] = frozenset(["client", "operator"])
ANALYSTS: frozenset[Role] = frozenset(["analyst", "operator"])
OPERATORS: frozenset[Role] = frozenset(["operator"])

RULES: dict[tuple[str, str], frozenset[Role] | None] = {
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/openapi.json"): EVERYONE,
    ("GET", "/v1/model"): EVERYONE,
    ("POST", "/v1/decisions"): CLIENTS,
    ("GET", "/v1/quarantine"): ANALYSTS,
    ("POST", "/v1/quarantine/claim"): ANALYSTS,
    ("GET", "/v1/quarantine/held"): ANALYSTS,
    ("POST", "/v1/quarantine/renew"): ANALYSTS,
    ("POST", "/v1/quarantine/release"): ANALYSTS,
    ("GET", "/v1/quarantine/{item}"): ANALYSTS,
    ("POST", "/v1/quarantine/{item}/resolve"): ANALYSTS,
    ("POST", "/v1/quarantine/{item}/skip"): ANALYSTS,
    ("POST", "/v1/quarantine/{item}/undo"): ANALYSTS,
    ("GET", "/v1/labelled"): OPERATORS,
}
"""Who may call a route; None means everybody. A route without a rule is refused to all."""

_ANYONE = Caller("anyone", "client")


async def authorise(request: Request) -> Caller:
    """Return who sends a request, if the route's rule lets them."""
    allowed = RULES.get((request.method, request.scope["route"].path), frozenset())
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
        _check_local(request)
        return Caller("local", "operator")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise BadTokenError("a token is needed: Authorization: Bearer tg_...")
    return await tokens.caller(token)


def _check_local(request: Request) -> None:
    """Refuse what a page in a browser sends: with no tokens, the browser's user would be an operator."""
    if "origin" in request.headers or not is_loopback(request.url.hostname or ""):
        raise HTTPException(403, "a gate without tokens answers programs on this machine only.")


Who = Annotated[Caller, Depends(authorise)]


def _quarantine(request: Request) -> Quarantine:
    quarantine: Quarantine = request.app.state.quarantine
    return quarantine


Items = Annotated[Quarantine, Depends(_quarantine)]

_PROBLEM: dict[str, Any] = {
    "model": wire.Trouble,
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Trouble"}}},
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {**_PROBLEM, "description": "The body is not JSON."},
    401: {**_PROBLEM, "description": "The token is missing or not valid."},
    403: {**_PROBLEM, "description": "The role may not do this."},
    404: {**_PROBLEM, "description": "There is no such item."},
    409: {**_PROBLEM, "description": "The item is in another state."},
    413: {**_PROBLEM, "description": "The request is too large."},
    415: {**_PROBLEM, "description": "The request does not say that it is JSON."},
    422: {**_PROBLEM, "description": "The request does not have the form that it needs."},
    503: {**_PROBLEM, "description": "The gate or its database cannot answer now."},
}

router = APIRouter(responses=_PROBLEMS, dependencies=[Depends(authorise)])  # also of routes to come


@router.get("/healthz", response_model=wire.Health)
async def healthz(request: Request) -> Any:
    """Say that the process and its threads live."""
    if not request.app.state.service.alive:
        raise HTTPException(503, "a thread of the gate has died.")
    return {"status": "alive"}


@router.get("/readyz", response_model=wire.Health)
def readyz(request: Request) -> Any:
    """Try whether objects can be decided and kept."""
    if found := is_ready(request.app):
        raise HTTPException(503, found)
    return {"status": "ready"}


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request, _: Who) -> Any:
    """Describe the interface."""
    return request.app.openapi()


@router.get("/v1/model", response_model=wire.Served)
async def model(request: Request, _: Who) -> Any:
    """Say which model decides."""
    served = request.app.state.service.model
    return {
        "digest": served.digest,
        "rejector": served.manifest["rejector"],
        "classes": served.classes,
        "features": {"count": served.layout.width, "names": served.layout.names},
        "created": served.manifest["created"],
    }


_OBJECTS = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": wire.objects_schema()}},
    }
}


@router.post("/v1/decisions", response_model=wire.Decided, openapi_extra=_OBJECTS)
async def decide(request: Request, caller: Who) -> Response:
    """Decide about objects; rejected ones are in the quarantine before this answers."""
    service: Service = request.app.state.service
    status, body = await service.answer(await request.body(), caller.name)
    return Response(
        body, status, media_type="application/json" if status == 200 else "application/problem+json"
    )


@router.get("/v1/quarantine", response_model=wire.Counts)
def count(quarantine: Items, _: Who) -> Any:
    """Count the items."""
    return quarantine.counts()


@router.post("/v1/quarantine/claim", response_model=wire.ClaimedItems)
def claim(quarantine: Items, caller: Who, asked: wire.Claim) -> Any:
    """Hold items that nobody else holds, for the time of a lease."""
    return quarantine.claim(caller.name, asked.count, skipped=asked.skipped)._asdict()


@router.get("/v1/quarantine/held", response_model=list[wire.Item])
def held(quarantine: Items, caller: Who) -> Any:
    """Show the items that the caller holds."""
    return quarantine.held(caller.name)


@router.post("/v1/quarantine/renew", response_model=wire.ItemIds)
def renew(quarantine: Items, caller: Who, asked: wire.Items) -> Any:
    """Hold items for another lease."""
    return {"items": quarantine.renew(caller.name, asked.items)}


@router.post("/v1/quarantine/release", response_model=wire.ItemIds)
def release(quarantine: Items, caller: Who, asked: wire.Items) -> Any:
    """Give items back without a label."""
    return {"items": quarantine.release(caller.name, asked.items)}


@router.get("/v1/quarantine/{item}", response_model=wire.ShownItem)
def show(quarantine: Items, _: Who, item: wire.ItemId) -> Any:
    """Show an item, its features and the history of its labels."""
    return quarantine.show(item)


@router.post("/v1/quarantine/{item}/resolve", response_model=wire.Action)
def resolve(quarantine: Items, caller: Who, item: wire.ItemId, asked: wire.Resolve) -> Any:
    """Give an item that the caller holds its label."""
    return quarantine.resolve(caller.name, item, asked.label, reason=asked.reason, note=asked.note)


@router.post("/v1/quarantine/{item}/skip", response_model=wire.Action)
def skip(quarantine: Items, caller: Who, item: wire.ItemId, asked: wire.Skip) -> Any:
    """Pass an item that the caller holds on to others."""
    return quarantine.skip(caller.name, item, reason=asked.reason, note=asked.note)


@router.post("/v1/quarantine/{item}/undo", response_model=wire.Action)
def undo(quarantine: Items, caller: Who, item: wire.ItemId, asked: wire.Undo) -> Any:
    """Take back the last label or skip of an item: one's own, or as an operator anyone's."""
    return quarantine.undo(caller.name, item, note=asked.note, anyone=caller.role == "operator")


@router.get("/v1/labelled", response_class=StreamingResponse)
def labelled(request: Request, _: Who) -> StreamingResponse:
    """Return all labelled objects as a Parquet file."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - gone with the last reference to it
    export_labelled(request.app.state.engine, file)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return StreamingResponse(
        iter(lambda: file.read(1 << 20), b""),
        headers={"content-length": str(size)},
        media_type="application/vnd.apache.parquet",
    )


def is_ready(app: Any) -> str | None:
    """Return what keeps a gate from being ready, None if nothing does."""
    readiness: Readiness = app.state.readiness
    return readiness.problem()
