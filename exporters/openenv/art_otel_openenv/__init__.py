"""art-otel trajectories for OpenEnv: the training traces that its capture gives to trainers."""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines, no_place
from art_otel_openenv.traces import encode_traces

EXPORTER: Final = Exporter(
    name="openenv",
    summary="OpenEnv: training traces, as TRL's AsyncGRPO takes them",
    formats=(
        Format(
            name="traces",
            summary="one rollout per line: a TrainingTrace of OpenEnv, with a turn for each trained completion",
            input="trajectories",
            needs="token ids and logprobs, and prompts of one token or more",
            not_carried={
                "rewards": "a trace has the reward of each turn alone",
                **no_place("metrics", "metadata", "logs", "routed_experts"),
            },
            encode=encode_traces,
            sink=lambda _: JsonLines(),
        ),
    ),
)
