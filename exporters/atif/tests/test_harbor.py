"""Harbor's validator and `atif` accept every document; Harbor's models and conversations have what we recorded."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from art_otel.calls import Message
from art_otel.exporting import NothingToExportError, export
from art_otel.testing import trajectories
from art_otel.trajectories import Trajectory
from tests.data.rollouts import agent_rollouts, assistant, chat, rollout, user
from tests.examples import examples
from tests.exporting import samples
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

EVERYTHING = {"allow_incomplete": True, "status": ("ok", "error", "cancelled", "unfinished"), "split": "*"}
RELEASES = ("harbor==0.26.0", "harbor==0.25.0")
"""The newest and the one before."""
ATIF = "atif==1.8.0"
"""The format's models without Harbor, written by others."""
SCRIPT = Path(__file__).with_name("check_with_harbor.py")
EXAMPLES = examples(40)
SEEN = '[{"type":"text","text":"What is it?"},{"type":"image","data":"iVBORw0KGgo=","mime_type":"image/png"}]'


@pytest.fixture(scope="module", params=RELEASES)
def python(request) -> Path:
    return trainer_python("harbor", "pydantic>=2.14", alone=(request.param, ATIF), version="3.12")


def checked(python: Path, folder: Path) -> dict:
    done = subprocess.run([python, SCRIPT, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def rollouts() -> dict[str, Trajectory]:
    shown = rollout(chat(Message(role="user", content="What is it?", parts=SEEN), assistant("A dot.")), "r-image")
    given = rollout(chat(user("1"), assistant("2"), user("3"), assistant("4")), "bad/name: Zürich")
    return {one.rollout_id: one for one in (*samples.samples(), shown, given)}


@pytest.fixture(scope="module")
def read(python, rollouts, tmp_path_factory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("atif")
    export(list(rollouts.values()), "atif", folder, **EVERYTHING)
    found = checked(python, folder)
    assert [one["errors"] for one in found.values()] == [[] for _ in rollouts]
    return {one["read"]["session_id"]: one for one in found.values()}


def trained(document: dict) -> list[dict]:
    return [step for step in document["steps"] if step["source"] == "agent" and not step.get("is_copied_context")]


def documents(document: dict) -> list[dict]:
    return [document, *document.get("subagent_trajectories", [])]


def test_every_sampled_token_is_there_once_with_its_prompt_and_logprob(rollouts, read):
    for rollout_id, trajectory in rollouts.items():
        found = {step["extra"]["turn"]: step for each in documents(read[rollout_id]["read"]) for step in trained(each)}
        sampled = {number: turn for number, turn in enumerate(trajectory.turns) if turn.message is not None}
        assert found.keys() == sampled.keys()
        for number, turn in sampled.items():
            metrics = found[number].get("metrics", {})
            prompt = trajectory.calls[turn.call].prompt_token_ids
            assert metrics.get("prompt_token_ids") == (None if prompt is None else prompt.tolist())
            assert metrics.get("completion_token_ids") == (None if turn.token_ids is None else turn.token_ids.tolist())
            assert metrics.get("logprobs") == (None if turn.logprobs is None else turn.logprobs.tolist())


def test_rewards_groups_tools_and_arguments_arrive(rollouts, read):
    good, found = rollouts["r-good"], read["r-good"]["read"]
    facts = found["extra"]
    assert (facts["reward"], facts["group_id"], facts["training_step"]) == (1.0, "g", 3)
    assert facts["metadata"] == good.metadata
    assert facts["rewards"] == [
        {"name": "reward", "value": 0.25, "step": 1, "source": "evaluation", "time_ns": good.rewards[0].time_ns}
    ]
    assert found["final_metrics"]["extra"] == good.metrics
    assert found["agent"]["tool_definitions"] == [samples.LOOK_UP]
    (call,) = found["steps"][2]["tool_calls"]
    assert (call["function_name"], call["arguments"]) == ("look_up", {"city": "Zürich"})
    assert call["extra"]["arguments"] == '{"city":"Zürich" }'
    assert found["steps"][2]["observation"]["results"] == [{"source_call_id": "call_0", "content": "rain"}]


def test_harbors_conversations_have_an_episode_for_each_trained_step(read):
    for one in read.values():
        if one["conversations"] is not None:
            assert len(one["conversations"]) == len(trained(one["read"]))
    last = read["r-good"]["conversations"][-1]["conversations"]
    assert [message["role"] for message in last] == ["user", "user", "assistant", "user", "assistant"]
    assert (last[3]["content"], last[4]["content"]) == ("rain", "Rain.")


def test_the_image_is_a_file_beside_the_document(read):
    (text, image) = read["r-image"]["read"]["steps"][0]["message"]
    assert text == {"type": "text", "text": "What is it?"}
    assert image["source"]["media_type"] == "image/png"


def test_any_trajectories_are_valid(python, tmp_path):
    folders = iter(range(10**6))
    written = 0

    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate])
    @given(st.lists(trajectories(), max_size=6) | agent_rollouts())
    def write(rollouts):
        nonlocal written
        with suppress(NothingToExportError):
            written += export(rollouts, "atif", tmp_path / str(next(folders)), **EVERYTHING).trajectories_used

    write()
    found = checked(python, tmp_path)
    assert len(found) == written > 0
    assert {path: one["errors"] for path, one in found.items() if one["errors"]} == {}
