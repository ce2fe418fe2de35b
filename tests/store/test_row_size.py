"""RowSize: row groups and parts end by it, so a text that counts for nothing would make these of any size."""

import msgspec
from hypothesis import given, settings

from art_otel.store.part_writer import estimate_size
from art_otel.store.rows import row_source
from art_otel.store.schema import ROW
from art_otel.testing import trajectories


def length(value) -> int:
    """Of all texts and tokens in a flattened value."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, msgspec.Struct):
        return length(msgspec.structs.astuple(value))
    return sum(map(length, value)) if isinstance(value, tuple | list) else 0


@settings(deadline=None)
@given(trajectories())
def test_a_row_is_at_least_as_large_as_its_texts_and_tokens_are_long(trajectory):
    row = ROW.flatten(row_source(trajectory))
    assert estimate_size(row) > length(row)
