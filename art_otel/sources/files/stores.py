"""Object stores: files behind `s3://` and `gs://` URLs, listed and read through `pyarrow.fs`.

A URL names an object, all objects below a prefix (`s3://bucket/traces/`), or those that match a glob. What its query
says (`region`, `endpoint_override`, `scheme`) and whom it names before an `@` go to pyarrow; credentials come from
where the store's own tools have them. Nothing is ever written to a store.

Invariant: every fault of a store is a SourceError that names the URL (without credentials) and says what to do.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import functools
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from art_otel.errors import SourceError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_SCHEMES: Final = ("s3://", "gs://", "gcs://")
_URL: Final = re.compile(
    r"(?P<scheme>\w+)://(?P<account>[^/@]*@)?(?P<bucket>[^/?]+)/?(?P<key>.*?)"
    r"(?P<query>\?(?:region|scheme|endpoint_override|project_id|retry_limit_seconds)=.*)?",
    re.DOTALL,
)
_GLOB: Final = re.compile(r"[*?\[]")
_GLOB_PART: Final = re.compile(
    r"(?<![^/])(?:(?P<deep>\*\*/)|(?P<rest>\*\*\Z))|(?P<any>\*+)|(?P<one>\?)|\[(?P<none>!?)(?P<of>[^\]]+)\]", re.DOTALL
)
_B: Final = "\\"
_GCS_PATIENCE: Final = "retry_limit_seconds=60"  # its own limit is a quarter of an hour
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
    ("", "check the URL and your credentials (for S3 the AWS_… variables or ~/.aws, for GCS `gcloud auth`)"),
)


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """An object: `store` is the URL of its bucket as pyarrow takes it, `path` its bucket and key, `size` in bytes."""

    store: str
    path: str
    size: int

    @property
    def name(self) -> str:
        """Its URL as people see it: without credentials and options."""
        return f"{self.store.partition(':')[0]}://{self.path}"


def is_store_url(source: str) -> bool:
    """Whether it names something in a store that is read here."""
    return source.startswith(_SCHEMES)


def list_store(source: str) -> Iterator[tuple[StoredFile, bool]]:
    """Every object that a URL leads to, sorted, and whether somebody named this very one. Raises SourceError."""
    url = _URL.fullmatch(source)
    if url is None:
        raise SourceError(f"{source}: no URL of a store; write s3://bucket/prefix or gs://bucket/prefix")
    scheme = "gs" if url["scheme"] == "gcs" else url["scheme"]
    query = url["query"] or ""
    if scheme == "gs" and "retry_limit_seconds" not in query:
        query = f"{query}&{_GCS_PATIENCE}" if query else f"?{_GCS_PATIENCE}"
    store = f"{scheme}://{url['account'] or ''}{url['bucket']}{query}"
    pattern = f"{url['bucket']}/{url['key']}".rstrip("/")
    for path, size, explicit in _matches(store, pattern, is_glob=_GLOB.search(url["key"]) is not None):
        yield StoredFile(store=store, path=path, size=size), explicit


def _matches(store: str, pattern: str, *, is_glob: bool) -> Iterator[tuple[str, int, bool]]:
    with told(f"{store.partition(':')[0]}://{pattern}"):
        files = file_system(store)
        if is_glob:
            base = _GLOB.split(pattern, maxsplit=1)[0].rpartition("/")[0]
            is_match = _glob_pattern(pattern).fullmatch
            yield from ((path, size, True) for path, size in _below(files, base) if is_match(path))
            return
        found: Any = files.get_file_info(pattern)
        if found.is_file:
            yield found.path, found.size, True
            return
        for path, size in _below(files, pattern):
            if not any(_is_hidden(part) for part in path.removeprefix(pattern).split("/")):
                yield path, size, False


def _is_hidden(part: str) -> bool:
    return part.startswith(".") and part.strip(".") != ""  # in a store, .. is a name like any other


def _below(files: "FileSystem", base: str) -> list[tuple[str, int]]:
    from pyarrow.fs import FileSelector  # noqa: PLC0415 # slow to load

    try:
        found = cast(list[Any], files.get_file_info(FileSelector(base, recursive=True)))
    except FileNotFoundError:
        return []
    return sorted((info.path, info.size) for info in found if info.is_file)


def _glob_pattern(glob: str) -> re.Pattern[str]:
    """`*` and `?` stay inside a folder, a part `**` is any folders, or all below as the last: as for files."""
    pattern, at = "", 0
    for part in _GLOB_PART.finditer(glob):
        pattern += re.escape(glob[at : part.start()])
        at = part.end()
        if part["deep"]:
            pattern += "(?:.*/)?"
        elif part["rest"]:
            pattern += ".+"
        elif part["any"]:
            pattern += "[^/]*"
        elif part["one"]:
            pattern += "[^/]"
        else:
            pattern += f"(?!/)[{'^' if part['none'] else ''}{part['of'].replace(_B, _B + _B)}]"
    try:
        return re.compile(pattern + re.escape(glob[at:]), re.DOTALL)
    except re.error as error:
        raise SourceError(f"{glob}: is no glob: {error}") from error


@functools.lru_cache(maxsize=8)
def file_system(store: str) -> "FileSystem":
    """The file system of a bucket."""
    from pyarrow.fs import FileSystem  # noqa: PLC0415 # slow to load

    return cast("FileSystem", FileSystem.from_uri(store)[0])


@contextmanager
def told(name: str) -> Generator[None]:
    """Raise what pyarrow raises as a SourceError that names what was asked for."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:
        problem = " ".join(str(error).split())[:300]
        advice = next(advice for mark, advice in _ADVICE if mark in problem)
        raise SourceError(f"{name}: {advice} ({problem})") from error
