"""Codec: how one kind of value becomes an Arrow array and comes back.

Invariant: `decode(encode(values)) == values`, None included, and numbers of tokens are never boxed: token ids and
logprobs go from bytes to buffers and back. Codecs nest as Arrow types do: a ListOf holds a codec, a Record several.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import astuple

from art_otel.calls import Logprobs, TokenIds


class Codec(Protocol):
    """A kind of value. `type` is its Arrow type, `encode` and `decode` work on a whole column of them."""

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the column."""
        ...

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """The column of the values. Raises what pyarrow does for a value that does not fit."""
        ...

    def decode(self, column: pa.Array) -> list[Any]:
        """The values of the column."""
        ...


class Scalar(msgspec.Struct, frozen=True):
    """Text, numbers and booleans."""

    type: pa.DataType

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Shape: (values,)."""
        if not any(values) and values.count(None) == len(values):  # as most columns are in most files
            return pa.nulls(len(values), self.type)
        return _whole(pa.array(values, self.type))

    def decode(self, column: pa.Array) -> list[Any]:
        """The inverse of encode."""
        return column.to_pylist()


class Packed(msgspec.Struct, frozen=True, dict=True):
    """TokenIds as list<int32>, Logprobs as list<float>: little-endian, as Arrow has it wherever pyarrow runs."""

    make: type[TokenIds] | type[Logprobs]
    item: pa.DataType

    @cached_property
    def type(self) -> pa.DataType:
        """list<int32> or list<float>."""
        return _list_type(self.item)

    def encode(self, values: Sequence[TokenIds | Logprobs | None]) -> pa.Array:
        """Shape: (values,), each of (tokens,)."""
        parts = [None if value is None else value.data for value in values]
        data = b"".join(filter(None, parts))
        flat = pa.Array.from_buffers(self.item, len(data) // 4, [None, pa.py_buffer(data)])
        return _list_array(self.type, [None if part is None else len(part) // 4 for part in parts], flat)

    def decode(self, column: pa.Array) -> list[Any]:
        """The inverse of encode: each value a copy of its bytes."""
        values, offsets = _list_parts(column)
        if not len(values):
            return [self.make() if valid else None for valid in _valid(column)]
        start = values.offset
        data = memoryview(values.buffers()[1])[4 * start : 4 * (start + len(values))]
        spans = pairwise(offsets)
        return [
            self.make(bytes(data[4 * first : 4 * last])) if valid else None
            for (first, last), valid in zip(spans, _valid(column), strict=True)
        ]


class ListOf(msgspec.Struct, frozen=True, dict=True):
    """Tuples of one kind of value."""

    item: Codec

    @cached_property
    def type(self) -> pa.DataType:
        """list<item>."""
        return _list_type(self.item.type)

    def encode(self, values: Sequence[Sequence[Any] | None]) -> pa.Array:
        """Shape: (values,), each of any length."""
        flat = self.item.encode([item for value in values if value for item in value])
        return _list_array(self.type, [None if value is None else len(value) for value in values], flat)

    def decode(self, column: pa.Array) -> list[Any]:
        """The inverse of encode, tuples."""
        if column.null_count == len(column):
            return [None] * len(column)
        flat, offsets = _list_parts(column)
        items = self.item.decode(flat)
        spans = pairwise(offsets)
        return [
            tuple(items[first:last]) if valid else None
            for (first, last), valid in zip(spans, _valid(column), strict=True)
        ]


class Record(msgspec.Struct, frozen=True, dict=True):
    """msgspec's records as struct: a field an attribute. `make` builds one from the fields in their order."""

    make: Callable[..., Any]
    fields: Mapping[str, Codec]

    @cached_property
    def type(self) -> pa.DataType:
        """struct<field: type, …>."""
        return pa.struct([(name, codec.type) for name, codec in self.fields.items()])

    def columns(self, records: Sequence[Any]) -> list[pa.Array]:
        """A column a field, for records (at least one) of which none is None."""
        return self._columns(records[0].__struct_fields__, map(astuple, records))

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Shape: (values,)."""
        known = [value for value in values if value is not None]
        if not known:  # empty ones too: spares the arrays of fields that nobody has
            return pa.nulls(len(values), self.type)
        if len(known) == len(values):
            return pa.StructArray.from_arrays(self.columns(values), type=self.type)
        names = known[0].__struct_fields__
        missing = (None,) * len(names)
        columns = self._columns(names, (missing if value is None else astuple(value) for value in values))
        return pa.Array.from_buffers(self.type, len(values), [_validity(values)], children=columns)

    def _columns(self, names: Sequence[str], records: Iterable[tuple[Any, ...]]) -> list[pa.Array]:
        """A column a field. Taking all fields of a record at once is four times as fast as one after the other."""
        values = dict(zip(names, zip(*records, strict=True), strict=True))
        return [codec.encode(values[name]) for name, codec in self.fields.items()]

    def decode(self, column: pa.Array) -> list[Any]:
        """The inverse of encode. Fields the record does not have are ignored; those the column lacks are None."""
        if column.null_count == len(column):
            return [None] * len(column)
        records = self.assemble([self._field(column, name) for name in self.fields])
        return [record if valid else None for record, valid in zip(records, _valid(column), strict=True)]

    def _field(self, column: pa.Array, name: str) -> pa.Array:
        if column.type.get_field_index(name) < 0:
            return pa.nulls(len(column), self.fields[name].type)
        return column.field(name)

    def assemble(self, columns: Iterable[pa.Array]) -> list[Any]:
        """The records of columns in the order of the fields."""
        decoded = [codec.decode(column) for codec, column in zip(self.fields.values(), columns, strict=True)]
        return list(map(self.make, *decoded))


def keywords(make: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """Call a keyword-only constructor with the values of `names` in their order."""

    def build(*values: Any) -> Any:  # noqa: ANN401 # whatever the record holds
        return make(**dict(zip(names, values, strict=True)))

    return build


def _list_type(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item))  # Parquet's own word for it, so that reading gives this type


def _list_array(kind: pa.DataType, lengths: Sequence[int | None], flat: pa.Array) -> pa.Array:
    """The lists of these lengths (None: no list), whose values follow each other in `flat`."""
    validity = _validity(lengths) if None in lengths else None
    offsets = array("i", [*accumulate([length or 0 for length in lengths], initial=0)])
    return pa.Array.from_buffers(kind, len(lengths), [validity, pa.py_buffer(offsets)], children=[flat])


def _validity(values: Sequence[object]) -> pa.Buffer:
    """Which values are known, a bit each. Taken from an array of them: a mask would load pyarrow.compute (40 ms)."""
    return pa.array([value is not None for value in values], pa.bool_()).buffers()[1]


def _list_parts(column: pa.Array) -> tuple[pa.Array, list[int]]:
    """The values all lists hold together, and where each begins and ends in them."""
    offsets: list[int] = column.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    last = offsets[-1] if offsets else 0
    return column.values.slice(first, last - first), [offset - first for offset in offsets]


def _valid(column: pa.Array) -> list[bool]:
    return column.is_valid().to_pylist() if column.null_count else [True] * len(column)


def _whole(column: pa.Array) -> pa.Array:
    """Arrow splits what is over 2 GiB into chunks, which our nested columns cannot hold."""
    if isinstance(column, pa.ChunkedArray):
        raise pa.ArrowCapacityError("over 2 GiB of text")
    return column
