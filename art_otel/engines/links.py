"""Links: which traces are assembled together.

Invariant: traces that share a rollout id are linked, and so are those that are linked to one trace. The smallest id of
linked traces stands for all of them, so the outcome does not depend on the order of the edges. Memory is 50 bytes a
trace at most: of a million rollouts a hundred thousand may have traces to be linked.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

ID_BYTES: Final = 16


class Links:
    """Traces, numbered, and for each the smallest that it is linked to.

    An edge is two trace ids, `ID_BYTES` each; several may stand in one value.
    """

    def __init__(self, edges: Iterable[bytes]) -> None:
        self._ids = b""
        self._parents = array("i")
        if joined := b"".join(edges):
            self._link(joined)

    def __len__(self) -> int:
        return len(self._parents)

    def trace_id(self, number: int) -> bytes:
        """The id of a trace."""
        return self._ids[ID_BYTES * number : ID_BYTES * (number + 1)]

    def linked(self) -> Iterator[tuple[int, int]]:
        """The traces that are linked to a smaller one, each with the smallest."""
        for number in range(len(self)):
            if (root := self._root(number)) != number:
                yield number, root

    def _link(self, edges: bytes) -> None:
        import pyarrow as pa  # noqa: PLC0415 # slow to load, and most conversions link nothing

        ends = pa.Array.from_buffers(pa.binary(ID_BYTES), len(edges) // ID_BYTES, [None, pa.py_buffer(edges)])
        encoded = ends.dictionary_encode()
        numbers = memoryview(encoded.indices.buffers()[1]).cast("i")
        self._ids = encoded.dictionary.buffers()[1].to_pybytes()
        self._parents = array("i", range(len(encoded.dictionary)))
        for at in range(0, len(ends), 2):
            first, second = self._root(numbers[at]), self._root(numbers[at + 1])
            if first != second:
                low, high = sorted((first, second), key=self.trace_id)
                self._parents[high] = low

    def _root(self, number: int) -> int:
        parents = self._parents
        while (parent := parents[number]) != number:
            parents[number] = parents[parent]
            number = parents[number]
        return number
