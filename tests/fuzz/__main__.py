"""`python -m tests.fuzz --minutes 60 [--seed N] [--target NAME] [--findings FOLDER]`: run cases until the time is over.

Exit 1 when something was found. Each finding is a folder below `--findings` with its smallest input and its traceback.
`--case N` with `--target` runs one case and shows it.
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.fuzz.corpus import TARGETS
from tests.fuzz.findings import Findings
from tests.fuzz.watch import run_cases
from tests.fuzz.worker import problem_of

CASES_A_PROCESS = 500
TURNS = 2
"""How often each target has its turn in the whole time."""


def main() -> int:
    """Fuzz."""
    options = _options()
    if options.case is not None:
        print(*(problem_of(options.target, options.case) or ["no finding"]), sep="\n")
        return 0
    findings = Findings(options.findings or Path(tempfile.mkdtemp(prefix="art-otel-fuzz-findings-")))
    targets = [options.target] if options.target else list(TARGETS)
    ends = time.monotonic() + 60 * options.minutes
    first = options.seed * 1_000_000
    while time.monotonic() < ends:
        for target in targets:
            share = (ends - time.monotonic()) if len(targets) == 1 else 60 * options.minutes / len(targets) / TURNS
            stop = min(ends, time.monotonic() + share)
            at = first + findings.run.get(target, 0)
            while time.monotonic() < stop:
                at = run_cases(target, at, at + CASES_A_PROCESS, stop, findings)
        print(findings.summary(), flush=True)
    return 1 if findings.found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=list(TARGETS))
    parser.add_argument("--case", type=int)
    parser.add_argument("--findings", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
