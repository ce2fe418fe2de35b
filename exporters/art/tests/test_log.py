"""The log: a file for each split and step, with ART's columns first and all of ours."""

from dataclasses import replace
from pathlib import Path

import pytest

from art_otel.errors import UsageError
from art_otel.exporting import NothingToExportError, export
from art_otel.runlog import RunLog
from art_otel.store import read_trajectories
from art_otel_art import EXPORTER
from tests.exporting.samples import conversation, samples


def logged(rollouts, out: Path, **options):
    return export(rollouts, EXPORTER, out, format="log", status=("ok", "error"), split="*", **options)


def test_every_split_and_step_has_its_file(tmp_path):
    rollouts = [
        conversation("c", "3", 0.0, split="val", training_step=12),
        conversation("a", "1", 1.0),
        conversation("b", "2", 0.0, split="val", training_step=12),
        conversation("d", "4", 0.5, split=None, training_step=None),
    ]
    report = logged(rollouts, tmp_path, options={"split": "test", "step": "2"})
    files = {
        str(Path(file).relative_to(tmp_path)): [one.rollout_id for one in read_trajectories(file)]
        for file in report.files
    }
    assert files == {
        "trajectories/val/0012.parquet": ["b", "c"],
        "trajectories/train/0003.parquet": ["a"],
        "trajectories/test/0002.parquet": ["d"],
    }
    assert report.records == report.trajectories_used == 4
    assert report.changed == {
        "trajectories without a split put into the one of the options": 1,
        "trajectories without a training step put into the one of the options": 1,
    }


def test_what_is_read_back_is_whole(tmp_path):
    rollouts = [one for one in sorted(samples(), key=lambda one: one.order) if one.reward is not None]
    report = logged(rollouts, tmp_path)
    assert list(read_trajectories(report.files[0])) == rollouts


def test_what_only_the_process_of_a_rollout_knows_is_not_written(tmp_path):
    trajectory = conversation("a", "1", 1.0)
    unpicklable = ValueError(lambda: None)
    gathered = replace(trajectory, result=lambda: None, exception=unpicklable, children=(trajectory,))
    (written,) = read_trajectories(logged([gathered], tmp_path).files[0])
    assert (written, written.exception, written.children) == (trajectory, None, ())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"split": "../up"}, "a split that cannot be a folder"),
        ({"split": ""}, "a split that cannot be a folder"),
        ({"split": "s" * 256}, "a split that cannot be a folder"),
        ({"split": "é" * 128}, "a split that cannot be a folder"),
        ({"training_step": -1}, "a training step below 0"),
        ({"reward": float("nan")}, "unusable reward"),
        ({"reward": 1e300}, "unusable reward"),
    ],
)
def test_what_has_no_place_is_left_out_with_the_reason(tmp_path, fields, reason):
    rollouts = [conversation("a", "1", **({"reward": 1.0} | fields)), conversation("b", "2", None)]
    with pytest.raises(NothingToExportError) as nothing:
        logged(rollouts, tmp_path / "out")
    assert nothing.value.report.trajectories_skipped == {reason: 1, "no reward": 1}
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("config", [{"split": "../up"}, {"step": "-1"}])
def test_options_that_are_no_place_are_refused(tmp_path, config):
    rollouts = [conversation("a", "1", 1.0, split=None)]
    with pytest.raises(UsageError):
        logged(rollouts, tmp_path / "out", options=config)
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_run_folder_that_is_read_is_not_written_to(tmp_path):
    log = RunLog("project", "name", tmp_path / "art", report_metrics=[])
    log.log([conversation("a", "1", 1.0), conversation("b", "2", None), conversation("c", "3", 0.0)], "train", step=3)
    folder, file = log.folder.path, log.folder.trajectories("train", 3)
    before = file.read_bytes()
    for source in (file, file.parent, f"{folder}/trajectories/*/*.parquet"):
        with pytest.raises(UsageError, match="is inside the dataset"):
            logged(source, folder)
    assert file.read_bytes() == before
    report = logged(file.parent, tmp_path / "other")
    logged(report.files[0], folder)
    assert [one.rollout_id for one in read_trajectories(file)] == ["a", "c"]


def test_a_file_of_others_is_not_replaced_and_no_other_file_either(tmp_path):
    rollouts = [conversation("a", "1", 1.0, training_step=step) for step in (1, 2)]
    theirs = tmp_path / "trajectories" / "train" / "0002.parquet"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    with pytest.raises(UsageError, match=r"0002\.parquet: was not written by art-otel"):
        logged(rollouts, tmp_path)
    assert [path.name for path in theirs.parent.iterdir()] == [theirs.name]
    assert theirs.read_bytes() == b"theirs"
