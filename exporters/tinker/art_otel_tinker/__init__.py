"""art-otel trajectories for tinker-cookbook: Datum-ready records, and rollout summaries with traces.

`read_datums` reads the records where tinker is installed. `art_otel_tinker.tracing` traces tinker-cookbook's
environments.
"""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines, no_place
from art_otel_tinker.datums import encode_datums, read_datums
from art_otel_tinker.rollouts import IterationFolders, TinkerRolloutsConfig, encode_rollouts

__all__ = ["EXPORTER", "read_datums"]

EXPORTER: Final = Exporter(
    name="tinker",
    summary="tinker-cookbook: datums to train on, and the rollout summaries of a run",
    formats=(
        Format(
            name="datums",
            summary="one token history per line, shifted as in trajectory_to_data: tokens, targets, logprobs, mask",
            input="sequences",
            needs="token ids and logprobs of the completions, and rewards",
            not_carried={
                "input_messages": "tinker trains on tokens alone",
                "tools": "tinker trains on tokens alone",
                "rewards": "the advantages are made of them; a line has only the reward of the last trained completion",
                **no_place("metrics", "metadata", "logs"),
            },
            encode=encode_datums,
            sink=lambda _: JsonLines(),
            advantage="centered",
        ),
        Format(
            name="rollouts",
            summary="iteration_NNNNNN/{train|eval_…}_rollout_summaries.jsonl, one trajectory per line, a step per call",
            input="trajectories",
            needs="nothing; the trace of a step has what is known about its call",
            not_carried={
                "incomplete_reasons": "no place in the format; by default, only complete trajectories are exported",
                **no_place("parent_rollout_id", "started_at", "ended_at"),
                "usage": "no place in the format; ob_len and ac_len are the numbers of token ids",
                "final observation": "what follows the last completion is not recorded; final_ob_len is null",
            },
            config=TinkerRolloutsConfig,
            encode=encode_rollouts,
            carries_images=True,
            sink=lambda _: IterationFolders(),
            takes_credit=False,
        ),
    ),
)
