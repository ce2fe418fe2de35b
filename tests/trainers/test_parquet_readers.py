"""datasets, polars, pandas and duckdb read our Parquet as it is: several parts, each unlike the others."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from art_otel.calls import Message, ToolCall
from art_otel.store import FileLimits, write_trajectories
from art_otel.trajectories import Trajectory
from tests.data.rollouts import assistant, call, chat, rollout, user
from tests.exporting.samples import samples
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

WANTED = ("datasets==5.2.0", "duckdb==2.0.0", "pandas==3.1.1", "polars==2.1.0", "pyarrow>=18")
READERS = ("datasets", "duckdb", "pandas", "polars")
PARTS = '[{"type": "image", "url": "https://example.org/a.png"}]'


def rollouts() -> list[Trajectory]:
    """In their order one part has nothing in it, one has all, and arguments have other keys from call to call."""
    keys = ({"city": "Zürich"}, {"n": 1, "deep": {"a": [None]}}, {})
    looks = [ToolCall(id=f"c{place}", name="f", arguments=json.dumps(one)) for place, one in enumerate(keys)]
    seen = Message(role="user", content=None, parts=PARTS)
    return [
        Trajectory(rollout_id="a-empty", trace_id="ab" * 16),
        Trajectory(rollout_id="a-empty-too", trace_id="ab" * 16, metadata={}, logs=()),
        rollout([call(0, None, assistant(None))], "b-nothing-known"),
        rollout(chat(seen, assistant(None, tool_calls=tuple(looks), reasoning="look")), "b-tools", reward=-0.5),
        rollout(chat(user(""), assistant("")), "c-empty-texts", metadata={"a": {"b": 1}}, metrics={"m": 0.5}),
        *samples(),
    ]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    summary = write_trajectories(rollouts(), folder, limits=FileLimits(group_rows=1, part_rows=2))
    assert len(summary.files) == 6
    return folder


@pytest.fixture(scope="module")
def read(dataset, tmp_path_factory) -> dict:
    python = trainer_python("parquet", *WANTED)
    cache = tmp_path_factory.mktemp("cache")
    script = Path(__file__).with_name("read_parquet.py")
    done = subprocess.run([python, script, dataset, cache], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def rows(dataset) -> list[dict]:
    tables = [pq.read_table(path) for path in sorted(dataset.glob("part-*.parquet"))]
    return pa.concat_tables(tables).to_pylist()


@pytest.mark.parametrize("reader", READERS)
def test_every_row_has_every_value(read, rows, reader):
    assert read[reader]["rows"] == rows


@pytest.mark.parametrize("reader", READERS)
def test_token_ids_are_those_that_were_sampled(read, reader):
    ordered = sorted(rollouts(), key=lambda one: one.order)
    assert read[reader]["tokens"] == [
        [one.rollout_id, turn.call, turn.choice, None if turn.token_ids is None else turn.token_ids.tolist()]
        for one in ordered
        for turn in one.turns
    ]


@pytest.mark.parametrize("reader", READERS)
def test_nested_turns_arguments_and_empty_lists_are_as_recorded(read, reader):
    found = {row["rollout_id"]: row for row in read[reader]["rows"]}
    empty = found["a-empty"]
    assert (empty["turns"], empty["calls"], empty["rewards"], empty["toolsets"]) == ([], [], [], [])
    assert (empty["reward"], empty["logs"], empty["metadata"], empty["messages"]) == (None, None, None, None)
    assert found["b-nothing-known"]["calls"][0]["prompt_node"] is None
    (call,), (turn,) = found["b-tools"]["calls"], found["b-tools"]["turns"]
    assert found["b-tools"]["message_nodes"][call["prompt_node"]]["message"]["parts"] == PARTS
    spelled = [one["arguments"] for one in turn["message"]["tool_calls"]]
    assert spelled == ['{"city": "Z\\u00fcrich"}', '{"n": 1, "deep": {"a": [null]}}', "{}"]
    assert (turn["message"]["content"], found["c-empty-texts"]["turns"][0]["message"]["content"]) == (None, "")
    good = found["r-good"]
    assert (good["reward"], good["group_id"], good["rewards"][0]["value"]) == (1.0, "g", 0.25)
    assert json.loads(good["nested_metadata"]) == {"nested": {"a": [1, None]}}
    assert [turn["logprobs"][:2] for turn in good["turns"]] == [[0.0, -0.25], [-1.0, -1.25]]
    assert good["turns"][1]["parent"] == 0
