"""Commit: make staged part files the dataset of a folder or URL.

    1. write _pending-<run>.json        names the files to come and to go
    2. give the parts their names
    3. replace _report.json             the commit: from now on readers see the new dataset
    4. remove old parts, then the pending file

Invariant: the old dataset stays readable until step 3. Files of a killed commit are removed by the next one. Only files
that a manifest or a pending file names are ever replaced or removed; a foreign part raises UsageError before anything
is written.

There is one writer at a time. On this machine a writer holds a lock, so other pending files were abandoned. A store has
no lock, so files of others, and files that may still be read, stay for a day; if two writers commit at once, the one
whose manifest was replaced removes its files and raises BusyError.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import os
import re
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec
from filelock import FileLock, Timeout

from art_otel import storage
from art_otel.errors import BusyError, StorageError, UsageError
from art_otel.store.report import (
    REPORT_NAME,
    SCHEMA_VERSION,
    VERSION_KEY,
    ConversionReport,
    LedgerEntry,
    Manifest,
    Part,
    Pending,
    is_part_name,
    pending_name,
    read_manifest,
)

_LOCK_NAME: Final = ".art-otel.lock"

_A_DAY: Final = 24 * 3600 * 10**9
_PENDING: Final = re.compile(r"_pending-.+\.json")
_TORN: Final = re.compile(r"(_report|_pending-.+)\.json\.[0-9a-f]{32}\.tmp")
"""Temporary files that a killed `storage.write` leaves on this machine."""


def commit(
    out: str,
    staged: Sequence[tuple[str, Part]],
    report: ConversionReport | Mapping[str, object] | None = None,
    *,
    addition: "Addition | None" = None,
    ledger: tuple[LedgerEntry, ...] = (),
    linger: float = 0.0,
) -> tuple[str, ...]:
    """Make the staged files, in their order, the dataset of a folder, and return their locations.

    With an `addition` they follow the parts that are in the folder already. `ledger` is the new ledger of the inputs.
    Replaced parts stay for `linger` seconds, for readers, and then until the next commit. Raises UsageError for files
    that are not ours, BusyError if another process committed meanwhile, StorageError if the disk or store cannot be
    written, and for a staged file that is missing.
    """
    folder = _look_into(out)
    addition = addition or Addition()
    parts = (*addition.parts, *(part for _, part in staged))
    previous = folder.manifest
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        generation=0 if previous is None else previous.generation + 1,
        run=uuid4().hex,
        parts=parts,
        superseded={part.name: rows for part in parts if (rows := addition.superseded.get(part.name))},
        ledger=ledger,
        kept=tuple(file.name for file in addition.kept),
    )
    storage.make_folder(out)
    _write_pending(out, manifest, folder, linger)
    _place(out, [(path, part.name, part.bytes) for path, part in staged], folder.files)
    _place(out, [(file.path, file.name, file.bytes) for file in addition.kept], folder.files)
    storage.sync_folder(out)
    _check_alone(out, manifest, previous)
    storage.write(storage.join(out, REPORT_NAME), _report_json(report, manifest))
    storage.sync_folder(out)
    _check_alone(out, manifest, previous)
    _clean(out)
    return tuple(storage.join(out, part.name) for _, part in staged)


class KeptFile(NamedTuple):
    """A file for later conversions: its name in the folder, its size, and its location, perhaps already in place."""

    name: str
    bytes: int
    path: str


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a dataset besides the staged parts.

    `parts` stay, without their `superseded` rows; the files in `kept` are for later conversions.
    """

    parts: tuple[Part, ...] = ()
    superseded: Mapping[str, tuple[int, ...]] = {}
    kept: tuple[KeptFile, ...] = ()


def check_out(out: str) -> None:
    """Raise UsageError for an output that a commit would refuse: one with foreign files, or one that is no folder."""
    _look_into(out)


class _DatasetFolder(NamedTuple):
    files: Mapping[str, int]
    manifest: Manifest | None
    pending: Mapping[str, Pending]


def _look_into(out: str) -> _DatasetFolder:
    """List the files of a dataset in a folder. Raises UsageError for a file that this tool did not write."""
    if not storage.is_url(out) and Path(out).is_file():
        raise UsageError(f"{out}: is a file; write to a folder")
    files = storage.list_folder(out)
    manifest = read_manifest(out) if REPORT_NAME in files else None
    if manifest is None and REPORT_NAME in files:
        raise not_ours(storage.shown(storage.join(out, REPORT_NAME)))
    pending = {name: _read_pending(storage.join(out, name)) for name in files if _PENDING.fullmatch(name)}
    names = frozenset[str]().union(
        *(one.names for one in pending.values()), frozenset() if manifest is None else manifest.names
    )
    for name in files:
        if is_part_name(name) and name not in names:
            raise not_ours(storage.shown(storage.join(out, name)))
    return _DatasetFolder(files, manifest, pending)


def _read_pending(location: str) -> Pending:
    try:
        return msgspec.json.decode(storage.read(location), type=Pending)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_ours(storage.shown(location)) from error


def _write_pending(out: str, manifest: Manifest, folder: _DatasetFolder, linger: float) -> None:
    """Write the pending file with the names of the files to come and of those that they replace."""
    replaced = frozenset[str]() if folder.manifest is None else folder.manifest.names
    pending = Pending(
        run=manifest.run,
        written_at=time.time_ns(),
        linger=int(linger * 1e9),
        parts=tuple(sorted(manifest.names)),
        previous=tuple(sorted(replaced - manifest.names)),
    )
    storage.write(storage.join(out, pending_name(manifest.run)), msgspec.json.encode(pending))


def _place(out: str, staged: Iterable[tuple[str, str, int]], files: Mapping[str, int]) -> None:
    """Give each staged file its final name, unless it has this name already."""
    for path, name, size in staged:
        location = storage.join(out, name)
        if path != location and storage.size_of(path) is not None:
            storage.move(path, location)
        elif files.get(name) != size:
            raise StorageError(
                f"{storage.shown(location)}: is missing, and so is {storage.shown(path)}, from which it is made"
            )


def _check_alone(out: str, ours: Manifest, previous: Manifest | None) -> None:
    """On a store, check that the dataset is unchanged, or ours already; otherwise remove our files, raise BusyError.

    Stores cannot replace an object only if it is unchanged, so a commit between this check and the next write is only
    seen by the next check.
    """
    if not storage.is_url(out):
        return
    current = read_manifest(out)
    if current is previous is None or (current is not None and current.run in (ours.run, previous and previous.run)):
        return
    others = frozenset[str]().union(*(one.names for one in (current, previous) if one is not None))
    for name in sorted(ours.names - others):
        storage.remove(storage.join(out, name))
    storage.remove(storage.join(out, pending_name(ours.run)))
    raise BusyError(
        f"{storage.shown(out)}: another process wrote there at the same time, and its dataset is kept; the input of "
        "this conversion is not in it. Convert again, one process at a time"
    )


def _report_json(report: ConversionReport | Mapping[str, object] | None, manifest: Manifest) -> bytes:
    account = report.to_json() if isinstance(report, ConversionReport) else dict(report or {})
    return msgspec.json.format(msgspec.json.encode(account | msgspec.to_builtins(manifest)), indent=2) + b"\n"


def _clean(out: str) -> None:
    """Remove the parts that pending files name, but the manifest does not; then remove the pending files."""
    folder = _look_into(out)
    names = frozenset[str]() if folder.manifest is None else folder.manifest.names
    for pending_file, pending in folder.pending.items():
        stale = pending.names - names
        lingering = _A_DAY if storage.is_url(out) else pending.linger
        if stale and time.time_ns() - pending.written_at < lingering:
            continue
        for name in sorted(stale & folder.files.keys()):
            storage.remove(storage.join(out, name))
        storage.remove(storage.join(out, pending_file))
    for name in filter(_TORN.fullmatch, folder.files):
        storage.remove(storage.join(out, name))


@contextmanager
def locked(out: str) -> Generator[None]:
    """Make a folder and hold its lock. Raises UsageError if another process holds it, or no file can be locked."""
    if storage.is_url(out):
        yield
        return
    storage.make_folder(out)
    lock = FileLock(Path(out, _LOCK_NAME), blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"{out}: another process is writing there; wait for it or choose another folder") from None
    except (OSError, NotImplementedError) as error:
        raise UsageError(
            f"{out}: the file system does not support locks ({error}); write to another file system and copy the result"
        ) from error
    try:
        yield
    finally:
        Path(out, _LOCK_NAME).unlink(missing_ok=True)  # whoever waits for it looks whether it still has its name
        lock.release()


def check_replaceable(paths: Iterable[Path]) -> None:
    """Raise UsageError for a path that exists and is no trajectory file."""
    for path in paths:
        if os.path.lexists(path) and not _is_trajectory_file(path):
            raise not_ours(str(path))


def not_ours(location: str) -> UsageError:
    """Make the error for a file at an output path that art-otel did not write."""
    return UsageError(f"{location}: was not written by art-otel and is not replaced; move it away or write elsewhere")


def _is_trajectory_file(path: Path) -> bool:
    import pyarrow as pa  # noqa: PLC0415 # slow to load, and needed only where something stands already
    import pyarrow.parquet as pq  # noqa: PLC0415 # as above

    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException):
        return False
    return VERSION_KEY in metadata
