"""Commit: killed at any step and repeated it ends the same, the old dataset stays readable, nobody's files go."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from art_otel.errors import StorageError, StoreError, UsageError
from art_otel.store import (
    SCHEMA_VERSION,
    CallCounts,
    ConversionReport,
    FileLimits,
    Part,
    read_manifest,
    read_trajectories,
    write_part,
    write_trajectories,
)
from art_otel.store.commit import check_out, commit
from art_otel.trajectories import Trajectory
from tests.examples import daily
from tests.store.test_files import ROOT, ids, names, parts, rollouts


def stage(folder: Path, *groups: Sequence[Trajectory]) -> list[tuple[str, Part]]:
    """A part file for each group, ready to be committed."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.tmp" for number in range(len(groups))]
    return [
        (str(path), write_part(group, path, number))
        for number, (path, group) in enumerate(zip(paths, groups, strict=True))
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_equal_rows_give_equal_files_whose_summary_travels(tmp_path):
    facts = [(3, "train", 7), (1, None, None), (2, "train", 9)]
    given = [
        Trajectory(rollout_id=str(at), trace_id="t", started_at=at, split=split, training_step=step)
        for at, split, step in facts
    ]
    part = write_part(given, tmp_path / "a", 12)
    again = write_part(iter(given), tmp_path / "b", 12, FileLimits())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert part == again == pickle.loads(pickle.dumps(part))  # our own
    assert part == msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=Part)
    assert part.name == f"part-00012-{part.sha256[:8]}.parquet"
    assert (part.rows, part.bytes) == (3, (tmp_path / "a").stat().st_size)
    assert (part.started_at, part.training_step, part.splits) == ((1, 3), (7, 9), (None, "train"))
    assert write_part([], tmp_path / "c", 0).started_at is None


def test_a_part_that_fails_leaves_no_file(tmp_path):
    bad = [*rollouts(2), Trajectory(rollout_id="b", trace_id="t", training_step=2**70)]
    with pytest.raises(StoreError, match="rollout 'b' cannot be stored"):
        write_part(bad, tmp_path / "x", 0)
    assert names(tmp_path) == []


def test_the_report_is_the_account_and_the_manifest(tmp_path):
    out = tmp_path / "out"
    report = ConversionReport(calls=CallCounts(total=3, completed=3))
    staged = stage(tmp_path / "work", rollouts(3, "z"), rollouts(2, "a"))
    files = commit(str(out), staged, report)
    assert files == tuple(str(out / part.name) for _, part in staged)
    written = json.loads((out / "_report.json").read_text())
    assert written | json.loads(msgspec.json.encode(report.to_json())) == written
    assert (written["schema_version"], written["generation"], written["superseded"]) == (SCHEMA_VERSION, 0, {})
    assert [part["rows"] for part in written["parts"]] == [3, 2]
    assert names(tmp_path / "work") == []
    assert ids(out) == ["z00000", "z00001", "z00002", "a00000", "a00001"]
    commit(str(out), stage(tmp_path / "work", rollouts(1)))
    assert (read_manifest(str(out)).generation, ids(out)) == (1, ["r00000"])
    assert names(out) == [*[name for name in names(out) if name == "_report.json"], *parts(out)]
    assert len(parts(out)) == 1


def test_the_same_rows_with_another_account_replace_that_and_a_rotten_part(tmp_path):
    out = tmp_path / "out"
    commit(str(out), stage(tmp_path / "work", rollouts(3)), ConversionReport(calls=CallCounts(total=1)))
    (part,) = parts(out)
    sound = (out / part).read_bytes()
    (out / part).write_bytes(bytes(len(sound)))
    commit(str(out), stage(tmp_path / "work", rollouts(3)), ConversionReport(calls=CallCounts(total=2)))
    assert json.loads((out / "_report.json").read_text())["calls"]["total"] == 2
    assert (out / part).read_bytes() == sound
    assert read_manifest(str(out)).generation == 1


def test_a_broken_report_is_no_leave_to_read_every_part(tmp_path):
    commit(str(tmp_path), stage(tmp_path / "work", rollouts(1)))
    (tmp_path / "_report.json").write_text("{")
    with pytest.raises(StoreError, match=r"_report\.json: is corrupt"):
        ids(tmp_path)


DIE_AT = """
import os, pickle, sys
from art_otel import storage
from art_otel.store.commit import commit
out, staged, last = sys.argv[1], pickle.loads(open(sys.argv[2], "rb").read()), int(sys.argv[3])
steps = []
def dying(name):
    real = getattr(storage, name)
    def step(*args):
        steps.append(name)
        if len(steps) > last:
            os._exit(9)
        return real(*args)
    setattr(storage, name, step)
for name in ("make_folder", "write", "move", "sync_folder", "remove"):
    dying(name)
commit(out, staged)
print(len(steps))
"""


def committed(out: Path, staged, last: int) -> subprocess.CompletedProcess:
    """A commit in a process of its own, which is killed behind so many steps."""
    arguments = out.parent / "staged.pickle"
    arguments.write_bytes(pickle.dumps(staged))
    command = [sys.executable, "-c", DIE_AT, str(out), str(arguments), str(last)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_killed_behind_any_step_a_commit_leaves_the_old_dataset_or_the_new(tmp_path):
    """The steps: folder, pending file, three moves, names, report, names, two parts and the pending file removed."""

    def prepare(name: str):
        folder = tmp_path / name
        (folder / "work").mkdir(parents=True)
        commit(
            str(folder / "out"),
            stage(folder / "work", rollouts(1, "kept"), rollouts(2, "old"), rollouts(3, "old")),
        )
        return folder / "out", stage(folder / "work", rollouts(1, "kept"), rollouts(1, "new"))

    out, staged = prepare("whole")
    done = committed(out, staged, 99)
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps == 10
    assert ids(out) == ["kept00000", "new00000"]
    for last in range(steps):
        out, staged = prepare(f"killed-{last}")
        old = ids(out)
        assert committed(out, staged, last).returncode == 9
        assert ids(out) in (old, ["kept00000", "new00000"])
        assert ids(out) == old or last > 5


@pytest.mark.parametrize("last", daily(range(10), one_in=3))
def test_what_an_abandoned_commit_left_goes_with_the_next(tmp_path, last):
    out = tmp_path / "out"
    commit(str(out), stage(tmp_path / "work", rollouts(2, "old")))
    committed(out, stage(tmp_path / "work", rollouts(1, "new"), rollouts(2, "new")), last)
    (out / f"_report.json.{'ab' * 16}.tmp").write_text("torn")
    commit(str(out), stage(tmp_path / "work", rollouts(3, "next")))
    assert ids(out) == ["next00000", "next00001", "next00002"]
    assert names(out) == ["_report.json", *parts(out)]
    assert len(parts(out)) == 1


def test_a_staged_file_that_is_gone_is_named_and_the_old_dataset_stays(tmp_path):
    out = tmp_path / "out"
    write_trajectories(rollouts(2), out)
    ((path, part),) = stage(tmp_path / "work", rollouts(1, "new"))
    Path(path).unlink()
    with pytest.raises(StorageError, match=f"{part.name}: is missing, and so is"):
        commit(str(out), [(path, part)])
    assert ids(out) == ["r00000", "r00001"]


FOREIGN = {
    "part-00000.parquet": "PAR1 of a ClickHouse export",
    "part-of-another.parquet": "x",
    "_report.json": '{"spans": {}, "files": []}',
    "_pending-chores.json": "my list of chores",
}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_are_refused_by_name_before_anything_is_written(tmp_path, name, before):
    out = tmp_path / "out"
    out.mkdir()
    if before:
        write_trajectories(rollouts(2), out)
    (out / name).write_text(FOREIGN[name])
    contained = contents(out)
    for write in (
        lambda: check_out(str(out)),
        lambda: commit(str(out), stage(tmp_path / "work", rollouts(1)), ConversionReport()),
        lambda: write_trajectories(rollouts(1), out),
    ):
        with pytest.raises(UsageError, match=rf"{name}: was not written by art-otel .*write elsewhere"):
            write()
        assert contents(out) == contained


def test_our_own_parts_of_another_dataset_are_no_part_of_this_one(tmp_path):
    (part,) = write_trajectories(rollouts(1), tmp_path / "other").files
    write_trajectories(rollouts(2, "s"), tmp_path / "out")
    shutil.copy(part, tmp_path / "out")
    assert ids(tmp_path / "out") == ["s00000", "s00001"]
    with pytest.raises(UsageError, match=os.path.basename(part)):  # noqa: PTH119 # a text
        write_trajectories(rollouts(1), tmp_path / "out")


def test_a_dataset_whose_parts_are_not_what_it_says_is_refused_at_once(tmp_path):
    part = Path(write_trajectories(rollouts(2), tmp_path).files[0])
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(StoreError, match=rf"{part.name}: has \d+ bytes instead of \d+"):
        read_trajectories(tmp_path)
    part.unlink()
    with pytest.raises(StoreError, match=f"{part.name}: is missing"):
        read_trajectories(tmp_path)


def test_a_dataset_of_a_newer_format_is_refused_by_name(tmp_path):
    write_trajectories(rollouts(1), tmp_path)
    report = tmp_path / "_report.json"
    newer = json.loads(report.read_text()) | {"schema_version": SCHEMA_VERSION + 1}
    report.write_text(json.dumps(newer))
    for use in (lambda: read_trajectories(tmp_path), lambda: check_out(str(tmp_path))):
        with pytest.raises(StoreError, match=rf"_report\.json: has schema version {SCHEMA_VERSION + 1}"):
            use()
