"""Watch: run a worker over a range of cases and note what kills it.

Invariant: every case before the returned number ran, or its end is a finding.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from tests.fuzz.findings import Findings


def run_cases(target: str, first: int, end: int, stop: float, findings: Findings) -> int:
    """Run the cases from `first` on, until `end` or the time `stop` (monotonic). Gives the next case."""
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-m", "tests.fuzz.worker", target, str(first), str(end)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        try:
            current, running = _follow(process, target, first, stop, findings)
        finally:
            _end(process)
        if running is not None and time.monotonic() < stop:
            errors.seek(0)
            findings.run[target] += 1
            story = errors.read()
            findings.add(target, running, _why(process.returncode, story), story[-6_000:])
            current = running + 1
    return current


def _follow(
    process: subprocess.Popen[str], target: str, first: int, stop: float, findings: Findings
) -> tuple[int, int | None]:
    """The next case to run, and the one that never ended."""
    current, running = first, None
    for line in process.stdout or ():
        told = json.loads(line)
        if "case" in told:
            running = told["case"]
            continue
        current, running = told["done"] + 1, None
        findings.run[target] += 1
        if told["problem"]:
            findings.add(target, told["done"], *told["problem"])
        if time.monotonic() > stop:
            return current, None
    return current, running


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


def _why(code: int, story: str) -> str:
    """A name for what ended the worker."""
    if "Timeout (" in story:
        ours = [line.strip() for line in story.splitlines() if "/art_otel/" in line]
        return f"hangs: {ours[0].split('art_otel/')[-1] if ours else 'elsewhere'}"
    return f"the worker ended with {code}"
