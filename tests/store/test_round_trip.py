"""Law 5: reading what was written gives back the same object."""

import math
import pickle
from dataclasses import replace

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import art_otel
from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds, ToolCall
from art_otel.errors import StoreError
from art_otel.store import (
    FileLimits,
    decode_trajectory,
    encode_trajectory,
    read_trajectories,
    write_trajectories,
)
from art_otel.store.schema import SCHEMA
from art_otel.testing import JSON, TEXT, trajectories
from art_otel.trajectories import MESSAGE_ROOT, MessageNode, Trajectory
from tests.data.token_rollouts import judged, talk
from tests.trajectories.agents import agent_calls
from tests.trajectories.calls import lineage_of

SMALL = FileLimits(group_rows=2, part_rows=3)
IN_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


def in_order(found: list[Trajectory]) -> list[Trajectory]:
    return sorted(found, key=lambda trajectory: trajectory.order)


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.long
@given(st.lists(trajectories(), max_size=7))
@IN_FOLDER
def test_what_was_written_is_read_over_row_groups_and_parts(tmp_path_factory, given_trajectories):
    folder = tmp_path_factory.mktemp("dataset")
    expected = in_order(given_trajectories)
    summary = write_trajectories(expected, folder, limits=SMALL)
    assert summary.trajectories == len(expected)
    assert list(summary.files) == sorted(map(str, folder.glob("part-*.parquet")))
    assert list(read_trajectories(folder)) == expected
    for part in summary.files:
        assert pq.read_schema(part).equals(SCHEMA, check_metadata=True)


@pytest.mark.long
@given(trajectories())
@IN_FOLDER
def test_what_was_read_without_whole_prompts_is_written_as_it_was(tmp_path_factory, trajectory):
    folder = tmp_path_factory.mktemp("dataset")
    write_trajectories([trajectory], folder / "whole.parquet")
    write_trajectories(read_trajectories(folder / "whole.parquet"), folder / "again.parquet")
    assert (folder / "whole.parquet").read_bytes() == (folder / "again.parquet").read_bytes()


@given(agent_calls())
@IN_FOLDER
def test_what_the_lineage_took_apart_is_put_together(tmp_path_factory, calls):
    file = tmp_path_factory.mktemp("dataset") / "one.parquet"
    expected = Trajectory(rollout_id="r", trace_id="ab" * 16, **lineage_of(calls))
    write_trajectories([expected], file)
    assert list(read_trajectories(file)) == [expected]


def test_a_trajectory_made_by_hand_of_rewards_alone_is_read_and_trained_as_it_is(tmp_path):
    made = [replace(talk(name, 2), rewards=(judged(value),)) for name, value in (("a", 0.0), ("b", 1.0))]
    write_trajectories(made, tmp_path / "out")
    assert list(read_trajectories(tmp_path / "out")) == made
    for sources in (made, tmp_path / "out"):
        (batch,) = art_otel.batches(sources)
        assert [trajectory.reward for trajectory in made] == list(batch.rewards) == [0.0, 1.0]


@pytest.mark.parametrize("reward", [None, 0.5])
def test_the_reward_of_a_copy_is_read_again_and_one_that_follows_follows_from_others(tmp_path, reward):
    whole = replace(talk("a", 1), rewards=(judged(1.0),))
    made = [whole, replace(whole, rollout_id="b", reward=reward)]
    write_trajectories(made, tmp_path / "out")
    sent = [decode_trajectory(encode_trajectory(one)) for one in made]
    for copies in (list(read_trajectories(tmp_path / "out")), sent):
        assert copies == made
        assert [replace(one, rewards=()).reward for one in copies] == [None, reward]


def test_an_empty_dataset_has_the_schema(tmp_path):
    (file,) = write_trajectories([], tmp_path / "out").files
    assert pq.read_schema(file).equals(SCHEMA, check_metadata=True)
    assert list(read_trajectories(tmp_path / "out")) == []


def chain(length: int) -> Trajectory:
    calls: list[InferenceCall] = []
    messages, ids = (), TokenIds()
    for number in range(length):
        messages, ids = (*messages, Message(role="user", content=f"question {number}")), ids + TokenIds.of([number])
        sampled, logprobs = TokenIds.of([number, number]), Logprobs.of([-0.5, -0.25])
        answer = Message(role="assistant", content=f"answer {number}")
        calls.append(
            InferenceCall(
                trace_id="ab" * 16,
                span_id=f"{number + 1:016x}",
                operation_name="chat",
                start_ns=number,
                end_ns=number + 1,
                input_messages=messages,
                prompt_token_ids=ids,
                choices=(Choice(index=0, message=answer, token_ids=sampled, logprobs=logprobs),),
            )
        )
        messages, ids = (*messages, answer), ids + sampled
    return Trajectory(rollout_id="chain", trace_id="ab" * 16, **lineage_of(calls))


@pytest.mark.parametrize("turns", [800, pytest.param(4_000, marks=pytest.mark.flood)])
def test_a_chain_of_thousands_of_turns_is_stored_once_and_read(tmp_path, turns):
    expected = chain(turns)
    file = tmp_path / "chain.parquet"
    write_trajectories([expected], file)
    assert file.stat().st_size < 250 * turns
    (read,) = read_trajectories(file)
    assert read.turns == expected.turns
    assert read.calls[::399] == expected.calls[::399]  # all of them are 16 million messages to compare


def test_huge_metadata_bounds_the_row_groups_by_bytes(tmp_path):
    expected = [
        Trajectory(rollout_id=str(number), trace_id="ab" * 16, metadata={"page": "x" * 3_000_000, "deep": {"a": [1]}})
        for number in range(5)
    ]
    file = tmp_path / "huge.parquet"
    write_trajectories(expected, file, limits=FileLimits(group_bytes=7_000_000))
    assert pq.ParquetFile(file).num_row_groups == 3
    assert list(read_trajectories(file)) == expected


def test_parts_are_bounded_by_bytes(tmp_path):
    expected = [Trajectory(rollout_id=str(number), trace_id="ab" * 16, error="x" * 10_000) for number in range(6)]
    summary = write_trajectories(expected, tmp_path, limits=FileLimits(group_rows=1, part_bytes=25_000))
    assert len(summary.files) == 2  # a part ends with the row that reaches its bytes
    assert list(read_trajectories(tmp_path)) == expected


def test_an_iterator_is_written_as_it_comes(tmp_path):
    unsorted = [Trajectory(rollout_id=name, trace_id="ab" * 16) for name in ("b", "a")]
    write_trajectories(iter(unsorted), tmp_path)
    assert list(read_trajectories(tmp_path)) == unsorted


def test_the_text_of_arguments_and_unknown_against_empty_are_kept(tmp_path):
    messages = (
        Message(role="assistant", content=None, tool_calls=(ToolCall(id=None, name="f", arguments='{ "a":1}'),)),
        Message(role="assistant", content="", reasoning="", tool_calls=(ToolCall(name="", arguments="", exact=False),)),
    )
    call = InferenceCall(
        trace_id="ab" * 16, span_id="12" * 8, operation_name="", start_ns=0, end_ns=None, input_messages=messages
    )
    empty = msgspec.structs.replace(call, tools=(), prompt_token_ids=TokenIds())
    expected = Trajectory(rollout_id="", trace_id="ab" * 16, name="", **lineage_of([call, empty]))
    write_trajectories([expected], tmp_path / "one.parquet")
    assert list(read_trajectories(tmp_path / "one.parquet")) == [expected]


def test_an_unsorted_list_is_written_in_order(tmp_path):
    unsorted = [Trajectory(rollout_id=name, trace_id="ab" * 16) for name in ("b", "a")]
    write_trajectories(unsorted, tmp_path / "out")
    assert [trajectory.rollout_id for trajectory in read_trajectories(tmp_path / "out")] == ["a", "b"]


@pytest.mark.parametrize(
    "fields",
    [
        {"training_step": 2**70},
        {"name": "\ud800"},
        {"metadata": {"a": object()}},
        {"metadata": {"\ud800": 1}},
        {"error": 3},
    ],
    ids=["large number", "surrogate", "object", "surrogate as key", "number as text"],
)
def test_a_value_that_no_column_holds_names_its_rollout(tmp_path, fields):
    good = [Trajectory(rollout_id=name, trace_id="ab" * 16) for name in ("a", "c")]
    bad = Trajectory(rollout_id="b", trace_id="ab" * 16, **fields)
    with pytest.raises(StoreError, match="rollout 'b' cannot be stored"):
        write_trajectories([good[0], bad, good[1]], tmp_path / "out")
    assert contents(tmp_path / "out") == {}


def test_numbers_that_json_lacks_become_null(tmp_path):
    trajectory = Trajectory(rollout_id="a", trace_id="ab" * 16, metadata={"a": float("nan"), "b": 2**70})
    write_trajectories([trajectory], tmp_path / "one.parquet")
    (read,) = read_trajectories(tmp_path / "one.parquet")
    assert read.metadata == {"a": None, "b": 2**70}


def test_a_metric_that_is_no_number_is_unknown(tmp_path):
    given = Trajectory(rollout_id="r", trace_id="t", metrics={"a": math.nan, "b": 1.0})
    write_trajectories([given], tmp_path / "x.parquet")
    (found,) = read_trajectories(tmp_path / "x.parquet")
    assert found.metrics == {"b": 1.0}


@pytest.mark.long
def test_a_path_as_long_as_a_day_is_stored_pickled_and_compared(tmp_path):
    """Python's stack holds a thousand frames."""
    long = chain(1_200)
    write_trajectories([long], tmp_path / "x.parquet")
    (read,) = read_trajectories(tmp_path / "x.parquet")
    assert read == long == pickle.loads(pickle.dumps(long))
    assert hash(long.turns[-1].message_node) == hash(read.turns[-1].message_node)
    assert len(repr(long.turns[-1])) < 2_000
    node = MESSAGE_ROOT
    for _ in range(300_000):
        node = MessageNode(parent=node)
    del node  # no crash


@given(st.dictionaries(TEXT, JSON))
@IN_FOLDER
def test_metadata_of_any_shape_comes_back_as_it_was_given(tmp_path_factory, metadata):
    file = tmp_path_factory.mktemp("dataset") / "one.parquet"
    write_trajectories([Trajectory(rollout_id="r", trace_id="t", metadata=metadata)], file)
    (read,) = read_trajectories(file)
    assert read.metadata == metadata
    assert list(read.metadata) == list(metadata)
