"""Session: shared code of the modules for agents' logs: read the logs, and make spans of the sessions in them.

    lines, documents, zip members  ─►  a module for one agent  ─►  Session: rollout, sub-agents, LLM calls, tools

An LLM call has the bodies of its request and response, and the names of the parts that the log does not have.

Invariant: span ids are made of the log's own ids, so that reading a log twice gives the same spans. An unreadable line,
document or member is quarantined (a line in its session's trace, so that the trajectory is incomplete) and costs no
other one. Memory stays within the limits. Secrets are removed from all texts, except the rollout's id, as from a live
app's spans: a span counts its secrets, and a call with a secret loses its token ids, which could be decoded to it.
"""

import io
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import IO, Final, Literal, NamedTuple

import msgspec
import zstandard

from art_otel import attributes as names
from art_otel.calls import Logprobs, Packed, TokenIds
from art_otel.scrubbing import NameReading, RecordScrubber, Scrubber
from art_otel.scrubbing.scrubber import scrub_records
from art_otel.sources.format import Reading, Record, Refused, advice
from art_otel.sources.json_documents import encode, is_list, object_of, read_documents, text_or_json
from art_otel.spans import Attributes, Event, Quarantined, Scope, Span, Value

ROOT: Final = "rollout"
"""The key of the session's own span."""

_OPERATION: Final = "gen_ai.operation.name"
_EVALUATION: Final = "gen_ai.evaluation.result"
_ERROR_TYPE: Final = "error.type"

ZIP_MAGIC: Final = b"PK\x03\x04"

_ZSTD: Final = 93
"""The number of zstd among zip's compression methods. Python up to 3.13 cannot read it."""

_LOCAL_HEADER: Final = struct.Struct("<26xHH")
_TOKENS: Final = ("art.tokens.", names.COMPLETION_LOGPROBS_PREFIX)
_LEFT_ALONE: Final = (names.ROLLOUT_ID, *_TOKENS)
_CONTENT: Final = ("input.value", "output.value")

_Reads = Callable[[io.BufferedReader, Reading], Iterator[Record]]

Missing = Literal["system instructions", "tools", "messages", "parameters", "answer"]
"""The fields of a call that a log does not have completely."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A reward: a number, or only a label. `time_ns` is None if it was given at the end of the rollout."""

    name: str
    value: Value = None
    label: str | None = None
    explanation: str | None = None
    time_ns: int | None = None


class SessionCall(msgspec.Struct, frozen=True, kw_only=True):
    """One LLM call. `request` and `response` are JSON texts of an API's bodies; None: the log has none.

    `key` is unique in the session. `end_ns` is None without an answer. `error` is the type and message of a failure.
    `extra` has further attributes.
    """

    key: str
    model: str | None
    start_ns: int
    end_ns: int | None
    request: str | None
    response: str | None
    missing: Sequence[Missing] = ()
    error: tuple[str, str] | None = None
    extra: Mapping[str, Value] = {}


class SessionTool(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a tool. `arguments` and `result` are texts, or are written as JSON; None is unknown."""

    key: str
    name: str
    call_id: str | None
    start_ns: int
    end_ns: int
    arguments: Value
    result: Value
    failed: bool = False


class Session:
    """Makes the spans of a session. `format` and `id` name it; `id` is the rollout's id, `run` one of several runs."""

    def __init__(self, format: str, id: str, *, agent: str, version: str = "", run: str = "") -> None:  # noqa: A002 # what they are
        self.id = id
        self.trace_id = _digest(16, format, id, *([run] if run else ()))
        self._agent = agent
        self._scope = Scope(name=agent, version=version)

    def span_id(self, key: str) -> str:
        """The id of the span with this key."""
        return _digest(8, self.trace_id, key)

    def rollout(
        self,
        start_ns: int,
        end_ns: int | None,
        *,
        attributes: Mapping[str, Value] = {},
        metadata: Mapping[str, Value] = {},
        scores: Iterable[Score] = (),
        error: tuple[str, str] | None = None,
    ) -> Span:
        """Build the session's root span. Metadata that is None is left out."""
        root_attributes = {**attributes, **_metadata(metadata), names.ROLLOUT_NAME: self._agent}
        events = tuple(_evaluation(score, score.time_ns or end_ns or start_ns) for score in scores)
        span = self._span(
            f"{names.ROLLOUT_SPAN_PREFIX}{self._agent}", ROOT, None, start_ns, end_ns, root_attributes, error
        )
        return msgspec.structs.replace(span, events=events)

    def sub_agent(self, name: str, key: str, parent: str, start_ns: int, end_ns: int) -> Span:
        """The span of a sub-agent; `parent` is the key of the span above it."""
        attributes = {_OPERATION: "invoke_agent", "gen_ai.agent.name": name}
        return self._span(f"invoke_agent {name}", key, parent, start_ns, end_ns, attributes)

    def call(self, call: SessionCall, parent: str = ROOT) -> Span:
        """The span of an LLM call."""
        attributes: dict[str, Value] = {_OPERATION: "chat", "gen_ai.request.model": call.model, **call.extra}
        for name, body in (("input", call.request), ("output", call.response)):
            if body is not None:
                attributes |= {f"{name}.value": body, f"{name}.mime_type": "application/json"}
        if call.missing:
            attributes[names.MISSING] = list(call.missing)
        name = f"chat {call.model}" if call.model else "chat"
        return self._span(name, call.key, parent, call.start_ns, call.end_ns, attributes, call.error, "client")

    def tool(self, tool: SessionTool, parent: str = ROOT) -> Span:
        """The span of an execution of a tool."""
        attributes = {
            _OPERATION: "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.call.id": tool.call_id,
            "gen_ai.tool.call.arguments": text_or_json(tool.arguments),
            "gen_ai.tool.call.result": text_or_json(tool.result),
        }
        error = ("tool_error", "") if tool.failed else None
        return self._span(f"execute_tool {tool.name}", tool.key, parent, tool.start_ns, tool.end_ns, attributes, error)

    def _span(
        self,
        name: str,
        key: str,
        parent: str | None,
        start_ns: int,
        end_ns: int | None,
        attributes: Mapping[str, Value],
        error: tuple[str, str] | None = None,
        kind: Literal["internal", "client"] = "internal",
    ) -> Span:
        kept = {name: _attribute(value) for name, value in attributes.items() if value is not None}
        if error is not None:
            kept[_ERROR_TYPE] = error[0]
        return Span(
            trace_id=self.trace_id,
            span_id=self.span_id(key),
            parent_span_id=None if parent is None else self.span_id(parent),
            name=name,
            kind=kind,
            start_ns=start_ns,
            end_ns=None if end_ns is None else max(start_ns, end_ns),
            attributes={names.ROLLOUT_ID: self.id, **kept},
            status="unset" if error is None else "error",
            status_message="" if error is None else error[1],
            scope=self._scope,
        )


def body_text(fields: Mapping[str, Value], messages: Iterable[str] | None, name: str = "messages") -> str:
    """JSON text of a request body: its fields, and last its messages, JSON texts themselves; None: unknown."""
    text = encode({field: value for field, value in fields.items() if value is not None and field != name})
    if messages is None:
        return text
    return f'{text[:-1]}{"," if len(text) > 2 else ""}"{name}":[{",".join(messages)}]}}'


def _attribute(value: Value) -> Value:
    """A value that an attribute can have; JSON text of any other."""
    items: list[Value] = value if is_list(value) else [value]
    is_plain = all(
        -(2**63) <= item < 2**63 if isinstance(item, int) else isinstance(item, (str, float)) for item in items
    )
    return value if is_plain else encode(value)


def _digest(size: int, *parts: str) -> str:
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def _metadata(metadata: Mapping[str, Value]) -> dict[str, Value]:
    scalars = (str, bool, int, float)
    return {
        f"{names.METADATA_PREFIX}{name}" if isinstance(value, scalars) else f"{names.METADATA_JSON_PREFIX}{name}": value
        if isinstance(value, scalars)
        else encode(value)
        for name, value in metadata.items()
        if value is not None
    }


def _evaluation(score: Score, time_ns: int) -> Event:
    fields = {
        "gen_ai.evaluation.name": score.name,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": score.label,
        "gen_ai.evaluation.explanation": score.explanation,
    }
    kept = {name: _attribute(value) for name, value in fields.items() if value is not None}
    return Event(name=_EVALUATION, time_ns=time_ns, attributes=kept)


def choice_body(message: Value, finish_reason: Value, **fields: Value) -> dict[str, Value]:
    """Build a choice of a Chat Completions body. A reason that the log does not tell is left out.

    `null` would say that the server itself had none, so that it broke its answer off.
    """
    ended = {} if finish_reason is None else {"finish_reason": finish_reason}
    return {"index": 0, **fields, **ended, "message": message}


def token_attributes(
    *, prompt: Sequence[int] | None, completion: Sequence[int] | None, logprobs: Sequence[float] | None
) -> dict[str, Value]:
    """The ids of a call's prompt and of its only choice, with their logprobs where there is one an id.

    Raises Refused for a number that is none.
    """
    try:
        attributes: dict[str, Value] = (
            {} if prompt is None else {names.PROMPT_TOKENS: _packed("i4", TokenIds.of(prompt))}
        )
        if completion is not None:
            attributes[f"{names.COMPLETION_TOKENS_PREFIX}0"] = _packed("i4", TokenIds.of(completion))
            if logprobs is not None and len(logprobs) == len(completion):
                attributes[f"{names.COMPLETION_LOGPROBS_PREFIX}0"] = _packed("f4", Logprobs.of(logprobs))
    except (OverflowError, TypeError) as error:
        raise Refused("bad field", "token_ids", str(error)) from None
    return attributes


def _packed(kind: str, numbers: Packed[int] | Packed[float]) -> str:
    return f"{kind}:{len(numbers)}:{b64encode(numbers.data).decode()}"


# Reading logs from files.


def without_secrets(reads: _Reads) -> _Reads:
    """Make what gives the records of `reads` without secrets."""

    def read(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
        scrubber = RecordScrubber.of(reading.secrets, _NAMES)
        for record in reads(stream, reading):
            yield from scrub_records([record], scrubber) if scrubber and isinstance(record, Span) else (record,)

    return read


def document_reader(
    spans_of: Callable[[dict[str, Value]], Iterator[Span]], *, field_of_list: str | None = None
) -> _Reads:
    """Make what reads the spans of every object in a stream, without secrets. `spans_of` may raise Refused.

    A document that is a list of objects is read as an object that holds the list in the field `field_of_list`.
    """

    def read(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
        for document in read_documents(stream, reading.limits.max_message_bytes, msgspec.json.decode):
            try:
                if field_of_list is not None and is_list(document.value):
                    yield from spans_of({field_of_list: document.value})
                else:
                    yield from spans_of(object_of(document))
            except Refused as problem:
                yield problem.quarantine(f"{reading.path}:{document.line}")

    return without_secrets(read)


class LogLines:
    """The objects of a log, one a line, read whole, because lines lead back to others; and why others are none."""

    def __init__(self, stream: io.BufferedReader, reading: Reading) -> None:
        self._path = reading.path
        self._bad: list[tuple[int, Refused]] = []
        self._lines: list[tuple[int, dict[str, Value]]] = []
        held = 0
        for document in read_documents(stream, reading.limits.max_message_bytes, msgspec.json.decode):
            held += len(document.data or b"")
            if held > reading.limits.max_rollout_bytes:
                detail = f"the log is longer than a rollout may be; {advice('max_rollout_bytes')}"
                self._bad.append((document.line, Refused("over a limit", detail=detail)))
                break
            reading.stats.replaced += document.replaced
            try:
                self._lines.append((document.line, object_of(document)))
            except Refused as problem:
                self._bad.append((document.line, problem))

    def first(self, matches: Callable[[dict[str, Value]], bool]) -> dict[str, Value] | None:
        """The first object that matches."""
        return next((value for _, value in self._lines if matches(value)), None)

    def feed(self, add: Callable[[dict[str, Value]], None]) -> None:
        """Hand each object to `add`; a line for which it raises Refused is set aside."""
        for number, value in self._lines:
            try:
                add(value)
            except Refused as problem:
                self._bad.append((number, problem))

    def quarantined(self, trace_id: str | None) -> Iterator[Quarantined]:
        """What could not be read, as pieces of this trace."""
        for number, problem in self._bad:
            yield problem.quarantine(f"{self._path}:{number}", ids=(trace_id, None))


class ZipMember(NamedTuple):
    """A file in an archive, or why it cannot be read."""

    name: str
    data: bytes | Refused


def read_members(stream: io.BufferedReader, limit: int, wanted: Callable[[str], bool]) -> Iterator[ZipMember]:
    """Read the wanted files, in the order of their names. Raises Refused for what is no archive."""
    with tempfile.TemporaryFile() as copy:  # a zip's list of files is at its end, so the stream cannot be read directly
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


class _NamesInLogs:
    """What the attributes that a Session writes say: bodies and tokens, and no name makes a text of a log a secret."""

    prompt_ids: re.Pattern[str] = re.compile("(?!)")
    """Found nowhere: tokens stand in attributes of their own."""

    def reading(self, name: str) -> NameReading:
        return "not" if name.startswith(_LEFT_ALONE) else "spoken"

    def is_message(self, event: str) -> bool:  # noqa: ARG002 # a log has no events but scores
        return False

    def is_content(self, name: str, value: Value, scrubber: Scrubber) -> bool:  # noqa: ARG002 # the name says it
        return name in _CONTENT

    def without_tokens(self, attributes: Attributes, *, in_content: bool) -> Attributes:
        kept = {name: value for name, value in attributes.items() if not name.startswith(_TOKENS)}
        return kept if in_content else attributes


_NAMES: Final = _NamesInLogs()
