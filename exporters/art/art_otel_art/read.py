"""Read: the JSONL of `trajectories` as the objects that ART trains on.

Invariant: what was written reads back equal. ART's own validation would keep a Choice as a dict, and ART would not
train on it; here it is a Choice. The module needs ART and nothing of art-otel, so it runs alone in ART's environment.
"""

# ART is not installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_groups(path: str | Path) -> Iterator[Any]:
    """Read the groups of the file, as `art.TrajectoryGroup`s.

    Raises ImportError without ART, and ValueError for a file that is not of this format.
    """
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                group = make_group(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}:{number}: {error!r}; give a file of `art-otel export --to art --format trajectories`"
                ) from error
            yield group


def make_group(record: dict[str, Any]) -> Any:  # noqa: ANN401 # ART's class
    """Make an `art.TrajectoryGroup` of a line of the file. Raises ImportError without ART."""
    import art  # noqa: PLC0415 # ART is not installed where exports are only written
    from art.trajectories import PydanticException  # noqa: PLC0415 # as above

    group = art.TrajectoryGroup(
        [
            art.Trajectory(
                **_revive(one) | {"additional_histories": [_revive(each) for each in one["additional_histories"]]}
            )
            for one in record["trajectories"]
        ],
        metadata=record["metadata"],
        metrics=record["metrics"],
        logs=record["logs"],
    )
    group.exceptions = [PydanticException(**one) for one in record["exceptions"]]
    return group


def _revive(history: dict[str, Any]) -> dict[str, Any]:
    """Make the Choices of a history."""
    from openai.types.chat.chat_completion import Choice  # noqa: PLC0415 # as above

    items = history["messages_and_choices"]
    return history | {"messages_and_choices": [Choice(**item) if "finish_reason" in item else item for item in items]}
