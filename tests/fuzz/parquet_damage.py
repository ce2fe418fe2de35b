"""Quarantined to the structure of Parquet: columns dropped, renamed, retyped or emptied, and values replaced."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz import hostile
from tests.sources.writers.parquet import parquet

Chance = random.Random
MAX_ROWS = 12
TEXTS = ("", "\0", "[", "{", "NaN", "[1,", '{"a":', "0" * 32, "rollout x", "[" * 10_000, "9" * 400, "../x", "\u202e")
INTEGERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS = (float("nan"), float("inf"), -0.0, 1e308, 5e-324)
NUMERIC_TYPES = (
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.bool_(),
    pa.decimal128(38, 5),
    pa.date32(),
    pa.timestamp("us"),
)
TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.list_(pa.string()), pa.null())
TYPES = (*NUMERIC_TYPES, *TEXT_TYPES, pa.duration("us"))


def damage_parquet(data: bytes, others: list[bytes], chance: Chance) -> bytes:
    """The file with one to six columns or values damaged."""
    del others
    table = pq.read_table(io.BytesIO(data)).slice(chance.randrange(3), MAX_ROWS)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        if table.num_columns:
            table = _damage_once(table, chance.randrange(table.num_columns), chance)
    codec = chance.choice(("snappy", "zstd", "gzip", "none", "lz4", "brotli"))
    try:
        return parquet(table, compression=codec, row_group_size=chance.choice((1, 3, 1000)))
    except (pa.ArrowException, NotImplementedError):
        return data


def _damage_once(table: pa.Table, at: int, chance: Chance) -> pa.Table:
    field, column = table.schema.field(at), table.column(at)
    match chance.randrange(7):
        case 0:
            return table.remove_column(at)
        case 1:
            return table.rename_columns([chance.choice((hostile.name(chance), "", name)) if number == at else name
                                         for number, name in enumerate(table.column_names)])  # fmt: skip
        case 2:
            return _retyped(table, at, chance)
        case 3:
            return table.append_column(field, column)
        case 4:
            return _repeated(table, chance)
        case _:
            return _with_values(table, at, chance)


def _repeated(table: pa.Table, chance: Chance) -> pa.Table:
    rows = [chance.randrange(table.num_rows) for _ in range(min(table.num_rows * 2, 50))]
    try:
        return table.take(rows) if rows else table
    except pa.ArrowNotImplementedError:  # pyarrow takes no rows of some types
        return table


def _retyped(table: pa.Table, at: int, chance: Chance) -> pa.Table:
    column, type_ = table.column(at), chance.choice(TYPES)
    try:
        column = column.cast(type_, safe=False)
    except (pa.ArrowException, ValueError):
        column = pa.nulls(table.num_rows, type_)
    return table.set_column(at, table.column_names[at], column)


def _with_values(table: pa.Table, at: int, chance: Chance) -> pa.Table:
    """Some leaves of one column replaced by hostile values of the same kind."""
    field, column = table.schema.field(at), table.column(at)
    share = chance.choice((0.05, 0.3, 1))
    try:
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())  # Python's times have no nanoseconds
        rows = [_damaged(value, share, chance) for value in column.to_pylist()]
        return table.set_column(at, field.with_nullable(True), pa.array(rows, column.type).cast(field.type, safe=False))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return table


def _damaged(value, share: float, chance: Chance):
    if isinstance(value, dict):
        return {name: _damaged(item, share, chance) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_damaged(item, share, chance) for item in value)
    if chance.random() > share:
        return value
    if isinstance(value, bool) or value is None:
        return chance.choice((True, False, None))
    if isinstance(value, int):
        return chance.choice(INTEGERS)
    if isinstance(value, float):
        return chance.choice(FLOATS)
    if isinstance(value, str):
        return chance.choice((*TEXTS, hostile.name(chance), None, value[: len(value) // 2]))
    return None
