"""A disk that is really full: no error in the app, the loss counted exactly, nothing lost once there is space."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.live.runs import APPS
from tests.live.test_kills import ended_spans
from tests.tracing.apps.full_disk import CALLS

_SMALL_DISK = 'mount -t tmpfs -o size=400k none "$ART_OTEL_DIR" && exec "$@"'


def on_a_small_disk(*command: str, **environment: str) -> subprocess.CompletedProcess:
    """Run where ART_OTEL_DIR is a disk of 400 KB, in a mount namespace of its own."""
    isolated = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _SMALL_DISK, "sh", *command]
    settings = {**os.environ, **environment}
    return subprocess.run(isolated, env=settings, capture_output=True, text=True, check=False, timeout=120)


def test_a_full_disk(tmp_path):
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    if shutil.which("unshare") is None or on_a_small_disk("true", ART_OTEL_DIR=str(disk)).returncode:
        pytest.skip("no mount namespaces here")
    done = on_a_small_disk(
        *(sys.executable, "-m", "tests.tracing.apps.full_disk", str(kept)),
        ART_OTEL_DIR=str(disk),
        ART_OTEL_ENABLED="1",
        PYTHONPATH=str(APPS.parents[2]),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    ended = {span_id for _, span_id in ended_spans(kept)}
    assert {*told["before"], *told["after"]} <= ended
    assert not {*told["full"]} <= ended
    assert not told["flushed"], "what was dropped is not flushed"
    rollouts = sum(len(told[when]) for when in ("before", "full", "after")) // (CALLS + 1)
    lines = sum(path.read_bytes().count(b"\n") for path in kept.rglob("*.jsonl"))
    assert all(path.stat().st_size for path in kept.rglob("*.jsonl")), "a file that nothing could be written to stays"
    lost = [int(number) for number in re.findall(r"can be written again; (\d+) lines were lost", done.stderr)]
    assert lost[-1] == rollouts * (CALLS + 2) - lines, "a line is each end, and the start of the rollout"
