"""Values of Arrow columns as plain Python: what a row of JSON could hold, and bytes as text.

Invariant: times and durations are whole nanoseconds, and NaN of a column of numbers is None, as pandas writes null so.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import pyarrow as pa

from art_otel.spans import Value


def plain_values(column: pa.Array) -> list[Value]:
    """Give the values of a column. Raises ArrowException or ValueError where one of them cannot be held."""
    in_nanoseconds, plain = _retyped(column.type, is_whole=False), _retyped(column.type, is_whole=True)
    for type_ in (in_nanoseconds, plain):
        column = column if column.type == type_ else column.cast(type_)
    values: list[Value] = column.to_pylist()
    if pa.types.is_floating(plain):
        return [None if value != value else value for value in values]  # noqa: PLR0124 # NaN
    return values


def _retyped(type_: pa.DataType, *, is_whole: bool) -> pa.DataType:
    """Give the type whose values are plain: times in nanoseconds, as whole numbers if `is_whole`, and bytes as text."""
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return _retyped(type_.storage_type, is_whole=is_whole)
    if types.is_timestamp(type_) or types.is_duration(type_) or types.is_time(type_):
        return pa.int64() if is_whole else _in_nanoseconds(type_)
    if types.is_large_binary(type_):
        return pa.large_string()
    if any(is_kind(type_) for is_kind in (types.is_binary, types.is_fixed_size_binary, types.is_binary_view)):
        return pa.string()
    if types.is_date(type_) or types.is_decimal(type_):
        return pa.string()
    if types.is_dictionary(type_):
        return _retyped(type_.value_type, is_whole=is_whole)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return pa.large_list(type_.value_field.with_type(_retyped(type_.value_type, is_whole=is_whole)))
    if types.is_struct(type_):
        return pa.struct([field.with_type(_retyped(field.type, is_whole=is_whole)) for field in type_])
    if types.is_map(type_):
        return pa.map_(_retyped(type_.key_type, is_whole=is_whole), _retyped(type_.item_type, is_whole=is_whole))
    return type_


def _in_nanoseconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.timestamp("ns", type_.tz)
    return pa.duration("ns") if pa.types.is_duration(type_) else pa.time64("ns")
