"""The bodies of a call are scanned for secrets once, and no secret gets through for it."""

import json

import httpx2
import pytest
from opentelemetry.sdk.trace import SpanProcessor

from art_otel.scrubbing import Scrubber
from art_otel.tracing.openai import install
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.sdk.span_lines import SpanScrubber
from tests.scrubbing.secrets import SECRETS
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented

KEY = SECRETS["openai"][1]
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)

pytestmark = pytest.mark.usefixtures("uninstalled")


class Noting(SpanProcessor):
    """An app that puts something on the spans of its calls itself."""

    def __init__(self, note: str) -> None:
        self.note = note

    def on_start(self, span, parent_context=None):  # noqa: ARG002 # as it is called
        span.set_attribute("app.note", self.note)


def record(name, *, asked="Hi", answer='"Hello"', note="a note", scrubber=None) -> str:
    """All that the spans of one call say, after `answer` (JSON text) was the message's content."""

    def respond(_request):
        body = '{"id":"c","object":"chat.completion","created":1,"model":"m","prompt_token_ids":[1,2],"choices":[%s]}'
        choice = '{"index":0,"finish_reason":"stop","token_ids":[3],"message":{"role":"assistant","content":%s}}'
        return httpx2.Response(
            200, content=(body % (choice % answer)).encode(), headers={"content-type": "application/json"}
        )

    app = Instrumented("http://model/v1", rollouts=False)
    processors = app.provider._active_span_processor._span_processors
    recording = RecordingSpanProcessor(rewrites=[SpanScrubber(Scrubber())])
    app.provider._active_span_processor._span_processors = (Noting(note), recording, *processors)
    install(scrubber=scrubber or Scrubber())
    http = httpx2.Client(transport=httpx2.MockTransport(respond))
    with instrumented(name, app.provider), app.client(http_client=http) as client, app.rollout():
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": asked}])
    return json.dumps([dict(span.attributes) for span in app.exporter.get_finished_spans()], default=str)


@pytest.mark.parametrize("name", ["openllmetry", "genai", "openinference"])
def test_no_secret_of_a_body_is_written(name):
    clean = record(name)
    assert "art.scrubbed" not in clean
    assert "art.tokens.completion.0" in clean
    secrets = ({"asked": f"My key is {KEY}"}, {"answer": f'"It is {KEY}"'}, {"answer": f'"{ESCAPED}"'})
    for secret in secrets:
        written = record(name, **secret)
        assert KEY not in written
        assert ESCAPED not in written.replace("\\\\", "\\")
        assert "art.scrubbed.content" in written
        assert "art.tokens" not in written


def test_what_the_app_put_on_the_span_is_scanned_though_the_bodies_are_clean():
    written = record("openllmetry", note=f"of {KEY}")
    assert KEY not in written
    assert "art.tokens.completion.0" in written


def test_a_scrubber_of_other_patterns_scans_itself():
    assert KEY not in record("openllmetry", asked=KEY, scrubber=Scrubber("content"))
