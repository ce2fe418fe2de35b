"""Both bodies of a request on a span are enough for messages, tools and exact tokens, whatever sent them."""

import json

import pytest

from tests.conversions import convert_files
from tests.live.comparison import check_calls
from tests.tracing import wire
from tests.tracing.server import Exchange


@pytest.mark.parametrize("more", [{}, {"n": 2}])
def test_both_bodies_on_a_span_are_enough(tmp_path, more):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Oslo?"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters}}],
        "logprobs": True,
        "return_token_ids": True,
        **more,
    }
    answer = wire.chat(body, "r-1")
    values = {
        "openinference.span.kind": "LLM",
        "input.mime_type": "application/json",
        "input.value": json.dumps(body),
        "output.mime_type": "application/json",
        "output.value": json.dumps(answer),
    }
    span = {
        "traceId": "ab" * 16,
        "spanId": "cd" * 8,
        "name": "chat",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
        "attributes": [{"key": name, "value": {"stringValue": value}} for name, value in values.items()],
    }
    dump = tmp_path / "dump.jsonl"
    dump.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n")
    (trajectory,), _ = convert_files(tmp_path / "out", dump)
    exchange = Exchange(path="/v1/chat/completions", headers={}, body=body, status=200, answer=answer)
    check_calls([trajectory], [exchange], tokens=True)
    assert trajectory.complete
    assert trajectory.calls[0].tools == tuple(body["tools"])
