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

LATER = """
import threading
import art_otel
from opentelemetry import trace

recording = art_otel.configure(rollout_spans=["POST *"])
tracer = trace.get_tracer("framework")
with tracer.start_as_current_span("POST /answer"):
    with tracer.start_as_current_span("handler") as handler:
        rollout_id = handler.attributes["art.rollout.id"]
        later = threading.Thread(target=art_otel.in_context(lambda: art_otel.reward(0.5, "from a task")))
later.start()
later.join()
with tracer.start_as_current_span("POST /feedback"):
    art_otel.reward(1.0, rollout_id=rollout_id)
recording.shutdown()
"""

SENDING = """
import sys
import art_otel
from opentelemetry import context, trace
from opentelemetry.propagate import extract, inject

recording = art_otel.configure(rollout_spans=["run/*"])
tracer = trace.get_tracer("framework")

def work(name, worth, carrier, then=None):
    with tracer.start_as_current_span(f"run/{name}", extract(carrier)):
        with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}):
            pass
        art_otel.reward(worth)
        if then is not None:
            then()

def send():
    carrier = {}
    with tracer.start_as_current_span("apply_async/child"):
        inject(carrier)
    token = context.attach(context.Context())
    work("child", 2.0, carrier)
    context.detach(token)

if sys.argv[1] == "named":
    work("task", 1.0, {}, send)
else:
    with art_otel.rollout(name="task"):
        art_otel.reward(1.0)
        send()
recording.shutdown()
"""


def run(program, folder, *arguments):
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=60)
    assert "outside of any rollout" not in done.stderr
    convert(folder / ".art" / "spool", folder / "out", rollout_spans=["POST *"])
    return list(read_trajectories(folder / "out"))


def test_a_task_that_another_task_sent_is_a_rollout_of_its_own(tmp_path):
    """In whichever process it runs. What an explicit rollout sends is a part of that."""
    task, child = sorted(run(SENDING, tmp_path, "named"), key=lambda one: one.reward)
    assert [(one.name, one.reward, len(one.calls)) for one in (task, child)] == [
        ("run/task", 1.0, 1),
        ("run/child", 2.0, 1),
    ]
    assert child.parent_rollout_id == task.rollout_id
    assert (task.complete, child.complete) == (False, False)


def test_a_reward_is_of_the_request_that_the_code_runs_in(tmp_path):
    found = [(one.group_id, one.reward) for one in run(APP, tmp_path)]
    assert sorted(found) == [("questions", 0.0), ("questions", 1.0)]


def test_a_request_is_judged_after_it_by_its_own_task_and_by_another_request(tmp_path):
    found = [
        (one.name, one.reward, [(given.name, given.value) for given in one.rewards]) for one in run(LATER, tmp_path)
    ]
    assert sorted(found) == [
        ("POST /answer", 1.0, [("from a task", 0.5), ("reward", 1.0)]),
        ("POST /feedback", None, []),
    ]
