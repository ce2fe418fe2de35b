"""Law 5: reading what was written gives back the same object."""

import math
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds, ToolCall
from art_otel.errors import StoreError, UsageError
from art_otel.store import FileLimits, merge_runs, read_trajectories, write_run, write_trajectories
from art_otel.store.schema import SCHEMA
from art_otel.testing import JSON, TEXT, trajectories
from art_otel.trajectories import Prompt, Trajectory, Turn
from art_otel.trajectories.lineage.turns import build_lineage
from tests.trajectories.agents import agent_calls

SMALL = FileLimits(group_rows=2, part_rows=3)
IN_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


def in_order(found: list[Trajectory]) -> list[Trajectory]:
    return sorted(found, key=lambda trajectory: trajectory.order)


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@given(st.lists(trajectories(), max_size=7))
@IN_FOLDER
def test_what_was_written_is_read_over_row_groups_and_parts(tmp_path_factory, given_trajectories):
    folder = tmp_path_factory.mktemp("dataset")
    expected = in_order(given_trajectories)
    summary = write_trajectories(expected, folder, limits=SMALL)
    assert summary.trajectories == len(expected)
    assert list(summary.files) == sorted(folder.iterdir())
    assert list(read_trajectories(folder)) == expected
    for part in summary.files:
        assert pq.read_schema(part).equals(SCHEMA, check_metadata=True)


@given(st.lists(trajectories(), max_size=7), st.randoms(use_true_random=False))
@IN_FOLDER
def test_runs_merge_to_the_same_bytes(tmp_path_factory, given_trajectories, random):
    folder = tmp_path_factory.mktemp("dataset")
    expected = in_order({trajectory.rollout_id: trajectory for trajectory in given_trajectories}.values())
    runs = [folder / f"{number}.arrow" for number in range(3)]
    spread = [[], [], []]
    for trajectory in expected:
        spread[random.randrange(3)].append(trajectory)
    for run, part in zip(runs, spread, strict=True):
        write_run(part, run)
    write_trajectories(expected, folder / "direct", limits=SMALL)
    summary = merge_runs(runs, folder / "merged", limits=SMALL)
    assert summary.trajectories == len(expected)
    assert contents(folder / "merged") == contents(folder / "direct")


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 9))
@IN_FOLDER
def test_runs_that_interleave_in_any_way_merge_in_order(tmp_path_factory, turns_of_runs, group_rows):
    folder = tmp_path_factory.mktemp("dataset")
    limits = FileLimits(group_rows=group_rows)
    expected = [Trajectory(rollout_id=f"{number:02d}", trace_id="ab" * 16) for number in range(len(turns_of_runs))]
    runs = [folder / f"{number}.arrow" for number in range(4)]
    for number, run in enumerate(runs):
        write_run([each for each, turn in zip(expected, turns_of_runs, strict=True) if turn == number], run)
    write_trajectories(expected, folder / "direct", limits=limits)
    merge_runs(runs, folder / "merged", limits=limits)
    assert contents(folder / "merged") == contents(folder / "direct")


def test_a_run_holds_large_batches_in_pieces(tmp_path):
    page = "x" * 50_000
    expected = [Trajectory(rollout_id=f"{number:03d}", trace_id="ab" * 16, logs=(page,)) for number in range(200)]
    write_run(expected[::2], tmp_path / "even.arrow")
    write_run(expected[1::2], tmp_path / "odd.arrow")
    with pa.ipc.open_file((tmp_path / "even.arrow").read_bytes()) as run:
        pieces = [run.get_batch(number) for number in range(run.num_record_batches)]
    assert sum(piece.num_rows for piece in pieces) == 100
    assert max(piece.get_total_buffer_size() for piece in pieces) < 3 * 2**20
    write_run(expected, tmp_path / "one_of_many.arrow", runs=100)
    with pa.ipc.open_file((tmp_path / "one_of_many.arrow").read_bytes()) as run:
        assert max(run.get_batch(number).nbytes for number in range(run.num_record_batches)) < 2**20
    write_trajectories(expected, tmp_path / "direct")
    merge_runs([tmp_path / "even.arrow", tmp_path / "odd.arrow"], tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(tmp_path / "direct")


@given(st.permutations(range(12)), st.integers(0, 6000))
@IN_FOLDER
def test_a_run_that_memory_could_not_hold_at_once_is_sorted_in_stretches(tmp_path_factory, numbers, size):
    folder = tmp_path_factory.mktemp("dataset")
    expected = [Trajectory(rollout_id=f"{number:02d}", trace_id="ab" * 16) for number in range(12)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("art_otel.store.runs._STRETCH_BYTES", size)
        write_run((expected[number] for number in numbers), folder / "one.arrow")
    assert [path.name for path in folder.iterdir()] == ["one.arrow"]
    write_trajectories(expected, folder / "direct", limits=SMALL)
    merge_runs([folder / "one.arrow"], folder / "merged", limits=SMALL)
    assert contents(folder / "merged") == contents(folder / "direct")


@given(trajectories())
@IN_FOLDER
def test_what_was_read_without_whole_prompts_is_written_as_it_was(tmp_path_factory, trajectory):
    folder = tmp_path_factory.mktemp("dataset")
    write_trajectories([trajectory], folder / "whole.parquet")
    write_trajectories(read_trajectories(folder / "whole.parquet", prompts=False), folder / "again.parquet")
    assert (folder / "whole.parquet").read_bytes() == (folder / "again.parquet").read_bytes()


@given(agent_calls())
@IN_FOLDER
def test_what_the_lineage_took_apart_is_put_together(tmp_path_factory, calls):
    file = tmp_path_factory.mktemp("dataset") / "one.parquet"
    expected = Trajectory(rollout_id="r", trace_id="ab" * 16, **build_lineage(calls)._asdict())
    write_trajectories([expected], file)
    assert list(read_trajectories(file)) == [expected]


def test_an_empty_dataset_has_the_schema(tmp_path):
    summary = write_trajectories([], tmp_path / "out")
    assert [path.name for path in summary.files] == ["part-00000.parquet"]
    assert pq.read_schema(summary.files[0]).equals(SCHEMA, check_metadata=True)
    assert list(read_trajectories(tmp_path / "out")) == []
    assert merge_runs([], tmp_path / "merged").trajectories == 0
    assert contents(tmp_path / "merged") == contents(tmp_path / "out")


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
    return Trajectory(rollout_id="chain", trace_id="ab" * 16, **build_lineage(calls)._asdict())


def test_a_chain_of_4000_turns_is_stored_once_and_read(tmp_path):
    expected = chain(4_000)
    file = tmp_path / "chain.parquet"
    write_trajectories([expected], file)
    assert file.stat().st_size < 1_000_000
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
    assert len(summary.files) == 3
    assert list(read_trajectories(tmp_path)) == expected


def test_the_text_of_arguments_and_unknown_against_empty_are_kept(tmp_path):
    messages = (
        Message(role="assistant", content=None, tool_calls=(ToolCall(id=None, name="f", arguments='{ "a":1}'),)),
        Message(role="assistant", content="", reasoning="", tool_calls=(ToolCall(name="", arguments="", exact=False),)),
    )
    call = InferenceCall(
        trace_id="ab" * 16, span_id="12" * 8, operation_name="", start_ns=0, end_ns=None, input_messages=messages
    )
    empty = msgspec.structs.replace(call, tools=(), prompt_token_ids=TokenIds())
    expected = Trajectory(rollout_id="", trace_id="ab" * 16, name="", **build_lineage([call, empty])._asdict())
    write_trajectories([expected], tmp_path / "one.parquet")
    assert list(read_trajectories(tmp_path / "one.parquet")) == [expected]


def test_an_unsorted_iterator_is_refused_and_nothing_is_written(tmp_path):
    unsorted = [Trajectory(rollout_id=name, trace_id="ab" * 16) for name in ("b", "a")]
    with pytest.raises(UsageError, match="'a' comes after 'b': sort"):
        write_trajectories(iter(unsorted), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.parquet"))


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


def test_a_turn_of_no_call_cannot_be_stored(tmp_path):
    given = Trajectory(rollout_id="r", trace_id="t", turns=(Turn(call=5, choice=0, prompt=Prompt()),))
    with pytest.raises(StoreError, match="rollout 'r' cannot be stored"):
        write_trajectories([given], tmp_path / "x.parquet")


def test_a_turn_of_another_prompt_than_its_calls_cannot_be_stored(tmp_path):
    (turn, *rest) = chain(2).turns
    other = msgspec.structs.replace(turn, prompt=Prompt(messages=()))
    with pytest.raises(StoreError, match="turn 0 has another prompt than its call 0"):
        write_trajectories([replace(chain(2), turns=(other, *rest))], tmp_path / "x.parquet")


def test_a_call_without_a_prompt_cannot_be_stored(tmp_path):
    with pytest.raises(StoreError, match="rollout 'chain' cannot be stored"):
        write_trajectories([replace(chain(1), prompts=(), turns=())], tmp_path / "x.parquet")


@given(st.dictionaries(TEXT, JSON))
@IN_FOLDER
def test_metadata_of_any_shape_comes_back_as_it_was_given(tmp_path_factory, metadata):
    file = tmp_path_factory.mktemp("dataset") / "one.parquet"
    write_trajectories([Trajectory(rollout_id="r", trace_id="t", metadata=metadata)], file)
    (read,) = read_trajectories(file)
    assert read.metadata == metadata
    assert list(read.metadata) == list(metadata)
