"""`art-otel log` puts a converted dataset into a run log and says what it wrote."""

import json

import pytest

from art_otel import read_trajectories
from art_otel.cli import main
from tests.conversions import RECORDINGS, convert_files


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch):
    for name in ("ART_OTEL_PROJECT", "ART_OTEL_MODEL", "ART_OTEL_DIR", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def datasets(tmp_path):
    names = ("sync_tools", "stream_sync")
    for name in names:
        convert_files(tmp_path / name, RECORDINGS / "genai_span" / f"{name}.jsonl")
    return [tmp_path / name for name in names]


def log(*arguments) -> int:
    return main(["log", *map(str, arguments)])


def named(base) -> tuple[str, ...]:
    return ("--base-path", str(base), "--project", "p", "--model", "m")


def test_datasets_become_one_step(datasets, tmp_path, capsys):
    metrics = ("--metric", "loss=0.5", "--metric", "costs/gpu=2", "--metric", "kl=nan")
    assert log(*datasets, *named(tmp_path / "art"), "--split", "train", "--step", 3, *metrics) == 0
    file = tmp_path / "art/p/models/m/trajectories/train/0003.parquet"
    assert [one.rollout_id for one in read_trajectories(file)] == ["r-stream_sync", "r-sync_tools"]
    out = capsys.readouterr().out
    for told in (f"2 trajectories in {file}", "train step 3", "train/reward = 1", "train/loss = 0.5", "costs/gpu = 2"):
        assert told in out
    assert "train/kl: left out" in out
    row = json.loads((tmp_path / "art/p/models/m/history.jsonl").read_text())
    assert (row["train/loss"], row["step"]) == (0.5, 3)


def test_names_come_from_the_environment(datasets, tmp_path, capsys, monkeypatch):
    for name, value in [("PROJECT", "p"), ("MODEL", "m"), ("DIR", str(tmp_path))]:
        monkeypatch.setenv(f"ART_OTEL_{name}", value)
    assert log(datasets[0], "--split", "val") == 0
    assert "1 trajectory in" in capsys.readouterr().out
    assert (tmp_path / "p/models/m/trajectories/val/0000.parquet").exists()


def test_a_dataset_that_is_given_twice_is_refused(datasets, tmp_path, capsys):
    assert log(datasets[0], datasets[0], *named(tmp_path / "art"), "--split", "train") == 2
    assert "is given twice" in capsys.readouterr().err
    assert not (tmp_path / "art").exists()


def test_metrics_alone(tmp_path, capsys):
    assert log(*named(tmp_path), "--split", "val", "--metric", "reward=0.5") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"wrote  val step 0 in {tmp_path}/p/models/m/history.jsonl"


@pytest.mark.parametrize(
    ("arguments", "named_in_error"),
    [
        (("--split", "train", "--metric", "reward=1"), "ART_OTEL_PROJECT"),
        (("--project", "p", "--model", "../m", "--split", "train", "--metric", "reward=1"), "'../m'"),
        (("--project", "p", "--model", "m", "--split", "train"), "nothing to log"),
        (("--project", "p", "--model", "m", "--split", "a/b", "--metric", "reward=1"), "'a/b'"),
        (("--project", "p", "--model", "m", "--split", "train", "--metric", "reward=1", "--step", "-1"), "step: -1"),
    ],
)
def test_wrong_usage_is_exit_2(tmp_path, capsys, monkeypatch, arguments, named_in_error):
    monkeypatch.chdir(tmp_path)
    assert log(*arguments) == 2
    assert named_in_error in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("metric", ["reward", "reward=high", "=1", ""])
def test_a_metric_needs_a_name_and_a_number(capsys, metric):
    with pytest.raises(SystemExit, match="2"):
        log("--split", "train", "--metric", metric)
    assert "write NAME=NUMBER" in capsys.readouterr().err


def test_what_is_no_dataset_is_exit_1_and_nothing_is_logged(tmp_path, capsys):
    assert log(tmp_path / "nothing", *named(tmp_path), "--split", "train") == 1
    assert "nothing" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
