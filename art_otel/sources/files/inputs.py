"""Input: one file to read, found through a file name, a folder, a glob, a URL or `-`.

Invariant: a file that several sources lead to is one Input, at the place of the first of them. What is there and cannot
be read (a folder that cannot be listed, a link to nothing) is one too: reading it says why. A dataset that lies among
dumps is passed over, and whoever names one is told what reads it.
"""

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote

import msgspec

from art_otel.errors import SourceError, UsageError
from art_otel.sources.files.stores import StoredFile, folder_of, is_glob, list_store, matches, with_etags
from art_otel.storage import is_url, shown

REPORT_NAME: Final = "_report.json"
PENDING_PREFIX: Final = "_pending-"
KEPT_PREFIX: Final = "_kept-"
SCHEMA_KEY: Final = b"art_otel.schema"
MAX_FOOTER_BYTES: Final = 64 << 20
WHAT_READS_IT: Final = (
    "is a dataset of art-otel already, and no dump: `art-otel show` and `art-otel export` read it, and"
    " art_otel.read_trajectories does"
)
SCRATCH_PREFIX: Final = ".art-otel-scratch-"
STDIN: Final = "-"
FILE_SCHEME: Final = "file://"
_DEEP: Final = "**"


class ByteRange(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a file from `start` up to `end`, at both of which a line begins (or the file ends).

    `format` names that of the whole file: a part may begin with what nobody would know it by. A range that
    `is_decompressed` is one of what a compressed file holds, up to its end.
    """

    start: int
    end: int
    format: str
    is_decompressed: bool = False


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A file has a `path`, an object in a store is `stored`, and what has neither is standard input.

    `name` is what people see, `size` is in bytes and None when unknown.
    `explicit` says that somebody named this very file (also by a glob, as a shell would have expanded it); one found
    in a folder may be anything, so that it is no error when nobody knows its format. `byte_range` is what is to be read
    of a file that several processes share, or that was read in part before; `size` is then what is to be read of the
    file. `mtime_ns` is when the whole was changed. `note` is what its report says of it before it is read.
    """

    name: str
    path: Path | None
    size: int | None
    explicit: bool
    mtime_ns: int | None = None
    stored: StoredFile | None = None
    byte_range: ByteRange | None = None
    note: str | None = None


def identity_of(source: Input) -> tuple[str, int, int | str] | None:
    """Identify the content of an input by its path, size and time of change, or ETag; None when these are not known."""
    version = source.mtime_ns if source.stored is None else source.stored.etag or source.mtime_ns
    if source.size is None or version is None:
        return None
    return (source.name if source.path is None else str(source.path.absolute()), source.size, version)


def identified(inputs: Sequence[Input]) -> list[Input]:
    """The inputs, those in stores with their ETags."""
    stored = [source.stored for source in inputs if source.stored is not None]
    versions = iter(with_etags(stored) if stored else ())
    return [
        source if source.stored is None else msgspec.structs.replace(source, stored=next(versions)) for source in inputs
    ]


def stored_input(url: str, name: str) -> Input:
    """The object of a URL, which people see as `name`. Raises SourceError."""
    (object_,) = list_store(url)
    file, size, mtime_ns, _ = object_
    return Input(name=name, path=None, size=size, mtime_ns=mtime_ns, explicit=True, stored=file)


def find_inputs(sources: Sequence[str | Path]) -> list[Input]:
    """Find every file that the sources lead to: files, folders (all below, sorted), globs, URLs, `-` for stdin.

    Raises SourceError for a source that leads to nothing, or to a store that cannot be listed; UsageError for an empty
    text, which Path takes for the current folder.
    """
    inputs: dict[str | StoredFile, Input] = {}
    for source in sources:
        leads_nowhere = True
        for candidate in _expand(str(source)):
            leads_nowhere = False
            key = candidate.stored or (STDIN if candidate.path is None else os.path.realpath(candidate.path))
            earlier = inputs.get(key, candidate)
            inputs[key] = msgspec.structs.replace(earlier, explicit=earlier.explicit or candidate.explicit)
        if leads_nowhere:
            raise SourceError(_why_nothing(str(source)))
    return list(inputs.values())


def _why_nothing(source: str) -> str:
    paths: Iterable[Path] = () if is_url(source) else _paths(source)
    if any(is_dataset_file(file) for path in paths for file in _visible_files(path)):
        return f"{source}: {WHAT_READS_IT}"
    return (
        f"{shown(source)}: nothing to read there; name a file, a folder with files in it, "
        "a glob such as 'dumps/**/*.jsonl', a URL such as s3://bucket/dumps, or - for standard input"
    )


def _expand(source: str) -> Iterator[Input]:
    if source == STDIN:
        yield Input(name="<stdin>", path=None, size=None, explicit=True)
    elif is_url(source):
        yield from _stored(source)
    else:
        for path in _paths(source):
            yield from _files(path)


def _paths(source: str) -> Iterator[Path]:
    """Find what a file name, a folder or a glob leads to; of a glob no pipe or device."""
    if source.startswith(FILE_SCHEME):
        source = unquote(source.removeprefix(FILE_SCHEME).removeprefix("localhost"))
    if not source:
        raise UsageError("an empty path names no source; is a variable unset? The current folder is named .")
    path = Path(source)
    if path.exists():
        yield path
    elif is_glob(source):
        matching = _deep_matches(path) if _DEEP in path.parts else glob.iglob(source)  # noqa: PTH207 # absolute too
        yield from filter(_is_for_reading, sorted(map(Path, matching)))


def _deep_matches(pattern: Path) -> Iterator[Path]:
    """Find the files that match a glob with `**`, which is every visible folder from there on.

    A folder that cannot be listed is a match, as nobody knows what is in it.
    """
    for path in _visible_files(Path(folder_of(pattern.as_posix()) or pattern.anchor)):
        if matches(path.as_posix(), pattern.as_posix()) or _is_folder(path):
            yield path


def _stored(source: str) -> Iterator[Input]:
    for file, size, mtime_ns, explicit in list_store(source):
        if not is_scratch(file.path) and (explicit or not has_own_name(file.path.rpartition("/")[2])):
            yield Input(name=file.name, path=None, size=size, mtime_ns=mtime_ns, explicit=explicit, stored=file)


def _files(path: Path) -> Iterator[Input]:
    if not _is_folder(path):
        yield _input(path, explicit=True)
        return
    for file in sorted(_visible_files(path)):
        if _is_for_reading(file) and not is_dataset_file(file):
            yield _input(file, explicit=False)


def _visible_files(path: Path) -> Iterator[Path]:
    """List all files below a folder; a folder that cannot be listed is listed itself."""
    for folder, names in _visible_folders(path):
        yield from [folder] if names is None else (folder / name for name in names)


def _visible_folders(path: Path) -> Iterator[tuple[Path, list[str] | None]]:
    """List a folder and all below it, through links too, each once with its files; None: it cannot be listed."""
    closed: list[Path] = []
    real = Path(os.path.realpath(path))
    seen = {os.fspath(real), *map(os.fspath, real.parents)}  # a link out of the folder to one around it is no part

    def close(error: OSError) -> None:
        closed.append(Path(os.fsdecode(error.filename or path)))

    for folder, folders, names in os.walk(path, onerror=close, followlinks=True):
        visible = sorted((name for name in folders if not name.startswith(".")), reverse=True)
        below = {os.path.realpath(Path(folder, name)): name for name in visible}
        folders[:] = sorted(name for target, name in below.items() if target not in seen)
        seen.update(below)
        yield Path(folder), [name for name in names if not name.startswith(".")]
    yield from ((folder, None) for folder in closed)


def _is_for_reading(path: Path) -> bool:
    """Whether it is no pipe or device, which nobody means who names the folder around it, or a glob."""
    stats = _stat(path)
    return stats is None or stat.S_ISREG(stats.st_mode) or stat.S_ISDIR(stats.st_mode)


def _is_folder(path: Path) -> bool:
    stats = _stat(path)
    return stats is not None and stat.S_ISDIR(stats.st_mode)


def _stat(path: Path) -> os.stat_result | None:
    """Look at a file; None for one that cannot be looked at: reading it later says why."""
    try:
        return path.stat()
    except OSError:
        return None


def _input(path: Path, *, explicit: bool) -> Input:
    stats = _stat(path)
    if stats is not None and not stat.S_ISREG(stats.st_mode):
        stats = None
    name = os.fsencode(path).decode(errors="backslashreplace")  # a name need not be text
    return Input(
        name=name,
        path=path,
        size=stats and stats.st_size,
        mtime_ns=stats and stats.st_mtime_ns,
        explicit=explicit,
    )


def is_scratch(path: str) -> bool:
    """Whether a file lies in the scratch folder of a conversion."""
    return any(part.startswith(SCRATCH_PREFIX) for part in path.split("/"))


def has_own_name(name: str) -> bool:
    """Whether a file has the name of a report of ours, or of what a conversion is about to write or keeps."""
    is_pending = name.startswith(PENDING_PREFIX) and name.endswith(".json")
    return name == REPORT_NAME or is_pending or name.startswith(KEPT_PREFIX)


def is_dataset_file(path: Path) -> bool:
    """Whether a file is no dump: it has one of our names, or we wrote it."""
    return has_own_name(path.name) or _has_own_schema(path)


def _has_own_schema(path: Path) -> bool:
    """Whether it is Parquet with our schema key."""
    try:
        with path.open("rb") as file:
            return path.suffix == ".parquet" and SCHEMA_KEY in _parquet_footer(file)
    except OSError:
        return False


def _parquet_footer(file: BinaryIO) -> bytes:
    """The footer of a Parquet file: its length stands in 4 little-endian bytes before the closing magic PAR1."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > min(size - 8, MAX_FOOTER_BYTES):
        return b""
    file.seek(size - 8 - length)
    return file.read(length)
