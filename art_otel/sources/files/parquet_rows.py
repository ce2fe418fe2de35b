"""Rows of an Arrow batch as lines of JSON.

Invariant: no value fails its row. Columns that are null are left out, ids come first (so that a row that is cut can
still be named), times and durations are whole nanoseconds, NaN is null in a column of numbers (pandas writes null so)
and NaN inside other values, and text that is not UTF-8 keeps its bytes.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

import json
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

from art_otel.spans import Value

_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_SMALL_BYTES: Final = 32 << 20
"""Above, msgspec is not asked: where there is not enough memory it crashes instead of raising."""

_UNUSUAL: Final = (ValueError, OverflowError, TypeError, LookupError, NotImplementedError)
"""What pyarrow raises for a value or a type that Python or a cast of its own cannot hold."""

_PLAIN: Final = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_date),
)

_Encode: TypeAlias = Callable[[object], bytes]


def json_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Each row as a line, without its end."""
    names: list[str] = batch.schema.names
    order = sorted(range(len(names)), key=lambda at: not names[at].lower().endswith("id"))
    encode: _Encode = msgspec.json.encode
    if batch.nbytes > _SMALL_BYTES or any(_may_hold_nan(kind) for kind in batch.schema.types):
        encode = _encode
    columns: list[list[Value]] = []
    for at in order:
        try:
            columns.append(_values(batch.column(at)))
        except _UNUSUAL:
            columns.append([_value(scalar) for scalar in batch.column(at)])
            encode = _encode
    for row in zip(*columns, strict=True):
        yield encode({names[at]: value for at, value in zip(order, row, strict=True) if _is_known(value)})


def _is_known(value: Value) -> bool:
    return value is not None and (type(value) is not float or value == value)  # noqa: PLR0124 # NaN


def _encode(row: object) -> bytes:
    """JSON with NaN and bytes that are not UTF-8, which msgspec does not write."""
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False, default=str).encode(errors="surrogateescape")


def _values(column: pa.Array) -> list[Value]:
    """A column as Python values. Raises one of _UNUSUAL for what only `_value` can read."""
    in_nanoseconds = _retyped(column.type, _of_nanoseconds)
    plain = _retyped(column.type, lambda _: pa.int64())
    if plain != column.type:
        column = column.cast(in_nanoseconds).cast(plain)
    return column.to_pylist()


def _of_nanoseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    return pa.duration("ns") if pa.types.is_duration(kind) else pa.time64("ns")


def _retyped(kind: pa.DataType, of_time: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with `of_time` of every time in it, and bytes as text: some writers do not mark it.

    Raises TypeError for a type whose values are not known to become JSON as they are.
    """
    if _is_time(kind):
        return of_time(kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.large_string() if pa.types.is_large_binary(kind) else pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_retyped(kind.value_type, of_time)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_retyped(kind.value_type, of_time)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, of_time)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_retyped(kind.key_type, of_time), _retyped(kind.item_type, of_time))
    if any(is_one(kind.value_type if pa.types.is_dictionary(kind) else kind) for is_one in _PLAIN):
        return kind
    raise TypeError(kind)


def _is_time(kind: pa.DataType) -> bool:
    """Whether its values are whole numbers of a unit."""
    return pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind)


def _may_hold_nan(kind: pa.DataType) -> bool:
    """Whether doubles stand inside its values; those of a column itself are known."""
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return any(pa.types.is_floating(one) or _may_hold_nan(one) for one in inner)


def _value(scalar: pa.Scalar) -> Value:
    """One value of any type, read without anything that could fail for its content."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if _is_time(kind):
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
    if isinstance(scalar, pa.DictionaryScalar | pa.RunEndEncodedScalar | pa.UnionScalar):
        return _value(scalar.value)
    return _as_python(scalar)


def _as_python(scalar: pa.Scalar) -> Value:
    """As pyarrow gives it; where Python has no such value what stands there: of a date after 9999 its days."""
    try:
        return scalar.as_py()
    except _UNUSUAL:
        inner = getattr(scalar, "value", None)
        return _value(inner) if isinstance(inner, pa.Scalar) else inner
