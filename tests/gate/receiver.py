"""A receiver of webhooks that fails, hangs and answers, as it is told to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """Receives webhooks on this machine; ``behaves`` is a status, or "hang"."""

    def __init__(self):
        self.behaves, self.received, self.requests = 204, [], 0
        self._released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections stay open

            def do_POST(self):
                receiver.requests += 1
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                how = receiver.behaves
                if len(body) < length:  # the sender was killed
                    self.close_connection = True
                    return
                if how == "hang":
                    receiver._released.wait(30)
                    self.close_connection = True
                    return
                if how < 300:
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    receiver.received.append((self.path, headers, body))
                self.send_response(how)
                self.send_header("content-length", "0")
                if 300 <= how < 400:
                    self.send_header("location", f"{receiver.url}elsewhere")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
