"""Rows of an Arrow batch as lines of JSON.

Invariant: no value fails its row. Columns that are null are left out, ids come first (so that a row that is cut can
still be named), times are whole nanoseconds, NaN is null in a column of numbers (pandas writes null so) and NaN inside
other values, and text that is not UTF-8 keeps its bytes.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from art_otel.spans import Value

_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def json_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Each row as a line."""
    names: list[str] = batch.schema.names
    order = sorted(range(len(names)), key=lambda at: not names[at].lower().endswith("id"))
    ordered = [names[at] for at in order]
    try:
        columns = [_values(batch.column(at)) for at in order]
    except (ValueError, OverflowError):  # text that is not UTF-8, or a time that nothing can hold
        columns = [[_value(scalar) for scalar in batch.column(at)] for at in order]
    for row in zip(*columns, strict=True):
        yield _line(ordered, row)


def _line(names: Sequence[str], row: Sequence[Value]) -> bytes:
    fields = {
        name: value
        for name, value in zip(names, row, strict=True)
        if value is not None and (type(value) is not float or value == value)  # noqa: PLR0124 # NaN
    }
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False, default=_other)
    return text.encode(errors="surrogateescape") + b"\n"


def _values(column: pa.Array) -> list[Value]:
    """A column as Python values. Raises ValueError for what only `_value` can read."""
    in_nanoseconds = _retyped(column.type, lambda kind: pa.timestamp("ns", kind.tz))
    plain = _retyped(column.type, lambda _: pa.int64())
    if plain != column.type:
        column = column.cast(in_nanoseconds).cast(plain)
    return column.to_pylist()


def _retyped(kind: pa.DataType, change: Callable[[pa.TimestampType], pa.DataType]) -> pa.DataType:
    """The type with `change` for every timestamp in it."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_retyped(kind.value_type, change)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, change)) for field in kind])
    return change(kind) if pa.types.is_timestamp(kind) else kind


def _value(scalar: pa.Scalar) -> Value:
    """One value of any type, read without anything that could fail for its content."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(kind):
        return scalar.value * _NANOSECONDS[kind.unit]
    if isinstance(scalar, pa.BinaryScalar):
        return scalar.as_buffer().to_pybytes().decode(errors="surrogateescape")
    if pa.types.is_map(kind):
        keys, values = scalar.values.flatten()
        return [[_value(key), _value(value)] for key, value in zip(keys, values, strict=True)]
    if pa.types.is_struct(kind):
        return {kind.field(at).name: _value(scalar[at]) for at in range(kind.num_fields)}
    if isinstance(scalar, pa.ListScalar):
        return [_value(item) for item in scalar.values]
    if isinstance(scalar, pa.DictionaryScalar):
        return _value(scalar.value)
    return scalar.as_py()


def _other(value: object) -> str:
    """What JSON has no type for: the bytes of text columns without their mark, dates, decimals, UUIDs."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
