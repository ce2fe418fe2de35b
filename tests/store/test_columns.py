"""What others see: ART's columns, nested columns in plain pyarrow, group numbers, types and metadata."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds, ToolCall
from art_otel.store import FileLimits, read_trajectories, write_trajectories
from art_otel.store.rows import group_index
from art_otel.trajectories import ToolExecution, Trajectory
from tests.gaps import CONTRADICTED, SCRUBBED
from tests.trajectories.calls import lineage_of

TRACE = "ab" * 16
QUESTION = Message(role="user", content="Zürich?")
LOOK = Message(role="assistant", reasoning="hm", tool_calls=(ToolCall(id="c", name="look", arguments='{"a": 1}'),))
FOUND = Message(role="tool", content="rain", tool_call_id="c")
ANSWER = Message(role="assistant", content="Rain.")
OTHER = Message(role="assistant", content="Sun.")

ART = {
    "group_index": pa.int64(),
    "group_metadata": pa.string(),
    "group_metrics": pa.string(),
    "group_logs": pa.list_(pa.string()),
    "reward": pa.float64(),
    "metrics": pa.string(),
    "metadata": pa.string(),
    "tools": pa.string(),
    "logs": pa.list_(pa.string()),
    "messages": pa.list_(
        pa.struct(
            [
                ("role", pa.string()),
                ("content", pa.string()),
                ("tool_calls", pa.string()),
                ("tool_call_id", pa.string()),
                ("trainable", pa.bool_()),
            ]
        )
    ),
}


def call(number: int, prompt, *answers: Message, **fields) -> InferenceCall:
    choices = tuple(
        Choice(index=index, message=message, token_ids=TokenIds.of([number, index]), logprobs=Logprobs.of([-0.5, -1]))
        for index, message in enumerate(answers)
    )
    known = {"trace_id": TRACE, "operation_name": "chat", "start_ns": number, "end_ns": number + 1}
    return InferenceCall(span_id=f"{number:016x}", input_messages=prompt, choices=choices or None, **(known | fields))


def trajectory(rollout_id: str, *calls: InferenceCall, **fields) -> Trajectory:
    return Trajectory(rollout_id=rollout_id, trace_id=TRACE, **lineage_of(calls), **fields)


def written(tmp_path, *trajectories: Trajectory, **limits) -> list[dict]:
    write_trajectories(trajectories, tmp_path / "x.parquet", limits=FileLimits(**limits))
    return pq.read_table(tmp_path / "x.parquet").to_pylist()


def test_arts_columns_come_first_with_arts_types(tmp_path):
    write_trajectories([], tmp_path / "x.parquet")
    schema = pq.read_schema(tmp_path / "x.parquet")
    assert schema.names[:10] == list(ART)
    assert [schema.field(name).type for name in ART] == list(ART.values())
    assert schema.metadata == {b"art_otel.schema": b"4"}


def test_the_main_history_is_the_longest_path_to_the_first_choice(tmp_path):
    failed = call(3, (QUESTION, LOOK, FOUND, ANSWER, QUESTION))
    rows = written(
        tmp_path,
        trajectory("r", call(1, (QUESTION,), LOOK), call(2, (QUESTION, LOOK, FOUND), ANSWER, OTHER), failed),
    )
    plain = {"content": None, "tool_calls": None, "tool_call_id": None, "trainable": False}
    look = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}]
    messages = rows[0]["messages"]
    assert json.loads(messages[1].pop("tool_calls")) == look
    assert messages == [
        plain | {"role": "user", "content": "Zürich?"},
        {"role": "assistant", "content": None, "tool_call_id": None, "trainable": True},
        plain | {"role": "tool", "content": "rain", "tool_call_id": "c"},
        plain | {"role": "assistant", "content": "Rain.", "trainable": True},
    ]


@pytest.mark.parametrize(
    "reason", [{"error": "lost"}, {"stream": True}, {"gaps": (SCRUBBED,)}, {"gaps": (CONTRADICTED,)}]
)
def test_what_must_not_be_trained_is_not_trainable(tmp_path, reason):
    (row,) = written(tmp_path, trajectory("r", call(1, (QUESTION,), ANSWER, **reason)))
    assert [message["trainable"] for message in row["messages"]] == [False, False]
    assert row["turns"][0]["text_untrained"] is not None


def test_what_is_marked_is_not_trainable(tmp_path):
    (row,) = written(tmp_path, trajectory("r", call(1, (QUESTION,), ANSWER, marked_untrained="judge")))
    assert [message["trainable"] for message in row["messages"]] == [False, False]
    assert row["turns"][0]["text_untrained"] is None


def test_the_main_history_is_the_policys(tmp_path):
    judge = {"marked_untrained": "judge"}
    calls = (
        call(1, (QUESTION,), ANSWER),
        call(2, (OTHER,), LOOK, **judge),
        call(3, (OTHER, LOOK, FOUND), OTHER, **judge),
    )
    (row,) = written(tmp_path, trajectory("r", *calls, call(4, (QUESTION, ANSWER, QUESTION), OTHER, **judge)))
    assert [message["content"] for message in row["messages"]] == ["Zürich?", "Rain."]
    assert [message["trainable"] for message in row["messages"]] == [False, True]


def test_an_unknown_main_history_is_null(tmp_path):
    rows = written(
        tmp_path, trajectory("a"), trajectory("b", call(1, (QUESTION,))), trajectory("c", call(1, None, ANSWER))
    )
    assert [row["messages"] for row in rows] == [None, None, None]


def test_one_group_of_one_training_step_has_one_number_in_any_file(tmp_path):
    groups = [("x", 1), (None, 1), ("y", 1), ("x", 1), (None, 1), ("", 1), ("y", None), ("x", 2)]
    trajectories = [
        Trajectory(rollout_id=str(at), trace_id=TRACE, group_id=group, training_step=step)
        for at, (group, step) in enumerate(groups)
    ]
    indexes = [row["group_index"] for row in written(tmp_path, *trajectories)]
    assert indexes == [written(tmp_path, one)[0]["group_index"] for one in trajectories]
    assert indexes[0] == indexes[3]
    assert len(set(indexes)) == len(indexes) - 1
    assert all(0 <= index < 2**63 for index in indexes)


def test_the_number_of_a_group_is_the_hash_of_its_key():
    """`b2sum` of the key gives the same digits, of which the first 16 without the last bit are the number."""
    grouped = Trajectory(rollout_id="r", trace_id="t", group_id='Zürich "1"', training_step=7)
    alone = Trajectory(rollout_id="r", trace_id="t")
    for one, key in ((grouped, '[7,null,"Zürich \\"1\\""]'), (alone, '["r",null,"t",null]')):
        digest = hashlib.blake2b(key.encode()).hexdigest()
        assert group_index(one) == int(digest[:16], 16) // 2
    assert group_index(alone) == 551896145281984093


def test_empty_values_are_null_in_arts_columns_and_nested_metadata_is_text(tmp_path):
    full = trajectory("b", metadata={"n": {"x": [1]}, "s": "t"}, metrics={"m": 1.5}, logs=("l",))
    rows = written(tmp_path, trajectory("a"), full)
    assert [rows[0][name] for name in ("reward", "metrics", "metadata", "tools", "logs")] == [None] * 5
    assert json.loads(rows[1]["metadata"]) == {"n": '{"x":[1]}', "s": "t"}
    assert json.loads(rows[1]["nested_metadata"]) == {"n": {"x": [1]}}
    assert json.loads(rows[1]["metrics"]) == {"m": 1.5}
    assert rows[1]["logs"] == ["l"]


def test_nested_columns_read_in_plain_pyarrow(tmp_path):
    tools = ({"type": "function", "function": {"name": "look"}},)
    first = call(1, (QUESTION,), LOOK, tools=tools, prompt_token_ids=TokenIds.of([5, 6]))
    second = call(2, (QUESTION, LOOK, FOUND), ANSWER, OTHER, tools=tools)
    (row,) = written(tmp_path, trajectory("r", first, second, incomplete_reasons={"cut": 2}))
    assert [stored["toolset"] for stored in row["calls"]] == [0, 0]
    assert [json.loads(tools) for tools in row["toolsets"]] == [list(tools)]
    turns, nodes = row["turns"], row["message_nodes"]
    assert [turn["parent"] for turn in turns] == [None, 0, 0]
    assert [(node["parent"], node["turn"]) for node in nodes] == [(-1, None), (0, 0), (1, None), (2, 1), (2, 2)]
    assert [stored["prompt_node"] for stored in row["calls"]] == [0, 2]
    assert [(turn["call"], turn["choice"]) for turn in turns] == [(0, 0), (1, 0), (1, 1)]
    assert [turn["index"] for turn in turns] == [0, 0, 1]
    assert [turn["token_ids"] for turn in turns] == [[1, 0], [2, 0], [2, 1]]
    assert row["token_nodes"][0] == {"parent": -1, "turn": None, "kept": None, "ids": [5, 6]}
    assert turns[0]["logprobs"] == [-0.5, -1.0]
    assert turns[0]["message"]["tool_calls"] == [{"id": "c", "name": "look", "arguments": '{"a": 1}', "exact": True}]
    assert [node["message"] and node["message"]["content"] for node in nodes] == ["Zürich?", None, "rain", None, None]
    assert (row["complete"], row["incomplete_reasons"]) == (False, [{"reason": "cut", "count": 2}])


def test_runs_of_tools_are_json_text(tmp_path):
    ran = ToolExecution(span_id="a" * 16, name="look", arguments={"a": [1]}, result="rain", start_ns=1, turn=0)
    (row,) = written(tmp_path, trajectory("r", call(1, (QUESTION,), LOOK), tool_calls=(ran,), revision=2))
    assert (row["tool_calls"][0]["arguments"], row["tool_calls"][0]["result"]) == ('{"a":[1]}', '"rain"')
    assert row["revision"] == 2
    assert [one.tool_calls for one in read_trajectories(tmp_path / "x.parquet")] == [(ran,)]


def test_what_a_step_says_stands_once_in_a_row(tmp_path):
    board = {"board": "x" * 1_000}
    calls = [call(number, (QUESTION,), ANSWER, env_state=board, extra={"n": number % 2}) for number in range(1, 1001)]
    (row,) = written(tmp_path, trajectory("r", *calls))
    assert [json.loads(text) for text in row["objects"]] == [board, {"n": 1}, {"n": 0}]
    assert [(stored["env_state"], stored["extra"]) for stored in row["calls"][:3]] == [(0, 1), (0, 2), (0, 1)]
    (found,) = read_trajectories(tmp_path / "x.parquet")
    assert [one.extra for one in found.calls] == [one.extra for one in calls]
    found.calls[0].env_state["board"] = "changed for one call"
    assert all(one.env_state == board for one in found.calls[1:])


def test_all_empty_lists_keep_their_type(tmp_path):
    write_trajectories([trajectory("r", call(1, ()))], tmp_path / "a.parquet")
    write_trajectories([trajectory("r", call(1, (QUESTION,), LOOK))], tmp_path / "b.parquet")
    assert pq.read_schema(tmp_path / "a.parquet").equals(pq.read_schema(tmp_path / "b.parquet"), check_metadata=True)


def test_the_same_trajectories_give_the_same_bytes(tmp_path):
    given = [trajectory(f"{number:03d}", call(1, (QUESTION,), LOOK)) for number in range(300)]
    write_trajectories(given, tmp_path / "a.parquet")
    write_trajectories(iter(given), tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
