"""Programs: real processes under nothing but environment variables, and the spans that their spool holds."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.certificates import NO_CERTIFICATES
from tests.tracing.server import ModelServer

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(sys.executable).parent

_OURS = ("ART_OTEL_", "OTEL_", "OPENAI_", "OPENINFERENCE_", "TRACELOOP_", "PYTHON", "VIRTUAL_ENV")

CALL = """
from opentelemetry import trace
tracer = trace.get_tracer("openai.test")
with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}):
    pass
"""
"""What an instrumentor makes of a call, by OTel's API alone."""

ASK = """
from openai import OpenAI
OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
"""
"""A call of the real client."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a program ended, what it said, and the spans in its spool."""

    code: int
    output: str
    errors: str
    spans: list[dict[str, Any]]

    @property
    def ended(self) -> list[str]:
        """The names of the spans that ended."""
        return sorted(span["name"] for span in self.spans if "endTimeUnixNano" in span)


def clean_environment(**settings: str) -> dict[str, str]:
    """The environment without what the tests themselves run under, and with these variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**kept, "PYTHONPATH": str(ROOT), **settings}


def asking(server: ModelServer) -> dict[str, str]:
    """The variables of a program that calls this server."""
    return {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-" + "test" * 12, **NO_CERTIFICATES}


def run_command(folder: Path, *command: str | Path, **settings: str) -> Outcome:
    """Run a program in a folder, where it keeps its spool unless the settings say otherwise."""
    words = [str(word) for word in command]
    environment = clean_environment(**settings)
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    spool = Path(environment.get("ART_OTEL_DIR", folder / ".art")) / "spool"
    return Outcome(code=done.returncode, output=done.stdout, errors=done.stderr, spans=spans_in(spool))


def run_code(folder: Path, code: str, **settings: str) -> Outcome:
    """Run a script that is called app.py."""
    script = folder / "app.py"
    script.write_text(code, encoding="utf-8")
    return run_command(folder, sys.executable, script, **settings)


def spans_in(spool: Path) -> list[dict[str, Any]]:
    """The spans of a spool, as OTLP JSON has them."""
    return [
        span
        for file in sorted(spool.rglob("*.jsonl"))
        for line in file.read_bytes().splitlines()
        for span in _spans(line)
    ]


def _spans(line: bytes) -> Sequence[dict[str, Any]]:
    return [
        span
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
