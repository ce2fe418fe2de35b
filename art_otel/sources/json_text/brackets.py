"""Brackets: which of a text match, however many of its objects are asked for and whatever stands inside them.

Invariant: an answer is that of `scan`, and all answers together cost what going over the text a few times does. Broken
text is asked of again and again, since where an object begins says nothing of where it ends. So when the first answers
have gone over it often enough, all brackets are matched at once.

That goes from the end to the beginning, as if the text began at each place, inside a string and outside of one: a
string that lacks a quote is as good a beginning as any.
"""

import bisect
import operator
import re
from array import array
from typing import Final

from art_otel.sources.json_text.scan import CLOSER_OF, COLON, OPENER_OF, TOKEN, object_end, object_keys

_MAX_SCANS: Final = 8
"""Sound text is gone over less often."""

_BLOCK: Final = 1 << 16
_MARK: Final = re.compile(rb'["\\{}\[\]]')
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")


class Brackets:
    """Where the objects of `data` end, and what names they have. `scans` is how often it may be gone over."""

    def __init__(self, data: bytes, scans: int = _MAX_SCANS) -> None:
        self.data = data
        self._left = scans * len(data)
        self._matches: _Matches | None = None

    def end(self, start: int, limit: int) -> int | None:
        """As `object_end`."""
        if self._left > 0:
            end = object_end(self.data, start, limit)
            self._left -= (limit if end is None else end) - start
            return end
        end = self._matched().end(start)
        return end if end is not None and end <= limit else None

    def keys(self, start: int, end: int) -> frozenset[bytes]:
        """As `object_keys`, of an object that ends at `end`."""
        if self._left > 0:
            self._left -= end - start
            return object_keys(self.data, start, end)
        matches = self._matched()
        keys: set[bytes] = set()
        at = start + 1
        while token := TOKEN.search(self.data, at, end):
            at, byte = token.end(), self.data[token.start()]
            if byte in CLOSER_OF:
                at = matches.end(token.start()) or end
            elif byte not in OPENER_OF and COLON.match(self.data, at):
                keys.add(token.group()[1:-1])
        return frozenset(keys)

    def _matched(self) -> "_Matches":
        if self._matches is None:
            self._matches = _Matches(self.data)
        return self._matches


class _Matches:
    """All brackets from the last to the first, with what they lead to: numbers of brackets, 0 for none.

    An opening bracket leads to the one that closes it, a closing one to the one that closes what stands around it.
    """

    def __init__(self, data: bytes) -> None:
        wide = "I" if len(data) < 1 << 32 else "Q"
        self._places = array(wide, [len(data)])
        self._leads_to = array(wide, [0])
        self._match(data)

    def end(self, opener: int) -> int | None:
        """Where the object or list that begins there ends, if it does."""
        number = bisect.bisect_left(self._places, -opener, key=operator.neg)
        closer = self._leads_to[number]
        return self._places[closer] + 1 if closer else None

    def _match(self, data: bytes) -> None:
        places, leads_to = self._places, self._leads_to
        outside = inside = 0  # the next bracket that closes what stands around, when here is no string, and when it is
        behind, later = len(data), 0  # where the mark behind this one is, and what `inside` was before it
        for stop in range(len(data), 0, -_BLOCK):
            marks = [match.start() for match in _MARK.finditer(data, max(stop - _BLOCK, 0), stop)]
            for place in reversed(marks):
                byte, before = data[place], inside
                if byte == _QUOTE:
                    outside, inside = inside, outside
                elif byte == _BACKSLASH:
                    inside = later if behind == place + 1 else inside
                elif byte in OPENER_OF:
                    places.append(place)
                    leads_to.append(outside)
                    outside = len(places) - 1
                else:
                    closer = outside if data[places[outside] : places[outside] + 1] == _closer(byte) else 0
                    places.append(place)
                    leads_to.append(closer)
                    outside = leads_to[closer]
                behind, later = place, before


def _closer(opener: int) -> bytes:
    return bytes([CLOSER_OF[opener]])
