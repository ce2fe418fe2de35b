"""OTLP requests for the tests of this room, as JSON and as protobuf, and the way to read them back."""

import base64
import gzip
import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import LogRecord, Quarantined, Span

RECORDINGS = Path(__file__).parent.parent / "recordings"
DUMPS = sorted(RECORDINGS.glob("*/*.jsonl"))
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
IDS = ("traceId", "spanId", "parentSpanId")


def span(number=1, **fields):
    """A good span; `fields` replace or add OTLP JSON fields."""
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": f"span {number}",
        "kind": 3,
        "startTimeUnixNano": "1000",
        "endTimeUnixNano": "2000",
        **fields,
    }


def attributes(**values):
    """Attributes of OTLP values."""
    return {"attributes": [{"key": key, "value": value} for key, value in values.items()]}


def traces(*spans, resource="here", scope="lib"):
    """A request of one batch."""
    shared = attributes(**{"service.name": {"stringValue": resource}})
    scoped = {"scope": {"name": scope, "version": "1"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": shared, "scopeSpans": [scoped]}]}


def logs(*records):
    """A request of one batch of log records."""
    return {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "lib"}, "logRecords": list(records)}]}]}


def log(**fields):
    """A good log record."""
    return {"traceId": TRACE, "spanId": f"{1:016x}", "timeUnixNano": "5", "eventName": "e", **fields}


def lines(*requests):
    """A request a line; text and bytes stay as they are."""
    return b"".join((part if isinstance(part, bytes) else json.dumps(part).encode()) + b"\n" for part in requests)


def to_protobuf(request) -> bytes:
    """The same request in protobuf. JSON writes ids in hex, protobuf's own mapping in base64."""
    message = LogsData() if "resourceLogs" in request else TracesData()
    return json_format.ParseDict(_with_base64_ids(request), message).SerializeToString()


def _with_base64_ids(value, key=""):
    if isinstance(value, dict):
        return {name: _with_base64_ids(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_base64_ids(item) for item in value]
    return base64.b64encode(bytes.fromhex(value)).decode() if key in IDS else value


def prefixed(*messages: bytes) -> bytes:
    """The collector's framing: 4 bytes of length, big-endian, before each message."""
    return b"".join(len(message).to_bytes(4) + message for message in messages)


def field(number: int, value: bytes) -> bytes:
    """A protobuf field with a length."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    """A protobuf varint."""
    low = bytes([number & 0x7F | (0x80 if number > 0x7F else 0)])
    return low + (varint(number >> 7) if number > 0x7F else b"")


def batch_of(*spans: bytes) -> bytes:
    """A protobuf request of encoded spans."""
    return field(1, field(2, b"".join(field(2, one) for one in spans)))


def zstd(data: bytes) -> bytes:
    """One zstd frame."""
    return bytes(pa.Codec("zstd").compress(data))


COMPRESSORS = {"gzip": gzip.compress, "zstd": zstd}


def read_bytes(folder: Path, data: bytes, name="in.dump", **options):
    """Write and read one file: its records and its account."""
    path = folder / name
    path.write_bytes(data)
    account = FileStats()
    (source,) = find_inputs([path])
    return list(read_file(source, account, **options)), account


@contextmanager
def standard_input(data: bytes):
    """These bytes as the standard input of this process."""
    before = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


def spans_of(records):
    """Only the spans."""
    return [record for record in records if isinstance(record, Span)]


def numbers(records) -> list[int]:
    """The numbers by which `span` names the spans."""
    return [int(record.span_id, 16) for record in spans_of(records)]


def logs_of(records):
    """Only the log records."""
    return [record for record in records if isinstance(record, LogRecord)]


def damages_of(records):
    """Only the damages."""
    return [record for record in records if isinstance(record, Quarantined)]


def reasons_of(records):
    """Why each damage is one."""
    return [damage.reason for damage in damages_of(records)]
