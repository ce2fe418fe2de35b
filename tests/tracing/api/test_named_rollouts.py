"""Rollouts that a setting makes of spans by their names: what a request's handler gives is the request's."""

import subprocess
import sys

from art_otel.conversion import convert
from art_otel.store import read_trajectories

APP = """
import art_otel
from opentelemetry import trace

recording = art_otel.configure(rollout_spans=["POST *"])
tracer = trace.get_tracer("framework")
for question, worth in (("a", 1.0), ("b", 0.0)):
    with tracer.start_as_current_span("POST /answer") as request:
        request.set_attribute("art.group.id", "questions")
        with tracer.start_as_current_span("handler"):
            art_otel.reward(worth)
            with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}):
                pass
recording.shutdown()
"""


def test_a_reward_is_of_the_request_that_the_code_runs_in(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", APP], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
    )
    assert "outside of every rollout" not in done.stderr
    convert(tmp_path / ".art" / "spool", tmp_path / "out", rollout_spans=["POST *"])
    found = [(one.group_id, one.reward) for one in read_trajectories(tmp_path / "out")]
    assert sorted(found) == [("questions", 0.0), ("questions", 1.0)]
