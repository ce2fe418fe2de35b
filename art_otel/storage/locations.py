"""Locations: paths of this machine, and URLs of object stores.

Invariant: what people see of a location has neither the options nor the credentials of a URL.
"""

from pathlib import Path
from typing import Final

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
