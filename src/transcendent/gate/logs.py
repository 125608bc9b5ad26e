"""Structured logs: one JSON object per line, on standard error."""

import logging
import sys
from typing import Any

import orjson
import structlog

from transcendent._utils.text import visible


def set_up(level: str) -> None:
    """Write all logs as JSON lines, including those of uvicorn."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer(serializer=_dump)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(serializer=lambda entry, **_: _dump(entry).decode()),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in ("alembic", "httpx2", "httpcore2"):  # the last two would write the URLs of webhooks
        logging.getLogger(name).setLevel(logging.WARNING)


def _dump(entry: Any, **_: Any) -> bytes:
    if isinstance(entry, dict):  # a path of a stranger, read in a terminal
        entry = {name: visible(value, "\n") if type(value) is str else value for name, value in entry.items()}
    return orjson.dumps(entry, default=str, option=orjson.OPT_NON_STR_KEYS)
