"""ART's own reader, duckdb and polars read our files as they are."""

import json
import subprocess
from pathlib import Path

import pytest

from art_otel.calls import Choice, InferenceCall, Message, TokenIds, ToolCall
from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory
from tests.data.rollouts import rollout as rollout_of
from tests.trainers.environment import trainer_python
from tests.trajectories.calls import asked

pytestmark = pytest.mark.trainer

VERSIONS = {"openpipe-art==0.5.23": "3.12", "openpipe-art==0.5.18": "3.11"}
"""The newest of each Python. Both read the columns of the older of ART's two formats."""
TOOLS = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},)
SYSTEM = Message(role="system", content="Look.")
QUESTION = Message(role="user", content="Weather in Zürich? 🌦")
LOOK = Message(role="assistant", tool_calls=(ToolCall(id="call_0", name="look", arguments='{"city":"Zürich"}'),))
FOUND = Message(role="tool", content="rain", tool_call_id="call_0")
ANSWER = Message(role="assistant", content="Rain.")


def rollout(name: str, group: str | None, reward: float, *, failed: bool = False) -> Trajectory:
    def call(number: int, prompt: tuple[Message, ...], answer: Message) -> InferenceCall:
        sampled = Choice(index=0, message=answer, finish_reason="stop", token_ids=TokenIds.of([number, 7]))
        error = "Timeout" if failed and number == 2 else None
        return asked(number, prompt, None, [sampled], tools=TOOLS, error_type=error)

    first = call(1, (SYSTEM, QUESTION), LOOK)
    second = call(2, (SYSTEM, QUESTION, LOOK, FOUND), ANSWER)
    return rollout_of(
        [first, second],
        name,
        group_id=group,
        started_at=1_700_000_000_000_000_001,
        reward=reward,
        metrics={"tokens": 4.0},
        metadata={"level": 3, "hard": True, "nested": {"a": [1]}},
        logs=("looked",),
        tools=TOOLS,
    )


@pytest.fixture(scope="module", params=VERSIONS)
def read(request, tmp_path_factory) -> dict:
    wanted = (request.param, "duckdb>=1.0,<2", "pyarrow>=18")
    python = trainer_python("art", *wanted, version=VERSIONS[request.param])
    file = tmp_path_factory.mktemp("art") / "0001.parquet"
    rollouts = [rollout("a", "g", 1.0), rollout("b", None, 0.5), rollout("c", "g", 0.0, failed=True)]
    write_trajectories(rollouts, file)
    script = Path(__file__).with_name("read_with_art.py")
    done = subprocess.run([python, script, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_arts_reader_gives_our_groups_rewards_and_messages(read):
    # ART orders groups by their index, which is a hash.
    rewards = [[trajectory["reward"] for trajectory in group] for group in read["groups"]]
    assert sorted(rewards, key=len) == [[0.5], [1.0, 0.0]]
    for trajectory in (trajectory for group in read["groups"] for trajectory in group):
        assert trajectory["metrics"] == {"tokens": 4.0}
        assert trajectory["metadata"] == {"level": 3, "hard": True, "nested": '{"a":[1]}'}
        assert trajectory["logs"] == ["looked"]
        messages = trajectory["messages_and_choices"]
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert messages[1]["content"] == QUESTION.content
        (call,) = messages[2]["tool_calls"]
        assert call == {
            "id": "call_0",
            "type": "function",
            "function": {"name": "look", "arguments": '{"city":"Zürich"}'},
        }
        assert messages[3]["tool_call_id"] == "call_0"
        assert messages[4]["content"] == "Rain."


def test_what_was_sampled_by_a_call_that_did_not_fail_is_trainable(read):
    trainable = [[message["trainable"] for message in messages] for _, messages in read["rows"]]
    assert sorted(trainable) == [
        [False, False, True, False, False],
        [False, False, True, False, True],
        [False, False, True, False, True],
    ]


def test_duckdb_and_polars_read_the_nested_columns(read):
    assert read["duckdb_turns"] == 6
    assert read["polars_token_ids"] == [[1, 7], [2, 7]] * 3
