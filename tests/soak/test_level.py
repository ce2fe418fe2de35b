"""What an app does often leaves nothing over: descriptors, threads, processes, files and objects stay as they were.

CI does it 60 times; `.ci/full soak` 300 times at least, for an hour in all.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.soak.entries import ENTRIES

pytestmark = [
    pytest.mark.program,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts what /proc shows"),
]

TIMES = int(os.environ.get("ART_OTEL_SOAK_TIMES", "60"))
SECONDS = float(os.environ.get("ART_OTEL_SOAK_SECONDS", "0"))

CACHES = {
    "art_otel.tracing.sdk.span_lines.LineTemplate": 256,
    "art_otel.trajectories.later_rewards.GatheredRollout": 16_384,
    "art_otel.trajectories.later_rewards.GatheredCall": 16_384,
}
"""How many of our objects may come to be, of those that are kept to be used again."""

AT_WORK = 3
"""How many of any others may be there at one moment: an event loop lets go of what it ran a bit later."""

FOR_AN_HOUR = {
    "new_trajectories": {
        "art_otel.live.arriving_rollouts.ArrivingSpans",
        "art_otel.spool.line.SpooledLine",
        "art_otel.spool.line.FoundFile",
    }
}
"""What says where the spans of a rollout stand that was given, for those that come late."""

MEGABYTES = 16.0
"""What allocators may keep, and what fills while an app is young."""


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_nothing_is_left_over(entry):
    command = [sys.executable, "-m", "tests.soak", entry, "--times", str(TIMES), "--seconds", str(SECONDS)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    line = next(line for line in ran.stdout.splitlines() if line.startswith("{"))
    print(entry, line)
    measured = json.loads(line)
    begin, end = measured["begin"], measured["end"]
    grown = end.pop("mb") - begin.pop("mb")
    assert end == begin, measured
    left = measured["more_objects"].items()
    kept = FOR_AN_HOUR.get(entry, set())
    assert not {kind: count for kind, count in left if count > CACHES.get(kind, AT_WORK) and kind not in kept}, measured
    assert grown <= MEGABYTES, measured
