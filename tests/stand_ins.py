"""Servers that stand in for others: a handler says what they answer, `listening` serves it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, TCPServer


class Handler(BaseHTTPRequestHandler):
    """Keeps its connection and prints nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Read the body and answer."""
        self.answer(self.body())

    def answer(self, body: bytes) -> None:
        """Send the answer to a body."""
        raise NotImplementedError

    def body(self) -> bytes:
        """The body of the request, which may come in chunks."""
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers["content-length"] or 0))
        pieces: list[bytes] = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def chunk(self, data: bytes) -> None:
        """Send a chunk of an answer; an empty one is the last."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def head(self, status: int, **headers: object) -> None:
        """Send a status and headers, `content_type` for `content-type`."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def listening(handler: type[BaseRequestHandler], kind: type[TCPServer] = ThreadingHTTPServer) -> Iterator[str]:
    """The address of a server in threads of its own."""
    with kind(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
