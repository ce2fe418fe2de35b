"""ContentReader: replace references in spans and log records by the content of the files that they refer to.

    attribute       file:///tmp/run1/messages-7f3a.json
    followed to     DUMP/messages-7f3a.json, in a folder of the sources or of --content

Invariant: a dump cannot make this machine read other files, or use its credentials. A reference is followed only into
the folders of the sources and of `--content`. If its path is not there, its file name alone is searched in them: dumps
are copied, and recorders choose random names. Hidden files, links out of a folder, and files that are not a JSON list
of objects (or one object per line) are not read. An unread reference stays as it is and is counted with the reason.

Memory has the contents that were read last, up to `_KEPT_BYTES`, because many calls refer to the same tools.
"""

import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec

from art_otel import storage
from art_otel.conventions import references_of, with_content
from art_otel.errors import StorageError
from art_otel.sources import FileStats, InputFile, advice
from art_otel.sources.files.inputs import FILE_SCHEME, STDIN
from art_otel.sources.files.stores import folder_of, is_glob
from art_otel.sources.format import Record
from art_otel.spans import Quarantined, Value

_KEPT_BYTES: Final = 16 << 20
_SUFFIXES: Final = (".json", ".jsonl")
_INDEX: Final = "index"
"""The field with a line's place, in files with one message per line."""

_OUTSIDE: Final = "it is in no folder of the sources; name its folder with --content"
_ABSENT: Final = "no such file is there, nor one of that name in the sources or in --content"


_NO_CONTENT: Final = "it is not a JSON list of messages, parts or tools, and its lines are no such lists either"


class _UnreadReference(Exception):  # noqa: N818 # it becomes a count and is no error of the program
    """The reason why a reference is not read, as its message."""


class _Location(NamedTuple):
    """A path where the content of a reference may be. `root` is the folder that it must be in."""

    root: str
    path: str


def content_folders(sources: Iterable[str], named: Iterable[str]) -> tuple[str, ...]:
    """The folders in which references are followed: those that the user named, then those of the sources."""
    folders = [_folder_of(source) for source in sources if source != STDIN]
    return tuple(dict.fromkeys([*map(_whole, named), *(_whole(folder) for folder in folders if folder is not None)]))


def _folder_of(source: str) -> str | None:
    """The folder of a source, which may be this folder itself."""
    address, mark, query = source.partition("?") if storage.is_url(source) else (source, "", "")
    if is_glob(address):
        address = folder_of(address) or "."
    elif storage.is_url(source):
        is_object = PurePosixPath(address).suffix != ""
        address = address.rpartition("/")[0] if is_object else address
    else:
        path = Path(unquote(address.removeprefix(FILE_SCHEME)) if address.startswith(FILE_SCHEME) else address)
        address = str(path if path.is_dir() else path.parent)
    return f"{address}{mark}{query}"


def _whole(folder: str) -> str:
    folder = unquote(folder.removeprefix(FILE_SCHEME)) if folder.startswith(FILE_SCHEME) else folder
    return folder if storage.is_url(folder) else os.path.realpath(folder)


class ContentReader:
    """Reads the content that the records of a split refer to; `folders` come from `content_folders`.

    `limit` is the most bytes of one content.
    """

    def __init__(self, folders: Sequence[str], limit: int) -> None:
        self._folders = tuple(folders)
        self._limit = limit
        self._kept: OrderedDict[str, str | _UnreadReference] = OrderedDict()
        self._kept_bytes = 0

    def resolved(self, records: Iterable[Record], source: InputFile, stats: FileStats) -> Iterator[Record]:
        """The records with the content that they refer to. Unread references are counted in `stats`."""
        folders = self._folders
        if source.path is not None:  # a glob may match files in several folders
            folders = tuple(dict.fromkeys((*folders, os.path.realpath(source.path.parent))))
        for record in records:
            if isinstance(record, Quarantined) or not (references := references_of(record.attributes)):
                yield record
                continue
            contents: dict[str, str] = {}
            for name, url in references.items():
                try:
                    contents[name] = self._content(url, folders)
                except _UnreadReference as problem:
                    stats.unread_content += 1
                    stats.unread_example = stats.unread_example or f"{storage.shown(url)}: {problem}"
            yield msgspec.structs.replace(record, attributes=with_content(record.attributes, contents))

    def _content(self, url: str, folders: Sequence[str]) -> str:
        """The content at a URL as JSON text. Raises _UnreadReference."""
        kept = self._kept.get(url)
        if kept is None:
            try:
                kept = _as_list(self._read(url, folders))
            except _UnreadReference as problem:
                kept = problem
            self._keep(url, kept)
        if isinstance(kept, _UnreadReference):
            raise kept
        return kept

    def _keep(self, url: str, content: "str | _UnreadReference") -> None:
        self._kept[url] = content
        self._kept_bytes += len(str(content))
        while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(str(oldest))

    def _read(self, url: str, folders: Sequence[str]) -> bytes:
        """The bytes at a URL, or of a file with the URL's name in the folders. Raises _UnreadReference."""
        path = url.removeprefix(FILE_SCHEME).removeprefix("localhost")
        name = PurePosixPath(path).name
        if "://" in path and not storage.is_url(path):
            raise _UnreadReference("only files and objects of S3, GS and Azure can be read")
        if PurePosixPath(path).suffix not in _SUFFIXES or name.startswith(".") or "\0" in path:
            raise _UnreadReference("its name does not end with .json or .jsonl, as that of content does")
        paths = dict.fromkeys((path, unquote(path)))
        inside = [one for folder in folders for path in paths if (one := _inside(folder, path)) is not None]
        by_name = [_Location(folder, storage.join(folder, name)) for folder in folders]
        for location in (*inside, *by_name):
            data = self._try(location)
            if data is not None:
                return data
        raise _UnreadReference(_ABSENT if inside else _OUTSIDE)

    def _try(self, location: _Location) -> bytes | None:
        """The bytes of a file; None if there is no such file. Raises _UnreadReference if it may not be read."""
        try:
            if not storage.is_url(location.root) and not _is_plain_file(location):
                return None
            size = storage.size_of(location.path)
            if size is None:
                return None
            if size > self._limit:
                raise _UnreadReference(f"it has {size:,} bytes; {advice('max_message_bytes')}")
            return storage.read(location.path, 0, size)
        except (OSError, StorageError, ValueError) as error:
            raise _UnreadReference(f"cannot be read ({error})") from None


def _inside(folder: str, path: str) -> _Location | None:
    """The location of a path in a folder; None if the path is outside of the folder."""
    address, _, _ = folder.partition("?") if storage.is_url(folder) else (folder, "", "")
    address = _same_scheme(address).rstrip("/")
    path = _same_scheme(path)
    below = path.removeprefix(f"{address}/")
    if below == path and not storage.is_url(path):  # the folder may be a link
        parent, name = os.path.split(path)
        path = os.path.join(os.path.realpath(parent), name)  # noqa: PTH118 # as texts, in every system
        below = path.removeprefix(f"{address}/")
    parts = below.split("/")
    if below == path or any(part.startswith(".") or not part for part in parts):
        return None
    return _Location(folder, storage.join(folder, below))


def _same_scheme(url: str) -> str:
    return f"gs://{url.removeprefix('gcs://')}" if url.startswith("gcs://") else url


def _is_plain_file(location: _Location) -> bool:
    """Whether a path is a regular file in its folder: no link out of it, no pipe, no device."""
    real = os.path.realpath(location.path)
    if not real.startswith(location.root.rstrip("/") + "/"):
        return False
    try:
        return stat.S_ISREG(Path(real).stat().st_mode)
    except OSError:
        return False


def _as_list(data: bytes) -> str:
    """The JSON text of a list of messages, parts or tools; lines of objects become a list. Raises _UnreadReference."""
    try:
        is_list = data.lstrip().startswith(b"[")
        text = data if is_list else msgspec.json.encode(_lines(data))
        items = msgspec.json.decode(text, type=list[dict[str, msgspec.Raw]])
        if not all("parts" in item or "type" in item for item in items):
            raise _UnreadReference(_NO_CONTENT)
        return text.decode().strip()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _UnreadReference(_NO_CONTENT) from None


def _lines(data: bytes) -> list[dict[str, Value]]:
    """The objects of lines, sorted by their `index`, and without it; in the file's order if any line has none."""
    lines = [msgspec.json.decode(line, type=dict[str, Value]) for line in data.splitlines() if line.strip()]
    if not lines:
        raise msgspec.DecodeError("it is empty")
    places = {place: line for line in lines if isinstance(place := line.pop(_INDEX, None), int)}
    return [places[place] for place in sorted(places)] if len(places) == len(lines) else lines
