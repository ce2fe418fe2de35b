"""Superseded rows: find rows that are no longer valid, and remove them with `compact`.

A late span gives its rollout a new row, and the old row is superseded. The manifest only notes the number of the old
row, because writing a part of 100 MB anew for each late span would be slow.

Invariant: the same trajectories are read before, during and after `compact`; rows are copied unchanged. Memory has one
row group.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from art_otel import storage
from art_otel.errors import UsageError
from art_otel.store.commit import Addition, KeptFile, commit, locked
from art_otel.store.files import DataFile
from art_otel.store.part_writer import PartWriter
from art_otel.store.read import groups_in, open_parquet
from art_otel.store.report import REPORT_NAME, Manifest, Part, RowKey, read_manifest
from art_otel.store.write import staging

LINGER: Final = 3600.0
"""Seconds that replaced parts stay, because others may read them."""

SMALL: Final = 8 << 20
"""A part with fewer bytes is better merged with others."""

_TARGET: Final = 4 * SMALL
"""About how many bytes of parts are written into one new part."""

_KEY: Final = ("rollout_id", "attempt", "trace_id", "revision")


def with_superseded(out: str, manifest: Manifest, keys: Collection[RowKey]) -> dict[str, tuple[int, ...]]:
    """The superseded rows of a dataset by part, together with the rows that have these keys."""
    superseded = dict(manifest.superseded)
    numbers = {part.number for part in manifest.parts}
    for part in manifest.parts:
        number = part.number
        traces = {
            key.trace_id
            for key in keys
            if key.part == number or (key.part < number and key.part not in numbers)  # compacted since
        }
        if traces:
            rows = _find_rows(storage.join(out, part.name), traces, {key[: len(_KEY)] for key in keys})
            superseded[part.name] = tuple(sorted({*superseded.get(part.name, ()), *rows}))
    return {name: rows for name, rows in superseded.items() if rows}


def _find_rows(location: str, traces: Collection[str], keys: Collection[tuple[object, ...]]) -> list[int]:
    with open_parquet(location) as parquet:
        table = parquet.read(columns=list(_KEY))
    rows = pc.indices_nonzero(pc.is_in(table.column("trace_id"), pa.array(traces, pa.string())))
    columns = [table.column(name).take(rows).to_pylist() for name in _KEY]
    found = zip(rows.to_pylist(), *columns, strict=True)
    return [row for row, rollout_id, attempt, *others in found if (rollout_id, attempt or 0, *others) in keys]


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """How many parts were replaced by how many new ones, and how many rows were removed."""

    parts: int = 0
    became: int = 0
    rows: int = 0


def compact(out: str | Path, *, linger: float = LINGER) -> Compaction:
    """Write parts with superseded rows anew without these rows, and merge small parts.

    The old parts stay for `linger` seconds (in a store for a day), and then until the next commit. Raises UsageError
    for a folder without a dataset, and while another process writes there.
    """
    folder = os.fspath(out)
    _require_manifest(folder)
    with locked(folder), staging(folder) as scratch:
        manifest = _require_manifest(folder)
        parts = _parts_to_rewrite(manifest)
        if not parts:
            return Compaction()
        rewritten = list(_rewrite(folder, manifest, parts, scratch))
        sizes = storage.list_folder(folder)
        addition = Addition(
            parts=tuple(part for part in manifest.parts if part not in parts),
            kept=tuple(KeptFile(name, sizes.get(name, -1), storage.join(folder, name)) for name in manifest.kept),
        )
        account: dict[str, Any] = msgspec.json.decode(storage.read(storage.join(folder, REPORT_NAME)))
        commit(folder, rewritten, account, addition=addition, ledger=manifest.ledger, linger=linger)
    return Compaction(parts=len(parts), became=len(rewritten), rows=sum(map(len, manifest.superseded.values())))


def count_small_parts(out: str | Path) -> int:
    """How many parts of a dataset are so small that they should be merged."""
    manifest = read_manifest(os.fspath(out))
    return 0 if manifest is None else sum(part.bytes < SMALL for part in manifest.parts)


def _require_manifest(folder: str) -> Manifest:
    manifest = read_manifest(folder)
    if manifest is None:
        raise UsageError(f"{storage.shown(folder)}: is not a dataset; `art-otel convert DUMP… --out DIR` makes one")
    return manifest


def _parts_to_rewrite(manifest: Manifest) -> list[Part]:
    """The parts with superseded rows, and the small parts if there are several."""
    small = [part for part in manifest.parts if part.bytes < SMALL]
    chosen = {part.name for part in small if len(small) > 1} | manifest.superseded.keys()
    return [part for part in manifest.parts if part.name in chosen]


def _rewrite(folder: str, manifest: Manifest, parts: Sequence[Part], scratch: Path) -> Iterator[tuple[str, Part]]:
    """Write the valid rows of these parts into new parts, and return each with its path."""
    for number, batch in enumerate(_batches(parts), manifest.next_number):
        path = scratch / f"rewritten-{number}"
        with PartWriter(path) as writer:
            for part in batch:
                _copy(folder, part, manifest.superseded, writer)
            yield str(path), writer.finish(number)


def _copy(folder: str, part: Part, superseded: Mapping[str, tuple[int, ...]], writer: PartWriter) -> None:
    location = storage.join(folder, part.name)
    file = DataFile(location=location, dataset=folder, source=folder, superseded=superseded.get(part.name, ()))
    with open_parquet(location) as parquet:
        for group in groups_in(file, parquet):
            writer.add_table(group.read(parquet))


def _batches(parts: Sequence[Part]) -> Iterator[list[Part]]:
    batch: list[Part] = []
    for part in parts:
        batch.append(part)
        if sum(one.bytes for one in batch) >= _TARGET:
            yield batch
            batch = []
    if batch:
        yield batch
