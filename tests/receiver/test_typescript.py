"""TypeScript agents under real instrumentation send real OTLP, and the trainer gets what the model's server saw."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.comparison import check_calls, check_trained_once, recorded, sent
from tests.live.rotel import free_port, wait_for_port
from tests.receiver.consuming import next_rollouts
from tests.receiver.node import PROGRAMS, NodePrograms
from tests.receiver.serving import serving
from tests.tracing.server import ModelServer

pytestmark = pytest.mark.live


@pytest.fixture
def model(tmp_path):
    with ModelServer(tmp_path) as model:
        yield model


@pytest.fixture
def receiver(tmp_path):
    """Hands out early only what is known to be whole."""
    with serving(tmp_path / "art", "--grace", "1h") as server:
        yield server.url


def settings(model: ModelServer, receiver: str, **more: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": model.url, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver, **more}


def node_programs(tmp_path: Path, exporter: str = "proto") -> NodePrograms:
    folder = tmp_path / "programs"
    folder.mkdir()
    return NodePrograms(folder, exporter)


@pytest.mark.parametrize(("exporter", "compression"), [("proto", "none"), ("proto", "gzip"), ("http", "none")])
def test_an_agent_comes_with_its_tokens_its_group_and_its_rewards(model, receiver, tmp_path, exporter, compression):
    programs = node_programs(tmp_path, exporter)
    programs.run("agent.ts", settings(model, receiver, OTEL_EXPORTER_OTLP_COMPRESSION=compression))
    trajectories = next_rollouts(receiver, 4)
    check_calls(trajectories, model.exchanges(), tokens=True)
    for trajectory in trajectories:
        assert (trajectory.name, trajectory.group_id, trajectory.split) == ("weather", "Oslo", "train")
        assert (trajectory.complete, len(trajectory.calls)) == (True, 2)
        assert trajectory.reward in (0.0, 1.0)
        check_trained_once(trajectory)


def test_a_rollout_is_rewarded_by_its_id_after_it_ended(model, receiver, tmp_path):
    programs = node_programs(tmp_path)
    programs.run("streams.ts", settings(model, receiver))
    first, _ = next_rollouts(receiver, 2)
    programs.run("late_reward.ts", settings(model, receiver, ROLLOUT_ID=first.rollout_id))
    (again,) = next_rollouts(receiver, 1)
    assert (again.rollout_id, again.revision, again.calls) == (first.rollout_id, 1, first.calls)
    assert (first.reward, [(reward.name, reward.value) for reward in again.rewards]) == (None, [("judge", 0.25)])


def test_openinference_keeps_the_tokens_of_all_choices_and_none_of_streams(model, receiver, tmp_path):
    node_programs(tmp_path).run("streams.ts", settings(model, receiver))
    rollouts = {trajectory.name: trajectory for trajectory in next_rollouts(receiver, 2)}
    streamed, whole = model.exchanges()
    check_calls([rollouts["choices"]], [whole], tokens=True)
    (call,) = rollouts["stream"].calls
    assert [recorded(choice.message) for choice in call.choices] == [
        sent(choice["message"]) for choice in streamed.answer["choices"]
    ]
    assert call.choices[0].token_ids is None
    assert [rollouts[name].group_id for name in ("stream", "choices")] == [None, "task 17"]


def test_the_spans_of_the_vercel_ai_sdk_say_what_the_server_saw(model, tmp_path):
    group = {"OTEL_RESOURCE_ATTRIBUTES": "art.group.id=Oslo,art.split=val"}
    with serving(tmp_path / "art", "--grace", "2s") as server:
        node_programs(tmp_path).run("vercel.ts", settings(model, server.url, **group))
        rollouts = {trajectory.name: trajectory for trajectory in next_rollouts(server.url, 2)}
    check_calls(list(rollouts.values()), model.exchanges())
    streamed, unchanged = rollouts["streamed"], rollouts["ai.generateText"]
    assert streamed.complete
    assert unchanged.complete
    assert (streamed.group_id, streamed.reward, unchanged.reward) == ("Rome", 1.0, None)
    assert (unchanged.group_id, unchanged.split, streamed.split) == ("Oslo", "val", "val")
    assert [len(one.tool_calls) for one in (unchanged, streamed)] == [2, 1]


def test_a_rollout_that_python_began_goes_on_in_a_service(model, receiver, tmp_path):
    port = free_port()
    service = node_programs(tmp_path).start("service.ts", settings(model, receiver, PORT=str(port)))
    try:
        wait_for_port(port, service)
        environment = settings(model, receiver, ART_OTEL_ENABLED="1", OTEL_TRACES_EXPORTER="otlp")
        subprocess.run(
            [sys.executable, str(PROGRAMS / "caller.py"), f"http://127.0.0.1:{port}"],
            env={**os.environ, **environment, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            cwd=tmp_path,
            check=True,
        )
        trajectories = next_rollouts(receiver, 4)
    finally:
        service.kill()
        service.communicate()
    check_calls(trajectories, model.exchanges(), tokens=True)
    for trajectory in trajectories:
        assert (trajectory.name, trajectory.group_id, trajectory.revision) == ("umbrella", "Oslo", 0)
        assert (trajectory.complete, len(trajectory.calls)) == (True, 2)
        assert trajectory.reward in (0.0, 1.0)
