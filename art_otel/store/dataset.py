"""Dataset: the files of one writing, which come to stand under their final names together.

Invariant: a file under its final name is whole and on the disk. Until `commit` everything is in temporary files beside
the final ones; a crash leaves only those, and the next writing to the same place removes them. While `commit` puts
several files in place a mark stands beside them: a crash leaves it, readers refuse the folder, and the next writing to
it removes the mark when its files are in place. One writer at a time. A file that art-otel did not write is neither
replaced nor removed, and no dataset is put among parts of others.
"""

import glob
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Self

from art_otel.errors import UsageError
from art_otel.store.encoded_group import MAGIC, EncodedGroup, file_frame
from art_otel.store.parquet_footer import GroupFooter, join_footers
from art_otel.store.replaceable import MARK, check_dataset_folder, check_replaceable

SUFFIX: Final = ".parquet"
_PARTS: Final = f"part-{'[0-9]' * 5}{SUFFIX}"  # narrow: what matches may be removed


def part_name(number: int) -> str:
    """The name of a part of a dataset, counted from 0."""
    return f"part-{number:05d}{SUFFIX}"


def is_next_part(path: Path, before: Path) -> bool:
    """Whether a file is the part of a dataset that stands after another of it."""
    number = before.name[len("part-") : -len(SUFFIX)]
    return path.parent == before.parent and number.isdecimal() and path.name == part_name(int(number) + 1)


def is_between_datasets(folder: Path) -> bool:
    """Whether the parts in a folder are just being replaced, or were when their writer was killed."""
    return (folder / MARK).exists()


class _Part:
    """One Parquet file under its temporary name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._footers: list[GroupFooter] = []
        self._starts: list[int] = []
        self._file: BinaryIO = self.temporary.open("wb")
        self._file.write(MAGIC)

    def append(self, group: EncodedGroup) -> None:
        """Write a row group behind the others."""
        start = self._file.tell()
        self._starts.append(start)
        self._footers.append(group.footer)
        group.move_to(self._file)
        self._file.flush()
        if hasattr(os, "posix_fadvise"):  # the disk begins with it at once, and `finish` waits half as long
            os.posix_fadvise(self._file.fileno(), start, self._file.tell() - start, os.POSIX_FADV_DONTNEED)

    def finish(self) -> None:
        """Write the footer and wait until the disk has everything."""
        footer = join_footers(file_frame(), self._footers, [start - len(MAGIC) for start in self._starts])
        self._file.writelines((footer, len(footer).to_bytes(4, "little"), MAGIC))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Remove the temporary file, if commit has not renamed it."""
        with suppress(OSError):  # a full disk refuses what is still buffered, and nobody needs it
            self._file.close()
        self.temporary.unlink(missing_ok=True)


class Dataset:
    """A folder of `part-*.parquet`, or one `*.parquet` file, while it is written.

    Use it as a context manager; without `commit` nothing of what was there before has changed. Raises UsageError for
    a path that is an existing file of another name and for files that art-otel did not write, OSError for what the disk
    refuses.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._single = self.path.suffix == SUFFIX and not self.path.is_dir()
        if self.path.is_file() and not self._single:
            raise UsageError(f"{self.path}: is a file; write to a folder or to a file named *{SUFFIX}")
        self._folder = self.path.parent if self._single else self.path
        self._parts: list[_Part] = []
        self._open = False

    def __enter__(self) -> Self:
        """Make the folder and remove what a crashed writing left."""
        self._check()
        self._folder.mkdir(parents=True, exist_ok=True)
        name = glob.escape(self.path.name) if self._single else _PARTS
        for left in self._folder.glob(f".{name}.*.tmp"):
            left.unlink(missing_ok=True)
        return self

    def __exit__(self, *raised: object) -> None:
        """Remove the temporary files that commit did not rename."""
        for part in self._parts:
            part.abandon()

    def write(self, group: EncodedGroup) -> None:
        """Append a row group to the current part."""
        self._current().append(group)

    def end_part(self) -> None:
        """Let the next row group begin a new part; a single file has only one."""
        if self._open and not self._single:
            self._parts[-1].finish()
            self._open = False

    def commit(self) -> tuple[Path, ...]:
        """Give every file its final name and remove the parts of an older, longer dataset. The files in order."""
        if self._open or not self._parts:
            self._current().finish()
        self._check()  # again: much time may have passed
        files = tuple(part.path for part in self._parts)
        stale = set[Path]() if self._single else set(self._folder.glob(_PARTS)) - set(files)
        mark = self._folder / MARK
        several = not self._single and (len(files) + len(stale) > 1 or mark.exists())
        if several:
            mark.touch()
            _sync_folder(self._folder)
        for part in self._parts:
            part.temporary.replace(part.path)
        for older in stale:
            older.unlink()
        _sync_folder(self._folder)
        if several:
            mark.unlink()
        return files

    def _check(self) -> None:
        if self._single:
            check_replaceable([self.path])
        else:
            check_dataset_folder(self.path)

    def _current(self) -> _Part:
        if not self._open:
            name = self.path if self._single else self.path / part_name(len(self._parts))
            self._parts.append(_Part(name))
            self._open = True
        return self._parts[-1]


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has the new names. Windows cannot open a folder and does this by itself."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
