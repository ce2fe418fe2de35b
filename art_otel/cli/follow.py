"""`art-otel convert --follow`: a line for each round in which something came."""

import json
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from art_otel.cli.printable import printable

if TYPE_CHECKING:
    from art_otel.engines import Conversion
    from art_otel.store import ConversionReport


def follow_until_told(conversion: "Conversion", *, every: float, as_json: bool) -> int:
    """Follow until SIGINT or SIGTERM; what was committed stays, so the exit code is 0."""
    from art_otel.engines.incremental import follow  # noqa: PLC0415 # loads only for who follows

    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        follow(conversion, every=every, tell=_tell_json if as_json else _tell, warn=_warn)
    except KeyboardInterrupt:
        _warn("stopped")
    return 0


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _tell(report: "ConversionReport") -> None:
    spans, rows = report.spans, report.trajectories
    parts = [f"{spans.read:,} spans read", f"{rows.total:,} trajectories added", f"{spans.waiting:,} spans wait"]
    parts += [f"{count:,} quarantined: {reason}" for reason, count in spans.quarantined.items()]
    parts += [f"unread: {file.error}" for file in report.unread]
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {printable(', '.join(parts))}\n")
    sys.stdout.flush()


def _tell_json(report: "ConversionReport") -> None:
    sys.stdout.write(json.dumps(report.to_json()) + "\n")
    sys.stdout.flush()


def _warn(problem: str) -> None:
    sys.stderr.write(f"art-otel: {printable(problem)}\n")
    sys.stderr.flush()
