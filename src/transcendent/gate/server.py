"""Start the gate: check what it needs, listen, and serve until a signal ends it."""

import asyncio
import errno
import math
import os
import socket
import time
from contextlib import suppress
from typing import Any

import structlog
import threadpoolctl
import uvicorn
from joblib import cpu_count
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from transcendent import __version__
from transcendent.errors import GateSettingsError
from transcendent.gate import logs
from transcendent.gate.app import Edge, create_app
from transcendent.gate.database import check_role, opened
from transcendent.gate.model import load_model
from transcendent.gate.settings import PREFIX, Settings

log = structlog.get_logger("transcendent.gate")


def serve(settings: Settings) -> None:
    """Serve until a signal ends it. One that dies or hangs is restarted by whatever started it."""
    if settings.artifact is None:
        raise GateSettingsError(
            f"artifact is not set: name it, as in 'gate serve ARTIFACT', or put it in {PREFIX}ARTIFACT."
        )
    with opened(settings.database.get_secret_value()) as engine:
        check_role(engine)
    if "OMP_NUM_THREADS" not in os.environ:
        threadpoolctl.threadpool_limits(int(cpu_count()))  # a container may have fewer than its machine
    model = load_model(settings.artifact, settings.trusted, settings.public_key)
    listening = listen(settings.host, settings.port, share=settings.share_port)
    logs.set_up(settings.log_level)
    edge = create_app(settings, model)
    config = uvicorn.Config(
        edge,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.most_connections + 1,
        timeout_graceful_shutdown=max(1, int(settings.seconds)),
    )
    Server(config, edge, settings.seconds).run([listening])


def listen(host: str, port: int, *, share: bool) -> socket.socket:
    """Return a socket that listens; other gates may listen on its port too if they share it."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048, reuse_port=share)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise GateSettingsError(f"cannot listen on {host}, port {port}: {error.strerror}.") from None
    raise GateSettingsError(
        f"port {port} of {host} is taken by another process, maybe a gate: end that one, or choose another "
        "port. For several gates on one port, set share_port for each."
    )


class Connection(HttpToolsProtocol):
    """A client's connection, closed at once if there are too many of them."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse."""
        super().connection_made(transport)
        if len(self.connections) >= (self.limit_concurrency or math.inf):
            transport.abort()

    @property
    def waits_for_client(self) -> bool:
        """Whether a request is arriving, or an answer is not being read."""
        if self.transport.is_closing():
            return True
        if self.cycle is None or self.cycle.response_complete:
            return self.timeout_keep_alive_task is None  # else uvicorn itself closes it in time
        return self.cycle.more_body or self.flow.write_paused

    @property
    def progress(self) -> Any:
        """What changes with each request, and with each part of a long answer."""
        return self, self.cycle, self.cycle and self.cycle.expected_content_length


class Server(uvicorn.Server):
    """A server that gives slow clients a limited time, and tells its supervisor that it is ready and alive.

    Parameters
    ----------
    config : uvicorn.Config
        Of uvicorn.
    edge : Edge
        The application.
    seconds : float
        Time for a request to arrive, and for its answer (each megabyte of a long one) to be read.
    """

    def __init__(self, config: uvicorn.Config, edge: Edge, seconds: float) -> None:
        super().__init__(config)
        self._state, self._seconds = edge.app.state, seconds
        self._beat, self._every = 0.0, seconds_between_beats()
        self._waiting: dict[Any, float] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        for each in sockets or []:
            host, port = each.getsockname()[:2]
            said = {"address": f"{host}:{port}", "model": self._state.model.digest, "version": __version__}
            log.info("ready", **said, process=os.getpid())
        notify("READY=1")

    async def on_tick(self, counter: int) -> bool:
        """Give a sign of life, and close slow connections: the event loop calls this ten times a second."""
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
            if now > since + self._seconds:
                connection.transport.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say that it ends, and end."""
        notify("STOPPING=1")
        await super().shutdown(sockets)


def notify(state: str) -> None:
    """Tell the supervisor a state as sd_notify(3) does, if it has named a socket for that."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out, suppress(OSError):
        out.setblocking(False)
        out.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


def seconds_between_beats() -> float | None:
    """Return half of the time after which the supervisor takes this process for hung, if it does so."""
    wait, process = (os.environ.get(f"WATCHDOG_{name}", "") for name in ("USEC", "PID"))
    if not wait.isdecimal() or process not in ("", str(os.getpid())):
        return None
    return int(wait) / 2e6
