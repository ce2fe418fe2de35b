"""Old runs of a spool go only when somebody has what they hold, and nothing of others goes ever."""

import os
import subprocess
import sys
import time
from pathlib import Path

import art_otel
from art_otel.spool import SpoolWriter, note_taken, remove_old_runs
from art_otel.spool.runs import RUN
from art_otel.tracing.setup.recording import recording_parts
from art_otel.tracing.setup.settings import Settings
from tests.dumps import request_of
from tests.receiver.otlp import JSON, as_body
from tests.receiver.rollouts import call, rollout, root

DAY = 24 * 3600


def age(folder: Path, days: float = 60) -> None:
    then = time.time() - days * DAY
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def write_run(folder: Path, *requests: dict) -> Path:
    spool = SpoolWriter(folder)
    for request in requests:
        spool.write(as_body(request, JSON) + b"\n")
    spool.close()
    return folder


def left(spool: Path) -> list[str]:
    return sorted(path.name for path in spool.iterdir() if path.is_dir())


def test_old_runs_go_and_nothing_of_others(tmp_path):
    for name in ("old", "new", "mixed", "unread"):
        write_run(tmp_path / name, rollout(1))
    files = [path for name in ("old", "new", "mixed") for path in (tmp_path / name).iterdir()]
    note_taken({path: path.stat().st_size for path in files})
    (tmp_path / "mixed" / "notes.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    for name in ("old", "mixed", "unread"):
        age(tmp_path / name, 7)
    assert remove_old_runs(tmp_path, DAY) == [tmp_path / "old"]
    assert left(tmp_path) == ["empty", "mixed", "new", "unread"]


def test_what_was_converted_goes_and_what_came_later_stays(tmp_path):
    spool = tmp_path / "spool"
    for name in ("one", "two", "grown"):
        write_run(spool / name, rollout(1))
    art_otel.convert(spool, tmp_path / "out")
    write_run(spool / "later", rollout(2))
    with next((spool / "grown").glob("*.jsonl")).open("ab") as file:
        file.write(as_body(rollout(3), JSON) + b"\n")
    age(spool)
    assert remove_old_runs(spool, DAY) == [spool / "one", spool / "two"]
    art_otel.convert(spool, tmp_path / "more", incremental=True)
    assert remove_old_runs(spool, DAY) == [spool / "grown", spool / "later"]


def test_what_a_loop_was_given_goes_and_what_still_runs_stays(tmp_path):
    write_run(tmp_path / "done", rollout(1))
    write_run(tmp_path / "open", request_of(call(9)))
    new = art_otel.NewTrajectories(tmp_path, grace=DAY)
    assert [one.rollout_id for one in new.take()] == ["r1"]
    age(tmp_path)
    assert remove_old_runs(tmp_path, DAY) == [tmp_path / "done"]
    write_run(tmp_path / "open", request_of(root(9)))
    assert [one.rollout_id for one in new.take()] == ["r9"]
    age(tmp_path)
    assert remove_old_runs(tmp_path, DAY) == [tmp_path / "open"]


GATHERING = """
import asyncio, sys
import art_otel

art_otel.configure(dir=sys.argv[1], instrumentor="none")

@art_otel.rollout
async def solve(number):
    with art_otel.step():
        pass
    art_otel.reward(float(number))

async def main():
    groups = await art_otel.gather_trajectory_groups({"a": [solve(1), solve(2)]}, progress=False)
    again = await art_otel.gather_trajectory(solve(3))
    assert [one.reward for group in groups for one in [*group.trajectories, again]] == [1.0, 2.0, 3.0]
    if sys.argv[2] == "more":
        await solve(4)

asyncio.run(main())
"""


def test_what_an_app_gathered_goes_and_what_it_did_not_gather_stays(tmp_path):
    runs = [gathering(tmp_path, "all"), gathering(tmp_path, "more")]
    age(tmp_path)
    assert remove_old_runs(tmp_path / "spool", DAY) == runs[:1]
    assert left(tmp_path / "spool") == [runs[1].name]


def gathering(folder: Path, what: str) -> Path:
    """The folder of a run that gathers rollouts, all or all but one."""
    before = set(folder.glob("spool/*"))
    environment = {name: value for name, value in os.environ.items() if name != RUN}
    command = [sys.executable, "-c", GATHERING, str(folder), what]
    subprocess.run(command, env=environment, check=True)
    (run,) = set(folder.glob("spool/*")) - before
    return run


def test_a_start_says_what_it_removed(tmp_path, caplog):
    spool = tmp_path / "spool"
    for name in ("read", "unread"):
        write_run(spool / name, rollout(1))
    art_otel.convert(spool / "read", tmp_path / "out")
    age(spool)
    recording_parts(Settings(dir=tmp_path, spool_days=None))
    assert left(spool) == ["read", "unread"]
    recording_parts(Settings(dir=tmp_path))
    assert left(spool) == ["unread"]
    (said,) = caplog.messages
    assert "1 runs in" in said
    assert "30 days (ART_OTEL_SPOOL_DAYS)" in said


def test_dumps_of_others_get_no_note(tmp_path):
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "traces.otlp.jsonl").write_bytes(as_body(rollout(1), JSON))
    art_otel.convert(tmp_path / "dumps", tmp_path / "out")
    assert [path.name for path in (tmp_path / "dumps").iterdir()] == ["traces.otlp.jsonl"]
