"""Condense: a span's long texts as what they add to earlier ones of its trace.

Most bytes of a dump repeat the history of a conversation, because each prompt begins with the one before it. Invariant:
spans that are expanded in the order in which they were condensed are equal to what they were before, also when those of
other traces are left out. Either side remembers `MEMORY` characters at most.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from art_otel.conventions.caches.prefix_cache import end_of
from art_otel.spans import Span

MEMORY: Final = 12 << 20
LONG: Final = 2048
"""Characters of a text that is worth it."""

_THREADS: Final = 4
"""Texts that are remembered of an attribute of a trace: a few, because sub-agents alternate."""

_HEAD: Final = 16
_TAIL: Final = 4
"""Where packed numbers say how many they are, and where their base64, or a JSON list, ends: there a text may differ
from one that it goes on with. What is between is the text's body."""

_PIECES: Final = 12
"""A body that grew is remembered as this many pieces at most, because to put them together each time takes longer."""

_Key: TypeAlias = tuple[str, str]


class Echo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A long text of attribute `name`: `head`, a remembered body, `tail`.

    `place` says which of the bodies of this attribute it is, the last first. Without a place the text stands in the
    span; `afresh` then says that no body of this attribute is remembered any more.
    """

    name: str
    place: int | None = None
    head: str = ""
    tail: str = ""
    afresh: bool = False


class _Body:
    """The body of a text, in pieces. `size` is its characters, `bytes` what they take in UTF-8."""

    __slots__ = ("bytes", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.size = 0
        self.bytes = 0

    def grow(self, text: str, start: int) -> int:
        """Take what the body of `text` adds to this one, which stands in it from `start`; give how much that is."""
        piece = text[start + self.size : -_TAIL]
        added = len(piece)
        if added:
            self.pieces.append(piece)
            self.size += added
            self.bytes += added if text.isascii() else len(piece.encode())
            if len(self.pieces) > _PIECES:
                self.pieces = [text[start : start + self.size]]
        return added


class _Bodies:
    """The last bodies of each attribute of each trace; the longest unused attributes are forgotten first.

    Who sees only some of the traces forgets later than who sees all, so what one remembers the other does too.
    """

    def __init__(self) -> None:
        self._size = 0
        self._known: OrderedDict[_Key, list[_Body]] = OrderedDict()

    def of(self, key: _Key) -> list[_Body] | None:
        """Those of one attribute, which is now the last used, the last first; None when there are none."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    def begin(self, key: _Key) -> list[_Body]:
        """Forget those of one attribute."""
        self._size -= sum(body.size for body in self._known.pop(key, ()))
        known = self._known[key] = []
        return known

    def keep(self, known: list[_Body], place: int | None, text: str, start: int) -> None:
        """Remember a text's body, which begins at `start`, instead of the one at `place`, which it goes on with."""
        if place is None:
            known.insert(0, _Body())
            if len(known) > _THREADS:
                self._size -= known.pop().size
        elif place:
            known.insert(0, known.pop(place))
        self._size += known[0].grow(text, start)
        while self._size > MEMORY:
            _, forgotten = self._known.popitem(last=False)
            self._size -= sum(body.size for body in forgotten)


class Condenser:
    """Condenses the spans of many traces."""

    def __init__(self) -> None:
        self._bodies = _Bodies()

    def condense(self, span: Span) -> tuple[Span, list[Echo], int]:
        """The span with empty texts in the place of echoes, the echoes, and how many bytes shorter its encoding is."""
        echoes: list[Echo] = []
        left: dict[str, str] = {}
        saved = 0
        for name, text in span.attributes.items():
            if type(text) is str and len(text) >= LONG:
                echo, size = self._echo((span.trace_id, name), text)
                echoes.append(echo)
                if size:
                    left[name] = ""
                    saved += size + (2 if size < 1 << 16 else 4)  # its header, but for that of the empty text
        if not left:
            return span, echoes, 0
        return msgspec.structs.replace(span, attributes=span.attributes | left), echoes, saved

    def _echo(self, key: _Key, text: str) -> tuple[Echo, int]:
        """The echo, and how many bytes the text has in UTF-8 when it need not stand in the span."""
        bodies, start = self._bodies, _body_start(text)
        known = bodies.of(key)
        afresh = known is None
        if known is None:
            known = bodies.begin(key)
        for place, body in enumerate(known):
            end = end_of(body.pieces, text, start)
            if end >= 0:
                head, tail = text[:start], text[end:]
                size = len(text) if text.isascii() else body.bytes + len(head.encode()) + len(tail.encode())
                bodies.keep(known, place, text, start)
                return Echo(key[1], place, head, tail), size
        bodies.keep(known, None, text, start)
        return Echo(key[1], afresh=afresh), 0


class Expander:
    """Expands the spans that one Condenser condensed, or those of some of their traces."""

    def __init__(self) -> None:
        self._bodies = _Bodies()

    def expand(self, span: Span, echoes: Iterable[Echo]) -> Span:
        """The span as it was: its own attributes are filled in, so nobody else should have it yet."""
        for echo in echoes:
            place, name = echo.place, echo.name
            key = (span.trace_id, name)
            known = self._bodies.of(key)
            if known is None or echo.afresh:
                known = self._bodies.begin(key)
            if place is not None and known:
                text = span.attributes[name] = "".join((echo.head, *known[place].pieces, echo.tail))
                self._bodies.keep(known, place, text, len(echo.head))
            else:
                text = span.attributes[name]
                self._bodies.keep(known, None, text, _body_start(text))
        return span


def _body_start(text: str) -> int:
    return text.rfind(":", 0, _HEAD) + 1
