"""LogLines: the JSON objects of a log, one a line, read whole, because requests lead back to lines before.

Invariant: a line that is no object costs itself and is quarantined in the session's trace, so that its trajectory says
what it lost. No more than `max_rollout_bytes` are held; what is beyond them is quarantined.
"""

import io
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from art_otel.sources.format import Reading
from art_otel.sources.json_text.documents import read_documents
from art_otel.sources.json_text.values import is_object
from art_otel.sources.limits import advice
from art_otel.sources.refusals import Refused, too_long
from art_otel.spans import Quarantined, Value


class LogLine(NamedTuple):
    """An object and the number of its line."""

    number: int
    value: dict[str, Value]


class LogLines:
    """The lines of a log, and why others could not be read."""

    def __init__(self, stream: io.BufferedReader, reading: Reading) -> None:
        self._path = reading.path
        self._bad: list[tuple[int, Refused]] = []
        self.lines: list[LogLine] = []
        held = 0
        for document in read_documents(stream, reading.limits.max_message_bytes, msgspec.json.decode):
            held += len(document.data or b"")
            if held > reading.limits.max_rollout_bytes:
                detail = f"the log is longer than a rollout may be; {advice('max_rollout_bytes')}"
                self._bad.append((document.line, Refused("over a limit", detail=detail)))
                break
            reading.stats.replaced += document.replaced
            self._take(document.line, document.data, document.value)

    def _take(self, number: int, data: bytes | memoryview | None, value: Value) -> None:
        if data is None:
            self.refuse(number, Refused("over a limit", detail=too_long("").detail))
        elif value is UNSET:
            torn = not bytes(data).endswith(b"\n")
            self.refuse(number, Refused("torn" if torn else "not JSON"))
        elif not is_object(value):
            self.refuse(number, Refused("bad field", detail="is no object"))
        else:
            self.lines.append(LogLine(number, value))

    def refuse(self, number: int, problem: Refused) -> None:
        """Set a line aside."""
        self._bad.append((number, problem))

    def quarantined(self, trace_id: str | None) -> Iterator[Quarantined]:
        """What could not be read, as pieces of this trace."""
        for number, problem in self._bad:
            yield problem.quarantine(f"{self._path}:{number}", ids=(trace_id, None))
