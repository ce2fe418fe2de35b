"""art-otel trajectories in the Agent Trajectory Interchange Format (ATIF v1.8), as Harbor reads it."""

from typing import Final

from art_otel.exporting import Exporter, Folder, Format
from art_otel_atif.documents import TrajectoriesConfig, encode_trajectories

__all__ = ["EXPORTER"]

EXPORTER: Final = Exporter(
    name="atif",
    summary="the Agent Trajectory Interchange Format of Harbor: a JSON document a trajectory",
    formats=(
        Format(
            name="trajectories",
            summary="a folder of ATIF v1.8 documents, every history of a trajectory in one",
            input="trajectories",
            needs="a sampled message; token ids and logprobs go along where they are known",
            not_carried={
                "edits": "a message stands as it was first given or sampled, also where a later prompt spells it"
                " otherwise; prompt_token_ids are always those of the prompt as it was",
                "prompt of calls without a completion": "the calls themselves are in extra.calls_without_completion",
            },
            config=TrajectoriesConfig,
            encode=encode_trajectories,
            sink=lambda _: Folder(),
        ),
    ),
)
