"""art-otel trajectories for OpenPipe ART: trajectory JSONL to train on, trajectory Parquet as its log.

Where ART is installed, `read_groups` reads the JSONL, and `art_groups` gives trajectories in memory to it.
"""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines
from art_otel_art.groups import TrajectoriesConfig, art_groups, encode_trajectories
from art_otel_art.log import LogConfig, LogFolder, encode_log
from art_otel_art.read import read_groups

__all__ = ["EXPORTER", "art_groups", "read_groups"]

EXPORTER: Final = Exporter(
    name="art",
    summary="OpenPipe ART: groups of trajectories to train on, and its log of a training step",
    formats=(
        Format(
            name="trajectories",
            summary="a TrajectoryGroup a line as ART's own model_dump writes it, choices with token ids and logprobs",
            input="trajectories",
            needs="recorded messages and a reward; ids of prompt and completion and logprobs where it is to be trained",
            not_carried={
                "rewards": "ART has one reward a trajectory",
                "trace_id": "no place in the format",
                "parent_rollout_id": "no place in the format",
                "started_at": "ART does not write its start time",
                "ended_at": "as started_at",
                "usage": "no place in the format",
                "parameters": "no place in the format",
                "policy version of each call": "ART has that of the first and of the last call",
            },
            config=TrajectoriesConfig,
            encode=encode_trajectories,
            sink=lambda _: JsonLines(),
        ),
        Format(
            name="log",
            summary="trajectories/{split}/{step:04d}.parquet, the files of ART's run folder",
            input="trajectories",
            needs="as trajectories",
            not_carried={
                "rewards": "ART has one a trajectory; the others are in columns that ART leaves alone",
                "parent_rollout_id": "as rewards",
                "usage": "as rewards",
                "parameters": "as rewards",
                "policy version of each call": "as rewards",
            },
            config=LogConfig,
            encode=encode_log,
            sink=lambda _: LogFolder(),
            takes_credit=False,
        ),
    ),
)
