"""Start the gate: check what it needs, then serve with one or several processes."""

import json
import os
import sys
import time
from typing import Any

import structlog
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from transcendent.errors import GateSettingsError
from transcendent.gate import logs
from transcendent.gate.database import opened
from transcendent.gate.model import load_model
from transcendent.gate.settings import PREFIX, TRIED, Settings

log = structlog.get_logger("transcendent.gate")


def serve(settings: Settings) -> None:
    """Serve until a signal ends it. Worker processes that die are started again."""
    if settings.artifact is None:
        raise GateSettingsError(
            f"artifact is not set: name it, as in 'gate serve ARTIFACT', or put it in {PREFIX}ARTIFACT."
        )
    with opened(settings.database.get_secret_value()):
        pass  # it has to be there, and of the right version
    model = load_model(settings.artifact, settings.trusted, settings.public_key)
    os.environ.update(as_environment(settings) | {TRIED: model.digest})
    logs.set_up(settings.log_level)  # the process that watches over workers logs too
    serving: dict[str, Any] = {
        "app": "transcendent.gate.app:create_app",
        "factory": True,
        "host": settings.host,
        "port": settings.port,
        "workers": settings.workers,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": "FORWARDED_ALLOW_IPS" in os.environ,  # else anyone here could write any address
        "timeout_graceful_shutdown": max(1, int(settings.seconds)),
    }
    if settings.workers == 1:
        uvicorn.run(**serving)
    else:
        config = uvicorn.Config(**serving)
        supervisor = Supervisor(config, [config.bind_socket()])
        supervisor.run()
        if not supervisor.processes:
            sys.exit(STARTUP_FAILURE)


class Supervisor(Multiprocess):
    """Starts workers, and starts one again as soon as it has died.

    uvicorn's own asks each worker for a sign of life, and waits for that of one that dies meanwhile as long
    as for a busy one's. Until then nobody would start the others again.
    """

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have died. One that cannot start is left out; stop when none is left."""
        for process in list(self.processes):
            if process.process.is_alive() or self.should_exit.is_set():
                continue
            self.processes.remove(process)
            if process.exitcode == STARTUP_FAILURE:
                log.error("a worker cannot start: see above", process=process.pid, left=len(self.processes))
                continue
            log.warning("a worker died, and is started again", process=process.pid, code=process.exitcode)
            self.processes.append(Process(self.config, self.sockets))
            self.processes[-1].start()
        if not self.processes:
            self.should_exit.set()

    def join_all(self) -> None:
        """Wait until the workers have ended; kill those that take too long, as when they wait to start."""
        end = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + 5
        for process in self.processes:
            process.process.join(max(0, end - time.monotonic()))
            if process.process.is_alive():
                log.error("a worker does not end, and is killed", process=process.pid)
                process.process.kill()
                process.process.join()


def as_environment(settings: Settings) -> dict[str, str]:
    """Return settings as worker processes read them."""
    values = settings.model_dump(exclude_none=True) | {"database": settings.database.get_secret_value()}
    joined = {
        name: json.dumps(value) if isinstance(value, list) else str(value) for name, value in values.items()
    }
    return {f"{PREFIX}{name.upper()}": value for name, value in joined.items()}
