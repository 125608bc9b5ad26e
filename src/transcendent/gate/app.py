"""The gate as an ASGI application."""

import gc
import sys
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import orjson
import psycopg
import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from transcendent import __version__
from transcendent.gate.access import BadTokenError, Tokens, UncheckedError
from transcendent.gate.bodies import RefusedError
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.campaigns import LOOKS as GROUPS
from transcendent.gate.campaigns import Grouping
from transcendent.gate.contents import EVERY as LOOKS
from transcendent.gate.contents import Contents
from transcendent.gate.database import connect, prepare
from transcendent.gate.days import EVERY as DAY_FLUSHES
from transcendent.gate.days import DecidedDays
from transcendent.gate.deletion import declare_fields
from transcendent.gate.deployments import pinned
from transcendent.gate.disagreements import Comparisons
from transcendent.gate.events import CursorError, Events, resume_order
from transcendent.gate.explanations import Explanations, ItemExplainer
from transcendent.gate.folding import Folding, list_monitors
from transcendent.gate.following import Follower
from transcendent.gate.hosts import host_in
from transcendent.gate.intake import audit_secret, register
from transcendent.gate.known_items import REFRESHED, KnownItems
from transcendent.gate.metrics import Metrics
from transcendent.gate.minutes import EVERY as FLUSHES
from transcendent.gate.minutes import Minutes
from transcendent.gate.model import Model
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.pages import desk, promoting, wall
from transcendent.gate.pages.sessions import Sessions
from transcendent.gate.pages.web import PageRoute, error_page, headers_of, pages
from transcendent.gate.processes import EVERY, LIVE, Process
from transcendent.gate.quarantine import ConflictError, LabelError, NoItemError, Quarantine
from transcendent.gate.readiness import DEADLINE, Readiness
from transcendent.gate.reference import reference_of
from transcendent.gate.repeating import Repeated
from transcendent.gate.routes import authorise, decide, router
from transcendent.gate.service import Service
from transcendent.gate.serving import ServingMaker
from transcendent.gate.settings import GateSettings
from transcendent.gate.settling import Settling, settling_secret
from transcendent.gate.shadowing import Shadows, shadow_secret
from transcendent.gate.stored import load_stored
from transcendent.gate.suggesting import EVERY as SUGGESTS
from transcendent.gate.suggesting import Suggesting
from transcendent.gate.summaries import EVERY as SUMS
from transcendent.gate.summaries import Summaries
from transcendent.gate.webhooks import EVERY as SENT_EVERY
from transcendent.gate.webhooks import Webhook

log = structlog.get_logger("transcendent.gate")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STATUS: dict[type[Exception], int] = {
    ClientDisconnect: 400,
    BadTokenError: 401,
    NoItemError: 404,
    ConflictError: 409,
    CursorError: 422,
    LabelError: 422,
    UncheckedError: 503,
}
_STATEMENT_TIMEOUT = 300  # seconds for a statement of an analyst or an export
_MAX_ERRORS = 100
_MAX_OTHER_BYTES = 64 << 10  # of requests without objects, which FastAPI reads before it checks the token
_TOO_LARGE = "this request may have at most {:,} bytes: send less at once."
_HEADERS = [  # of answers that are no pages
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
_NO_HOST = "the header Host must name one host, such as gate.example or 127.0.0.1:8040."
_TITLES = {
    400: "Bad request", 401: "Unauthorised", 403: "Forbidden", 404: "Not found", 405: "Method not allowed",
    409: "Conflict", 413: "Too large", 415: "Unsupported media type", 422: "Unprocessable",
    500: "Internal error", 503: "Unavailable",
}  # fmt: skip


def create_app(settings: GateSettings, model: Model | None) -> "RequestMiddleware":
    """Return the application that serves a model, or follows the deployments if there is none."""
    app = FastAPI(
        title="Transcendent gate",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        openapi_url=None,  # one of our routes, with a rule
        redirect_slashes=False,  # a redirect would contain the sender's Host header
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.settings, app.state.model, app.state.metrics = settings, model, Metrics()
    app.include_router(router)
    for each in (pages, desk.router, wall.router, promoting.router):
        app.include_router(each)
    others = (RefusedError, SQLAlchemyError, RequestValidationError, StarletteHTTPException, Exception)
    for kind in (*_STATUS, *others):
        app.add_exception_handler(kind, _to_response)
    return RequestMiddleware(app)


class Engines(NamedTuple):
    """Separate database engines, so that no kind of work waits for another."""

    working: Engine
    keeping: Engine
    looking_up: Engine
    beating: Engine
    following: Engine
    probing: Engine


def connect_all(settings: GateSettings) -> Engines:
    """Divide the database connections of a gate among its kinds of work."""
    url = settings.database.get_secret_value()
    return Engines(
        working=connect(url, settings.connections - 5, timeout=_STATEMENT_TIMEOUT),
        keeping=connect(url, 1, timeout=settings.timeout / 3),
        looking_up=connect(url, 1, timeout=DEADLINE),
        beating=connect(url, 1, timeout=LIVE / 2),
        following=connect(url, 1, timeout=settings.timeout),
        probing=connect(url, 1, timeout=DEADLINE),
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: GateSettings = app.state.settings
    metrics: Metrics = app.state.metrics
    warnings.simplefilter("ignore")  # detectors would warn about every row
    engines = connect_all(settings)
    engine = engines.working
    if warning := prepare(engine):
        log.warning("months run out", detail=warning)
    resume_order(engine)
    declare_fields(engine, settings.deletable_context)
    process = Process(engines.beating, metrics.slowest_percent)
    minutes, days = Minutes(engines.following, process.id), DecidedDays(engines.following, process.id)
    comparisons = Comparisons(engines.following, process.id)
    shadows = Shadows(shadow_secret(engine), comparisons, metrics)
    service = Service(
        engines.keeping,
        max_objects=settings.max_objects,
        timeout=settings.timeout,
        max_waiting=8 * settings.max_bytes,
        metrics=metrics,
        observe=minutes.add,
        count=days.add,
        shadows=shadows,
    )
    app.state.service, app.state.engine = service, engine
    kind = Quarantine if settings.opinions == 1 else SecondOpinions
    app.state.quarantine = kind(
        engine, settings.lease, settings.labels, settings.max_held, metrics.count_action
    )
    known = KnownItems(engine, app.state.quarantine, reference_of(settings))
    explainer = ItemExplainer(
        engine,
        app.state.quarantine,
        known,
        lambda: [*service.monitored().values(), *(each.model for each in shadows.standing)],
        lambda number: load_stored(engine, number, settings.trusted, settings.public_key),
    )
    app.state.explanations = Explanations(explainer, settings.timeout)
    app.state.campaigns = CampaignLabels(engine, settings.opinions, metrics.count_action)
    app.state.events = Events(engine, settings.event_context)
    app.state.outside = OutsideLabels(engine, settings.labels)
    app.state.tokens = Tokens(engines.looking_up) if settings.tokens == "required" else None
    app.state.sessions = Sessions(engine) if settings.tokens == "required" else None
    app.state.promotions = promoting.Promotions(engine)
    app.state.readiness = Readiness(service, engines.probing, tokens=app.state.tokens is not None)
    items = Quarantine(engines.probing)
    metrics.refresh.append(lambda: _observe(metrics, service, app.state.readiness, items, engines.probing))
    folding = Folding(engines.following, service.monitored, settings.promised_error, engine)
    to_follow = Events(engines.following, settings.event_context)
    webhooks = [Webhook(engines.following, to_follow, each) for each in settings.webhooks]
    grouping = Grouping(engine, settings.opinions)
    repeated = [
        _serve_models(app.state.model, service, settings, engines, process, shadows),
        Repeated("flushing counts", FLUSHES, minutes.flush),
        Repeated("flushing days", DAY_FLUSHES, days.flush),
        Repeated("summaries", SUMS, Summaries(engine).work),
        Repeated("flushing comparisons", FLUSHES, comparisons.flush),
        Repeated("monitors", FLUSHES, folding.fold_closed),
        Repeated("contents", LOOKS, Contents(engines.following, audit_secret(engine)).work),
        Repeated("forgetting labelled items", REFRESHED, known.forget),
        Repeated("campaigns", GROUPS, grouping.work),
        Repeated("suggestions", SUGGESTS, _suggesting(engines.following, settings).work),
        *(Repeated(f"webhook {each.target.name}", SENT_EVERY, each.work) for each in webhooks),
    ]
    if service.serving is not None:
        known.check(service.serving.model)
    gc.freeze()  # the model and modules are never garbage
    gc.set_threshold(50_000, 20, 20)  # requests have no cycles, so collections find little
    sys.setswitchinterval(0.001)  # the event loop waits less for threads that decide
    yield
    grouping.stop()
    for webhook in webhooks:
        webhook.stop()
    for each in repeated:
        each.close()
    for webhook in webhooks:
        webhook.close()
    with suppress(SQLAlchemyError, psycopg.Error):
        process.leave()
    app.state.readiness.close()
    metrics.close()
    await run_in_threadpool(service.close)
    await run_in_threadpool(shadows.close)
    for flush in (minutes.flush, days.flush, comparisons.flush):
        with suppress(SQLAlchemyError, psycopg.Error):
            flush()
    for engine in engines:
        engine.dispose()


def _suggesting(engine: Engine, settings: GateSettings) -> Suggesting:
    """Return what finds suggestions, and settles items by them if the settings say so."""
    if settings.settle is None:
        return Suggesting(engine)
    limits = settings.settle, settings.negative or [], settings.max_settle_error
    return Suggesting(engine, Settling(engine, *limits, settling_secret(engine), settings.opinions).work)


def _observe(
    metrics: Metrics, service: Service, readiness: Readiness, items: Quarantine, engine: Engine
) -> None:
    """Set the gauges; without its database, a gate shows nothing about the queue and the monitors."""
    if (serving := service.serving) is not None:
        model, cutoff = serving.model, None if serving.traffic is None else serving.traffic.cutoff
        metrics.show_model(model.digest, model.classes, None if model.rule is None else model.rule.rate)
        if cutoff is not None:
            metrics.show_cutoff(model.digest, cutoff.rank, cutoff.share)
    metrics.show_ready(ready := readiness.problem() is None)
    metrics.hide_stored()
    if ready:
        with suppress(SQLAlchemyError, psycopg.Error):
            metrics.show_queue(*items.queue())
            with engine.connect() as connection:
                metrics.show_monitors(list_monitors(connection, served=True))


def _serve_models(
    model: Model | None,
    service: Service,
    settings: GateSettings,
    engines: Engines,
    process: Process,
    shadows: Shadows,
) -> Repeated | Follower:
    """Serve the model that the gate was started with, or else follow the deployments; send heartbeats."""
    make = ServingMaker(engines.working, engines.probing, audit_secret(engines.working), settings.max_kept)
    if model is None:
        follower = Follower(
            engines.beating,
            service,
            lambda number: load_stored(engines.following, number, settings.trusted, settings.public_key),
            make,
            process.beat,
            shadows=shadows,
        )
        follower.start()
        return follower
    number, budget = register(engines.working, model), None if model.rule is None else model.rule.rate
    with engines.working.begin() as connection:
        deployment = pinned(connection, number, {"audit": settings.audit, "budget": budget})
    service.replace(make(deployment, model))
    return Repeated("heartbeat", EVERY, lambda: process.beat(deployment.id, [number]))


async def _to_response(request: Request, error: Exception) -> Response:
    given = _problem_of(request, error)
    if isinstance(request.scope.get("route"), PageRoute):
        return await run_in_threadpool(error_page, request, given.status, given.detail, given.headers)
    return problem(*given)


class Problem(NamedTuple):
    """What went wrong with a request."""

    status: int
    detail: str
    errors: Any = None
    headers: Mapping[str, str] | None = None


def _problem_of(request: Request, error: Exception) -> Problem:
    if isinstance(error, RefusedError):
        return Problem(error.status, error.detail)
    if isinstance(error, StarletteHTTPException):
        return Problem(error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, RequestValidationError):
        is_page = isinstance(request.scope.get("route"), PageRoute)
        if request.method == "POST" and not is_page and not _says_json(request):
            return Problem(415, "send JSON, with the header Content-Type: application/json.")
        errors = [
            {"field": _field(each["loc"]), "message": each["msg"]} for each in error.errors()[:_MAX_ERRORS]
        ]
        return Problem(422, "the request is not valid; errors says why.", errors)
    if isinstance(error, SQLAlchemyError):
        detail = str(getattr(error, "orig", error))[:300]
        log.error("the database failed", error=type(error).__name__, detail=detail)
        return Problem(503, "the database cannot be reached: try again later.")
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    if status == 500:
        name = structlog.contextvars.get_contextvars().get("request")
        return Problem(500, f"the gate failed: see its log for request {name}.")
    return Problem(status, str(error))


def _field(where: Any) -> str:
    names = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in where if each != "body"]
    return "".join(names).removeprefix(".")[:200]


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def problem(
    status: int, detail: str, errors: Any = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with problem details (RFC 9457)."""
    body = {"title": _TITLES.get(status, "Problem"), "status": status, "detail": detail, "errors": errors}
    usual = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "2"}}
    return Response(orjson.dumps(body), status, headers or usual.get(status), "application/problem+json")


class RequestMiddleware:
    """Gives every request a limit on its body, an id, and a line in the log."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.max_bytes: int = app.state.settings.max_bytes
        self._metrics: Metrics = app.state.metrics
        self._decisions = next(route for route in router.routes if getattr(route, "endpoint", None) is decide)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        given = _header(scope, b"x-request-id")
        request_id = given.decode() if len(given) <= 64 and given.isalnum() else uuid.uuid4().hex
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=request_id)

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                is_page = isinstance(scope.get("route"), PageRoute)
                message["headers"] = headers_of(headers) if is_page else [*headers, *_HEADERS]
            await send(message)

        path = scope["path"]
        limit = self.max_bytes if path == "/v1/decisions" else min(_MAX_OTHER_BYTES, self.max_bytes)
        if (scope["method"], path) == ("POST", "/v1/decisions"):
            scope.update(app=self.app, route=self._decisions)
        try:
            if (found := _problem_of_head(scope, limit)) is not None:
                await problem(*found)(scope, receive, answer)
                return
            await self._pass_on(scope, _limited(receive, limit), answer)
        except Exception:  # after an answer with status 500
            log.exception("a request failed")
        finally:
            took = time.perf_counter() - started
            self._metrics.count_request(getattr(scope.get("route"), "path_format", "none"), status, took)
            write = log.debug if path in ("/healthz", "/readyz", "/metrics") else log.info
            milliseconds = round(1e3 * took, 1)
            write(
                "request", method=scope["method"], path=path[:200], status=status, milliseconds=milliseconds
            )

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("route") is not self._decisions:
            await self.app(scope, receive, send)
            return
        # FastAPI's routing would take most of a small request's time.
        request = Request(scope, receive)
        try:
            response = await decide(request, await authorise(request))
        except Exception as error:
            response = await _to_response(request, error)
            if response.status_code == 500:
                log.exception("a request failed")
        await response(scope, receive, send)


def _limited(receive: Receive, limit: int) -> Receive:
    """Wrap ``receive`` so that it raises beyond a number of bytes."""
    read = 0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > limit:
            raise HTTPException(413, _TOO_LARGE.format(limit))
        return message

    return limited


def _problem_of_head(scope: Scope, limit: int) -> Problem | None:
    """Return what is wrong with the head of a request, before anything is done."""
    hosts = [value.decode("latin1") for name, value in scope["headers"] if name == b"host"]
    if len(hosts) > 1 or any(each and host_in(each) is None for each in hosts):
        return Problem(400, _NO_HOST)
    length = _header(scope, b"content-length")
    if length.isdigit() and int(length[:20]) > limit:
        return Problem(413, _TOO_LARGE.format(limit))
    return None


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for each, value in scope["headers"] if each == name), b"")
