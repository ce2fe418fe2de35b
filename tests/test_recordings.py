"""Every real recording converts: one trajectory a file, the right calls, and the same whole result as last time.

Run with ART_OTEL_UPDATE_SNAPSHOTS=1 to write the snapshots anew, and read the difference before you commit it.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from art_otel.store import ConversionReport
from art_otel.trajectories import Trajectory, trajectory_json
from tests.conversions import RECORDINGS, convert_files, with_logs

SNAPSHOTS = Path(__file__).parent / "snapshots"
FILES = sorted(path for path in RECORDINGS.glob("*/*.jsonl") if not path.name.endswith(".logs.jsonl"))

CALLS = {
    "sync_tools": (2, 0),
    "async_tools": (2, 0),
    "stream_sync": (2, 0),
    "n2": (3, 0),
    "parse": (3, 0),
    "responses_api": (8, 1),
    "error_retry": (1, 5),
    "embeddings": (0, 0),
    "raw_response": (4, 0),
    "long100": (5, 0),
}
"""Completed and failed calls of each scenario."""

LOST = {
    ("otelv2_span", "parse"): (1, 0),
    ("otelv2_legacy", "parse"): (1, 0),
    ("otelv2_span", "responses_api"): (0, 0),
    ("otelv2_legacy", "responses_api"): (0, 0),
}
"""What openai-v2 does not instrument: `.parse` and the Responses API."""


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


class Converted(NamedTuple):
    recording: Path
    trajectories: list[Trajectory]
    report: ConversionReport


@pytest.fixture(scope="module", params=FILES, ids=name_of)
def converted(request, tmp_path_factory) -> Converted:
    return Converted(request.param, *convert_files(tmp_path_factory.mktemp("out"), *with_logs(request.param)))


def test_a_recording_is_one_trajectory_with_the_right_calls(converted):
    recording, trajectories, report = converted
    (trajectory,) = trajectories
    scenario = recording.stem
    completed, failed = LOST.get((recording.parent.name, scenario), CALLS[scenario])
    assert (report.calls.completed, report.calls.failed) == (completed, failed)
    assert trajectory.rollout_id == f"r-{scenario}"
    assert trajectory.reward == 1.0
    assert report.spans.ignored.get("embeddings", 0) == (scenario == "embeddings")
    assert not report.spans.quarantined
    assert not report.spans.duplicate


def test_a_recording_gives_the_same_result_as_last_time(converted):
    recording, trajectories, report = converted
    counts = report.to_json()
    del counts["files"]
    result = {"trajectories": [trajectory_json(trajectory) for trajectory in trajectories], "report": counts}
    text = json.dumps(result, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    snapshot = SNAPSHOTS / f"{name_of(recording)}.json"
    if os.environ.get("ART_OTEL_UPDATE_SNAPSHOTS") == "1":
        snapshot.parent.mkdir(exist_ok=True)
        snapshot.write_text(text, encoding="utf-8")
    assert json.loads(text) == json.loads(snapshot.read_text(encoding="utf-8"))


def test_all_recordings_at_once_keep_apart(tmp_path):
    trajectories, _ = convert_files(tmp_path / "out", RECORDINGS)
    assert len(trajectories) == len(FILES)
    assert [trajectory.order for trajectory in trajectories] == sorted(trajectory.order for trajectory in trajectories)
