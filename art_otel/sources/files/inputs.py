"""Inputs: find the files to read by file name, folder, glob, URL or `-` (standard input), and open them.

Invariant: a file that several sources lead to is one input, at the place of the first source. A path that exists but
cannot be read (a folder that cannot be listed, a broken link) is an input, too, so that reading it reports the error.
A dataset among dumps is skipped; if the user names one, the error says what reads it.

Bytes are counted and decoded while they are read (`encodings`). Only a file that cannot be read at all raises
SourceError.
"""

import contextlib
import glob
import io
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote

import msgspec

from art_otel.errors import SourceError, UsageError
from art_otel.sources.files.encodings import Failure, compression_of, decoded, text_encoding_of, unpacked
from art_otel.sources.files.stores import (
    Prefetcher,
    StoredFile,
    StoredRange,
    folder_of,
    is_glob,
    list_store,
    matches,
    with_etags,
)
from art_otel.sources.format import Limits
from art_otel.storage import is_url, shown

REPORT_NAME: Final = "_report.json"
PENDING_PREFIX: Final = "_pending-"
KEPT_PREFIX: Final = "_kept-"
PLAN_PREFIX: Final = "_plan-"
SCHEMA_KEY: Final = b"art_otel.schema"
_KEY_BYTES: Final = 64 << 10
"""How many bytes at the end of a Parquet file are searched for our schema key, which is at the end of the footer."""

WHAT_READS_IT: Final = (
    "is already an art-otel dataset, not a dump: read it with `art-otel show`, `art-otel export` or "
    "art_otel.read_trajectories"
)
SCRATCH_PREFIX: Final = ".art-otel-scratch-"
STDIN: Final = "-"
FILE_SCHEME: Final = "file://"
_DEEP: Final = "**"
HEAD_BYTES: Final = 1 << 20

Consumed = Callable[[int], None]


class ByteRange(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a file from `start` to `end` (exclusive); at both a line begins, or the file ends.

    `format` is the format of the whole file, because the first line of a part may not show it.
    """

    start: int
    end: int
    format: str


class InputFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file has a `path`, an object in a store is `stored`, and what has neither is standard input.

    `name` is what people see, `size` is in bytes and None when unknown.
    `explicit` says that the user named this very file (also by a glob, as a shell would have expanded it); one found
    in a folder may be anything, so that it is no error when its format is unknown. `byte_range` is what is to be read
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


def identified(inputs: Sequence[InputFile]) -> list[InputFile]:
    """The inputs, those in stores with their ETags."""
    stored = [source.stored for source in inputs if source.stored is not None]
    versions = iter(with_etags(stored) if stored else ())
    return [
        source if source.stored is None else msgspec.structs.replace(source, stored=next(versions)) for source in inputs
    ]


def stored_input(url: str, name: str) -> InputFile:
    """The object of a URL, which people see as `name`. Raises SourceError."""
    (object_,) = list_store(url)
    file, size, mtime_ns, _ = object_
    return InputFile(name=name, path=None, size=size, mtime_ns=mtime_ns, explicit=True, stored=file)


def find_inputs(sources: Sequence[str | Path]) -> list[InputFile]:
    """Find every file that the sources lead to: files, folders (all below, sorted), globs, URLs, `-` for stdin.

    Raises SourceError for a source that leads to nothing, or to a store that cannot be listed; UsageError for an empty
    text, which Path takes for the current folder.
    """
    inputs: dict[str | StoredFile, InputFile] = {}
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
        f"{shown(source)}: nothing to read; name a file, a folder with files in it, "
        "a glob such as 'dumps/**/*.jsonl', a URL such as s3://bucket/dumps, or - for standard input"
    )


def _expand(source: str) -> Iterator[InputFile]:
    if source == STDIN:
        yield InputFile(name="<stdin>", path=None, size=None, explicit=True)
    elif is_url(source):
        yield from _stored(source)
    else:
        for path in _paths(source):
            yield from _files(path)


def _paths(source: str) -> Iterator[Path]:
    """Find the files of a file name, a folder or a glob; a glob does not match pipes and devices."""
    if source.startswith(FILE_SCHEME):
        source = unquote(source.removeprefix(FILE_SCHEME).removeprefix("localhost"))
    if not source:
        raise UsageError("an empty path is not a source; is a variable unset? The current folder is written .")
    path = Path(source)
    if path.exists():
        yield path
    elif is_glob(source):
        matching = _deep_matches(path) if _DEEP in path.parts else glob.iglob(source)  # noqa: PTH207 # absolute too
        yield from filter(_is_for_reading, sorted(map(Path, matching)))


def _deep_matches(pattern: Path) -> Iterator[Path]:
    """Find the files that match a glob with `**` (any visible folders).

    A folder that cannot be listed is a match, so that reading it reports the error.
    """
    for path in _visible_files(Path(folder_of(pattern.as_posix()) or pattern.anchor)):
        if matches(path.as_posix(), pattern.as_posix()) or os.path.isdir(path):  # noqa: PTH112 # it raises nothing
            yield path


def _stored(source: str) -> Iterator[InputFile]:
    for file, size, mtime_ns, explicit in list_store(source):
        if not is_scratch(file.path) and (explicit or not has_own_name(file.path.rpartition("/")[2])):
            yield InputFile(name=file.name, path=None, size=size, mtime_ns=mtime_ns, explicit=explicit, stored=file)


def _files(path: Path) -> Iterator[InputFile]:
    if not os.path.isdir(path):  # noqa: PTH112 # it raises nothing
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
    """Whether a path is no pipe or device: naming the folder around one, or a glob, does not mean it."""
    stats = _stat(path)
    return stats is None or stat.S_ISREG(stats.st_mode) or stat.S_ISDIR(stats.st_mode)


def _stat(path: Path) -> os.stat_result | None:
    """The status of a file; None if it cannot be had: reading the file later reports the error."""
    try:
        return path.stat()
    except OSError:
        return None


def _input(path: Path, *, explicit: bool) -> InputFile:
    stats = _stat(path)
    if stats is not None and not stat.S_ISREG(stats.st_mode):
        stats = None
    name = os.fsencode(path).decode(errors="backslashreplace")  # a name need not be text
    return InputFile(
        name=name,
        path=path,
        size=stats and stats.st_size,
        mtime_ns=stats and stats.st_mtime_ns,
        explicit=explicit,
    )


def is_scratch(path: str) -> bool:
    """Whether a file is in the scratch folder of a conversion."""
    return any(part.startswith(SCRATCH_PREFIX) for part in path.split("/"))


def has_own_name(name: str) -> bool:
    """Whether a file has the name of our report, a pending file, or a file that conversions keep."""
    is_pending = name.startswith(PENDING_PREFIX) and name.endswith(".json")
    return name == REPORT_NAME or is_pending or name.startswith((KEPT_PREFIX, PLAN_PREFIX))


def is_dataset_file(path: Path) -> bool:
    """Whether a file is no dump: it has one of our names, or it is Parquet with our schema key near its end."""
    if has_own_name(path.name):
        return True
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _KEY_BYTES, 0))
            return path.suffix == ".parquet" and SCHEMA_KEY in file.read()
    except OSError:
        return False


def stored_ranges(inputs: Iterable[InputFile]) -> list[StoredRange]:
    """The byte ranges to read of the inputs in stores, for a Prefetcher."""
    stored = ((one, one.stored) for one in inputs if one.stored is not None)
    return [
        StoredRange(file, 0, one.size or 0)
        if one.byte_range is None
        else StoredRange(file, one.byte_range.start, one.byte_range.end)
        for one, file in stored
    ]


@contextlib.contextmanager
def open_input(
    source: InputFile, limits: Limits, consumed: Consumed, prefetcher: Prefetcher | None = None
) -> "Generator[OpenInput]":
    """Open an input; `consumed` is told how many (compressed) bytes each read took. Raises SourceError.

    `prefetcher` fetches what is in a store, together with other files; without it this file is fetched alone.
    """
    with contextlib.ExitStack() as stack:
        if source.stored is not None:
            (wanted,) = stored_ranges([source])
            prefetcher = prefetcher or stack.enter_context(Prefetcher([wanted]))
            chunks = stack.enter_context(contextlib.closing(prefetcher.chunks(wanted)))
            yield OpenInput(_Pieces(_counted(chunks, consumed)), limits)
            return
        yield OpenInput(_File(stack.enter_context(open_unbuffered(source)), source, consumed), limits)


class OpenInput:
    """An input that is being read. `stream` has its content; the first `peek` gives at least HEAD_BYTES bytes.

    `failures` has the parts that could not be read. `became_shorter` is valid when the input was read to its end.
    """

    def __init__(self, raw: "_Raw", limits: Limits) -> None:
        self.stream: io.BufferedReader = io.BufferedReader(raw, HEAD_BYTES)
        self.failures: list[Failure] = []
        self.compression = compression_of(self.stream.peek())
        self._raw = raw
        fail = self.failures.append
        if self.compression in ("gzip", "zstd"):
            self.stream = io.BufferedReader(_Pieces(unpacked(self.stream, limits, fail)), HEAD_BYTES)
        if (encoding := text_encoding_of(self.stream.peek())) is not None:
            self.compression = self.compression or encoding
            self.stream = io.BufferedReader(_Pieces(decoded(self.stream, limits, fail)), HEAD_BYTES)

    @property
    def became_shorter(self) -> bool:
        """Whether the input ended before the size that it had when it was found."""
        return self._raw.became_shorter


def open_unbuffered(source: InputFile) -> io.FileIO:
    """An input of this machine, also standard input and pipes. Raises SourceError."""
    if source.path is None:
        return _standard_input()
    try:
        return source.path.open("rb", buffering=0)
    except OSError as error:
        raise SourceError(f"{source.name}: cannot be opened ({error.strerror}); check the path") from error


def _standard_input() -> io.FileIO:
    """Standard input as this process inherited it."""
    closed = "standard input is closed; pipe a dump into the command, or name a file"
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] # it was closed, and 0 may be another file
        raise SourceError(closed)
    try:
        if sys.platform != "win32":
            os.set_blocking(0, True)  # else what comes late looks like the end
        return open(0, "rb", buffering=0, closefd=False)
    except OSError as error:
        raise SourceError(f"{closed} ({error.strerror})") from error


class _Raw(io.RawIOBase):
    """Fills each buffer completely if there are enough bytes, so that one `peek` gets all bytes of detection."""

    became_shorter = False

    def readable(self) -> bool:
        """Say that the stream can be read (see io.RawIOBase)."""
        return True

    def readinto(self, buffer: object, /) -> int:
        """Fill the buffer; return the number of bytes written to it, 0 at the end (see io.RawIOBase)."""
        target = memoryview(cast(bytearray, buffer)).cast("B")
        filled = 0
        while filled < len(target) and (count := self._fill(target[filled:])):
            filled += count
        return filled

    def _fill(self, target: memoryview) -> int:
        raise NotImplementedError


class _File(_Raw):
    """A local file, or the part of it that is to be read."""

    def __init__(self, file: io.FileIO, source: InputFile, consumed: Consumed) -> None:
        self._file = file
        self._name = source.name
        self._consumed = consumed
        self._is_part = source.byte_range is not None
        self._left = source.size or 0
        if source.byte_range is not None:
            file.seek(source.byte_range.start)

    def _fill(self, target: memoryview) -> int:
        try:
            count = self._file.readinto(target[: self._left] if self._is_part else target) or 0
        except OSError as error:
            raise SourceError(f"{self._name}: cannot be read ({error.strerror}); check the file") from error
        self.became_shorter = not count and self._left > 0
        self._left = max(self._left - count, 0)
        self._consumed(count)
        return count


class _Pieces(_Raw):
    """The pieces one after the other."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def _fill(self, target: memoryview) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _counted(chunks: Iterator[bytes], consumed: Consumed) -> Iterator[bytes]:
    for chunk in chunks:
        consumed(len(chunk))
        yield chunk
