"""Logs of agents as they lie in files: lines that lead back to others, documents, the members of zip archives.

Invariant: a line, document or member that cannot be read costs itself: it is quarantined, a line in its session's
trace, so that the trajectory says what it lost. No more than the limits allow is held. The records of a log are given
without secrets, as a live app's spans are: every text of a span is read but the rollout's id; a span says how many
secrets were found in it, and a call that held one says so and loses its token ids, which would spell it.
"""

import io
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Final, NamedTuple

import msgspec
import zstandard
from msgspec import UNSET

from art_otel import attributes as names
from art_otel.scrubbing import Hits, Scrubber
from art_otel.sources.format import Reading, Record
from art_otel.sources.json_documents import Document, read_documents
from art_otel.sources.json_values import is_list, is_object
from art_otel.sources.refusals import Refused, advice, too_long
from art_otel.spans import Attributes, Event, Quarantined, Span, Value

ZIP_MAGIC: Final = b"PK\x03\x04"

_ZSTD: Final = 93
"""The number of zstd among the methods of zip, which Python 3.13 and older do not read."""

_LOCAL_HEADER: Final = struct.Struct("<26xHH")
_TOKENS: Final = (names.PROMPT_TOKENS, names.COMPLETION_TOKENS_PREFIX, names.COMPLETION_LOGPROBS_PREFIX)
_LEFT_ALONE: Final = (names.ROLLOUT_ID, *_TOKENS)
_CONTENT: Final = ("input.value", "output.value")

_Reads = Callable[[io.BufferedReader, Reading], Iterator[Record]]


def without_secrets(reads: _Reads) -> _Reads:
    """Make what gives the records of `reads` without secrets."""
    return partial(_read_scrubbed, reads=reads)


def document_reader(
    spans_of: Callable[[dict[str, Value]], Iterator[Span]], *, field_of_list: str | None = None
) -> _Reads:
    """Make what reads the spans of every object in a stream, without secrets. `spans_of` may raise Refused.

    A list of objects is read as the object that has it in `field_of_list`.
    """
    return without_secrets(partial(_read_documents, spans_of=spans_of, field_of_list=field_of_list))


def _read_documents(
    stream: io.BufferedReader,
    reading: Reading,
    *,
    spans_of: Callable[[dict[str, Value]], Iterator[Span]],
    field_of_list: str | None,
) -> Iterator[Record]:
    for document in read_documents(stream, reading.limits.max_message_bytes, msgspec.json.decode):
        try:
            value = document.value
            if field_of_list is not None and is_list(value):
                value = {field_of_list: value}
            yield from spans_of(_object_of(document, value))
        except Refused as problem:
            yield problem.quarantine(f"{reading.path}:{document.line}")


class LogLine(NamedTuple):
    """An object and the number of its line."""

    number: int
    value: dict[str, Value]


class LogLines:
    """The objects of a log, one a line, read whole, because lines lead back to others; and why others are none."""

    def __init__(self, stream: io.BufferedReader, reading: Reading) -> None:
        self._path = reading.path
        self._bad: list[tuple[int, Refused]] = []
        self.lines: list[LogLine] = []
        held = 0
        for document in read_documents(stream, reading.limits.max_message_bytes, msgspec.json.decode):
            held += len(document.data or b"")
            if held > reading.limits.max_rollout_bytes:
                detail = f"the log is longer than a rollout may be; {advice('max_rollout_bytes')}"
                self.refuse(document.line, Refused("over a limit", detail=detail))
                break
            reading.stats.replaced += document.replaced
            try:
                self.lines.append(LogLine(document.line, _object_of(document, document.value)))
            except Refused as problem:
                self.refuse(document.line, problem)

    def refuse(self, number: int, problem: Refused) -> None:
        """Set a line aside."""
        self._bad.append((number, problem))

    def quarantined(self, trace_id: str | None) -> Iterator[Quarantined]:
        """What could not be read, as pieces of this trace."""
        for number, problem in self._bad:
            yield problem.quarantine(f"{self._path}:{number}", ids=(trace_id, None))


def _object_of(document: Document[Value], value: Value) -> dict[str, Value]:
    """The object that a document is. Raises Refused."""
    if document.data is None:
        raise Refused("over a limit", detail=too_long("").detail)
    if value is UNSET:
        raise Refused("not JSON" if bytes(document.data).endswith(b"\n") else "torn", detail="is no JSON object")
    if not is_object(value):
        raise Refused("bad field", detail="is no object")
    return value


class ZipMember(NamedTuple):
    """A file in an archive, or why it cannot be read."""

    name: str
    data: bytes | Refused


def read_members(stream: io.BufferedReader, limit: int, wanted: Callable[[str], bool]) -> Iterator[ZipMember]:
    """Read the wanted files, in the order of their names. Raises Refused for what is no archive."""
    with tempfile.TemporaryFile() as copy:  # the list of the files stands at the end
        shutil.copyfileobj(stream, copy)
        try:
            members = zipfile.ZipFile(copy).infolist()
        except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
            raise Refused("torn", detail=f"is no whole zip archive: {error}") from None
        for info in sorted(members, key=lambda info: info.filename):
            if wanted(info.filename):
                yield ZipMember(info.filename, _read_member(copy, info, limit))


def _read_member(file: IO[bytes], info: zipfile.ZipInfo, limit: int) -> bytes | Refused:
    if info.file_size > limit:
        return Refused("over a limit", detail=f"has {info.file_size:,} bytes; {advice('max_message_bytes')}")
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        return Refused("torn", detail="has no header")
    file.seek(sum(_LOCAL_HEADER.unpack(header)), io.SEEK_CUR)
    packed = file.read(info.compress_size)
    try:
        data = _unpacked(packed, info.compress_type, limit)
    except (zlib.error, zstandard.ZstdError) as error:
        return Refused("torn", detail=str(error))
    if zlib.crc32(data) != info.CRC:
        return Refused("torn", detail="its checksum does not match")
    return data


def _unpacked(packed: bytes, method: int, limit: int) -> bytes:
    if method == _ZSTD:
        return zstandard.ZstdDecompressor().stream_reader(packed).read(limit)
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, limit) if method == zipfile.ZIP_DEFLATED else packed


def _read_scrubbed(stream: io.BufferedReader, reading: Reading, *, reads: _Reads) -> Iterator[Record]:
    """What `reads` gives, without secrets."""
    scrubber = None if reading.scrub == "off" else Scrubber(reading.scrub)
    for record in reads(stream, reading):
        yield _scrubbed(record, scrubber) if scrubber is not None and isinstance(record, Span) else record


def _scrubbed(span: Span, scrubber: Scrubber) -> Span:
    hits = Hits()
    content = {name: span.attributes[name] for name in _CONTENT if name in span.attributes}
    scrubbed_content = _attributes(content, scrubber, hits)
    holds_content = hits.count > 0
    others = {name: value for name, value in span.attributes.items() if name not in content}
    attributes = _attributes(others, scrubber, hits) | scrubbed_content
    events = tuple(_event(event, scrubber, hits) for event in span.events)
    message = scrubber.text(span.status_message, hits)
    if not hits.count:
        return span
    if holds_content and scrubber.alters:
        attributes = {name: value for name, value in attributes.items() if not name.startswith(_TOKENS)}
    if holds_content:
        attributes[names.SCRUBBED_CONTENT] = True
    attributes[names.SCRUBBED] = hits.count
    return msgspec.structs.replace(span, attributes=attributes, events=events, status_message=message)


def _attributes(attributes: Attributes, scrubber: Scrubber, hits: Hits) -> dict[str, Value]:
    return {
        name: value if name.startswith(_LEFT_ALONE) else scrubber.value(name, value, hits, by_name=False)
        for name, value in attributes.items()
    }


def _event(event: Event, scrubber: Scrubber, hits: Hits) -> Event:
    return msgspec.structs.replace(event, attributes=_attributes(event.attributes, scrubber, hits))
