"""Replay: recorded rollouts as GRPOTrainer asks for them.

Invariant: the rows that TRL compares with each other are `num_generations` different rows of one group of one training
step, of as many rollouts as there are, and every row of the file is in one such chunk or counted in `skipped`.

    replay = Replay.read("out/trl-grpo.parquet", num_generations=4)
    GRPOTrainer(model, args=GRPOConfig(num_generations=4, …), train_dataset=Dataset.from_list(replay.prompts),
                rollout_func=replay.rollout_func, reward_funcs=recorded_reward, …)
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow.parquet as pq

from art_otel.errors import UsageError
from art_otel_trl.tokens import Row

FIELDS: Final = ("prompt_ids", "completion_ids", "env_mask", "logprobs", "reward", "rollout_id")
"""What a `rollout_func` returns of each row."""

NO_GROUP: Final = "no group"
TOO_FEW: Final = "too few rows in the group for another chunk"

_Group: TypeAlias = tuple[str, int | None]
"""Group id and training step."""


class Replay:
    """Rows of the format `grpo`, `num_generations` at a time.

    `prompts` are the rows of the dataset to train on: each names a chunk and is no text that a model sees, because all
    was sampled before. `skipped` counts rows by reason.
    """

    def __init__(self, rows: Iterable[Row], *, num_generations: int) -> None:
        if num_generations < 1:
            raise UsageError(f"num_generations={num_generations}: a chunk has at least one row")
        self.num_generations = num_generations
        self.skipped: Counter[str] = Counter()
        self._chunks: dict[str, Sequence[Row]] = {}
        for (group, step), members in self._groups(rows).items():
            whole = len(members) // num_generations
            for number in range(whole):
                chunk = members[number * num_generations : (number + 1) * num_generations]
                self._chunks[f"{group} #{number}" if step is None else f"{group} of step {step} #{number}"] = chunk
            if rest := len(members) - whole * num_generations:
                self.skipped[TOO_FEW] += rest

    @classmethod
    def read(cls, path: str | Path, *, num_generations: int) -> "Replay":
        """The rows of a file that `art-otel export --to trl --format grpo` wrote; all of them are in memory.

        Raises UsageError for another file.
        """
        table = pq.read_table(path)
        if missing := [name for name in (*FIELDS, "group_id") if name not in table.column_names]:
            raise UsageError(
                f"{path}: has no {', '.join(missing)}; give a file of `art-otel export --to trl --format grpo`"
            )
        return cls(table.to_pylist(), num_generations=num_generations)

    @property
    def prompts(self) -> list[dict[str, str]]:
        """A row a chunk, for `datasets.Dataset.from_list`."""
        return [{"prompt": name} for name in self._chunks]

    def rollout_func(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:  # noqa: ANN401 # TRL's
        """The recorded rows of the prompts. Raises UsageError for what this replay has not.

        TRL repeats each prompt `num_generations` times in a row, over all processes; a process is given its part.
        """
        if trainer.num_generations != self.num_generations:
            raise UsageError(
                f"num_generations: the trainer compares {trainer.num_generations} completions, this replay holds "
                f"chunks of {self.num_generations}; give both the same number"
            )
        first = trainer.accelerator.process_index * len(prompts)
        return columns(
            self._chunk(prompt)[(first + position) % self.num_generations] for position, prompt in enumerate(prompts)
        )

    def _groups(self, rows: Iterable[Row]) -> dict[_Group, list[Row]]:
        """The rows of each group: the first of every rollout, then the second ones, and so on."""
        met = Counter[tuple[_Group, str]]()
        groups: dict[_Group, list[tuple[int, Row]]] = {}
        for row in rows:
            group, rollout = (row["group_id"], row.get("training_step")), row["rollout_id"]
            if row["group_id"] is None:
                self.skipped[NO_GROUP] += 1
            else:
                groups.setdefault(group, []).append((met[group, rollout], row))
                met[group, rollout] += 1
        return {group: [row for _, row in sorted(members, key=itemgetter(0))] for group, members in groups.items()}

    def _chunk(self, prompt: str) -> Sequence[Row]:
        if prompt not in self._chunks:
            raise UsageError(f"prompt {prompt!r:.200}: no chunk of this replay; train on the rows of `prompts`")
        return self._chunks[prompt]


def recorded_reward(*, reward: list[float | None], **_others: object) -> list[float | None]:
    """The `reward_funcs` of what was recorded: the reward of each row; TRL compares rows without one with none."""
    return reward


def columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as a `rollout_func` returns them."""
    listed = list(rows)
    return {name: [row[name] for row in listed] for name in FIELDS}
