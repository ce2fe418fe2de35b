"""ATIF's documents of trajectories, and what they say of steps and histories."""

import json

from art_otel.exporting import ExportStats
from art_otel.trajectories import Trajectory
from art_otel_atif.documents import AtifTrajectoriesConfig, encode_trajectories
from tests.exporting.exported import encoded as encoded_by
from tests.exporting.exported import rewarded


def encoded(*rollouts: Trajectory, **config) -> tuple[dict[str, bytes], ExportStats]:
    records, stats = encoded_by(encode_trajectories, rewarded(rollouts), AtifTrajectoriesConfig(**config))
    files = dict(records)
    assert len(files) == len(records)
    return files, stats


def one_document(trajectory: Trajectory, **config) -> tuple[dict, dict[str, int]]:
    files, stats = encoded(trajectory, **config)
    ((name, data),) = [(name, data) for name, data in files.items() if name.endswith(".json")]
    document = json.loads(data)
    assert name == f"{document['trajectory_id']}.json"
    return document, dict(+stats.changed)


def histories_of(document: dict) -> list[dict]:
    return [document, *document.get("subagent_trajectories", [])]


def is_trained(step: dict) -> bool:
    return step["source"] == "agent" and not step.get("is_copied_context")
