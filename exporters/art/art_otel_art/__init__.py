"""art-otel trajectories for OpenPipe ART: trajectory JSONL to train on, trajectory Parquet as its log.

If ART is installed, `read_groups` reads the JSONL, and `art_groups` gives trajectories in memory to ART.
"""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines, no_place
from art_otel_art.groups import ArtTrajectoriesConfig, art_groups, encode_trajectories
from art_otel_art.log import LogConfig, LogFolder, encode_log
from art_otel_art.read import read_groups

__all__ = ["EXPORTER", "art_groups", "read_groups"]

EXPORTER: Final = Exporter(
    name="art",
    summary="OpenPipe ART: groups of trajectories to train on, and its log of a training step",
    formats=(
        Format(
            name="trajectories",
            summary="one TrajectoryGroup per line, as ART's model_dump writes it, with token ids and logprobs",
            input="trajectories",
            needs="recorded messages and a reward; to be trained, also logprobs and the ids of prompt and completion",
            not_carried={
                "rewards": "ART has one reward per trajectory",
                **no_place("trace_id", "parent_rollout_id"),
                "started_at": "ART does not write its start time",
                "ended_at": "ART does not write it, like the start time",
                **no_place("usage", "parameters"),
                "policy version of each call": "ART has the versions of the first and of the last call",
            },
            config=ArtTrajectoriesConfig,
            encode=encode_trajectories,
            view="made tokens",
            carries_images=True,
            sink=lambda _: JsonLines(),
        ),
        Format(
            name="log",
            summary="trajectories/{split}/{step:04d}.parquet, the files of ART's run folder",
            input="trajectories",
            needs="the same as trajectories",
            not_carried={
                "rewards": "ART has one reward per trajectory; all rewards are in columns that ART does not read",
                "parent_rollout_id": "in columns that ART does not read",
                "usage": "in columns that ART does not read",
                "parameters": "in columns that ART does not read",
                "policy version of each call": "in columns that ART does not read",
            },
            config=LogConfig,
            encode=encode_log,
            view="made tokens",
            carries_images=True,
            sink=lambda _: LogFolder(),
            takes_credit=False,
        ),
    ),
)
