"""Sequences: those of one trajectory, for encoders that are given whole trajectories.

Invariant: each completion is in exactly one sequence, or counted with the reason why it is in none.
"""

from collections.abc import Mapping
from typing import Final

from art_otel.data.rewards import weights_of
from art_otel.data.sequences import SequenceBuilder, TokenSequence
from art_otel.exporting.exporter import ExportStats, ScoredTrajectory

UNREWARDED_SPANS: Final = "trajectories without a reward of the name token_rewards for any span of tokens"


def sequences_of(
    item: ScoredTrajectory,
    stats: ExportStats,
    *,
    max_tokens: int | None = None,
    token_rewards: str | Mapping[str, float] | None = None,
) -> list[TokenSequence]:
    """Make the token sequences of a trajectory, and count what is skipped of it.

    `max_tokens` and `token_rewards` are as for `art_otel.batches`; longer sequences are skipped. Advantages are None
    where no turn has one. Raises UsageError for weights that are not finite.
    """
    builder = SequenceBuilder(
        advantages=any(turn.advantage is not None for turn in item.turn_rewards),
        max_tokens=max_tokens,
        weights=weights_of(token_rewards),
    )
    built = builder.build(item.trajectory, item.turn_rewards)
    stats.count(built.verdict)
    stats.changed[UNREWARDED_SPANS] += token_rewards is not None and not built.token_rewards.total()
    return built.sequences
