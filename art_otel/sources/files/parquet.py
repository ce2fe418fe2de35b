"""Parquet rows: read the rows of a Parquet file, batch by batch, as plain Python values like those of JSON.

Invariant: a row with a value that Python cannot hold costs no other row, and an unreadable row group no other group.
Times and durations are whole nanoseconds, bytes are text, and NaN in a column of numbers is None, because pandas writes
null as NaN.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import contextlib
import io
import shutil
import tempfile
from collections.abc import Generator, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.errors import SourceError
from art_otel.sources.files.encodings import Fail, Failure
from art_otel.sources.files.inputs import SCHEMA_KEY, InputFile
from art_otel.sources.files.stores import open_stored, store_errors
from art_otel.sources.format import Limits, Refused, TableRow, advice
from art_otel.spans import Value

_BATCH_BYTES: Final = 4 << 20
_MAX_BATCH_ROWS: Final = 1024
_READ_BYTES: Final = 1 << 20
_SHORT_BYTES: Final = 100
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, MemoryError)
_UNHOLDABLE: Final = (pa.ArrowException, ValueError, OverflowError)
"""pyarrow's errors for a value that Python or another type cannot hold, and for a text that is not UTF-8."""


@contextlib.contextmanager
def open_table(source: InputFile, stream: io.BufferedReader) -> "Generator[ParquetTable]":
    """Open the Parquet file of an input. Bytes that are not in a file are first copied from `stream` to one.

    Raises SourceError.
    """
    with contextlib.ExitStack() as stack:
        if source.stored is not None:
            with store_errors(source.name):
                file: Any = stack.enter_context(open_stored(source.stored))
        elif source.path is not None and source.size is not None:
            file = stack.enter_context(source.path.open("rb"))
        else:
            file = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, file, _READ_BYTES)
        yield ParquetTable(file, source.name)


class ParquetTable:
    """An open Parquet file. Raises SourceError if it is no Parquet file, or is encrypted."""

    def __init__(self, file: Any, name: str) -> None:  # noqa: ANN401 # a file of Python or of pyarrow
        try:
            self._file = pq.ParquetFile(file, pre_buffer=False, buffer_size=_READ_BYTES)
            self._groups = [self._file.metadata.row_group(number) for number in range(self._file.num_row_groups)]
            self.names: list[str] = self._file.schema_arrow.names
        except _UNREADABLE as error:
            what_to_do = "export it unencrypted" if "encrypted" in str(error) else "is it cut off? export it again"
            raise SourceError(f"{name}: cannot be read as Parquet ({_described(error)}); {what_to_do}") from error
        self.is_dataset_file = SCHEMA_KEY in (self._file.metadata.metadata or {})

    def rows(self, columns: list[str], limits: Limits, fail: Fail) -> Iterator[TableRow]:
        """Read every readable row, numbered through the file; `fail` is called for each unreadable row group."""
        before, size = 0, 0
        for number, group in enumerate(self._groups):
            size += group.total_byte_size
            if size > limits.max_decompressed_bytes:
                detail = f"the file decompresses to more than the limit; {advice('max_decompressed_bytes')}"
                fail(Failure("over a limit", detail, f"row group {number + 1}"))
                return
            rows = max(1, min(_MAX_BATCH_ROWS, _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)))
            row = 1
            try:
                for batch in self._file.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False):
                    yield from _rows(batch, before + row, limits.max_message_bytes)
                    row += batch.num_rows
            except _UNREADABLE as error:
                fail(Failure("torn", _described(error), f"row group {number + 1}, row {row}"))
            before += group.num_rows


def _rows(batch: Any, first: int, limit: int) -> Iterator[TableRow]:  # noqa: ANN401 # pyarrow ships no types
    """Read the rows of a batch, one by one where they cannot be read at once."""
    columns: list[list[Any]] | None = None
    if batch.nbytes <= limit:
        with contextlib.suppress(*_UNHOLDABLE):
            columns = [plain_values(column) for column in batch.columns]
    if columns is None:
        yield from (_row(batch.slice(at, 1), first + at, limit) for at in range(batch.num_rows))
        return
    for number, values in enumerate(zip(*columns, strict=True), first):
        yield TableRow(number, dict(zip(batch.schema.names, values, strict=True)))


def _row(batch: Any, number: int, limit: int) -> TableRow:  # noqa: ANN401 # as above
    """Read one row without what cannot be held; of one that is too large only the short values."""
    values: dict[str, Any] = {}
    problem: Refused | None = None
    if batch.nbytes > limit:
        problem = Refused("over a limit", detail=f"a row of {batch.nbytes} bytes; {advice('max_message_bytes')}")
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            if batch.nbytes <= limit or column.nbytes < _SHORT_BYTES:
                (values[name],) = plain_values(column)
        except _UNHOLDABLE as error:
            problem = Refused("invalid UTF-8" if "utf" in str(error).lower() else "bad field", name, str(error))
    return TableRow(number, values, problem)


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


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
