"""Live: rollouts that run now, for GRPOTrainer's rollout_func.

Invariant: there is one row for each prompt, in order. A rollout that left nothing to train on becomes a row with no
token under the mask and no reward, which TRL leaves out of its baseline.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from art_otel.data.rewards.plan import TurnReward
from art_otel.data.sequences.builder import SequenceBuilder
from art_otel.errors import UsageError
from art_otel.trajectories import Trajectory
from art_otel_trl.replay import columns
from art_otel_trl.tokens import Row, grpo_row

Play: TypeAlias = Callable[[Sequence[Any], Any], Sequence[Trajectory]]
"""(prompts, trainer) -> a trajectory for each prompt, in order, as `art_otel.gather_trajectories` gives them."""

RolloutFunc: TypeAlias = Callable[[Sequence[Any], Any], dict[str, list[Any]]]


def live_rollouts(play: Play) -> RolloutFunc:
    """The `rollout_func` that plays: give `reward_funcs=recorded_reward` to train with the rewards of the rollouts.

    TRL takes one row for a prompt, so of several histories of a rollout it is given the one that trains most tokens.
    Raises UsageError if there is not one trajectory for each prompt.
    """

    def rollout_func(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:  # noqa: ANN401 # TRL's
        played = play(prompts, trainer)
        if len(played) != len(prompts):
            raise UsageError(f"play: it gave {len(played)} trajectories for {len(prompts)} prompts")
        return columns(_main_row(trajectory) or _empty_row(trajectory, trainer) for trajectory in played)

    return rollout_func


def _main_row(trajectory: Trajectory) -> Row | None:
    """The row of the history that trains most tokens, the first of equally long ones."""
    if trajectory.status != "ok":
        return None
    built = SequenceBuilder(advantages=False).build(trajectory, [TurnReward(trajectory.reward)] * len(trajectory.turns))
    rows = [row for sequence in built.sequences if (row := grpo_row(sequence)) is not None]
    return max(rows, key=lambda row: sum(row["env_mask"]), default=None)


def _empty_row(trajectory: Trajectory, trainer: Any) -> Row:  # noqa: ANN401 # TRL's
    tokenizer = trainer.processing_class
    filler = tokenizer.eos_token_id
    return {
        "prompt_ids": [filler],
        "completion_ids": [filler],
        "env_mask": [0],
        "logprobs": [0.0],
        "reward": None,
        "rollout_id": trajectory.rollout_id,
    }
