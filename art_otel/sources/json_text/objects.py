"""The objects of a JSON dump, one by one, whatever lists, lines or other text stand around them.

Invariant: every byte of the stream is in exactly one piece or in one that was too long, in order, and no more than the
limit is held. An object begins outside any other, or where a record begins (see `Frame`). So a broken record costs only
the bytes up to the next one.
"""

import io
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from art_otel.sources.json_text.brackets import Brackets
from art_otel.sources.json_text.frame import SEPARATORS, Frame, is_sound

_CHUNK: Final = 1 << 18
_LOOKAHEAD: Final = 1 << 12
_SKIPPED: Final = 1 << 20

PieceKind: TypeAlias = Literal["object", "broken", "too long", "between"]


class Piece(NamedTuple):
    """`data` begins in line `line`. An object is sound JSON, a broken one is not; one that is too long is not kept."""

    kind: PieceKind
    line: int
    data: bytes


def read_objects(stream: io.BufferedIOBase, frame: Frame, limit: int) -> Iterator[Piece]:
    """Every object of the stream of at most `limit` bytes, and what stands between them."""
    window = _Window(stream, frame, limit)
    while window.holds or window.fill():
        line = window.line
        if between := window.take(_end_of_text(window, frame)):
            yield Piece("between", line, between)
            continue
        line = window.line
        kind = _classify(window)
        if kind == "too long":
            _skip(window)
        yield Piece(kind, line, window.taken)


class _Window:
    """The part of the stream that is held; `at` is where the unread rest of it begins, in line `line`."""

    def __init__(self, stream: io.BufferedIOBase, frame: Frame, limit: int) -> None:
        self.data = b""
        self.brackets = Brackets(b"")
        self.at = 0
        self.line = 1
        self.ended = False
        self.taken = b""
        self.limit = limit
        self._stream = stream
        self._frame = frame
        self._border = -1
        self._searched = 0
        self._shared = -1

    @property
    def holds(self) -> int:
        """How many bytes are held and not yet taken."""
        return len(self.data) - self.at

    def fill(self) -> bool:
        """Hold twice as much; False at the end of the stream."""
        wanted = min(max(_CHUNK, self.holds), max(_CHUNK, self.limit + 1 - self.holds))
        more = b"" if self.ended else self._stream.read(wanted)
        self.ended = not more
        self._forget(more)
        return bool(more)

    def take(self, end: int) -> bytes:
        """The bytes up to `end`, which are held no longer."""
        self.taken = self.data[self.at : end]
        self.line += self.taken.count(b"\n")
        self.at = end
        if 2 * end > len(self.data):  # mostly one large object, whose reader needs the memory
            self._forget()
        return self.taken

    def _forget(self, more: bytes = b"") -> None:
        """Hold what was taken no longer, and hold `more`."""
        if more:
            self._searched = min(self._searched, len(self.data) - _LOOKAHEAD)  # one may begin there that was cut
        self.data = self.data[self.at :] + more
        self.brackets = Brackets(self.data)
        self._border, self._searched, self._shared = (
            place - self.at for place in (self._border, self._searched, self._shared)
        )
        self.at = 0

    def may_be_record(self, end: int) -> bool:
        """Whether a record may begin here that does not go beyond `end`."""
        return self._frame.may_be_record(self.data, self.at, end)

    def alone(self) -> int | None:
        """Where the object that begins here ends, if it is sound and nothing else stands before the next record.

        This is mostly so, and found fastest. What several objects share is looked at whole for the first one only.
        """
        border = self.next_record()
        if border is None or border == self._shared:
            return None
        end = self.end_before(border)
        if is_sound(self.data[self.at : end]):
            return end
        self._shared = border
        return None

    def end_before(self, stop: int) -> int:
        """`stop`, or where the separators before it begin."""
        return self.at + len(self.data[self.at : stop].rstrip(SEPARATORS))

    def named_record(self, end: int) -> int | None:
        """Where the next record behind this place begins that `begins` does not match."""
        return self._frame.named_record(self.brackets, self.at + 1, end)

    def next_record(self) -> int | None:
        """Where the next record after this place begins, as far as one is held. No place is searched twice."""
        if self._border <= self.at:
            match = self._frame.begins.search(self.data, max(self.at + 1, self._searched))
            self._border = match.start() if match else -1
            self._searched = match.start() if match else len(self.data)
        return self._border if self._border > self.at else None


def _end_of_text(window: _Window, frame: Frame) -> int:
    """Where the next object begins that is not looked into, or as far as may be held at once."""
    passed = 0
    while passed <= _CHUNK:
        start = window.data.find(b"{", window.at + passed)
        if start < 0 and window.ended:
            return len(window.data)
        if start < 0 or (frame.around and not window.ended and len(window.data) - start < _LOOKAHEAD):
            passed = (len(window.data) if start < 0 else start) - window.at
            window.fill()
            continue
        match = frame.around.match(window.data, start) if frame.around else None
        if match is None:
            return start
        passed = match.end() - window.at
    return window.at + passed


def _classify(window: _Window) -> PieceKind:
    """Take the object that begins here. One that is too long is still there, from its beginning.

    A record that is no JSON goes up to the next one: where its brackets match says nothing.
    """
    while True:
        data, start, border = window.data, window.at, window.next_record()
        stop = len(data) if border is None else border
        end = window.alone()
        sound = end is not None
        if end is None:
            end = window.brackets.end(start, stop)
            sound = end is not None and is_sound(data[start:end])
        if not sound and window.may_be_record(stop if end is None else end):
            end = None
            if (named := window.named_record(stop)) is not None:
                border = stop = named
        last = window.end_before(stop) if end is None else end
        if last - start > window.limit:
            return "too long"
        if end is not None or border is not None or window.ended:
            window.take(last)
            return "object" if sound else "broken"
        window.fill()


def _skip(window: _Window) -> None:
    """Go to the next record, holding little."""
    while (border := _next(window)) is None:
        window.take(max(window.at, len(window.data) - _SKIPPED))
        if not window.fill():
            break
    window.take(border or len(window.data))
    window.taken = b""


def _next(window: _Window) -> int | None:
    border = window.next_record()
    named = window.named_record(len(window.data) if border is None else border)
    return border if named is None else named
