"""Read: the JSONL of `rollouts` as the GeneratorOutput of SkyRL. This file needs SkyRL, and nothing of art-otel.

Invariant: rows of one instance stand next to each other, and within it those of one trajectory, as SkyRL asks for. A
field that one row lacks is None for all, because SkyRL takes logprobs and stop reasons of all rows or of none.
"""

# SkyRL is not installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownVariableType=false

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

GeneratorOutput: TypeAlias = dict[str, Any]
"""The fields of `skyrl.train.generators.base.GeneratorOutput`."""


def read_rollouts(path: str | Path, trajectory_id: Callable[[str, int], Any] | None = None) -> GeneratorOutput:
    """Read all records of a file into memory; see `generator_output`. Raises ValueError for another file."""
    with Path(path).open(encoding="utf-8") as lines:
        try:
            return generator_output(map(json.loads, lines), trajectory_id)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error!r}; give a file of `art-otel export --to skyrl`") from error


def generator_output(
    records: Iterable[Mapping[str, Any]], trajectory_id: Callable[[str, int], Any] | None = None
) -> GeneratorOutput:
    """The records as SkyRL's trainer takes them, in lists with an entry a record.

    `trajectory_id` makes an id of an instance and a number within it. Without it, ids are SkyRL's TrajectoryID, and
    ImportError is raised if SkyRL is not installed.
    """
    make = _trajectory_id() if trajectory_id is None else trajectory_id
    instances: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        instances.setdefault(record["instance_id"], []).append(record)
    rows = [row for members in instances.values() for row in members]
    return {
        "prompt_token_ids": [row["prompt_token_ids"] for row in rows],
        "response_ids": [row["response_ids"] for row in rows],
        "rewards": [row["reward"] for row in rows],
        "loss_masks": [row["loss_mask"] for row in rows],
        "stop_reasons": _all_or_none(rows, "stop_reason"),
        "rollout_metrics": None,
        "rollout_logprobs": _all_or_none(rows, "rollout_logprobs"),
        "trajectory_ids": [make(row["instance_id"], row["repetition_id"]) for row in rows],
        "is_last_step": [row["is_last_step"] for row in rows],
    }


def _all_or_none(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any] | None:
    values = [row[name] for row in rows]
    return None if None in values else values


def _trajectory_id() -> Callable[[str, int], Any]:
    from skyrl.train.generators.base import TrajectoryID  # noqa: PLC0415 # not installed where one only writes

    return TrajectoryID
