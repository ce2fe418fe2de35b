"""art-otel trajectories for prime-rl: the samples that it packs and trains on.

`read_samples` reads the records where prime-rl is installed.
"""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines, no_place
from art_otel_primerl.read import read_samples
from art_otel_primerl.samples import SamplesConfig, encode_samples

__all__ = ["EXPORTER", "read_samples"]

EXPORTER: Final = Exporter(
    name="primerl",
    summary="prime-rl: the samples that its packer takes, the same as of traces of verifiers",
    formats=(
        Format(
            name="samples",
            summary="one token history per line, as a TrainingSample: ids, mask, logprobs, temperatures, advantages",
            input="trajectories",
            needs="token ids and logprobs of the completions, and rewards",
            not_carried={
                "input_messages": "prime-rl trains on tokens alone",
                "tools": "prime-rl trains on tokens alone",
                "rewards": "the advantages are made of them; a line has only the reward of the last trained completion",
                **no_place("metrics", "metadata", "logs"),
            },
            config=SamplesConfig,
            encode=encode_samples,
            sink=lambda _: JsonLines(),
            advantage="centered",
        ),
    ),
)
