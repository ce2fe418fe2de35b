"""A run log holds what was logged, where ART puts it, under ART's names."""

import asyncio
import json
import logging
import math
from datetime import datetime
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel import RunLog, Trajectory, TrajectoryGroup, read_trajectories
from art_otel.errors import UsageError
from art_otel.runlog import LogEntry, folder
from art_otel.runlog.metrics import batch_metrics, prefixed
from art_otel.testing import trajectories as any_trajectories
from art_otel.tracing.setup.settings import sources

VARIABLES = ("ART_OTEL_PROJECT", "ART_OTEL_MODEL", "ART_OTEL_DIR", "WANDB_API_KEY")


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run_log(tmp_path) -> RunLog:
    return RunLog("weather", "agent-1", tmp_path)


def one(name: str, reward: float | None = None, group: str | None = None, **fields) -> Trajectory:
    return Trajectory(rollout_id=name, trace_id=f"{len(name):032x}", reward=reward, group_id=group, **fields)


GROUPED = [one("a", 1.0, "g"), one("b", 0.0, "g"), one("c", 0.5, "h"), one("d", 0.5, "h"), one("e", None, "h")]


def counts(entry: LogEntry) -> dict[str, float]:
    start = "data/step_num_"
    return {name.removeprefix(start): value for name, value in entry.metrics.items() if name.startswith(start)}


def metrics(entry: LogEntry) -> dict[str, float]:
    return {name: value for name, value in entry.metrics.items() if not name.startswith("data/")}


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


def test_metrics_alone_write_no_trajectories(run_log):
    entry = run_log.log(metrics={"loss/train": 0.5, "reward": 1, "custom/x": True}, split="train", step=7)
    assert entry.file is None
    assert entry.metrics == {"loss/train": 0.5, "train/reward": 1.0, "train/custom/x": 1.0}
    assert not (run_log.folder.path / "trajectories").exists()


def test_given_metrics_win_over_the_batch(run_log):
    entry = run_log.log([one("a", 1.0)], "val", 0, {"reward": 0.25, "data/step_num_scenarios": 9})
    assert (entry.metrics["val/reward"], entry.metrics["data/step_num_scenarios"]) == (0.25, 9.0)


def test_what_is_unknown_is_absent_and_counted(run_log):
    entry = run_log.log([one("a"), one("b", math.nan), one("c", math.inf)], "val", 0)
    assert metrics(entry) == {"val/exception_rate": 0.0}
    assert counts(entry)["trajectories_without_reward"] == 3
    assert metrics(run_log.log([], "val", 1)) == {}


def test_a_metric_of_a_trajectory_that_is_no_finite_number_is_left_out_and_named(run_log):
    odd = one("b", 0.5, metrics={"acc": math.nan, "kl": math.inf, "turns": 2.0})
    group = TrajectoryGroup(
        group_id="g", trajectories=[one("a", 0.5, metrics={"acc": 1.0}), odd], metrics={"agree": math.nan}
    )
    entry = run_log.log([group], "train", 0)
    means = {"train/acc": 1.0, "train/turns": 2.0, "train/exception_rate": 0.0}
    assert metrics(entry) == {**means, "train/reward": 0.5, "train/reward_std_dev": 0.0}
    assert entry.skipped == ("train/acc", "train/kl", "train/group_agree")
    # ART's reader refuses a file in which a metric is null.
    assert pl.read_parquet(entry.file)["metrics"].to_list() == ['{"acc":1.0}', '{"turns":2.0}']
    assert [trajectory.metrics for trajectory in read_trajectories(entry.file)] == [{"acc": 1.0}, {"turns": 2.0}]


def test_what_is_no_finite_number_is_left_out_and_named(run_log):
    entry = run_log.log(metrics={"loss": math.nan, "kl": math.inf, "later": None, "lr": 1e-5}, split="train", step=0)
    assert entry.metrics == {"train/lr": 1e-5}
    assert entry.skipped == ("train/loss", "train/kl", "train/later")
    assert not {"train/loss", "train/kl", "train/later"} & set(run_log.history()[0])


def test_exceptions_are_rollouts_that_raised(run_log):
    batch = [one(status, status=status) for status in ("ok", "error", "cancelled", "unfinished")]
    assert metrics(run_log.log(batch, "train", 0)) == {"train/exception_rate": 0.5}


def test_metrics_of_trajectories_are_averaged_over_those_that_have_them(run_log):
    batch = [
        one("a", metrics={"turns": 2.0, "costs/judge": 0.5}),
        one("b", metrics={"turns": 4.0, "costs/judge": 0.25}),
    ]
    found = metrics(run_log.log([*batch, one("c", metrics={"bad": math.nan})], "train", 0))
    assert found == {"train/exception_rate": 0.0, "train/turns": 3.0, "costs/judge": 0.75}


def test_a_metric_cannot_take_the_place_of_the_reward(run_log):
    assert run_log.log([one("a", 1.0, metrics={"reward": 9.0})], "val", 0).metrics["val/reward"] == 1.0


def test_groups_have_metrics_and_give_their_id_to_their_members(run_log):
    groups = [
        TrajectoryGroup(
            group_id="g", trajectories=[one("a", 1.0), one("b", 0.0)], metrics={"agree": 0.5, "costs/x": 1}
        ),
        TrajectoryGroup(group_id="h", trajectories=[one("c", 0.5, "other")], metrics={"agree": 1.0, "costs/x": 2}),
    ]
    entry = run_log.log(iter(groups), "train", 0)
    assert metrics(entry) == {
        "train/reward": 0.5,
        "train/exception_rate": 0.0,
        "train/reward_std_dev": 0.5,
        "train/group_agree": 0.75,
        "costs/x": 3.0,
    }
    assert [stored.group_id for stored in read_trajectories(entry.file)] == ["g", "g", "other"]


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
    named = {name: source.variable for name, source in sources().items()}
    assert (named["dir"], named["project"], named["model"]) == (folder.DIR, folder.PROJECT, folder.MODEL)


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


NAMES = st.text(st.sampled_from("abc/"), max_size=5) | st.sampled_from(
    ["reward", "reward/x", "loss/kl", "train/x", "val", "data/step_x", "time/y", "custom/z", "discarded/q", "/", ""]
)
PLACED = ("reward", "loss", "offpolicy", "pipeline", "throughput", "costs", "time", "data", "train", "val", "test")


@given(NAMES, st.sampled_from(["train", "val", "test", "dev", "reward"]))
def test_names_are_placed_as_art_places_them(name, split):
    (placed,) = prefixed({name: 1.0}, split)
    stays = split in ("train", "val", "test") and name.startswith(tuple(f"{section}/" for section in PLACED))
    assert placed == (name if stays else f"{split}/{name}")


REWARDS = st.lists(st.lists(st.none() | st.integers(-8, 8).map(float), max_size=4), max_size=4)


@given(REWARDS)
def test_means_and_spreads_are_those_of_the_known_rewards(rewards):
    groups = [
        TrajectoryGroup(group_id=str(at), trajectories=[one(f"{at}-{n}", value) for n, value in enumerate(values)])
        for at, values in enumerate(rewards)
    ]
    found = batch_metrics(groups, "train")
    known = [[Fraction(value) for value in values if value is not None] for values in rewards]
    every = [value for values in known for value in values]
    assert ("reward" in found) == bool(every)
    if every:
        assert found["reward"] == pytest.approx(float(sum(every) / len(every)))
    spreads = [
        math.sqrt(sum((value - sum(values) / len(values)) ** 2 for value in values) / len(values))
        for values in known
        if len(values) > 1
    ]
    assert ("reward_std_dev" in found) == bool(spreads)
    if spreads:
        assert found["reward_std_dev"] == pytest.approx(sum(spreads) / len(spreads))
    assert found["data/step_num_trajectories_without_reward"] == sum(values.count(None) for values in rewards)


@given(st.lists(any_trajectories(), max_size=3))
def test_anything_that_is_a_trajectory_can_be_logged(tmp_path_factory, batch):
    run_log = RunLog("p", "m", tmp_path_factory.mktemp("any"), report_metrics=[])
    entry = run_log.log(batch, "train", 0)
    files = [file for file in (entry.file, entry.unrewarded) if file is not None]
    assert sorted(read_trajectories(files), key=lambda t: t.order) == sorted(batch, key=lambda t: t.order)
    (line,) = run_log.folder.history.read_text().splitlines()
    assert json.loads(line)["step"] == 0


def test_a_base_path_below_nobody_s_home_is_refused():
    with pytest.raises(UsageError, match="base_path='~nobody-of-this-name': its ~ leads to no home folder"):
        RunLog("p", "m", base_path="~nobody-of-this-name")


def test_a_trajectorys_metric_does_not_pass_for_the_batchs_reward():
    given = TrajectoryGroup(group_id="g", trajectories=(one("r", metrics={"reward": 5.0, "steps": 2.0}),))
    found = batch_metrics([given], "val")
    assert "reward" not in found
    assert found["steps"] == 2.0
