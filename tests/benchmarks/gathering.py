"""Gathering: whether all rollouts come back whole, and what memory that takes beyond what the results hold.

Each case is a process of its own that asks a real server on loopback, with and without a spool, and once without
art-otel, which says what the app itself takes.

    uv run python -m tests.benchmarks.gathering
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.tracing.server import ModelServer

MB = 1 << 20
MOST = 300
"""Megabytes beyond the results."""
CASES = {"16 rollouts of 60 calls, prompts of 100 KB": (16, 60, 100_000), "1,000 rollouts at once": (1_000, 3, 4_000)}


def run(rollouts: int, calls: int, prompt_bytes: int, *options: str) -> dict:
    """One process. `beyond` is its peak above the start, without what the results hold; all in megabytes."""
    sizes = ["--rollouts", str(rollouts), "--calls", str(calls), "--prompt-bytes", str(prompt_bytes)]
    with tempfile.TemporaryDirectory() as folder, ModelServer(Path(folder)) as server:
        environment = {**os.environ, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        command = [sys.executable, "-m", "tests.benchmarks.gathered", *sizes, *options]
        began = time.monotonic()
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout)
    beyond = found["peak"] - found["start"] - found["held"]
    return {"whole": found["whole"], "held": found["held"] / MB, "beyond": beyond / MB, "s": time.monotonic() - began}


def main() -> None:
    """A table; fails where something is missing."""
    failed = False
    for label, (rollouts, calls, prompt_bytes) in CASES.items():
        print(f"\n{label}\n{'':>12} {'whole':>12} {'results MB':>11} {'beyond MB':>10} {'seconds':>8}")
        for case in ("untraced", "spool", "no spool"):
            with tempfile.TemporaryDirectory() as spool:
                options = {"untraced": ["--untraced"], "spool": ["--spool", spool], "no spool": []}[case]
                found = run(rollouts, calls, prompt_bytes, *options)
            whole = "-" if case == "untraced" else f"{found['whole']} of {rollouts}"
            failed |= case != "untraced" and (found["whole"] < rollouts or found["beyond"] > MOST)
            print(f"{case:>12} {whole:>12} {found['held']:11.0f} {found['beyond']:10.0f} {found['s']:8.1f}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
