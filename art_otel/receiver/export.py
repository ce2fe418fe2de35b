"""Export: one request of an OTLP exporter, decompressed and decoded.

Invariant: a body is read as a whole or refused as a whole. In a body that can be read, a record that cannot be used is
quarantined and costs no other record.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec
import zstandard

from art_otel.sources import FileStats, Limits, Reading, read_lines_of, read_protobuf
from art_otel.spans import LogRecord, Quarantined, Span

Signal: TypeAlias = Literal["traces", "logs"]
Encoding: TypeAlias = Literal["protobuf", "json"]

_PLACE: Final = "the request"
# zlib's code for a gzip header (16) with the largest window (15).
_GZIP: Final = 31


class ExportRefusedError(Exception):
    """Raised for a request that is refused. `status` is the HTTP status of the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """A request as it came. `compression` is its Content-Encoding: "gzip", "zstd", or "" for none."""

    body: bytes
    signal: Signal
    encoding: Encoding
    compression: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceivedRecords:
    """The records of an export, and the quarantined ones (`rejected`)."""

    records: list[Span | LogRecord]
    rejected: Sequence[Quarantined] = ()

    def counts(self) -> "WrittenRecords":
        """How many spans and log records there are, and how many quarantined ones by reason."""
        spans = sum(isinstance(record, Span) for record in self.records)
        first = self.rejected[0] if self.rejected else None
        return WrittenRecords(
            spans=spans,
            log_records=len(self.records) - spans,
            rejected=Counter(record.reason for record in self.rejected),
            why="" if first is None else f"{first.path}: {first.reason} {first.detail}".rstrip(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenRecords:
    """How many records of an export were written, and how many quarantined (`rejected`, by reason).

    `why` explains the first quarantined one; "" where there is none.
    """

    spans: int
    log_records: int
    rejected: Mapping[str, int]
    why: str


def read_export(export: Export, max_bytes: int) -> ReceivedRecords:
    """Decompress and decode a request. Raises ExportRefusedError with 400, 413 or 415."""
    body = _decompress(export, max_bytes)
    reading = Reading(path=_PLACE, limits=Limits(), stats=FileStats())
    records: list[Span | LogRecord] = []
    rejected: list[Quarantined] = []
    if export.encoding == "json":
        _check_json(body)
        decoded = read_lines_of([body], reading)
    else:
        decoded = read_protobuf(body, reading)
    for record in decoded:
        if not isinstance(record, Quarantined):
            records.append(record)
        elif record.kind == "unknown":
            raise ExportRefusedError(400, f"not OTLP in {export.encoding}: {record.reason} {record.detail}".rstrip())
        elif not record.partial:
            rejected.append(record)
    if reading.stats.other_signals:
        raise ExportRefusedError(400, f"this is not a request with {export.signal}")
    return ReceivedRecords(records=records, rejected=rejected)


def _check_json(body: bytes) -> None:
    """Refuse a body that is no whole JSON object.

    The reader of dumps would save the whole spans of a torn one; but here the exporter sends the whole body again.
    """
    try:
        msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ExportRefusedError(400, f"not OTLP in json: {error}") from None


def _decompress(export: Export, max_bytes: int) -> bytes:
    if export.compression in ("", "identity"):
        return export.body
    decompress = _DECOMPRESSORS.get(export.compression)
    if decompress is None:
        raise ExportRefusedError(415, f"Content-Encoding {export.compression!r}: send gzip, zstd or none")
    body = decompress(export.body, max_bytes)
    if len(body) > max_bytes:
        raise ExportRefusedError(413, f"the body decompresses to more than {max_bytes} bytes; send smaller batches")
    return body


def _from_gzip(body: bytes, max_bytes: int) -> bytes:
    """Decompress all members of a gzip body.

    Returns at most `max_bytes` + 1 bytes, so that the caller sees an excess and a small body that decompresses to
    gigabytes takes no memory.
    """
    parts: list[bytes] = []
    left = max_bytes + 1
    while left and (body or not parts):
        decompressor = zlib.decompressobj(_GZIP)
        try:
            parts.append(decompressor.decompress(body, left))
        except zlib.error as error:
            raise ExportRefusedError(400, f"not gzip: {error}") from None
        left -= len(parts[-1])
        if left and not decompressor.eof:
            raise ExportRefusedError(400, "not gzip: it ends too early")
        body = decompressor.unused_data
    return b"".join(parts)


def _from_zstd(body: bytes, max_bytes: int) -> bytes:
    """Decompress frames of zstd, within the same limits as `_from_gzip`."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as stream:
            plain = stream.read(max_bytes + 1)
        if len(plain) <= max_bytes:
            _check_zstd_end(body)
    except zstandard.ZstdError as error:
        raise ExportRefusedError(400, f"not zstd: {error}") from None
    return plain


def _check_zstd_end(body: bytes) -> None:
    """Raise ZstdError if the last frame is cut: the stream reader raises nothing for that, it just ends."""
    while True:
        frame = zstandard.ZstdDecompressor().decompressobj()
        frame.decompress(body)
        if not frame.eof:
            raise zstandard.ZstdError("it ends too early")
        if not (body := frame.unused_data):
            return


_DECOMPRESSORS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {"gzip": _from_gzip, "zstd": _from_zstd}
