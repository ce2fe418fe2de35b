"""Laws of damaged logs: whatever stands in one, reading it does not raise, and every span keeps its promises."""

import copy
import io
import json
import math
import re
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.sources import FileStats, Limits, Reading, format_named
from art_otel.sources.agents.session import read_members
from art_otel.spans import Quarantined, Span
from tests.examples import examples

HERE = Path(__file__).parent
LOGS = {
    "claude-code": HERE / "claude_code.jsonl",
    "codex": HERE / "codex.jsonl",
    "gemini-cli": HERE / "gemini_cli.jsonl",
    "verifiers": HERE / "verifiers.jsonl",
    "agent-lightning": HERE / "agent_lightning.jsonl",
    "inspect-eval": HERE / "inspect.eval",
    "mini-swe-agent": HERE / "mini_swe_agent.json",
    "langsmith": HERE / "langsmith.jsonl",
    "opencode": HERE / "opencode.json",
    "swe-agent": HERE / "swe_agent.json",
    "atif": HERE.parent.parent / "exporters/atif/testdata/r-branching.json",
}
VALUES = st.sampled_from(
    [None, True, -1, 10**30, 1.5, "", "x", "\ud800", "2026-13-01", [], [None], [[]], {}, {"type": "tool_use"}, [{}]]
)
ID = re.compile(r"[0-9a-f]+")


def objects_of(name: str) -> list:
    if name == "inspect-eval":
        archive = io.BufferedReader(io.BytesIO(LOGS[name].read_bytes()))
        return [
            json.loads(one.data) for one in read_members(archive, 1 << 30, lambda name: name.startswith("samples/"))
        ]
    text = LOGS[name].read_text(encoding="utf-8")
    is_document = name in ("mini-swe-agent", "opencode", "swe-agent")
    return [json.loads(text)] if is_document else [json.loads(line) for line in text.splitlines()]


def bytes_of(name: str, objects: list) -> bytes:
    if name != "inspect-eval":
        return b"\n".join(json.dumps(one).encode() for one in objects)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        for number, one in enumerate(objects):
            members.writestr(f"samples/{number}.json", json.dumps(one))
    return archive.getvalue()


def paths(value, path=()):
    """The path of every value inside."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from paths(inner, (*path, key))


PATHS = {name: list(paths(objects_of(name))) for name in LOGS}


@pytest.mark.parametrize("name", LOGS)
@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_a_log_with_other_values_in_it(name, data):
    objects = copy.deepcopy(objects_of(name))
    for path in data.draw(st.lists(st.sampled_from(PATHS[name]), min_size=1, max_size=4)):
        holder = objects
        try:
            for key in path[:-1]:
                holder = holder[key]
            if data.draw(st.booleans()):
                holder[path[-1]] = copy.deepcopy(data.draw(VALUES))
            else:
                del holder[path[-1]]
        except (LookupError, TypeError):
            continue  # an earlier one took it away
    reading = Reading(path="log", limits=Limits(), stats=FileStats())
    for record in format_named(name).reads(io.BufferedReader(io.BytesIO(bytes_of(name, objects))), reading):
        assert isinstance(record, Span | Quarantined)
        if isinstance(record, Span):
            check(record)


def check(span: Span) -> None:
    """What a span promises (art_otel/spans/span.py)."""
    assert len(span.trace_id) == 32
    assert len(span.span_id) == 16
    assert ID.fullmatch(span.trace_id + span.span_id)
    assert 0 <= span.start_ns < 2**63
    assert span.end_ns is None or span.start_ns <= span.end_ns < 2**63
    for value in (span.name, span.status_message, *span.attributes, *span.attributes.values()):
        if isinstance(value, str):
            value.encode()
        assert not isinstance(value, float) or math.isfinite(value)
