"""Requests to an object store are repeated while it is busy, restarting or out of reach."""

import errno
import random
import re
import time
from collections.abc import Callable
from typing import Any

from transcendent.batch.places import is_store

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0)
"""Seconds before each repetition; the clients of stores repeat a few times of their own."""

_NUMBERS = {
    *(errno.EBUSY, errno.EIO, errno.ETIMEDOUT, errno.EPIPE, errno.EHOSTUNREACH, errno.ENETUNREACH),
    *(errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED),
}
_NAMES = {
    *("ConnectionError", "TimeoutError", "HTTPClientError", "ResponseStreamingError"),
    *("ClientConnectionError", "ClientPayloadError", "IncompleteRead", "IncompleteReadError"),
}
_SAID = re.compile(r"NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|\b50[0234]\b")


def patiently(filesystem: Any, call: Callable[..., Any], *given: Any) -> Any:
    """Return what a call returns; on an object store, call again while it fails for reasons that pass."""
    for wait in WAITS if is_store(filesystem) else ():
        try:
            return call(*given)
        except Exception as error:
            if not passes(filesystem, error):
                raise
            time.sleep(wait * random.uniform(0.5, 1.0))  # so that workers do not come back all at once
    return call(*given)


def passes(filesystem: Any, error: BaseException) -> bool:
    """Return whether an error of an object store may be gone in a while: a reset, a timeout, a restart."""
    if not is_store(filesystem):
        return False
    if {kind.__name__ for kind in type(error).__mro__} & _NAMES:
        return True
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError | PermissionError):
        return False
    return error.errno in _NUMBERS or (error.errno is None and bool(_SAID.search(str(error))))
