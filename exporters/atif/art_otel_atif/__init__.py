"""art-otel trajectories in the Agent Trajectory Interchange Format (ATIF v1.8), as Harbor reads it."""

from typing import Final

from art_otel.exporting import Exporter, Folder, Format
from art_otel_atif.documents import AtifTrajectoriesConfig, encode_trajectories

__all__ = ["EXPORTER"]

EXPORTER: Final = Exporter(
    name="atif",
    summary="the Agent Trajectory Interchange Format of Harbor: one JSON document per trajectory",
    formats=(
        Format(
            name="trajectories",
            summary="a folder of ATIF v1.8 documents; each has all histories of a trajectory",
            input="trajectories",
            needs="a sampled message; token ids and logprobs are written if they are known",
            not_carried={
                "edits": "a message is written as it was first given or sampled, even if a later prompt spells it"
                " differently; prompt_token_ids are always those of the prompt that the server saw",
                "prompt of calls without a completion": "the rest of these calls is in extra.calls_without_completion",
            },
            config=AtifTrajectoriesConfig,
            encode=encode_trajectories,
            view="text",
            carries_images=True,
            sink=lambda _: Folder(),
        ),
    ),
)
