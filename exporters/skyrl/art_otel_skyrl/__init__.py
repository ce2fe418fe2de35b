"""art-otel trajectories for SkyRL: rollouts as its GeneratorOutput.

`read_rollouts` makes one of the records where SkyRL is installed.
"""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines, no_place
from art_otel_skyrl.read import generator_output, read_rollouts
from art_otel_skyrl.rollouts import SkyRLRolloutsConfig, encode_rollouts

__all__ = ["EXPORTER", "generator_output", "read_rollouts"]

EXPORTER: Final = Exporter(
    name="skyrl",
    summary="SkyRL: rollouts as the output of a generator",
    formats=(
        Format(
            name="rollouts",
            summary="one token history per line; art_otel_skyrl makes a GeneratorOutput of them",
            input="trajectories",
            needs="token ids, prompts of one token or more, and rewards",
            not_carried={
                "input_messages": "SkyRL trains on tokens alone",
                "tools": "SkyRL trains on tokens alone",
                **no_place("metrics", "metadata", "logs"),
                "routed_experts": "SkyRL can replay them, but this format does not write them",
            },
            config=SkyRLRolloutsConfig,
            encode=encode_rollouts,
            sink=lambda _: JsonLines(),
        ),
    ),
)
