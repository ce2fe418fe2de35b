"""Receiver: takes OTLP/HTTP and writes each request as a line of a dump, as a collector's file exporter does.

Invariant: a request is in the dump before it is acknowledged.
"""

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_IDS = ("traceId", "spanId", "parentSpanId")


@contextmanager
def receiver(dump: Path) -> Iterator[str]:
    """The base URL of a receiver that writes `dump`."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with lock, dump.open("a", encoding="utf-8") as file:
                file.write(json.dumps(as_json(body)) + "\n")
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class's name
            """The console stays quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def as_json(body: bytes) -> dict[str, Any]:
    """A protobuf request in OTLP's JSON, where ids are hex and not base64."""
    return _with_hex_ids(MessageToDict(ExportTraceServiceRequest.FromString(body), use_integers_for_enums=True))


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64decode(inner).hex() if name in _IDS else _with_hex_ids(inner) for name, inner in value.items()
    }
