"""Servers that stand in for others: a handler says what they answer, `listening` serves it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Keeps its connection and prints nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Read the body and answer."""
        self.answer(self.rfile.read(int(self.headers["content-length"] or 0)))

    def answer(self, body: bytes) -> None:
        """Send the answer to a body."""
        raise NotImplementedError

    def head(self, status: int, **headers: object) -> None:
        """Send a status and headers, `content_type` for `content-type`."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server in threads of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
