"""EncodedGroup: one row group as Parquet's bytes, made in any process.

Invariant: a file of encoded groups has the very bytes that pyarrow writes for the same tables, one after the other.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import io
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa

# As pyarrow.parquet has it, without the file systems that this loads (and ssl), which take as long as a row group.
from pyarrow._parquet import ParquetWriter

from art_otel.store.parquet_footer import Footer, GroupFooter, split_footer
from art_otel.store.schema import DICTIONARY_LEAVES, SCHEMA

MAGIC: Final = b"PAR1"
"""How a Parquet file begins and ends."""

_END: Final = 8
"""Bytes behind the footer: its length and the magic."""

_COPIED: Final = 1 << 20

_PAGE: Final = 1 << 16
"""Bytes of a page before it is compressed: zstd takes a fifth less time than for pyarrow's 1 MiB, and files grow by
0.3 %."""


class EncodedGroup(NamedTuple):
    """The bytes of its pages, or the file in which they follow the magic, and what a footer says of them there."""

    pages: bytes | str
    footer: GroupFooter

    def move_to(self, file: BinaryIO) -> None:
        """Write the pages, and remove the file that they stood in."""
        if isinstance(self.pages, bytes):
            file.write(self.pages)
            return
        with Path(self.pages).open("rb") as own:
            own.seek(len(MAGIC))
            shutil.copyfileobj(own, file, _COPIED)
        Path(self.pages).unlink()


def encode_group(table: pa.Table) -> EncodedGroup:
    """Encode a table in the file's schema as one row group."""
    sink = io.BytesIO()
    footer = _encode(table, sink)
    return EncodedGroup(sink.getvalue()[len(MAGIC) :], split_footer(footer).groups[0])


def encode_group_into(path: str, table: pa.Table) -> EncodedGroup:
    """As `encode_group`, with the pages in a file, so that another process can take them over cheaply."""
    with Path(path).open("w+b") as file:
        return EncodedGroup(path, split_footer(_encode(table, file)).groups[0])


@lru_cache(maxsize=1)
def file_frame() -> Footer:
    """The footer of a file without row groups."""
    return split_footer(_encode(None, io.BytesIO()))


def _encode(table: pa.Table | None, file: BinaryIO) -> bytes:
    """Write the magic and the pages of a row group, if there is one; the footer."""
    writer = ParquetWriter(file, SCHEMA, **_writer_options())
    writer.add_key_value_metadata(SCHEMA.metadata)
    if table is not None:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    writer.close()
    file.seek(-_END, io.SEEK_END)
    size = int.from_bytes(file.read(4), "little")
    end = file.seek(-_END - size, io.SEEK_END)
    footer = file.read(size)
    file.truncate(end)
    return footer


def _writer_options() -> dict[str, Any]:
    return {
        "version": "2.6",
        "writer_engine_version": "V2",
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": _dictionary_columns(),
        "write_statistics": [field.name for field in SCHEMA if not pa.types.is_nested(field.type)],
        "store_schema": False,
        "data_page_size": _PAGE,
    }


def _dictionary_columns() -> list[str]:
    return [
        path
        for field in SCHEMA
        for path in _leaf_paths(field.name, field.type)
        if path.removesuffix(".list.element").split(".")[-1] in DICTIONARY_LEAVES
    ]


def _leaf_paths(path: str, kind: pa.DataType) -> list[str]:
    """Parquet's paths of the leaf columns below one column."""
    if pa.types.is_list(kind):
        return _leaf_paths(f"{path}.list.element", kind.value_type)
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaf_paths(f"{path}.{field.name}", field.type)]
    return [path]
