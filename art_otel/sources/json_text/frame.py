"""Frame: how the records of a JSON dump are told from what stands around them and from what is inside them.

Invariant: no text is taken for a record, because its quotes would be escaped. In the order in which a store writes its
names a record is known by how it begins; in any other (`jq -S` sorts them) by the names that it has, when it is whole.
"""

import codecs
import re
from typing import Final

import msgspec

from art_otel.sources.json_text.brackets import Brackets
from art_otel.sources.json_text.faults import json_problem
from art_otel.sources.json_text.scan import object_keys

BLANKS: Final = b" \t\r\n\x1e"
"""JSON's white space, and what begins each text of a sequence (RFC 7464, `jq --seq`)."""

SEPARATORS: Final = BLANKS + b",[]"
"""What may stand between the objects of a dump."""

_MAX_DETECTED: Final = 1 << 13
"""Strings and brackets of the first object that detection looks at, for each format; a string may be long."""

_BEFORE: Final = re.compile(rb"[\s\[\x1e]*+")
_OBJECT: Final = re.compile(rb'\{\s*+"[^"\\]*+"\s*+:')
_MAX_LOST_TRIES: Final = 8


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around the objects of a format.

    `begins` matches where a record begins, and nowhere inside one; what it matches is less than 4 KiB, or a broken
    record before it is not told from it. `names` are in every record, and not all of them in any object inside one.
    `around` matches the beginning of an object that is looked into, up to its list of records.
    """

    begins: re.Pattern[bytes]
    names: frozenset[bytes]
    around: re.Pattern[bytes] | None = None

    def first_keys(self, head: bytes) -> frozenset[bytes]:
        """The first names in the first object of a dump, for detection; none when it does not begin with an object."""
        start = self.first(head)
        return object_keys(head, start, len(head), _MAX_DETECTED) if head.startswith(b"{", start) else frozenset()

    def first(self, head: bytes) -> int:
        """Where the first object of a dump begins, if it begins with one."""
        start = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
        start = _end_of(_BEFORE, head, start)
        if self.around is not None and (match := self.around.match(head, start)):
            start = _end_of(_BEFORE, head, match.end())
        return start

    def may_be_record(self, data: bytes, start: int, end: int) -> bool:
        """Whether the object between them begins as a record does or has its names somewhere."""
        return self.begins.match(data, start, end) is not None or self._has_names(data, start, end)

    def named_record(self, brackets: Brackets, start: int, end: int) -> int | None:
        """Where the first record begins that is known by its names, in any order, and ends before `end`."""
        data = brackets.data
        lost = 0 if self._has_names(data, start, end) else _MAX_LOST_TRIES
        while lost < _MAX_LOST_TRIES and (match := _OBJECT.search(data, start, end)):
            stop = brackets.end(match.start(), end)
            if stop is not None and brackets.keys(match.start(), stop) >= self.names:
                return match.start()
            if stop is not None and self._is_other(data, match.start(), stop):
                start = stop
            else:
                start = match.start() + 1
                lost += 1  # each such try may go to the end
        return None

    def _is_other(self, data: bytes, start: int, end: int) -> bool:
        """Whether it surely is one object, though it may be none that can be read, and no record is in it."""
        if self._has_names(data, start, end):
            return False
        problem = json_problem(data[start:end])
        return problem is None or problem.reason in ("not a finite number", "nested too deep", "lone surrogate")

    def _has_names(self, data: bytes, start: int, end: int) -> bool:
        return all(data.find(b'"%b"' % name, start, end) >= 0 for name in self.names)


def is_sound(data: bytes) -> bool:
    """Whether it is JSON, also with bare NaN and infinities."""
    problem = json_problem(data)
    return problem is None or problem.reason == "not a finite number"


def _end_of(pattern: re.Pattern[bytes], data: bytes, start: int) -> int:
    match = pattern.match(data, start)
    return match.end() if match else start
