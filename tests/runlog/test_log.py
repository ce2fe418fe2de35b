"""A run log holds what was logged, where ART puts it, under ART's names."""

import asyncio
import json
import logging
from datetime import datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel import RunLog, TrajectoryGroup, read_trajectories
from art_otel.errors import UsageError
from art_otel.runlog import LogEntry, folder
from art_otel.spool.runs import DIR
from art_otel.testing import trajectories as any_trajectories
from art_otel.tracing.setup.settings import VARIABLES
from tests.runlog.entries import GROUPED, counts, metrics, one


def test_a_batch_lies_where_art_looks_for_it(run_log, tmp_path):
    entry = run_log.log(GROUPED, "train", step=3)
    assert entry.file == tmp_path / "weather/models/agent-1/trajectories/train/0003.parquet"
    assert list(read_trajectories(entry.file)) == GROUPED[:4]
    assert list(read_trajectories(entry.unrewarded)) == GROUPED[4:]
    assert entry.unrewarded == entry.file.parent / "unrewarded" / "0003.parquet"
    assert run_log.folder.history == tmp_path / "weather/models/agent-1/history.jsonl"
    assert (entry.split, entry.step, entry.skipped) == ("train", 3, ())


def test_the_row_of_a_batch(run_log):
    entry = run_log.log(GROUPED, "train", step=3)
    assert metrics(entry) == {"train/reward": 0.5, "train/exception_rate": 0.0, "train/reward_std_dev": 0.25}
    assert counts(entry) == {
        "scenarios": 2,
        "trajectories": 5,
        "groups_submitted": 2,
        "groups_trainable": 1,
        "trajectories_without_reward": 1,
    }
    (row,) = run_log.history()
    assert {name: row.pop(name) for name in entry.metrics} == entry.metrics
    assert row.pop("time/wall_clock_sec") >= 0
    assert datetime.fromisoformat(row.pop("recorded_at")).tzinfo is not None
    assert row == {"step": 3, "training_step": 3}


def test_log_may_be_awaited(run_log):
    async def training() -> LogEntry:
        first, second = await asyncio.gather(run_log.log(GROUPED, "train", 0), run_log.log(GROUPED, "val", 0))
        assert (first.split, second.split) == ("train", "val")
        return await run_log.log(metrics={"loss": 0.5}, split="train", step=1)

    assert asyncio.run(training()).metrics == {"train/loss": 0.5}
    assert len(run_log.history()) == 3


def test_what_had_no_reward_is_replaced_with_its_batch(run_log):
    first = run_log.log(GROUPED, "train", 0)
    second = run_log.log(GROUPED[:4], "train", 0)
    assert (second.file, second.unrewarded, first.unrewarded.exists()) == (first.file, None, False)
    first.unrewarded.write_bytes(b"another's")
    with pytest.raises(UsageError, match="was not written by art-otel"):
        run_log.log(GROUPED, "train", 0)
    assert list(read_trajectories(first.file)) == GROUPED[:4]
    assert len(run_log.history()) == 2


def test_the_step_may_be_awaited(run_log):
    async def step() -> int:
        return await run_log.get_step()

    run_log.log(metrics={"loss": 0.5}, split="train", step=4)
    assert asyncio.run(step()) == run_log.get_step() == 4
    assert type(asyncio.run(step())) is int


def test_a_list_is_grouped_by_group_id_and_the_rest_stands_alone(run_log):
    entry = run_log.log([one("a", 1.0, ""), one("b"), one("c", 0.0, ""), one("d", 3.0)], "train", 0)
    assert counts(entry)["groups_submitted"] == 3
    assert entry.metrics["train/reward_std_dev"] == 0.5
    assert run_log.log(one("a", 1.0), "train", 1).metrics["train/reward"] == 1.0


@pytest.mark.parametrize("wrong", [[1], "ab", 7, [one("a"), TrajectoryGroup(group_id="g", trajectories=[])]])
def test_what_is_no_batch_is_refused_before_anything_is_written(run_log, wrong):
    with pytest.raises(UsageError, match="trajectories: "):
        run_log.log(wrong, "train", 0)
    assert not run_log.folder.path.exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "nothing to log"),
        ({"metrics": {"loss": "low"}}, "'loss' is 'low'"),
        ({"metrics": {"loss": [1.0]}}, "'loss'"),
        ({"metrics": {"big": 10**400}}, "'big'"),
        ({"metrics": {}, "step": -1}, "step: -1"),
        ({"metrics": {}, "step": True}, "step: True"),
        ({"metrics": {}, "step": 1.0}, "step: 1.0"),
        ({"metrics": {}, "split": "../val"}, "split: "),
        ({"metrics": {}, "split": None}, "split: "),
    ],
)
def test_senseless_arguments_are_refused_before_anything_is_written(run_log, arguments, named):
    with pytest.raises(UsageError, match=named):
        run_log.log(**arguments)
    assert not run_log.folder.path.exists()


NO_NAMES = ["", " ", ".", "..", "../x", "a/b", "a\\b", "a\0b", "a\nb", "\ud800", 7]


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("what", ["project", "model"])
def test_what_could_lead_elsewhere_is_no_name(tmp_path, what, name):
    with pytest.raises(UsageError, match=f"{what}: "):
        RunLog(**{"project": "p", "model": "m", what: name}, base_path=tmp_path)


@given(st.text(max_size=8))
def test_every_name_stays_below_the_base_path(tmp_path_factory, name):
    base = tmp_path_factory.mktemp("base")
    try:
        run_log = RunLog("p", name, base)
    except UsageError:
        return
    assert run_log.folder.path.resolve().parent == (base / "p" / "models").resolve()
    assert run_log.log(metrics={}, split="val", step=0).metrics == {}
    assert run_log.folder.history.exists()


def test_the_environment_names_what_is_not_given(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"project: .*ART_OTEL_PROJECT"):
        RunLog()
    monkeypatch.setenv("ART_OTEL_PROJECT", "p")
    monkeypatch.setenv("ART_OTEL_MODEL", "")
    monkeypatch.setenv("ART_OTEL_DIR", str(tmp_path))
    with pytest.raises(UsageError, match=r"model: .*ART_OTEL_MODEL"):
        RunLog()
    monkeypatch.setenv("ART_OTEL_MODEL", "m")
    assert RunLog().folder.path == tmp_path / "p/models/m"
    assert RunLog("x", "y", tmp_path / "z").folder.path == tmp_path / "z/x/models/y"


def test_the_variables_are_those_of_tracing():
    assert (VARIABLES["dir"], VARIABLES["project"], VARIABLES["model"]) == (DIR, folder.PROJECT, folder.MODEL)


def test_the_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_log = RunLog("p", "m")
    monkeypatch.chdir("/")
    run_log.log(metrics={}, step=0)
    assert (tmp_path / ".art/p/models/m/history.jsonl").exists()


def test_the_current_step_is_the_last_logged_one(run_log):
    assert run_log.get_step() == 0
    run_log.log(GROUPED, "train", 4)
    run_log.log(GROUPED, "val", 2)
    assert run_log.get_step() == 4
    assert run_log.log(metrics={"loss": 1.0}, split="train").step == 4


def test_checkpoints_tell_the_current_step_before_the_log_does(run_log):
    run_log.log(GROUPED, "train", 9)
    (run_log.folder.path / "checkpoints").mkdir()
    assert run_log.get_step() == 9
    for name in ("0002", "0010", "0x1", "latest", "²"):
        (run_log.folder.path / "checkpoints" / name).mkdir()
    (run_log.folder.path / "checkpoints" / "0011").touch()
    assert run_log.get_step() == 10


def test_the_best_step_has_the_highest_mean(run_log):
    assert run_log.best_step() is None
    assert run_log.steps_to_keep() == (0,)
    for step, reward in [(0, 0.2), (1, 0.9), (1, 0.1), (2, 0.5), (3, 0.4)]:
        run_log.log(metrics={"reward": reward}, split="val", step=step)
    assert run_log.best_step() == 2
    assert run_log.steps_to_keep() == (2, 3)
    assert run_log.best_step("train/reward") is None
    assert run_log.steps_to_keep("train/reward") == (3,)


def test_of_equally_good_steps_the_latest_is_best(run_log):
    for step in (2, 5, 1):
        run_log.log(metrics={"reward": 1.0}, split="val", step=step)
    assert run_log.best_step() == 5
    assert run_log.steps_to_keep() == (5,)


def test_logging_a_step_again_replaces_its_trajectories_and_says_so(run_log, caplog):
    run_log.log([one("a", 0.0)], "train", 1)
    run_log.log([one("z", 0.0)], "val", 1)
    assert not caplog.records
    entry = run_log.log([one("b", 1.0)], "train", 1)
    assert [stored.rollout_id for stored in read_trajectories(entry.file)] == ["b"]
    assert [row.get("train/reward") for row in run_log.history()] == [0.0, None, 1.0]
    (record,) = caplog.records
    assert (record.levelno, "0001.parquet: logged again" in record.message) == (logging.WARNING, True)


def test_polars_reads_the_history(run_log):
    for step in range(3):
        run_log.log([one("a", step), one("b", step + 1)], "train", step)
        run_log.log(metrics={"reward": 1 if step == 1 else 0.5}, split="val", step=step)
    frame = pl.read_ndjson(run_log.folder.history)
    assert frame["train/reward"].drop_nulls().to_list() == [0.5, 1.5, 2.5]
    assert frame.schema["train/reward"] == frame.schema["val/reward"] == pl.Float64
    assert frame.drop_nulls(subset=["val/reward"]).sort("val/reward")["step"].last() == run_log.best_step()


@pytest.mark.long
@given(st.lists(any_trajectories(), max_size=3))
def test_anything_that_is_a_trajectory_can_be_logged(tmp_path_factory, batch):
    run_log = RunLog("p", "m", tmp_path_factory.mktemp("any"), report_metrics=[])
    entry = run_log.log(batch, "train", 0)
    files = [file for file in (entry.file, entry.unrewarded) if file is not None]
    missing = list(batch)
    for trajectory in read_trajectories(files):
        missing.remove(trajectory)  # each once; which file has it depends on its reward
    assert missing == []
    (line,) = run_log.folder.history.read_text().splitlines()
    assert json.loads(line)["step"] == 0


def test_a_base_path_below_nobody_s_home_is_refused():
    with pytest.raises(UsageError, match="base_path='~nobody-of-this-name': its ~ leads to no home folder"):
        RunLog("p", "m", base_path="~nobody-of-this-name")
