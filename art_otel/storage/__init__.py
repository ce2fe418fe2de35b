"""Storage: files by path or URL, in a folder of this machine or in an object store (`s3://`, `gs://`, `abfs://`).

Invariant: a file has its name only once it is whole, and on this machine once the disk has it. Nothing is changed in
place. Every fault names the file, without credentials: of a store as a StorageError, of this machine as an OSError.
"""

from art_otel.storage.buckets import etag_of as etag_of
from art_otel.storage.buckets import is_url as is_url
from art_otel.storage.buckets import join as join
from art_otel.storage.buckets import located as located
from art_otel.storage.buckets import open_bucket as open_bucket
from art_otel.storage.buckets import shown as shown
from art_otel.storage.files import Reader as Reader
from art_otel.storage.files import list_folder as list_folder
from art_otel.storage.files import make_folder as make_folder
from art_otel.storage.files import move as move
from art_otel.storage.files import open_file as open_file
from art_otel.storage.files import open_reader as open_reader
from art_otel.storage.files import read as read
from art_otel.storage.files import remove as remove
from art_otel.storage.files import remove_folder as remove_folder
from art_otel.storage.files import size_of as size_of
from art_otel.storage.files import staged as staged
from art_otel.storage.files import sync_folder as sync_folder
from art_otel.storage.files import version_of as version_of
from art_otel.storage.files import write as write
