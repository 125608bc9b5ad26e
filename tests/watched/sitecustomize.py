"""Log what Python does with sockets, in every process that starts with this folder in PYTHONPATH.

Each line of the file that WATCHED_SOCKETS names is "network" or "local", an event, and a family or address.
Local are sockets between processes of one machine, which are of the family AF_UNIX or have a path for an
address, and the name of the machine. Sockets that compiled code opens without Python are not heard.
"""

import os
import sys
from typing import Any

_ABOUT_PATHS = ("socket.bind", "socket.connect", "socket.gethostname")


def _log(event: str, given: tuple[Any, ...]) -> None:
    if not event.startswith("socket."):
        return
    if event == "socket.__new__":
        from _socket import AF_UNIX

        about = given[1]
        local = about == AF_UNIX
    else:
        about = given[-1] if given else ""
        local = isinstance(about, str | bytes) and event in _ABOUT_PATHS
    handle = os.open(os.environ["WATCHED_SOCKETS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{'local' if local else 'network'} {event} {about!r}\n".encode())
    os.close(handle)


if "WATCHED_SOCKETS" in os.environ:  # a collector of doctests imports this file as well
    sys.addaudithook(_log)
