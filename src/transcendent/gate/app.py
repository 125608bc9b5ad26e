"""The gate as an ASGI application."""

import asyncio
import gc
import os
import sys
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from joblib import cpu_count
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from transcendent import __version__
from transcendent.errors import GateSettingsError
from transcendent.gate import logs
from transcendent.gate.access import BadTokenError, Tokens, TooManyFailuresError
from transcendent.gate.database import check_version, connect, make_months
from transcendent.gate.intake import Draw, audit_secret, register
from transcendent.gate.model import Model, load_model
from transcendent.gate.quarantine import ConflictError, LabelError, NoItemError, Quarantine
from transcendent.gate.routes import router
from transcendent.gate.service import RefusedError, Service
from transcendent.gate.settings import TRIED, Settings, read_settings

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
    TooManyFailuresError: 429,
}
_MOST_ERRORS = 100
_SMALL = 64 << 10  # bytes of requests that hold no objects: they are read before the token is checked
_TITLES = {
    400: "Bad request", 401: "Unauthorised", 403: "Forbidden", 404: "Not found", 405: "Method not allowed",
    409: "Conflict", 413: "Too large", 422: "Unprocessable", 429: "Too many attempts", 500: "Internal error",
    503: "Unavailable",
}  # fmt: skip


def create_app(settings: Settings | None = None) -> "Edge":
    """Return the application; settings come from the environment unless given."""
    settings = settings or read_settings()
    logs.set_up(settings.log_level)
    app = FastAPI(
        title="Transcendent gate",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # a route of ours, with a rule
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.settings = settings
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


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    warnings.simplefilter("ignore")  # about rows, once for each of them
    if settings.artifact is None:
        raise GateSettingsError("artifact is not set: a gate needs one to serve.")
    model = load_model(
        settings.artifact, settings.trusted, settings.public_key, max(1, int(cpu_count()) // settings.workers)
    )
    if os.environ.get(TRIED, model.digest) != model.digest:
        raise GateSettingsError("the artifact has changed since the gate was started: restart the gate.")
    url = settings.database.get_secret_value()
    engine = connect(url, settings.connections - 2)
    number, secret = await _prepare(engine, model)
    keeping = connect(url, 1, seconds=settings.seconds)  # no other use of the database holds these up
    checking = connect(url, 1, seconds=5)
    service = Service(
        model,
        number,
        keeping,
        Draw(secret, settings.audit),
        most_objects=settings.most_objects,
        seconds=settings.seconds,
        most_waiting=8 * settings.most_bytes,
    )
    app.state.service, app.state.engine = service, engine
    app.state.quarantine = Quarantine(engine, settings.lease, settings.labels)
    app.state.tokens = Tokens(checking) if settings.tokens == "required" else None
    gc.freeze()  # models and modules are never garbage
    gc.set_threshold(50_000, 20, 20)  # nor are requests, which have no cycles
    sys.setswitchinterval(0.001)
    log.info("ready", model=model.digest, version=__version__, process=os.getpid())
    yield
    await run_in_threadpool(service.close)
    for each in (keeping, checking, engine):
        each.dispose()


async def _prepare(engine: Engine, model: Model) -> tuple[int, bytes]:
    """Return the model's number and the audit's secret, once the database is there.

    A worker that is started again while the database is away waits: if it failed, so would all others.
    """
    while True:
        try:
            with engine.connect() as connection:
                check_version(connection)
            make_months(engine)
            return register(engine, model), audit_secret(engine)
        except OperationalError as error:
            log.warning("waiting for the database", detail=str(error.orig)[:300])
            await asyncio.sleep(0.5)


async def _say_problem(request: Request, error: Exception) -> Response:  # noqa: ARG001
    if isinstance(error, RefusedError):
        return problem(error.status, error.detail)
    if isinstance(error, StarletteHTTPException):
        return problem(error.status_code, str(error.detail))
    if isinstance(error, RequestValidationError):
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


def problem(status: int, detail: str, errors: Any = None) -> Response:
    """Return a problem in words, as RFC 9457 has it."""
    said = {"title": _TITLES.get(status, "Problem"), "status": status, "detail": detail, "errors": errors}
    headers = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "300"}, 503: {"retry-after": "2"}}
    return Response(orjson.dumps(said), status, headers.get(status), "application/problem+json")


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
            await self.app(scope, _limited(receive, most), answer)
        except Exception:  # after an answer that says so
            log.exception("a request failed")
        finally:
            milliseconds = round(1e3 * (time.perf_counter() - started), 1)
            path = scope["path"]
            write = log.debug if path in ("/healthz", "/readyz") else log.info
            write(
                "request", method=scope["method"], path=path[:200], status=status, milliseconds=milliseconds
            )


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
