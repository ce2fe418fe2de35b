"""The exception tree. Every message names the path to the bad thing and says what to do.

    ArtOtelError
    ├── UsageError        the caller asked for something impossible (CLI exit 2)
    │   ├── BusyError     another process writes there
    │   └── NothingToExportError  an export would have no record (of `art_otel.exporting`)
    ├── SourceError       a source could not be read at all (CLI exit 1)
    ├── ParseError        a value inside a record is not what its convention says
    ├── StorageError      a file of this machine or of an object store could not be read or written (CLI exit 1)
    ├── StoreError        a Parquet file is not ours or of a version we cannot read
    └── WorkerError       a process of a conversion ended before its work was done (CLI exit 1)

Quarantined inside a source is data and not an exception: see `art_otel.spans.Quarantined`.
"""


class ArtOtelError(Exception):
    """The base of every exception that art-otel raises on purpose."""


class UsageError(ArtOtelError):
    """The caller asked for something impossible; the message says what is possible."""


class BusyError(UsageError):
    """Another process writes where this one wants to."""


class SourceError(ArtOtelError):
    """A source (file, folder, glob, stream) could not be read at all."""


class ParseError(ArtOtelError):
    """A value is not what its convention says it is. `path` leads to it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class StorageError(ArtOtelError):
    """A file on this machine or in an object store could not be read or written; the message names it."""


class StoreError(ArtOtelError):
    """A file is not a trajectory file, or it has a newer schema than this version can read."""


class WorkerError(ArtOtelError):
    """A process of a conversion was killed, for example because the system had no memory."""
