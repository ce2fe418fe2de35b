"""A proxy before a store's server that counts requests and does to them what networks do."""

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import NamedTuple

from tests.stand_ins import Handler

STALL = 3600
NOT_FORWARDED = ("expect", "connection", "content-length", "transfer-encoding")


class Asked(NamedTuple):
    """A request: its number from 0 on, its method, and its path with the query."""

    number: int
    method: str
    path: str


class Fault(NamedTuple):
    """What becomes of a request: it is answered 503, left without an answer, or cut after so many bytes of its own body
    or of the answer's."""

    status: int | None = None
    stalls: bool = False
    cut_request: int | None = None
    cut_answer: int | None = None


class FaultProxy:
    """`fault_of` decides about each request; None lets it through. `requests` counts them by method."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.requests: Counter[str] = Counter()
        self.asked: list[Asked] = []
        self.fault_of: Callable[[Asked], Fault | None] = lambda _: None
        self.ended = threading.Event()
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.options = f"?region=us-east-1&scheme=http&endpoint_override={self.address}"

    def url(self, key: str) -> str:
        return f"s3://{key}{self.options}"

    def take(self, method: str, path: str) -> Fault | None:
        with self._lock:
            asked = Asked(len(self.asked), method, path)
            self.asked.append(asked)
            self.requests[method] += 1
            return self.fault_of(asked)

    def reset(self) -> None:
        self.fault_of = lambda _: None
        self.requests.clear()
        self.asked.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Clients hang up where a fault is."""


class _Handler(Handler):
    owner: FaultProxy

    def forward(self) -> None:
        fault = self.owner.take(self.command, self.path)
        if fault is not None and fault.stalls:
            self._stall()
            return
        if fault is not None and fault.cut_request is not None:
            self.rfile.read(fault.cut_request)
            self._hang_up()
            return
        body = self.body()
        if fault is not None and fault.status is not None:
            self.send_response(fault.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        connection = http.client.HTTPConnection(self.owner.target, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in NOT_FORWARDED}
        connection.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "server", "date"):
                self.send_header(name, value)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        if fault is not None and fault.cut_answer is not None:
            self.wfile.write(data[: fault.cut_answer])
            self._hang_up()
            return
        self.wfile.write(data)

    def handle_expect_100(self) -> bool:
        self.send_response_only(100)
        self.end_headers()
        return True

    def _stall(self) -> None:
        self.owner.ended.wait(STALL)
        self.close_connection = True

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(2)


for _method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler.forward)


@contextmanager
def proxied(target: str) -> Generator[FaultProxy]:
    proxy = FaultProxy(target)
    thread = threading.Thread(target=proxy.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.ended.set()
        proxy.server.shutdown()
        proxy.server.server_close()
