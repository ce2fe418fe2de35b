"""RunFolder: where the files of one run lie, and who may write to them.

Invariant: every path is below the base path: project, model and split are names and never paths. Who writes holds the
folder alone, so the default step, the Parquet file and the row of one log call belong together. What a run log is given
comes before the defaults of the process, and these come before the environment.

    {base_path}/{project}/models/{model}/history.jsonl
                                        /trajectories/{split}/{step:04d}.parquet
                                        /trajectories/{split}/unrewarded/{step:04d}.parquet
                                        /checkpoints/{step:04d}/                    (the trainer's; read only)

Source of the layout: `art.model` and `art.utils.output_dirs` of openpipe-art 0.5.18.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Final, SupportsIndex

from art_otel.errors import UsageError
from art_otel.spool.runs import DEFAULT_DIR, DIR

try:
    import fcntl
except ImportError:  # Windows has none; there nobody waits for another writer
    fcntl = None

PROJECT: Final = "ART_OTEL_PROJECT"
MODEL: Final = "ART_OTEL_MODEL"

_LONGEST: Final = 255
"""Bytes of a name, on all usual file systems."""


class RunFolder:
    """The folder of a model's run. It is made when something is written.

    What is not given comes from `art_otel.configure()`, else from ART_OTEL_PROJECT, ART_OTEL_MODEL and ART_OTEL_DIR
    (else `.art`). Raises UsageError for a name that is missing or could lead elsewhere.
    """

    def __init__(self, project: str | None, model: str | None, base_path: str | Path | None) -> None:
        defaults = _defaults
        self.project = _name("project", project, defaults.project, PROJECT)
        self.model = _name("model", model, defaults.model, MODEL)
        home = _home(base_path or defaults.dir or os.environ.get(DIR) or DEFAULT_DIR)
        self.path = home / self.project / "models" / self.model
        self.history = self.path / "history.jsonl"

    def trajectories(self, split: str, step: int) -> Path:
        """The Parquet file of a split and step. Raises UsageError for a split that is no name."""
        return self.path / "trajectories" / checked_name("split", split) / f"{step:04d}.parquet"

    def unrewarded(self, split: str, step: int) -> Path:
        """The Parquet file of those without a reward, which ART's reader refuses; in a folder where it does not look.

        Raises UsageError for a split that is no name.
        """
        file = self.trajectories(split, step)
        return file.parent / "unrewarded" / file.name

    def last_checkpoint(self) -> int | None:
        """The highest step that has a folder in `checkpoints/`; None when there is none."""
        folders = (self.path / "checkpoints").glob("[0-9]*")
        return max(
            (int(folder.name) for folder in folders if folder.name.isdecimal() and folder.is_dir()), default=None
        )

    @contextmanager
    def alone(self) -> Generator[None]:
        """Hold the folder, waiting for whoever holds it: another process, or another thread of this one.

        Where the file system or the platform has no such lock nobody waits. At the end the disk has the folder's names.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if fcntl is None:
            yield
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            with suppress(OSError):  # NFS and the like may refuse
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDefaults:
    """What `art_otel.configure()` said of all run logs of this process. None is what it did not say."""

    project: str | None = None
    model: str | None = None
    dir: Path | None = None


_defaults = RunDefaults()


def use_run_defaults(defaults: RunDefaults) -> None:
    """Make these the defaults of the process."""
    global _defaults  # noqa: PLW0603 # one a process, as the settings are
    _defaults = defaults


def checked_step(step: SupportsIndex) -> int:
    """The step as an int. Raises UsageError for what is none, or is below 0."""
    try:
        number = index(step)
    except TypeError:
        number = -1
    if number < 0 or isinstance(step, bool):
        raise UsageError(f"step: {step!r} is not a step; give an int of 0 or more")
    return number


def checked_name(what: str, name: object) -> str:
    """The name. Raises UsageError when it is no text, is empty, leads elsewhere or holds what no file name should."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or name in (".", "..")
        or not name.isprintable()
        or set("/\\") & set(name)
        or len(os.fsencode(name)) > _LONGEST
    ):
        raise UsageError(
            f"{what}: {name!r:.300} cannot be the name of a folder; use printable characters without / and \\, and 255"
            " bytes at most"
        )
    return name


def _name(what: str, argument: str | None, default: str | None, variable: str) -> str:
    """Return the argument, else the default, else the variable's value. Raises UsageError for a bad name."""
    name = default or os.environ.get(variable) or None if argument is None else argument
    if name is None:
        raise UsageError(f"{what}: none given; name one here or in art_otel.configure(), or set {variable}")
    return checked_name(what, name)


def _home(path: str | Path) -> Path:
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"base_path={str(path)!r}: its ~ leads to no home folder") from error
