"""Salvage of an OTLP JSON request that did not decode: its records one by one, with their resource and scope.

Invariant: a record that is sound alone is kept, a bad one is quarantined, and what is unexplained when every record is
cut out (a torn tail, rubbish) is exactly one Quarantined of kind "unknown".
"""

import bisect
import operator
import re
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from art_otel.sources.format import Record
from art_otel.sources.json_text.faults import TRUNCATED, fault_path, is_utf8, syntax_problem
from art_otel.sources.json_text.scan import object_end
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.json_records import JsonRecords
from art_otel.sources.otlp.json_scan import Cut, Scan, scan_request
from art_otel.sources.otlp.records import Batch, scope_of
from art_otel.sources.refusals import NO_IDS, Ids, Refused, attribute_path
from art_otel.spans import Quarantined, Resource, Scope

_Message = TypeVar("_Message", bound=otlp.Message)

_NOT_FINITE: Final = re.compile(rb'("doubleValue"\s*+:\s*+)(NaN|-?Infinity)\b')
_TRACE_ID: Final = re.compile(rb'"traceId"\s*+:\s*+(?:"([\w+/=-]{22,32})")?')
_SPAN_ID: Final = re.compile(rb'"spanId"\s*+:\s*+(?:"([\w+/=-]{11,16})")?')
_RECORD_START: Final = re.compile(rb'\{\s*+"(?:traceId|timeUnixNano|observedTimeUnixNano)"\s*+:')
_ATTRIBUTE_START: Final = re.compile(rb'\{\s*+"key"\s*+:')
_ATTRIBUTE: Final = re.compile(r"attributes\[(\d+)\]")
_MAX_SCANS: Final = 8
"""How often a stretch may be gone over in search of records: again for each object around one, each torn one."""


class _Empty(otlp.Message):
    """An object whose content is of no matter here."""


class _Scopes(otlp.Message):
    scope: _Empty | None = None
    spans: list[_Empty] | None = None
    log_records: list[_Empty] | None = None


class _Batches(otlp.Message):
    resource: _Empty | None = None
    scope_spans: list[_Scopes] | None = None
    scope_logs: list[_Scopes] | None = None


class _Leftover(otlp.Message):
    """A request whose records, resources and scopes are cut out."""

    resource_spans: list[_Batches] | None = None
    resource_logs: list[_Batches] | None = None
    batches: list[_Batches] | None = None
    trace: "_Leftover | None" = None
    result: "_Leftover | None" = None


class _RawAttributes(otlp.Message):
    attributes: list[msgspec.Raw]


class _Key(otlp.Message):
    key: str = ""


_LEFTOVER: Final = msgspec.json.Decoder(_Leftover)
_RESOURCE: Final = msgspec.json.Decoder(otlp.Resource, strict=False)
_SCOPE: Final = msgspec.json.Decoder(otlp.Scope, strict=False)
_SPAN: Final = msgspec.json.Decoder(otlp.Span, strict=False)
_LOG: Final = msgspec.json.Decoder(otlp.LogRecord, strict=False)


def salvage_request(data: bytes, place: str, records: JsonRecords) -> Iterator[Record]:
    """Every record of one request that can still be read, and a Quarantined for each that cannot."""
    salvage = _Salvage(data, place, records, scan_request(data))
    yield from salvage.shared()
    yield from salvage.records()
    problem = leftover_problem(salvage.scan.leftover)
    if salvage.is_broken or (problem is not None and problem.reason in ("torn", "not JSON")):
        yield from salvage.derailed()
    if problem is not None and not salvage.explains(problem):
        yield problem.damage(place, ids=salvage.torn_ids)


class _Salvage:
    """One request under salvage."""

    def __init__(self, data: bytes, place: str, records: JsonRecords, scan: Scan) -> None:
        self.scan = scan
        self.torn_ids: Ids = NO_IDS
        self._recovered = False
        self._data = data
        self._view = memoryview(data)  # a record may be large: no copies
        self._has_logs = b'"logRecords"' in data
        self._place = place
        self._read = records
        self._resources: dict[int, Resource] = {}
        self._scopes: dict[int, Scope] = {}
        self._kept: list[Cut] = []
        self._broken: list[Cut] = []

    @property
    def is_broken(self) -> bool:
        """Whether a record was no JSON, so that the scan may have gone astray in it."""
        return bool(self._broken)

    def shared(self) -> Iterator[Quarantined]:
        """Decode resources and scopes; one that is bad is a partial Quarantined and its records do without it."""
        for number, cut in self.scan.resources.items():
            if cut.torn:
                continue
            try:
                message = decode_alone(_RESOURCE, self._view[cut.start : cut.end])
            except Refused as problem:
                yield self._inside("resource", problem)
                continue
            self._resources[number], damages = self._read.resource(message, self._place)
            yield from damages
        for number, cut in self.scan.scopes.items():
            if cut.torn:
                continue
            try:
                self._scopes[number] = scope_of(decode_alone(_SCOPE, self._view[cut.start : cut.end]))
            except Refused as problem:
                yield self._inside("scope", problem)

    def records(self) -> Iterator[Record]:
        """Decode each record alone."""
        for cut in self.scan.records:
            data = self._view[cut.start : cut.end]
            if self._broken and _ATTRIBUTE_START.match(data):
                continue  # the scan left the broken record too early and is inside it
            if cut.torn:
                self._broken.append(cut)
                self.torn_ids = self._ids(data)
                continue
            try:
                yield from self._record(cut, data)
                self._kept.append(cut)
            except Refused as problem:
                if syntax_problem(data) is not None:
                    self._broken.append(cut)
                yield problem.damage(self._place, "span" if cut.role == "span" else "log", self._ids(data))

    def derailed(self) -> Iterator[Record]:
        """Records that the scan lost sight of, because something before them has a stray quote or bracket.

        A record is known by how it begins; the quotes of one inside a text would be escaped.
        """
        start = 0
        for end, following in [*((cut.start, cut.end) for cut in self._kept), (len(self._data), 0)]:
            yield from self._in_gap(start, end)
            start = following

    def explains(self, problem: Refused) -> bool:
        """Whether a record that was already found to be no JSON is what is wrong with the rest, too."""
        if not self._broken or self._broken[-1].torn:
            return False
        return problem.reason == "not JSON" or self._recovered

    def _in_gap(self, start: int, end: int) -> Iterator[Record]:
        left = _MAX_SCANS * (end - start)
        while left > 0 and (match := _RECORD_START.search(self._data, start, end)):
            start = match.start() + 1
            stop = object_end(self._data, match.start(), end)
            left -= (end if stop is None else stop) - match.start()
            if stop is not None and (found := self._found(match.start(), stop)):
                start, self._recovered = stop, True
                yield from found

    def _found(self, start: int, end: int) -> tuple[Record, ...]:
        data = self._data[start:end]
        role = "span" if b'"startTimeUnixNano"' in data else "log"
        if role == "log" and (b'"traceId"' not in data or not self._has_logs):
            return ()  # an event or a link
        before = bisect.bisect_right(self.scan.records, start, key=operator.attrgetter("start"))
        near = self.scan.records[before - 1] if before else Cut(role, start, end, torn=False, batch=1, scope_batch=1)
        try:
            records = self._record(near._replace(role=role), data)
        except Refused:
            return ()
        return () if any(isinstance(record, Quarantined) and not record.partial for record in records) else records

    def _record(self, cut: Cut, data: bytes | memoryview) -> tuple[Record, ...]:
        batch = Batch(
            place=self._place,
            resource=self._resources.get(cut.batch, Resource()),
            scope=self._scopes.get(cut.scope_batch, Scope()),
        )
        if cut.role == "span":
            return self._read.span(decode_alone(_SPAN, data), batch)
        return self._read.log_record(decode_alone(_LOG, data), batch)

    def _ids(self, data: memoryview) -> Ids:
        """The ids of a record that cannot be decoded, as far as its first `traceId` and `spanId` are good."""
        return self._read.known_ids(_first_id(_TRACE_ID, data), _first_id(_SPAN_ID, data))

    def _inside(self, what: str, problem: Refused) -> Quarantined:
        where = f"{what}.{problem.where}" if problem.where else what
        return Refused(problem.reason, where, problem.detail).damage(self._place, partial=True)


def decode_alone(decoder: "msgspec.json.Decoder[_Message]", piece: bytes | memoryview) -> _Message:
    """One object. A bare NaN or Infinity, as `json.dumps` writes it, is read as its text. Raises Refused."""
    if not is_utf8(piece):
        raise Refused("invalid UTF-8")
    try:
        return decoder.decode(piece)
    except (msgspec.DecodeError, RecursionError) as error:
        data = bytes(piece)
        quoted = _NOT_FINITE.sub(rb'\1"\2"', data)
        if quoted != data:
            return decode_alone(decoder, quoted)
        raise syntax_problem(data) or Refused("bad field", _fault(data, str(error)), str(error)) from error


def leftover_problem(leftover: bytes) -> Refused | None:
    """What is wrong with a request apart from its records: first as JSON, then as OTLP. None when nothing is."""
    problem = syntax_problem(leftover)
    if problem is not None:
        torn = problem.detail == TRUNCATED and leftover.lstrip()[:1] in (b"{", b"[")
        return Refused("torn", detail=problem.detail) if torn else problem
    try:
        _LEFTOVER.decode(leftover)
    except msgspec.ValidationError as error:
        return Refused("not OTLP", detail=str(error))
    return None if is_utf8(leftover) else Refused("invalid UTF-8")


def _first_id(pattern: re.Pattern[bytes], data: memoryview) -> str | None:
    match = pattern.search(data)
    return bytes(match[1]).decode() if match and match[1] else None


def _fault(data: bytes, message: str) -> str:
    """The path to the field of the wrong type, an attribute by its name. msgspec's message ends with it."""
    where = fault_path(message)
    numbered = _ATTRIBUTE.match(where)
    if numbered is None:
        return where
    attributes = msgspec.json.decode(data, type=_RawAttributes, strict=False).attributes
    try:
        return attribute_path(("", msgspec.json.decode(attributes[int(numbered[1])], type=_Key).key))
    except msgspec.ValidationError:
        return where
