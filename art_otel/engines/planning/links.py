"""Links: which traces are assembled together.

Invariant: traces that share a rollout id are linked, and so are those that are linked to one trace. The smallest id of
linked traces stands for all of them, so the outcome does not depend on the order of the edges. Memory is 100 bytes
a trace at most: of a million rollouts a hundred thousand may have traces to be linked.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

ID_BYTES: Final = 16


class Links:
    """Traces, numbered, and for each the smallest that it is linked to.

    An edge is two trace ids, `ID_BYTES` each; several may stand in one value.
    """

    def __init__(self, edges: Iterable[bytes]) -> None:
        self._ids = memoryview(b"")
        self._parents = array("i")
        if pieces := [piece for piece in edges if piece]:
            self._link(pieces)

    def __len__(self) -> int:
        return len(self._parents)

    def trace_id(self, number: int) -> bytes:
        """The id of a trace."""
        return bytes(self._ids[ID_BYTES * number : ID_BYTES * (number + 1)])

    def linked(self) -> Iterator[tuple[int, int]]:
        """The traces that are linked to a smaller one, each with the smallest."""
        for number in range(len(self)):
            if (root := self._root(number)) != number:
                yield number, root

    def _link(self, pieces: Sequence[bytes]) -> None:
        import pyarrow as pa  # noqa: PLC0415 # slow to load, and most conversions link nothing
        from pyarrow.compute import dictionary_encode  # noqa: PLC0415 # pyright: ignore[reportAttributeAccessIssue] # made at run time

        ids = pa.binary(ID_BYTES)
        ends = [pa.Array.from_buffers(ids, len(piece) // ID_BYTES, [None, pa.py_buffer(piece)]) for piece in pieces]
        # The system's pool gives back what a growing table leaves; the usual one would keep a third more.
        encoded = dictionary_encode(pa.chunked_array(ends), memory_pool=pa.system_memory_pool())
        dictionary = encoded.chunk(0).dictionary  # all pieces have one
        self._ids = memoryview(dictionary.buffers()[1])
        self._parents = array("i", range(len(dictionary)))
        for piece in encoded.chunks:
            numbers = memoryview(piece.indices.buffers()[1]).cast("i")
            for at in range(0, len(piece), 2):
                self._join(numbers[at], numbers[at + 1])

    def _join(self, first: int, second: int) -> None:
        first, second = self._root(first), self._root(second)
        if first != second:
            low, high = sorted((first, second), key=self.trace_id)
            self._parents[high] = low

    def _root(self, number: int) -> int:
        parents = self._parents
        while (parent := parents[number]) != number:
            parents[number] = parents[parent]
            number = parents[number]
        return number
