"""Buckets: paths of this machine and URLs of object stores, and the file systems of pyarrow behind URLs.

What a URL's query says (`region`, `endpoint_override`, `scheme`) goes to pyarrow; credentials come from where the
store's own tools have them. Invariant: a bucket is opened in the process that uses it, which inherits none, and what
people see of a location has neither the options nor the credentials of a URL.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from art_otel.errors import StorageError

_SCHEMES: Final = ("s3://", "gs://", "gcs://", "abfs://", "abfss://")


def is_url(location: str) -> bool:
    """Whether a location is in an object store and not on this machine."""
    return location.startswith(_SCHEMES)


def join(folder: str, name: str) -> str:
    """The location of a file in a folder. The query of a URL stays at its end."""
    if not is_url(folder):
        return str(Path(folder, name))
    path, mark, query = folder.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def shown(location: str) -> str:
    """A location as people and reports see it: without the query and credentials of a URL."""
    if not is_url(location):
        return location
    scheme, _, rest = location.partition("?")[0].partition("://")
    bucket, slash, key = rest.partition("/")
    name, at, host = bucket.rpartition("@")
    if scheme.startswith("abfs") and name:  # a container, maybe with a password, at an account
        host = f"{name.partition(':')[0]}{at}{host}"
    return f"{scheme}://{host}{slash}{key}"


_OPTIONS: Final = {
    "gs": "retry_limit_seconds=60",  # its own limit is a quarter of an hour
    "s3": "allow_delayed_open=true",  # a small object is one request instead of three
}


_FAULTS: Final = (OSError, ValueError, NotImplementedError)


def open_bucket(url: str) -> tuple[Any, str]:
    """The file system of a bucket's URL, and what the bucket is called there."""
    scheme, _, _ = url.partition("://")
    scheme, url = ("gs", f"gs{url.removeprefix(scheme)}") if scheme == "gcs" else (scheme, url)
    option = _OPTIONS.get(scheme)
    if option is not None and f"{option.partition('=')[0]}=" not in url:
        url = f"{url}{'&' if '?' in url else '?'}{option}"
    return _open(url, os.getpid())


@lru_cache(maxsize=8)
def _open(url: str, _process: int) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem  # noqa: PLC0415 # slow to load

    files, root = FileSystem.from_uri(url)
    return files, root.rstrip("/")


def located(url: str) -> tuple[Any, str]:
    """The file system of a URL, and what pyarrow calls the file there: the bucket and the key."""
    address, mark, query = url.partition("?")
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    files, root = open_bucket(f"{scheme}://{bucket}{mark}{query}")
    return files, f"{root}/{key}".rstrip("/")


def etag_of(opened: Any) -> str | None:  # noqa: ANN401 # a file of pyarrow
    """What the store calls the content of an open file; None where it says nothing."""
    metadata: dict[str | bytes, str | bytes] = opened.metadata() or {}
    for name, value in metadata.items():
        if _text(name).lower() == "etag":
            return _text(value)
    return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@contextmanager
def storage_errors(location: str) -> Generator[None]:
    """Raise what pyarrow raises of a store as a StorageError that names the location; errors of this machine do."""
    try:
        yield
    except Exception as error:  # Azure's faults of credentials are of pyarrow's own class, which is slow to load
        if not is_url(location) or not (isinstance(error, _FAULTS) or type(error).__module__.startswith("pyarrow")):
            raise
        problem = " ".join(str(error).split())[:300]
        raise StorageError(f"{shown(location)}: {problem}") from error
