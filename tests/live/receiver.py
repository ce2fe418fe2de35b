"""Receiver: takes OTLP/HTTP and writes each request as a line of a dump, as a collector's file exporter does.

Invariant: a request is in the dump before it is acknowledged.
"""

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.stand_ins import Handler, listening

_IDS = ("traceId", "spanId", "parentSpanId")


@contextmanager
def receiver(dump: Path) -> Iterator[str]:
    """The base URL of a receiver that writes `dump`."""
    lock = threading.Lock()

    class Receiving(Handler):
        def answer(self, body: bytes) -> None:
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with lock, dump.open("a", encoding="utf-8") as file:
                file.write(json.dumps(as_json(body)) + "\n")
            self.head(200, content_type="application/x-protobuf", content_length=0)

    with listening(Receiving) as url:
        yield url


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
