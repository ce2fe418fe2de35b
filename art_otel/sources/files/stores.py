"""Object stores: files behind `s3://`, `gs://` and `abfs://` URLs, listed and read through `pyarrow.fs`.

A URL names an object, all objects below a prefix (`s3://bucket/traces/`), or those that match a glob. Its query
(`region`, `endpoint_override`, `scheme`) and the user before an `@` are passed to pyarrow; credentials come from the
same places as for the store's own tools. Nothing is ever written to a source.

Invariant: every error of a store is a SourceError with the URL (without credentials) and advice. All bytes of an object
are of one version: an object that was replaced meanwhile is an error. Globs work as for files: `*`, `?` and `[…]` match
inside of a folder's name, a part `**` matches any folders, or everything below.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import msgspec

from art_otel import storage
from art_otel.errors import SourceError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_OPTIONS: Final = (
    "region|scheme|endpoint_override|project_id|retry_limit_seconds|"
    "enable_tls|blob_storage_authority|dfs_storage_authority|credential_kind|tenant_id|client_id|client_secret"
)
_URL: Final = re.compile(
    r"(?P<scheme>\w+)://(?P<account>[^/@]*@)?(?P<bucket>[^/?]+)/?(?P<key>.*?)"
    rf"(?P<query>\?(?:{_OPTIONS})=.*)?",
    re.DOTALL,
)
_ADVICE: Final = (
    ("NO_SUCH_BUCKET", "there is no such bucket; check its name and region"),
    ("ACCESS_DENIED", "your credentials may not read this; ask for the right to list and read it"),
    ("Empty path component", "its key has an empty part (//), which cannot be read; copy it to another key"),
    (
        "XML_ERROR",
        "a key there has a control character, and S3 cannot list those; name a narrower prefix or the objects",
    ),
    ("NETWORK_CONNECTION", "the store cannot be reached; check the network and endpoint_override"),
    ("Could not connect", "the store cannot be reached; check the network and endpoint_override"),
    (
        "",
        "check the URL and your credentials (S3: AWS_… variables or ~/.aws, GCS: `gcloud auth`, Azure: `az login`)",
    ),
)


_ASKED_AT_ONCE: Final = 32
CHUNK_BYTES: Final = 4 << 20
CHUNKS: Final = 8
_GLOB: Final = re.compile(r"[*?\[]")


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """An object: `store` is the URL of its bucket for pyarrow, `path` its bucket and key.

    With an `etag` only this version of the object can be read.
    """

    store: str
    path: str
    etag: str | None = None

    @property
    def name(self) -> str:
        """Its URL as people see it: without credentials and options."""
        return f"{self.store.partition(':')[0]}://{self.path}"


class StoredRange(NamedTuple):
    """The bytes of an object from `start` up to `end`."""

    file: StoredFile
    start: int
    end: int


class Listed(NamedTuple):
    """An object as a store lists it. `explicit` says that the user named this very one."""

    file: StoredFile
    size: int
    mtime_ns: int | None
    explicit: bool


def list_store(source: str) -> Iterator[Listed]:
    """List every object that a URL leads to, sorted. Raises SourceError."""
    url = _URL.fullmatch(source)
    if url is None:
        raise SourceError(f"{source}: no URL of a store; write s3://bucket/prefix, gs://… or abfs://…")
    scheme = "gs" if url["scheme"] == "gcs" else url["scheme"]
    store = f"{scheme}://{url['account'] or ''}{url['bucket']}{url['query'] or ''}"
    with store_errors(f"{scheme}://{url['bucket']}/{url['key']}".rstrip("/")):
        files, root = storage.open_bucket(store)
        pattern = f"{root}/{url['key']}".rstrip("/")
        for info, explicit in _objects(files, pattern):
            yield Listed(StoredFile(store=store, path=info.path), info.size, info.mtime_ns, explicit)


def _objects(files: "FileSystem", pattern: str) -> Iterator[tuple[Any, bool]]:
    """List what pyarrow says of each object, and whether the user named this very one."""
    if is_glob(pattern):
        yield from ((info, True) for info in _below(files, folder_of(pattern)) if matches(info.path, pattern))
        return
    named: Any = files.get_file_info(pattern)
    if named.is_file:
        yield named, True
        return
    for info in _below(files, pattern):
        if not any(_is_hidden(part) for part in info.path.removeprefix(pattern).split("/")):
            yield info, False


def _is_hidden(part: str) -> bool:
    return part.startswith(".") and part.strip(".") != ""  # in a store, .. is a name like any other


def _below(files: "FileSystem", base: str) -> list[Any]:
    from pyarrow.fs import FileSelector  # noqa: PLC0415 # slow to load

    try:
        infos = cast(list[Any], files.get_file_info(FileSelector(base, recursive=True)))
    except FileNotFoundError:  # another error than that of a bucket that is not there
        return []
    return sorted((info for info in infos if info.is_file), key=lambda info: info.path)


def read_range(file: StoredFile, start: int, end: int) -> bytes:
    """Read the bytes of an object from `start` up to `end`. Raises SourceError."""
    with store_errors(file.name), open_stored(file) as opened:
        data: bytes = opened.read_at(end - start, start)
    if len(data) < end - start:
        raise SourceError(f"{file.name}: it was truncated while it was read; convert again when it is complete")
    return data


class Prefetcher:
    """Fetches the bytes of objects before they are read, in chunks; memory has at most `CHUNKS` chunks.

    While one chunk is processed, the next ones, also of the next objects, are being fetched, so that many small objects
    do not cost a round trip each. Use it as a context manager. Ranges must be read in the given order; reading of each
    may stop at any place.
    """

    def __init__(self, ranges: Iterable[StoredRange]) -> None:
        self._left: set[StoredRange] = set()
        self._waiting = self._chunks(ranges)
        self._coming: deque[tuple[StoredRange, Future[bytes]]] = deque()
        self._pool = ThreadPoolExecutor(CHUNKS, "art-otel-prefetch")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def chunks(self, wanted: StoredRange) -> Generator[bytes]:
        """Read the bytes of a range. Raises SourceError."""
        try:
            self._fetch()
            while self._coming and self._coming[0][0] == wanted:
                yield self._coming.popleft()[1].result()
                self._fetch()
        finally:
            self._left.add(wanted)

    def _fetch(self) -> None:
        """Request as many chunks as memory may have, but none of ranges whose reading has stopped."""
        while self._coming and self._coming[0][0] in self._left:
            self._coming.popleft()[1].cancel()
        while len(self._coming) < CHUNKS and (chunk := next(self._waiting, None)):
            wanted, start = chunk
            end = min(start + CHUNK_BYTES, wanted.end)
            self._coming.append((wanted, self._pool.submit(read_range, wanted.file, start, end)))

    def _chunks(self, ranges: Iterable[StoredRange]) -> Iterator[tuple[StoredRange, int]]:
        for wanted in ranges:
            for start in range(wanted.start, wanted.end, CHUNK_BYTES):
                if wanted not in self._left:
                    yield wanted, start


def open_stored(file: StoredFile) -> Any:  # noqa: ANN401 # pyarrow ships no types
    """Open an object to read anywhere in it. Raises SourceError for one that was replaced."""
    files, _ = storage.open_bucket(file.store)
    opened: Any = files.open_input_file(file.path)
    if file.etag is not None and storage.etag_of(opened) != file.etag:
        opened.close()
        raise SourceError(f"{file.name}: it was replaced while it was read; convert again when it is complete")
    return opened


def with_etags(stored: Iterable[StoredFile]) -> list[StoredFile]:
    """The objects with their ETags. pyarrow's listings have none, so there is one request for each, many at once.

    An object whose request fails stays unchanged: reading it reports the error.
    """
    with ThreadPoolExecutor(_ASKED_AT_ONCE, "art-otel-etags") as pool:
        return list(pool.map(_with_etag, stored))


def _with_etag(file: StoredFile) -> StoredFile:
    try:
        with store_errors(file.name), open_stored(file) as opened:
            return msgspec.structs.replace(file, etag=storage.etag_of(opened))
    except SourceError:
        return file


@contextmanager
def store_errors(name: str) -> Generator[None]:
    """Turn pyarrow's errors into a SourceError with the URL that was asked for."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:
        problem = " ".join(str(error).split())[:300]
        advice = next(advice for mark, advice in _ADVICE if mark in problem)
        raise SourceError(f"{name}: {advice} ({problem})") from error


def is_glob(path: str) -> bool:
    """Whether a path is a pattern."""
    return _GLOB.search(path) is not None


def folder_of(glob: str) -> str:
    """The deepest folder that has all matches; empty for the current folder."""
    return _GLOB.split(glob, maxsplit=1)[0].rpartition("/")[0]


def matches(path: str, glob: str) -> bool:
    """Whether a path matches."""
    return _match(path.split("/"), glob.split("/"))


def _match(path: Sequence[str], glob: Sequence[str]) -> bool:
    if not path or not glob:
        return not path and not glob
    if glob[0] != "**":
        return fnmatchcase(path[0], glob[0]) and _match(path[1:], glob[1:])
    return len(glob) == 1 or any(_match(path[at:], glob[1:]) for at in range(len(path)))
