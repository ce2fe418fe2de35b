"""RowSize: about how many bytes a flattened row takes in memory as Arrow columns.

Invariant: the size depends on the row alone, and no text or token in it counts less than it is long: row groups and
parts end by the sizes of their rows, which is all that bounds them.
"""

from typing import Any, Final

import msgspec

_ENCODER: Final = msgspec.msgpack.Encoder()
_EMPTY_ROW: Final = 512


def estimate_size(row: tuple[Any, ...]) -> int:
    """About how many bytes the row takes. Raises what msgspec does for values that no column can hold."""
    return _EMPTY_ROW + len(_ENCODER.encode(row))
