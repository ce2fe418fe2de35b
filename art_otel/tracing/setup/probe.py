"""Probe: trace a call that nobody made, in a process of its own, and tell what became of it.

Invariant: what it finds is what a program of this environment would meet; it writes below the folder it is given only.
`python -m art_otel.tracing.setup.probe` is the child's side.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from art_otel.tracing.autoload import ENABLED
from art_otel.tracing.setup.settings import DIR

_SECONDS: Final = 120
_LEFT_OUT: Final = ("ART_OTEL_SPOOL", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_CALL: Final = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "probe"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """`lines` are in the spool, `active` instruments the client, `messages` are what was logged or went wrong."""

    lines: int
    active: list[str]
    messages: list[str]


def probe(environ: Mapping[str, str]) -> Probe:
    """Run the child with tracing on and nothing exported."""
    with tempfile.TemporaryDirectory(prefix="art-otel-doctor-") as folder:
        kept = {name: value for name, value in environ.items() if name not in _LEFT_OUT}
        changed = {ENABLED: "1", DIR: folder, "OTEL_TRACES_EXPORTER": "none"}
        command = [sys.executable, "-m", "art_otel.tracing.setup.probe"]
        try:
            done = subprocess.run(  # noqa: S603 # our own words
                command, env=kept | changed, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return Probe(lines=0, active=[], messages=[f"nothing came within {_SECONDS} seconds"])
        files = list(Path(folder, "spool").rglob("*.jsonl"))
        lines = sum(file.read_bytes().count(b"\n") for file in files)
    messages = [line for line in done.stderr.splitlines() if line.strip()]
    return Probe(lines=lines, active=_active(done.stdout), messages=messages)


def _active(stdout: str) -> list[str]:
    try:
        return list(map(str, json.loads(stdout.splitlines()[-1])["active"]))
    except (ValueError, LookupError, TypeError):
        return []


def main() -> None:
    """Be the child: do what an app does."""
    import art_otel  # noqa: F401, PLC0415 # pyright: ignore[reportUnusedImport] # it reads the environment

    with suppress(ImportError):
        __import__("openai")
    from opentelemetry import trace  # noqa: PLC0415 # after openai, as in most apps

    from art_otel.tracing.setup.client_libraries import OPENAI  # noqa: PLC0415
    from art_otel.tracing.setup.instrument import installed_instrumentors  # noqa: PLC0415

    trace.get_tracer("gen_ai.probe").start_span("chat probe", attributes=_CALL, kind=trace.SpanKind.CLIENT).end()
    active = [one.label for one in installed_instrumentors() if one.library is OPENAI and one.active]
    sys.stdout.write(json.dumps({"active": active}) + os.linesep)


if __name__ == "__main__":
    main()
