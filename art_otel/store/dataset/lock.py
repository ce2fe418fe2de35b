"""Lock: one writer at a time for a folder of this machine; a store has no locks."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from art_otel import storage
from art_otel.errors import BusyError, UsageError

_NAME: Final = ".art-otel.lock"


@contextmanager
def locked(out: str) -> Generator[None]:
    """Hold the lock of a folder, which is made. Raises UsageError when another holds it or no file can be locked."""
    if storage.is_url(out):
        yield
        return
    storage.make_folder(out)
    lock = FileLock(Path(out, _NAME), blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"{out}: another process writes there; wait for it or name another folder") from None
    except (OSError, NotImplementedError) as error:
        raise UsageError(f"{out}: the file system grants no lock ({error}); write to another and copy") from error
    try:
        yield
    finally:
        Path(out, _NAME).unlink(missing_ok=True)  # whoever waits for it looks whether it still has its name
        lock.release()
