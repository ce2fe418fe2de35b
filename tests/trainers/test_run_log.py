"""ART's own code reads a run log of three steps, keeps the checkpoints that we say, and logs on in the same file."""

import json
import subprocess
from pathlib import Path

import pytest

from art_otel import RunLog
from art_otel.calls import Message
from art_otel.trajectories import Trajectory
from tests.data.rollouts import chat
from tests.data.rollouts import rollout as rollout_of
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

VERSIONS = {"openpipe-art==0.5.23": "3.12", "openpipe-art==0.5.18": "3.11"}
"""The newest of each Python."""
VALIDATION = {0: 0.25, 1: 0.75, 2: 0.5}


def rollout(name: str, group: str | None, reward: float | None, **fields) -> Trajectory:
    question, answer = Message(role="user", content="1 + 1?"), Message(role="assistant", content="2")
    return rollout_of(chat(question, answer), name, group_id=group, reward=reward, metrics={"turns": 1.0}, **fields)


@pytest.fixture(scope="module", params=VERSIONS)
def version(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def run_log(version, tmp_path_factory) -> RunLog:  # noqa: ARG001 # each logs on in a run of its own
    log = RunLog("p", "m", tmp_path_factory.mktemp("run"), report_metrics=[])
    for step, reward in VALIDATION.items():
        failed = rollout("f", "g", None, status="error", error="ValueError: no")
        batch = [rollout("a", "g", 0.0), failed, rollout("b", "g", 0.5), rollout("c", None, 1.0)]
        log.log(batch, "train", step, {"loss": 0.1})
        log.log([rollout("v", None, reward)], "val", step)
        (log.folder.path / "checkpoints" / f"{step:04d}").mkdir(parents=True)
    return log


@pytest.fixture(scope="module")
def read(version, run_log) -> dict:
    # With polars 2 ART's delete_checkpoints fails on its own files: they have a column of text, which has no mean.
    wanted = (version, "duckdb>=1.0,<2", "numpy>=1.26", "polars>=1.26,<2", "pyarrow>=18")
    python = trainer_python("art-log", *wanted, version=VERSIONS[version])
    keep = list(run_log.steps_to_keep())
    ours = run_log.history()[-2]
    script = Path(__file__).with_name("read_run_with_art.py")
    base = run_log.folder.path.parents[2]
    done = subprocess.run([python, script, base], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "steps_to_keep": keep, "ours": ours}


def test_art_loads_the_trajectories_of_all_steps_and_splits(read):
    train = [["train", step, reward, 1.0] for step in VALIDATION for reward in (0.0, 0.5, 1.0)]
    assert read["loaded"] == [*train, *(["val", step, reward, 1.0] for step, reward in VALIDATION.items())]


def test_art_reads_the_groups_of_each_file(read):
    train = {f"trajectories/train/{step:04d}.parquet": [[0.0, 0.5], [1.0]] for step in VALIDATION}
    val = {f"trajectories/val/{step:04d}.parquet": [[reward]] for step, reward in VALIDATION.items()}
    # The number of a group is a hash, so groups come in another order than they were logged in.
    assert {file: sorted(groups) for file, groups in read["groups"].items()} == train | val


def test_art_keeps_the_checkpoints_that_we_say(read):
    assert sorted(read["kept"]) == read["steps_to_keep"] == [1, 2]
    assert read["left"] == ["0001", "0002"]


def test_arts_own_row_has_the_names_that_ours_has(version, read, run_log):
    added = {"data/step_num_trajectories_without_reward"}
    if version == "openpipe-art==0.5.23":
        added |= {"time/wall_clock_sec"}  # it says when, but no longer how long after the start
    assert set(read["ours"]) - set(read["row"]) == added
    # Running totals need the state that ART's model keeps.
    assert all("/cum/" in name for name in set(read["row"]) - set(read["ours"]))
    assert run_log.history()[-1]["train/reward_std_dev"] == read["row"]["train/reward_std_dev"] == 0.25
    assert run_log.get_step() == 2
