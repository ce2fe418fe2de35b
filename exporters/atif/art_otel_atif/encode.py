"""Encode: trajectories as files of ATIF documents.

Invariant: a trajectory is one document, and the media that it shows are files beside it. Where nothing was sampled
there is none, and the reason is noted: ATIF has no trajectories without steps.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from art_otel.exporting import NULL_REWARD, ExportStats, ScoredTrajectory, unrewarded
from art_otel_atif.config import TrajectoriesConfig
from art_otel_atif.content import Media
from art_otel_atif.document import document
from art_otel_atif.names import Stems
from art_otel_atif.steps import Subject

NOTHING_SAMPLED: Final = "nothing sampled"


def encode_trajectories(
    items: Iterator[ScoredTrajectory], config: TrajectoriesConfig, stats: ExportStats
) -> Iterator[tuple[str, bytes]]:
    """(path below the export, bytes) of each document, its media before it."""
    stems = Stems()
    for item in items:
        stem = stems.stem(item.trajectory)
        media = Media(stem=stem)
        subject = Subject(
            trajectory=item.trajectory,
            turn_rewards=item.turn_rewards,
            config=config,
            stats=stats,
            media=media,
        )
        encoded = document(subject, stem)
        if encoded is None:
            stats.trajectories_skipped[NOTHING_SAMPLED] += 1
            continue
        if unrewarded(item.trajectory) == "unusable reward":
            stats.changed[NULL_REWARD] += 1
        yield from media.files.items()
        yield f"{stem}.json", msgspec.json.encode(encoded) + b"\n"
