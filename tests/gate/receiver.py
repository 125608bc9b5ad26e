"""A receiver of webhooks that fails, hangs and answers, for tests and for benchmarks of the gate."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG = 0


class Receiver:
    """Receives webhooks on this machine.

    Attributes
    ----------
    behaves : int
        The status that it answers with, or `HANG`.
    received : list
        Path, headers and body of each request that was answered with success.
    requests : int
        The number of all requests.
    """

    def __init__(self) -> None:
        self.behaves, self.requests = 204, 0
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop, and release those who wait."""
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # the sender was killed
                self.close_connection = True
                return
            receiver.requests += 1
            if (status := receiver.behaves) == HANG:
                receiver.closed.wait(30)
                self.close_connection = True
                return
            if status < 300:
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append((self.path, headers, body))
            self.send_response(status)
            self.send_header("content-length", "0")
            if 300 <= status < 400:
                self.send_header("location", f"{receiver.url}elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
