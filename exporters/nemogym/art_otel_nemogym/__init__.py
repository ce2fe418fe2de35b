"""art-otel trajectories for NeMo Gym: its rollouts, with token ids."""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines, no_place
from art_otel_nemogym.rollouts import NemoGymRolloutsConfig, encode_rollouts

EXPORTER: Final = Exporter(
    name="nemogym",
    summary="NeMo Gym: rollouts as it writes them when it collects, with the token ids that NeMo RL trains",
    formats=(
        Format(
            name="rollouts",
            summary="one history per line: the request, the output items with their token ids, and the reward",
            input="trajectories",
            needs="recorded messages, token ids and logprobs, and rewards",
            not_carried={
                **no_place("metrics", "metadata", "logs"),
                "routed_experts": "NeMo Gym can carry them, but this format does not write them",
            },
            config=NemoGymRolloutsConfig,
            encode=encode_rollouts,
            sink=lambda _: JsonLines(),
        ),
    ),
)
