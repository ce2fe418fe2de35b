"""Values of Arrow columns as plain Python: what a row of JSON could hold, and bytes as text.

Invariant: times and durations are whole nanoseconds, and NaN of a column of numbers is None, as pandas writes null so.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from typing import Final

import pyarrow as pa

from art_otel.spans import Value

_TIMES: Final = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time)
_TEXTS: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
_NAMED: Final = (pa.types.is_date, pa.types.is_decimal)
_LISTS: Final = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)


def plain_values(column: pa.Array) -> list[Value]:
    """The values of a column. Raises ArrowException or ValueError where one of them cannot be held."""
    exact, plain = _retyped(column.type, whole=False), _retyped(column.type, whole=True)
    for kind in (exact, plain):
        column = column if column.type == kind else column.cast(kind)
    values: list[Value] = column.to_pylist()
    if pa.types.is_floating(plain):
        return [None if value != value else value for value in values]  # noqa: PLR0124 # NaN
    return values


def _retyped(kind: pa.DataType, *, whole: bool) -> pa.DataType:
    """The type whose values are plain: times in nanoseconds, as `whole` numbers if so, and bytes as text."""
    if isinstance(kind, pa.BaseExtensionType):
        return _retyped(kind.storage_type, whole=whole)
    if _is(kind, _TIMES):
        return pa.int64() if whole else _in_nanoseconds(kind)
    if _is(kind, _TEXTS) or _is(kind, _NAMED):
        return pa.large_string() if pa.types.is_large_binary(kind) else pa.string()
    if pa.types.is_dictionary(kind):
        return _retyped(kind.value_type, whole=whole)
    if _is(kind, _LISTS):
        return pa.large_list(kind.value_field.with_type(_retyped(kind.value_type, whole=whole)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, whole=whole)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_retyped(kind.key_type, whole=whole), _retyped(kind.item_type, whole=whole))
    return kind


def _is(kind: pa.DataType, checks: tuple[object, ...]) -> bool:
    return any(check(kind) for check in checks)  # pyright: ignore[reportCallIssue] # pyarrow ships no types


def _in_nanoseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    return pa.duration("ns") if pa.types.is_duration(kind) else pa.time64("ns")
