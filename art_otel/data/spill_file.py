"""SpillFile: values on disk by number, for those that wait for another.

Invariant: memory holds a position a value and at most `_IN_MEMORY` bytes; the file has no name.
"""

import pickle
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

_IN_MEMORY: Final = 16 * 2**20

_T = TypeVar("_T")


class SpillFile(Generic[_T]):
    """Use it as a context manager. Raises OSError for what the disk refuses."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 # __exit__ closes it
        self._starts: dict[int, int] = {}

    def __enter__(self) -> Self:
        """The file itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the file."""
        self._file.close()

    def __contains__(self, number: int) -> bool:
        return number in self._starts

    def __setitem__(self, number: int, value: _T) -> None:
        self._starts[number] = self._file.seek(0, 2)
        pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)

    def __getitem__(self, number: int) -> _T:
        self._file.seek(self._starts[number])
        return pickle.load(self._file)  # noqa: S301 # what this object wrote to a file without a name
