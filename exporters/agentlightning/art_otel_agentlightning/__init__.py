"""art-otel trajectories for Agent Lightning: rollouts of triplets, with token ids, logprobs and rewards."""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines
from art_otel_agentlightning.triplets import TripletsConfig, encode_triplets

EXPORTER: Final = Exporter(
    name="agentlightning",
    summary="Agent Lightning: rollouts of triplets (prompt, response, reward)",
    formats=(
        Format(
            name="triplets",
            summary="one rollout per line for RolloutLegacy (0.3) and CompletedRollout (1.0), a Triplet for each turn",
            input="trajectories",
            needs="token ids, and a reward; Agent Lightning takes a missing reward for 0",
            not_carried={
                "rewards": "a triplet has one reward, that of the credit",
                "parent_rollout_id": "no place in the format",
                "started_at": "no place in the format",
                "ended_at": "no place in the format",
            },
            config=TripletsConfig,
            encode=encode_triplets,
            carries_images=True,
            sink=lambda _: JsonLines(),
        ),
    ),
)
