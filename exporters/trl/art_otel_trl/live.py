"""Live: rollouts that run now, for GRPOTrainer's rollout_func.

Invariant: there is one row for each prompt, in order. A rollout that left nothing to train on becomes a row with no
token under the mask and no reward, which TRL leaves out of its baseline. What is not trained is counted in `skipped`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import art_otel
from art_otel import Trajectory
from art_otel.errors import UsageError
from art_otel_trl.replay import columns
from art_otel_trl.tokens import NO_PROMPT, Row, grpo_row

logger = logging.getLogger(__name__)

Play: TypeAlias = Callable[[Sequence[Any], Any], Sequence[Trajectory]]
"""(prompts, trainer) -> a trajectory for each prompt, in order, as `art_otel.gather_trajectories` gives them."""

OTHER_HISTORY: Final = "not the one that trains most tokens"


class LiveRollouts:
    """Plays rollouts for GRPOTrainer: give it `rollout_func`, and `reward_funcs=recorded_reward` for their rewards.

    TRL takes one row for a prompt, so of several histories of a rollout it is given the one that trains most tokens.
    `allow_incomplete` is as for `art_otel.batches`. `skipped` counts by reason the trajectories, histories and
    completions that were not given; a reason is logged when it is first met.
    """

    def __init__(self, play: Play, *, allow_incomplete: bool | Iterable[str] = False) -> None:
        self.skipped: Counter[str] = Counter()
        self._play = play
        self._allow_incomplete = (
            allow_incomplete if isinstance(allow_incomplete, bool | str) else tuple(allow_incomplete)
        )

    def rollout_func(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:  # noqa: ANN401 # TRL's
        """The rows of the prompts, played now. Raises UsageError if there is not one trajectory for each prompt."""
        played = self._play(prompts, trainer)
        if len(played) != len(prompts):
            raise UsageError(f"play: it gave {len(played)} trajectories for {len(prompts)} prompts")
        return columns(self._row(trajectory) or _empty_row(trajectory, trainer) for trajectory in played)

    def _row(self, trajectory: Trajectory) -> Row | None:
        """The row of the history that trains most tokens, the first of equally long ones."""
        selected = art_otel.batches([trajectory], advantage=None, allow_incomplete=self._allow_incomplete)
        candidates = [grpo_row(sequence) for sequence in selected.sequences()]
        rows = [row for row in candidates if row is not None]
        self._count("trajectories: ", selected.report.trajectories_skipped)
        self._count("completions: ", selected.report.completions_skipped)
        self._count("histories: ", {NO_PROMPT: len(candidates) - len(rows), OTHER_HISTORY: max(len(rows) - 1, 0)})
        return max(rows, key=lambda row: sum(row["env_mask"]), default=None)

    def _count(self, what: str, counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            if count and what + reason not in self.skipped:
                logger.warning("art-otel: rollout_func skips %s%s; LiveRollouts.skipped counts them", what, reason)
            self.skipped += Counter({what + reason: count})


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
