"""Start the gate: check its requirements, listen, and serve until a signal."""

import asyncio
import errno
import math
import os
import socket
import time
from contextlib import ExitStack, suppress
from typing import Any

import structlog
import threadpoolctl
import uvicorn
from joblib import cpu_count
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from transcendent import __version__
from transcendent.errors import GateSettingsError
from transcendent.gate import logs
from transcendent.gate.app import RequestMiddleware, create_app
from transcendent.gate.database import check_role, opened
from transcendent.gate.model import load_model
from transcendent.gate.negatives import check_negative
from transcendent.gate.reference import reference_of
from transcendent.gate.settings import GateSettings

log = structlog.get_logger("transcendent.gate")


def serve(settings: GateSettings) -> None:
    """Serve until a signal. Restarting a gate that died or hangs is the supervisor's work.

    Without an artifact, the gate follows the deployments.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        threadpoolctl.threadpool_limits(int(cpu_count()))  # a container may have fewer cores than its machine
    given = settings.artifact
    with opened(settings.database.get_secret_value()) as engine:
        check_role(engine)
        model = None if given is None else load_model(given, settings.trusted, settings.public_key)
        check_negative(engine, settings.negative, model)
    if (reference := reference_of(settings)) is not None and model is not None:
        reference.objects(model)
    bound = bind(settings.host, settings.port, share=settings.share_port)
    logs.set_up(settings.log_level)
    app = create_app(settings, model)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections + 1,
        timeout_graceful_shutdown=max(1, int(settings.timeout)),
    )
    Server(config, app, settings.timeout).run([bound])


def bind(host: str, port: int, *, share: bool) -> socket.socket:
    """Return a socket with an address; with ``share``, other gates may have the same one.

    The server listens on it once its model is loaded. Until then, connections are refused, so that clients
    try another gate at once.
    """
    with ExitStack() as stack:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            bound = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if share:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((host, port))
        except OSError as error:
            raise _cannot_listen(host, port, error) from None
        stack.pop_all()  # it stays open
        return bound


def _cannot_listen(host: str, port: int, error: OSError) -> GateSettingsError:
    if error.errno != errno.EADDRINUSE:
        return GateSettingsError(f"cannot listen on {host}, port {port}: {error.strerror}.")
    return GateSettingsError(
        f"port {port} of {host} is in use by another process, perhaps a gate: stop that one, or choose "
        "another port. For several gates on one port, set share_port for each."
    )


class Connection(HttpToolsProtocol):
    """A client's connection, which is closed at once if there are too many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Open the connection, or close it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) >= (self.limit_concurrency or math.inf):
            transport.abort()

    @property
    def waits_for_client(self) -> bool:
        """Whether a request is still arriving, or the client is not reading the answer."""
        if self.transport.is_closing():
            return True
        if self.cycle is None or self.cycle.response_complete:
            return self.timeout_keep_alive_task is None  # otherwise uvicorn closes it in time
        return self.cycle.more_body or self.flow.write_paused

    @property
    def progress(self) -> Any:
        """A value that changes with each request and with each part of a long answer."""
        return self, self.cycle, self.cycle and self.cycle.expected_content_length


class Server(uvicorn.Server):
    """A server that disconnects slow clients, and notifies its supervisor.

    A request has ``timeout`` seconds to arrive. So has its answer, or each megabyte of a long one, to be
    read.
    """

    def __init__(self, config: uvicorn.Config, app: RequestMiddleware, timeout: float) -> None:
        super().__init__(config)
        self._state, self._timeout = app.app.state, timeout
        self._beat, self._every = 0.0, seconds_between_beats()
        self._waiting: dict[Any, float] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then log it and notify the supervisor."""
        (bound,) = sockets or []
        host, port = bound.getsockname()[:2]
        try:
            await super().startup(sockets)
        except OSError as error:  # another gate has started at the same time, and listens now
            await self.lifespan.shutdown()
            raise _cannot_listen(host, port, error) from None
        if not self.started:
            return
        serving = self._state.service.serving
        digest = None if serving is None else serving.model.digest
        about = {"address": f"{host}:{port}", "model": digest, "version": __version__}
        log.info("waits for a model" if serving is None else "ready", **about, process=os.getpid())
        notify("READY=1")

    async def on_tick(self, counter: int) -> bool:
        """Close slow connections and notify the watchdog; the event loop calls this ten times a second."""
        now = time.monotonic()
        if counter % 10 == 0:
            self._close_slow(now)
        if self._every and now >= self._beat + self._every and self._state.service.alive:
            self._beat = now
            notify("WATCHDOG=1")
        return await super().on_tick(counter)

    def _close_slow(self, now: float) -> None:
        connections: Any = self.server_state.connections
        waiting = [each.progress for each in connections if each.waits_for_client]
        self._waiting = {each: self._waiting.get(each, now) for each in waiting}
        for (connection, *_), since in self._waiting.items():
            if now > since + self._timeout:
                connection.transport.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Notify the supervisor, then stop."""
        notify("STOPPING=1")
        await super().shutdown(sockets)


def notify(state: str) -> None:
    """Send a state to the supervisor's socket, if it named one, as sd_notify(3) does."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out, suppress(OSError):
        out.setblocking(False)
        out.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


def seconds_between_beats() -> float | None:
    """Return half of the supervisor's watchdog timeout, or None if it has none."""
    wait, process = (os.environ.get(f"WATCHDOG_{name}", "") for name in ("USEC", "PID"))
    if not wait.isdecimal() or process not in ("", str(os.getpid())):
        return None
    return int(wait) / 2e6
