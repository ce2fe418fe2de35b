"""Rewrite: parts of a dataset become others, with the rows that count.

Invariant: a row is copied as it is, and it is told where each row went. Memory holds one row group.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from art_otel import storage
from art_otel.store.files import DataFile
from art_otel.store.manifest import Manifest, Part
from art_otel.store.part_writer import PartWriter
from art_otel.store.read import groups_in, open_parquet

SMALL: Final = 8 << 20
"""Bytes of a part that is better put together with others."""

_TARGET: Final = 4 * SMALL
"""Bytes that parts have together, about, before they are written anew."""

Moved: TypeAlias = dict[str, dict[int, tuple[str, int]]]
"""Where rows went: by the name of their part and their number in it, those of now."""


class Rewritten(NamedTuple):
    """New parts, each with the path where it lies, and where the rows of the old ones are now."""

    staged: list[tuple[str, Part]]
    moved: Moved


def parts_to_rewrite(manifest: Manifest) -> list[Part]:
    """The parts that hold rows that no longer count, and small ones if there are several."""
    small = [part for part in manifest.parts if part.bytes < SMALL]
    chosen = {part.name for part in small if len(small) > 1} | manifest.superseded.keys()
    return [part for part in manifest.parts if part.name in chosen]


def rewrite_parts(
    out: str, parts: Sequence[Part], superseded: Mapping[str, tuple[int, ...]], number: int, scratch: Path
) -> Rewritten:
    """Write these parts of a dataset anew, the first as part `number`, into a folder of this machine."""
    rewritten = Rewritten([], {})
    for batch in _batches(parts):
        path = scratch / f"rewritten-{number}"
        with PartWriter(path) as writer:
            copied_rows = {part.name: _copy(out, part, superseded.get(part.name, ()), writer) for part in batch}
            part = writer.finish(number)
        for name, rows in copied_rows.items():
            rewritten.moved[name] = {row: (part.name, new_row) for row, new_row in rows.items()}
        rewritten.staged.append((str(path), part))
        number += 1
    return rewritten


def _copy(out: str, part: Part, superseded: tuple[int, ...], writer: PartWriter) -> dict[int, int]:
    """Copy the rows that count; return the new row of each."""
    file = DataFile(location=storage.join(out, part.name), dataset=out, source=out, superseded=superseded)
    first = writer.rows
    with open_parquet(file.location) as parquet:
        for group in groups_in(file, parquet):
            writer.add_rows(group.read(parquet))
    left_out = frozenset(superseded)
    return {row: first + offset for offset, row in enumerate(row for row in range(part.rows) if row not in left_out)}


def _batches(parts: Sequence[Part]) -> Iterator[list[Part]]:
    batch: list[Part] = []
    for part in parts:
        batch.append(part)
        if sum(one.bytes for one in batch) >= _TARGET:
            yield batch
            batch = []
    if batch:
        yield batch
