"""The gate as an ASGI application."""

import gc
import sys
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import orjson
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
from transcendent.gate.database import connect, prepare
from transcendent.gate.intake import Draw, audit_secret, register
from transcendent.gate.model import Model
from transcendent.gate.quarantine import ConflictError, LabelError, NoItemError, Quarantine
from transcendent.gate.readiness import DEADLINE, Readiness
from transcendent.gate.routes import authorise, decide, router
from transcendent.gate.service import RefusedError, Service
from transcendent.gate.settings import Settings

log = structlog.get_logger("transcendent.gate")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STATUS: dict[type[Exception], int] = {
    ClientDisconnect: 400,
    BadTokenError: 401,
    NoItemError: 404,
    ConflictError: 409,
    LabelError: 422,
    UncheckedError: 503,
}
_LONGEST = 300  # seconds that a statement of an analyst or an export may take
_MOST_ERRORS = 100
_SMALL = 64 << 10  # bytes of requests that hold no objects: they are read before the token is checked
_TITLES = {
    400: "Bad request", 401: "Unauthorised", 403: "Forbidden", 404: "Not found", 405: "Method not allowed",
    409: "Conflict", 413: "Too large", 415: "Unsupported media type", 422: "Unprocessable",
    500: "Internal error", 503: "Unavailable",
}  # fmt: skip


def create_app(settings: Settings, model: Model) -> "Edge":
    """Return the application that serves a model."""
    app = FastAPI(
        title="Transcendent gate",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # a route of ours, with a rule
        redirect_slashes=False,  # the address in a redirect would be the sender's Host
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.settings, app.state.model = settings, model
    app.include_router(router)
    for kind in (
        *_STATUS,
        RefusedError,
        SQLAlchemyError,
        RequestValidationError,
        StarletteHTTPException,
        Exception,
    ):
        app.add_exception_handler(kind, _say_problem)
    return Edge(app)


class Engines(NamedTuple):
    """Engines of the database: what one is used for holds none of the others up."""

    working: Engine
    keeping: Engine
    looking_up: Engine
    probing: Engine


def connect_all(settings: Settings) -> Engines:
    """Share the connections of a gate among what it does with the database."""
    url = settings.database.get_secret_value()
    return Engines(
        working=connect(url, settings.connections - 3, seconds=_LONGEST),
        keeping=connect(url, 1, seconds=settings.seconds / 3),
        looking_up=connect(url, 1, seconds=DEADLINE),
        probing=connect(url, 1, seconds=DEADLINE),
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    model: Model = app.state.model
    warnings.simplefilter("ignore")  # about rows, once for each of them
    engines = connect_all(settings)
    engine = engines.working
    if warning := prepare(engine):
        log.warning("months run out", detail=warning)
    number, secret = register(engine, model), audit_secret(engine)
    service = Service(
        model,
        number,
        engines.keeping,
        Draw(secret, settings.audit),
        most_objects=settings.most_objects,
        seconds=settings.seconds,
        most_waiting=8 * settings.most_bytes,
    )
    app.state.service, app.state.engine = service, engine
    app.state.quarantine = Quarantine(engine, settings.lease, settings.labels, settings.most_held)
    app.state.tokens = Tokens(engines.looking_up) if settings.tokens == "required" else None
    app.state.readiness = Readiness(service, engines.probing, tokens=app.state.tokens is not None)
    gc.freeze()  # models and modules are never garbage
    gc.set_threshold(50_000, 20, 20)  # nor are requests, which have no cycles
    sys.setswitchinterval(0.001)
    yield
    await run_in_threadpool(service.close)
    for each in engines:
        each.dispose()


async def _say_problem(request: Request, error: Exception) -> Response:
    if isinstance(error, RefusedError):
        return problem(error.status, error.detail)
    if isinstance(error, StarletteHTTPException):
        return problem(error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, RequestValidationError):
        if request.method == "POST" and not _says_json(request):
            return problem(415, "the body is JSON: send it with the header Content-Type: application/json.")
        errors = [
            {"field": _field(each["loc"]), "message": each["msg"]} for each in error.errors()[:_MOST_ERRORS]
        ]
        return problem(422, "the request does not have the form that it needs.", errors)
    if isinstance(error, SQLAlchemyError):
        log.error(
            "the database failed", error=type(error).__name__, detail=str(getattr(error, "orig", error))[:300]
        )
        return problem(503, "the database cannot be reached: try again later.")
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    if status == 500:
        name = structlog.contextvars.get_contextvars().get("request")
        return problem(500, f"the gate failed; its log has request {name}.")
    return problem(status, str(error))


def _field(where: Any) -> str:
    names = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in where if each != "body"]
    return "".join(names).removeprefix(".")[:200]


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def problem(
    status: int, detail: str, errors: Any = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a problem in words, as RFC 9457 has it."""
    said = {"title": _TITLES.get(status, "Problem"), "status": status, "detail": detail, "errors": errors}
    usual = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "2"}}
    return Response(orjson.dumps(said), status, headers or usual.get(status), "application/problem+json")


class Edge:
    """What every request passes: a limit on its body, an id, and a line in the log.

    Parameters
    ----------
    app : FastAPI
        The application behind it.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.most_bytes: int = app.state.settings.most_bytes
        self._decisions = next(route for route in router.routes if getattr(route, "endpoint", None) is decide)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        request_id = _request_id(scope)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=request_id)

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        most = self.most_bytes if scope["path"] == "/v1/decisions" else min(_SMALL, self.most_bytes)
        try:
            if _announced(scope) > most:
                await problem(413, _limit(most))(scope, receive, answer)
                return
            await self._pass_on(scope, _limited(receive, most), answer)
        except Exception:  # after an answer that says so
            log.exception("a request failed")
        finally:
            milliseconds = round(1e3 * (time.perf_counter() - started), 1)
            path = scope["path"]
            write = log.debug if path in ("/healthz", "/readyz") else log.info
            write(
                "request", method=scope["method"], path=path[:200], status=status, milliseconds=milliseconds
            )

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope["method"], scope["path"]) != ("POST", "/v1/decisions"):
            await self.app(scope, receive, send)
            return
        scope.update(app=self.app, route=self._decisions)  # as FastAPI would, in most of a request's time
        request = Request(scope, receive)
        try:
            response = await decide(request, await authorise(request))
        except Exception as error:
            response = await _say_problem(request, error)
            if response.status_code == 500:
                log.exception("a request failed")
        await response(scope, receive, send)


def _limited(receive: Receive, most: int) -> Receive:
    """Receive no more than a number of bytes."""
    read = 0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > most:
            raise HTTPException(413, _limit(most))
        return message

    return limited


def _limit(most: int) -> str:
    return f"this request has at most {most:,} bytes."


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else 0
    return 0


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and 0 < len(value) <= 64 and value.isalnum():
            return str(value.decode())
    return uuid.uuid4().hex
