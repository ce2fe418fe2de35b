"""reward() from elsewhere: after the end, from other threads and processes, and corrected."""

import subprocess
import sys
import threading

from art_otel import in_context, reward, rollout, step
from art_otel.live import RolloutCounts
from tests.conversions import convert_files
from tests.tracing.api.test_rewards import told


def test_after_the_end(app):
    with rollout(name="agent") as running:
        with step():
            app.ask("one", response_id="r1")
        app.ask("two", response_id="r2")
    trajectory = app.rollouts.trajectory(running.rollout_id)
    with rollout(name="judge"):
        app.ask("how good was it?", response_id="r3")
        reward(0.1, "running", target=running)
        reward(0.2, "step", target=running, step=0)
        reward(0.3, "recorded", target=trajectory)
        reward(0.4, "recorded step", target=trajectory, step=0)
        reward(0.5, "by id", rollout_id=running.rollout_id)
        reward(0.6, "call by id", rollout_id=running.rollout_id, target="r2")
        reward(0.7, "call", target=trajectory.calls[0])
    reward(0.9, rollout_id=running.rollout_id)
    live = app.rollouts.trajectory(running.rollout_id)
    found = app.stored()
    assert told(found["judge"]) == []
    one, two = (call.span_id for call in found["agent"].calls)
    targets = {given.name: (given.value, given.step, given.target) for given in found["agent"].rewards}
    (step_id,) = {target for name, (_, _, target) in targets.items() if name == "step"}
    assert targets.pop("recorded step")[:2] == (0.4, 0)
    assert targets == {
        "running": (0.1, None, None),
        "step": (0.2, 0, step_id),
        "recorded": (0.3, None, None),
        "by id": (0.5, None, None),
        "call by id": (0.6, None, two),
        "call": (0.7, 0, one),
        "reward": (0.9, None, None),
    }
    assert (found["agent"].reward, found["agent"].complete) == (0.9, True)
    assert {given.source for given in found["agent"].rewards} == {"reward_span"}
    assert live.reward == 0.9


def test_given_while_it_runs_from_outside_of_it(app):
    with rollout(name="agent") as running:
        app.ask("one")

        def outside():
            reward(0.5, rollout_id=running.rollout_id)

        thread = threading.Thread(target=outside)
        thread.start()
        thread.join()
        assert app.rollouts.counts(running.rollout_id) == RolloutCounts(1, 1)
    found = app.stored()["agent"]
    assert (found.reward, found.complete) == (0.5, True)


def test_a_reward_in_a_thread_without_the_context_is_told(app, caplog):
    with rollout(name="agent"):
        for judge in (reward, in_context(reward)):
            thread = threading.Thread(target=judge, args=(0.5,))
            thread.start()
            thread.join()
    assert [given.value for given in app.stored()["agent"].rewards] == [0.5]
    assert caplog.text.count("art_otel.in_context(function)") == 1


def test_what_is_assigned_after_the_end_is_told_by_name(app, caplog):
    with rollout(name="agent") as running, step() as first:
        pass
    running.reward = first.reward = 1.0
    assert "rollout agent has ended: give its reward with art_otel.reward(" in caplog.text
    assert "step 0 of rollout agent has ended" in caplog.text
    assert "SpanContext" not in caplog.text
    assert app.stored()["agent"].rewards == ()


def test_a_reward_given_later_hides_no_lost_span(app, tmp_path):
    with rollout(name="agent") as running:
        app.ask("lost")
    reward(0.5, rollout_id=running.rollout_id)
    app.processor.shutdown()
    (spool,) = (tmp_path / "spool").iterdir()
    lines = spool.read_bytes().splitlines(keepends=True)
    spool.write_bytes(b"".join(line for line in lines if b"openai.chat" not in line))
    (found,), _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert (found.reward, found.incomplete_reasons) == (0.5, {"spans missing": 1})


ANOTHER_PROCESS = """
import sys
from pathlib import Path
from opentelemetry import trace
import art_otel
from tests.tracing.api.app import App

app = App(Path(sys.argv[1]))
trace.set_tracer_provider(app.provider)
art_otel.reward(0.5, rollout_id=sys.argv[2], explanation="from afar")
art_otel.reward(1, "helpful", target="r1")
art_otel.reward(2, "kind", rollout_id=sys.argv[2], target="r1")
art_otel.reward(3, "first", rollout_id=sys.argv[2], step=0)
app.processor.shutdown()
"""


def test_from_another_process(app, tmp_path):
    with rollout(name="agent") as running:
        with step():
            app.ask("one", response_id="r1")
        app.ask("two", response_id="r2")
    app.processor.shutdown()
    command = [sys.executable, "-c", ANOTHER_PROCESS, str(tmp_path / "another"), running.rollout_id]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,), report = convert_files(tmp_path / "out", tmp_path / "spool", tmp_path / "another")
    one = found.calls[0].span_id
    assert {given.name: (given.value, given.step) for given in found.rewards} == {
        "reward": (0.5, None),
        "helpful": (1.0, 0),
        "kind": (2.0, 0),
        "first": (3.0, 0),
    }
    assert {given.name for given in found.rewards if given.target == one} == {"helpful", "kind"}
    assert (found.reward, found.complete) == (0.5, True)
    assert report.rewards.undeliverable == {}
