"""Storage: files by path or URL, in a folder of this machine or in an object store (`s3://`, `gs://`, `abfs://`).

Invariant: a file has its name only once it is whole, and on this machine once the disk has it. Nothing is changed in
place. Every fault names the file, without credentials: of a store as a StorageError, of this machine as an OSError.
"""

from art_otel.storage.buckets import etag_of, located, open_bucket, told
from art_otel.storage.folders import list_folder, make_folder, remove, remove_folder, sync_folder
from art_otel.storage.locations import is_url, join, shown
from art_otel.storage.reading import Reader, open_file, open_reader, read, size_of, version_of
from art_otel.storage.writing import move, staged, write

__all__ = [
    "Reader",
    "etag_of",
    "is_url",
    "join",
    "list_folder",
    "located",
    "make_folder",
    "move",
    "open_bucket",
    "open_file",
    "open_reader",
    "read",
    "remove",
    "remove_folder",
    "shown",
    "size_of",
    "staged",
    "sync_folder",
    "told",
    "version_of",
    "write",
]
