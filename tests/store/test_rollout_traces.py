"""Rollout traces in a dataset: on request, and then what the trajectories' own are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import art_otel
import art_otel.store
from art_otel.errors import StoreError
from art_otel.store import FileLimits, write_part
from art_otel.store.rows import value_of, value_text
from art_otel.testing import trajectories
from art_otel.trajectories import RolloutTrace
from tests.conversions import RECORDINGS, convert_files

DUMPS = [RECORDINGS / kind / "sync_tools.jsonl" for kind in ("openinference", "traceloop", "genai_span")]


def traces_of(dataset) -> list[RolloutTrace]:
    return [trace for one in art_otel.read_trajectories(dataset) for trace in art_otel.rollout_traces(one)]


def test_they_are_written_on_request_and_read_without_the_trajectories(tmp_path):
    plain, _ = convert_files(tmp_path / "plain", *DUMPS)
    traced, _ = convert_files(tmp_path / "traced", *DUMPS, rollout_traces=True)
    assert traced == plain
    found = list(art_otel.store.read_rollout_traces(tmp_path / "traced"))
    assert found == traces_of(tmp_path / "traced") == list(art_otel.rollout_traces(plain))
    assert len(found) == sum(len(one.calls) for one in plain) > 3
    with pytest.raises(StoreError, match="convert its dumps with --rollout-traces"):
        next(art_otel.store.read_rollout_traces(tmp_path / "plain"))


def test_the_verb_and_the_function_write_them(tmp_path):
    from art_otel.cli import main  # noqa: PLC0415 # as below

    assert main(["convert", str(DUMPS[0]), "--out", str(tmp_path / "verb"), "--rollout-traces", "--json"]) == 0
    art_otel.convert(DUMPS[0], tmp_path / "function", rollout_traces=True)
    verb, function = (list(art_otel.store.read_rollout_traces(tmp_path / name)) for name in ("verb", "function"))
    assert verb == function == traces_of(tmp_path / "verb")


def as_json(trace: RolloutTrace) -> list:
    """JSON has no NaN."""
    names = ("prompt", "policy_response", "reward_data", "env_state", "extra")
    return [trace.rollout_id, trace.span_id, *(value_of(value_text(getattr(trace, name))) for name in names)]


@pytest.mark.long
@settings(deadline=None)
@given(st.lists(trajectories(), max_size=5))
def test_any_come_back(tmp_path_factory, given_trajectories):
    path = tmp_path_factory.mktemp("traces") / "one.parquet"
    write_part(given_trajectories, path, 0, FileLimits(group_rows=2), with_traces=True)
    expected = [trace for one in given_trajectories for trace in art_otel.rollout_traces(one)]
    assert list(map(as_json, art_otel.store.read_rollout_traces(path))) == list(map(as_json, expected))
