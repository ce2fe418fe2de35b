"""Rollouts: what GRPOTrainer asks its `rollout_func` for, from a file of the format `grpo` or played now.

Invariant: each prompt gets one row, in order; `trainer` and `worker` have every history. Recorded, the rows that TRL
compares with each other are `num_generations` different rows of one group of one training step, of as many rollouts as
there are, and every row of the file is in one such chunk. Played now, a rollout that left nothing to train on becomes a
row with no token under the mask and no reward, which TRL leaves out of its baseline. What is not trained is counted in
`skipped`.

    replay = Replay.read("out/trl-grpo.parquet", num_generations=4)
    GRPOTrainer(model, args=GRPOConfig(num_generations=4, …), train_dataset=Dataset.from_list(replay.prompts),
                rollout_func=replay.rollout_func, reward_funcs=recorded_reward, …)

    GRPOTrainer(model, rollout_func=LiveRollouts(play).rollout_func, reward_funcs=recorded_reward, …)
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow.parquet as pq

import art_otel
from art_otel import Trajectory
from art_otel.errors import UsageError
from art_otel.exporting import Row, count_skipped, group_name, named
from art_otel.trajectories import GroupKey
from art_otel_trl.tokens import NO_PROMPT, grpo_row

FIELDS: Final = ("prompt_ids", "completion_ids", "env_mask", "logprobs", "reward", "rollout_id")
"""What a `rollout_func` returns of each row."""

NO_GROUP: Final = "no group"
TOO_FEW: Final = "too few rows in the group for a chunk"
OTHER_HISTORY: Final = "not the history that trains the most tokens"

Play: TypeAlias = Callable[[Sequence[Any], Any], Sequence[Trajectory]]
"""(prompts, trainer) -> a trajectory for each prompt, in order, as `art_otel.gather_trajectories` gives them."""


class Replay:
    """Rows of the format `grpo`, `num_generations` at a time.

    `prompts` are the rows of the dataset to train on. Each names a chunk. No model sees this text, because everything
    was sampled before. `skipped` counts rows by reason.
    """

    def __init__(self, rows: Iterable[Row], *, num_generations: int) -> None:
        if num_generations < 1:
            raise UsageError(f"num_generations={num_generations}: a chunk has at least one row; give 1 or more")
        self.num_generations = num_generations
        self.skipped: Counter[str] = Counter()
        self._chunks: dict[str, Sequence[Row]] = {}
        for group, members in self._groups(rows).items():
            whole = len(members) // num_generations
            for number in range(whole):
                chunk = members[number * num_generations : (number + 1) * num_generations]
                self._chunks[f"{group_name(group)} #{number}"] = chunk
            if rest := len(members) - whole * num_generations:
                self.skipped[TOO_FEW] += rest

    @classmethod
    def read(cls, path: str | Path, *, num_generations: int) -> "Replay":
        """Read all rows of a file that `art-otel export --to trl --format grpo` wrote into memory.

        Raises UsageError for a file of another format.
        """
        table = pq.read_table(path)
        if missing := [name for name in (*FIELDS, "group_id") if name not in table.column_names]:
            raise UsageError(
                f"{path}: has no {', '.join(missing)}; give a file of `art-otel export --to trl --format grpo`"
            )
        return cls(table.to_pylist(), num_generations=num_generations)

    @property
    def prompts(self) -> list[dict[str, str]]:
        """A row for each chunk, for `datasets.Dataset.from_list`."""
        return [{"prompt": name} for name in self._chunks]

    def rollout_func(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:  # noqa: ANN401 # TRL's
        """The recorded rows of the prompts. Raises UsageError for a prompt or a `num_generations` of another replay.

        TRL repeats each prompt `num_generations` times in a row, over all processes. Each process asks for its part.
        """
        if trainer.num_generations != self.num_generations:
            raise UsageError(
                f"num_generations: the trainer compares {trainer.num_generations} completions, this replay holds "
                f"chunks of {self.num_generations}; give both the same number"
            )
        first = trainer.accelerator.process_index * len(prompts)
        return _columns(
            self._chunk(prompt)[(first + position) % self.num_generations] for position, prompt in enumerate(prompts)
        )

    def _groups(self, rows: Iterable[Row]) -> dict[GroupKey, list[Row]]:
        """The rows of each group: the first of every rollout, then the second ones, and so on."""
        met = Counter[tuple[GroupKey, str]]()
        groups: dict[GroupKey, list[tuple[int, Row]]] = {}
        for row in rows:
            if row["group_id"] is None:
                self.skipped[NO_GROUP] += 1
                continue
            group = GroupKey(row.get("training_step"), row.get("gathering"), row["group_id"])
            groups.setdefault(group, []).append((met[group, row["rollout_id"]], row))
            met[group, row["rollout_id"]] += 1
        return {group: [row for _, row in sorted(members, key=itemgetter(0))] for group, members in groups.items()}

    def _chunk(self, prompt: str) -> Sequence[Row]:
        if prompt not in self._chunks:
            raise UsageError(f"prompt {prompt!r:.200}: no chunk of this replay; train on the rows of `prompts`")
        return self._chunks[prompt]


class LiveRollouts:
    """Plays rollouts for GRPOTrainer: give it `rollout_func`, and `reward_funcs=recorded_reward` for their rewards.

    TRL takes one row for a prompt. If a rollout has several histories, it gets the one that trains most tokens. A
    `HistoriesGRPOTrainer` takes the others too: they are in `further`, a list of rows for each prompt of the last step.
    `allow_incomplete` is as for `art_otel.batches`. `skipped` counts by reason the trajectories, histories and
    completions that TRL did not get. A reason is logged when it is first met.
    """

    def __init__(self, play: Play, *, allow_incomplete: bool | Iterable[str] = False) -> None:
        self.skipped: Counter[str] = Counter()
        self.further: list[list[Row]] = []
        self._play = play
        self._allow_incomplete = (
            allow_incomplete if isinstance(allow_incomplete, bool | str) else tuple(allow_incomplete)
        )

    def rollout_func(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:  # noqa: ANN401 # TRL's
        """The rows of the prompts, played now. Raises UsageError if there is not one trajectory for each prompt."""
        played = self._play(prompts, trainer)
        if len(played) != len(prompts):
            raise UsageError(
                f"play: it returned {len(played)} trajectories for {len(prompts)} prompts; return one for each prompt"
            )
        takes_further = getattr(trainer, "takes_further_rows", False)
        found = [self._rows(trajectory, takes_further=takes_further) for trajectory in played]
        self.further = [rows[1:] for rows in found]
        return _columns(
            rows[0] if rows else _empty_row(trajectory, trainer) for rows, trajectory in zip(found, played, strict=True)
        )

    def _rows(self, trajectory: Trajectory, *, takes_further: bool) -> list[Row]:
        """The rows of the histories. First is the one that trains most tokens, the first of equally long ones."""
        selected = art_otel.batches([trajectory], advantage=None, allow_incomplete=self._allow_incomplete)
        candidates = [grpo_row(sequence) for sequence in selected.sequences()]
        rows = [row for row in candidates if row is not None]
        left_out = 0 if takes_further else max(len(rows) - 1, 0)
        skipped = named("trajectories", selected.report.trajectories_skipped)
        skipped += named("completions", selected.report.completions_skipped)
        skipped += named("histories", {NO_PROMPT: len(candidates) - len(rows), OTHER_HISTORY: left_out})
        count_skipped(self.skipped, skipped, "art-otel: rollout_func skips %s; LiveRollouts.skipped counts them")
        return sorted(rows, key=lambda row: sum(row["env_mask"]), reverse=True)


def _empty_row(trajectory: Trajectory, trainer: Any) -> Row:  # noqa: ANN401 # TRL's
    filler = trainer.processing_class.eos_token_id
    return {
        "prompt_ids": [filler],
        "completion_ids": [filler],
        "env_mask": [0],
        "logprobs": [0.0],
        "reward": None,
        "rollout_id": trajectory.rollout_id,
    }


def _columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Rows as a `rollout_func` returns them."""
    listed = list(rows)
    return {name: [row[name] for row in listed] for name in FIELDS}


def recorded_reward(*, reward: list[float | None], **_others: object) -> list[float | None]:
    """For `reward_funcs`: the recorded reward of each row. TRL does not compare rows without a reward."""
    return reward
