"""The header Host: which host a request is for."""

import re

_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_LAST_PORT = 65535


def host_in(header: str) -> str | None:
    """Return the host that a header Host names, without its port; None if it is malformed."""
    found = _HOST.fullmatch(header)
    if found is None or int(found[2] or 0) > _LAST_PORT:
        return None
    return found[1].strip("[]").lower()
