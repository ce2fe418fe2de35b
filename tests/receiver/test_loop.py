"""The loop of docs/loop/: a trainer that takes groups as they finish, from several agent processes, over `serve`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

import art_otel
from tests.docs.pages import DOCS
from tests.receiver.serving import serving

UPDATES = 96


@pytest.mark.program
def test_the_policy_gets_better_and_the_run_log_shows_how_stale_the_rollouts_were(tmp_path):
    with serving(tmp_path / "received") as server:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = {"PATH": path, "OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "ART_OTEL_DIR": str(tmp_path)}
        command = [sys.executable, str(DOCS / "loop" / "trainer.py"), str(UPDATES)]
        subprocess.run(command, env={**os.environ, **ours}, cwd=tmp_path, check=True, timeout=300)
    run = tmp_path / "loop" / "models" / "guide"
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(UPDATES))
    for row in rows:
        file = run / "trajectories" / "train" / f"{row['step']:04d}.parquet"
        versions = [int(one.policy_version.first) for one in art_otel.read_trajectories(file)]
        assert len(versions) == 8
        assert row["offpolicy/staleness_mean"] == pytest.approx(row["step"] - fmean(versions))
        assert row["offpolicy/staleness_max"] == row["step"] - min(versions)
    rewards = [row["train/reward"] for row in rows]
    assert fmean(rewards[-32:]) - fmean(rewards[:32]) > 0.1
