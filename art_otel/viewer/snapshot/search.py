"""Search: which trajectories hold a text, in ids, names, metadata, logs, messages, reasoning and tool calls.

Invariant: a row matches where one of its texts holds the query, whatever the case. Messages are looked through in the
files, a row group at a time, so that memory does not grow with them. Texts that are JSON (metadata, arguments) match as
they are written there.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections import OrderedDict
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.store.read import open_parquet

if TYPE_CHECKING:
    from art_otel.viewer.snapshot.outlines import Outlines

_MESSAGE: Final = (
    "content",
    "reasoning",
    "refusal",
    "parts",
    "tool_calls.list.element.name",
    "tool_calls.list.element.arguments",
)
_SEARCHED: Final = (
    "rollout_id", "trace_id", "name", "group_id", "error", "metadata", "nested_metadata", "logs",
    "rewards.list.element.label", "rewards.list.element.explanation",
    *(f"calls.list.element.prompt.messages.list.element.{field}" for field in _MESSAGE),
    *(f"turns.list.element.message.{field}" for field in _MESSAGE),
    "tool_calls.list.element.name", "tool_calls.list.element.arguments", "tool_calls.list.element.result",
    "tool_calls.list.element.error",
)  # fmt: skip
_REMEMBERED: Final = 16


class Search:
    """The searches of one snapshot; the latest are remembered."""

    def __init__(self, outlines: "Outlines") -> None:
        self._outlines = outlines
        self._matches: OrderedDict[str, NDArray[np.bool_]] = OrderedDict()

    def rows(self, query: str) -> NDArray[np.bool_]:
        """Mark the rows that hold the text. Shape: (rows,). Raises StoreError."""
        if query not in self._matches:
            self._matches[query] = self._look(query)
        while len(self._matches) > _REMEMBERED:
            self._matches.popitem(last=False)
        return self._matches[query]

    def _look(self, query: str) -> NDArray[np.bool_]:
        parts = [np.zeros(0, np.bool_)]
        for file, groups in groupby(self._outlines.groups, key=attrgetter("file")):
            with open_parquet(file) as parquet:
                for group in groups:
                    table = group.read(parquet, list(_SEARCHED))
                    matches = np.zeros(table.num_rows, np.bool_)
                    for column in table.columns:
                        for start, chunk in zip(_starts(column), column.chunks, strict=True):
                            matches[start : start + len(chunk)] |= _holding(chunk, query)
                    parts.append(matches)
        return np.concatenate(parts)


def _starts(column: pa.ChunkedArray) -> list[int]:
    return [0, *np.cumsum([len(chunk) for chunk in column.chunks]).tolist()][: column.num_chunks]


def _holding(array: pa.Array, query: str) -> NDArray[np.bool_]:
    """Mark the values that hold the text, at any depth. Shape: (values,)."""
    if pa.types.is_struct(array.type):
        matches = np.zeros(len(array), np.bool_)
        for field in range(array.type.num_fields):
            matches |= _holding(pc.struct_field(array, [field]), query)
        return matches
    if pa.types.is_list(array.type):
        inner = _holding(pc.list_flatten(array), query)
        before = np.concatenate([[0], np.cumsum(inner)])
        ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False))
        return np.diff(before[np.concatenate([[0], ends])]) > 0
    matching = pc.match_substring(array, query, ignore_case=True)
    return pc.fill_null(matching, fill_value=False).to_numpy(zero_copy_only=False)
