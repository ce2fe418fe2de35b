"""Real recordings to try art-otel on: one rollout a file, from the `openai` client under three instrumentors."""

from pathlib import Path
from typing import Final

from art_otel.errors import UsageError

RECORDINGS: Final = Path(__file__).parent / "recordings"
"""A folder of OTLP JSON lines, as a collector's file exporter writes them."""


def write_recordings(folder: Path) -> Path:
    """Copy the recordings to `dumps/` in the folder and return that, so that `out/` beside it can be their dataset.

    Raises UsageError, before anything is written, where one of the two holds what this did not write.
    """
    dumps, ours = folder / "dumps", {path.name: path.read_bytes() for path in RECORDINGS.iterdir()}
    try:
        foreign = [path for path in dumps.iterdir() if path.name not in ours] if dumps.exists() else []
        if foreign or (not dumps.exists() and (folder / "out").exists()):
            found = foreign[0] if foreign else folder / "out"
            raise UsageError(
                f"{found}: is not one of the recordings' files; choose another folder with --recordings DIR"
            )
        dumps.mkdir(parents=True, exist_ok=True)
        for name, content in ours.items():
            (dumps / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{dumps}: cannot be written ({error.strerror}); name another folder") from error
    return dumps
