"""ParquetProcess: the rows of a Parquet file as a stream of JSON lines, read by a process with a memory limit.

Invariant: whatever the file does to that process, this one only sees the stream end, and says why.
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from typing import BinaryIO, Final, cast

from art_otel.errors import SourceError
from art_otel.sources.files.decompress import Fail, Failure
from art_otel.sources.limits import advice
from art_otel.spans import QuarantineReason

UNREADABLE: Final = "unreadable"
OUT_OF_MEMORY: Final = ("bad_alloc", "MemoryError", "Cannot allocate memory")
"""What is said where C++ or Python found no way to go on without memory; thrift's reader says it in an OSError."""

_PROGRAM: Final = "art_otel.sources.files.parquet_lines"
_MAX_PROBLEMS: Final = 1 << 20
_COPY_BYTES: Final = 1 << 20


class ParquetProcess(io.RawIOBase):
    """Reads `file` from its beginning, which has to be a file of the system. `memory` is in bytes.

    Raises SourceError when the process cannot be started.
    """

    def __init__(self, file: BinaryIO, name: str, memory: int, fail: Fail) -> None:
        super().__init__()
        self._name = name
        self._fail = fail
        self._ended = False
        file.seek(0)
        self._problems = temporary_file(name)
        try:
            self._process = subprocess.Popen(  # noqa: S603 # our own program
                [sys.executable, "-P", "-m", _PROGRAM, str(memory)],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=self._problems,
                env={**os.environ, **_environment()},
            )
        except OSError as error:
            self._problems.close()
            raise SourceError(f"{name}: no process can be started to read it ({error}); free some memory") from error
        self._lines = cast(io.RawIOBase, self._process.stdout)

    def readable(self) -> bool:
        """True: it is there to be read."""
        return True

    def readinto(self, buffer: object, /) -> int:
        """As io.RawIOBase. Raises SourceError for a file that is no Parquet."""
        count = self._lines.readinto(cast(bytearray, buffer)) or 0
        if not count and not self._ended:
            self._ended = True
            self._tell(self._process.wait())
        return count

    def close(self) -> None:
        """End the process."""
        if not self.closed:
            self._process.kill()
            self._process.wait()
            self._lines.close()
            self._problems.close()
        super().close()

    def _tell(self, code: int) -> None:
        """Tell what the process could not read."""
        self._problems.seek(0)
        lines = self._problems.read(_MAX_PROBLEMS).decode(errors="replace").splitlines()
        for line in lines:
            reason, _, rest = line.partition("\t")
            place, _, detail = rest.partition("\t")
            if reason == UNREADABLE:
                what_to_do = "export it unencrypted" if "encrypted" in detail else "is it cut off? export it again"
                raise SourceError(f"{self._name}: cannot be read as Parquet ({detail}); {what_to_do}")
            if reason in ("over a limit", "torn"):
                self._fail(Failure(cast(QuarantineReason, reason), _advised(reason, detail), place))
        if code:
            reason = "over a limit" if any(mark in line for line in lines for mark in OUT_OF_MEMORY) else "torn"
            detail = f"the process that read the Parquet file ended with {code}: {lines[-1:]}"
            self._fail(Failure(reason, _advised(reason, detail)))


def _advised(reason: str, detail: str) -> str:
    return f"{detail}; {advice('max_parquet_memory')}" if reason == "over a limit" else detail


def _environment() -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONUTF8": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve more than they use
        "OMP_NUM_THREADS": "1",
    }


def copied_to_disk(raw: io.RawIOBase, name: str) -> BinaryIO:
    """What a stream holds, in a temporary file: Parquet is read from its end. Raises SourceError."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(temporary_file(name))
        try:
            shutil.copyfileobj(io.BufferedReader(raw, _COPY_BYTES), file, _COPY_BYTES)
        except OSError as error:
            raise _no_room(name, error) from error
        stack.pop_all()
        return file


def temporary_file(name: str) -> BinaryIO:
    """A file that is gone when it is closed. Raises SourceError, which names what it was for."""
    try:
        return cast(BinaryIO, tempfile.TemporaryFile())
    except OSError as error:
        raise _no_room(name, error) from error


def _no_room(name: str, error: OSError) -> SourceError:
    return SourceError(f"{name}: no temporary file to read it with ({error.strerror}); make room or set TMPDIR")
