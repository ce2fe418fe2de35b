"""A structural scan of one OTLP JSON request: where its records, resources and scopes stand.

Invariant: the scan goes over strings and brackets once, never recurses, never raises and holds no more than a byte a
level. Brackets that do not match cost the record they stand in, not the array around it.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from art_otel.sources.json_text.scan import CLOSER_OF, OPENER_OF, TOKEN

Role: TypeAlias = Literal["resource", "scope", "span", "log"]

_MAX_KEY: Final = 32

_ROLES: Final = {
    ("", b"", "{"): "request",
    ("request", b"trace", "{"): "request",
    ("request", b"result", "{"): "request",
    ("request", b"batches", "["): "batches",
    ("request", b"resourceSpans", "["): "batches",
    ("request", b"resourceLogs", "["): "batches",
    ("batches", b"", "{"): "batch",
    ("batch", b"resource", "{"): "resource",
    ("batch", b"scopeSpans", "["): "scopes",
    ("batch", b"scopeLogs", "["): "scopes",
    ("scopes", b"", "{"): "scope batch",
    ("scope batch", b"scope", "{"): "scope",
    ("scope batch", b"spans", "["): "spans",
    ("scope batch", b"logRecords", "["): "logs",
    ("spans", b"", "{"): "span",
    ("logs", b"", "{"): "log",
}
"""(what stands around it, the key before it, its bracket) -> what it is."""

_CUT: Final = frozenset({"resource", "scope", "span", "log"})


class Cut(NamedTuple):
    """One object of the request: `data[start:end]`.

    `torn` means the data ended inside it. `batch` and `scope_batch` number the ResourceSpans and ScopeSpans around it.
    """

    role: Role
    start: int
    end: int
    torn: bool
    batch: int
    scope_batch: int


class Scan(msgspec.Struct):
    """What was found: records in order, resources and scopes by the number of their batch, and all the rest.

    `leftover` is the request with `{}` in the place of each of them.
    """

    records: list[Cut] = msgspec.field(default_factory=list[Cut])
    resources: dict[int, Cut] = msgspec.field(default_factory=dict[int, Cut])
    scopes: dict[int, Cut] = msgspec.field(default_factory=dict[int, Cut])
    leftover: bytes = b""


def scan_request(data: bytes) -> Scan:
    """Cut one request into its objects."""
    scan = Scan()
    rest: list[bytes] = []
    end = 0
    for cut in _Scanner(data).cuts():
        rest += (data[end : cut.start], b"{}")
        end = cut.end
        if cut.role == "resource":
            scan.resources[cut.batch] = cut
        elif cut.role == "scope":
            scan.scopes[cut.scope_batch] = cut
        else:
            scan.records.append(cut)
    scan.leftover = b"".join((*rest, data[end:]))
    return scan


class _Scanner:
    """The state of one scan: the known brackets around this place, or the openers inside an object with no parts."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._around: list[tuple[str, int]] = []
        self._key = b""
        self._batch = 0
        self._scope_batch = 0
        self._inside = bytearray()
        self._role = ""
        self._start = 0

    def cuts(self) -> Iterator[Cut]:
        """Each resource, scope, span and log record in the order of the data."""
        for token in TOKEN.finditer(self._data):
            byte = self._data[token.start()]
            if byte in CLOSER_OF:
                self._open(byte, token.start())
            elif byte in OPENER_OF:
                yield from self._close(byte, token.start())
            elif not self._inside and token.end() - token.start() <= _MAX_KEY:
                self._key = token.group()[1:-1]
        if self._inside and self._role in _CUT:
            yield self._cut(len(self._data), torn=True)

    def _open(self, opener: int, start: int) -> None:
        if self._inside:
            self._inside.append(opener)
            return
        role, bracket = self._around[-1] if self._around else ("", 0)
        key = self._key if bracket == ord("{") else b""
        known = _ROLES.get((role, key, chr(opener)), "")
        self._key = b""
        if known and known not in _CUT:
            self._around.append((known, opener))
            self._batch += known == "batch"
            self._scope_batch += known == "scope batch"
        else:
            self._inside.append(opener)
            self._role, self._start = known, start

    def _close(self, closer: int, start: int) -> Iterator[Cut]:
        opener = OPENER_OF[closer]
        if self._inside:
            match = self._inside.rfind(opener)
            if match > 0:
                del self._inside[match:]  # brackets above it were never closed
                return
            self._inside.clear()
            end = start + 1 if match == 0 else start  # a closer without its opener belongs to what is around
            if self._role in _CUT:
                yield self._cut(end, torn=False)
            if match == 0:
                return
        if self._around and self._around[-1][1] == opener:
            self._around.pop()

    def _cut(self, end: int, *, torn: bool) -> Cut:
        return Cut(cast(Role, self._role), self._start, end, torn, self._batch, self._scope_batch)
