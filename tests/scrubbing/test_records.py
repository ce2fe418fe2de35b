"""A live span, the same span as it is received, and a log are scrubbed by one scrubber, with one result."""

import pytest

from art_otel.conventions.content_names import CONTENT_NAMES
from art_otel.scrubbing import RecordScrubber, Scrubber
from art_otel.scrubbing.scrubber import scrub_records
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import LogRecord, Span
from art_otel.tracing.sdk.span_lines import SpanScrubber
from tests.scrubbing.secrets import SECRETS
from tests.tracing.sdk.rewritten import App
from tests.tracing.sdk.test_scrub_spans import call, spill

KEY = SECRETS["openai"][1]


def spans_of(app: App) -> list[Span]:
    app.everything()
    records = [one for source in find_inputs([app.file]) for one in read_file(source, FileStats())]
    return sorted((one for one in records if isinstance(one, Span)), key=lambda span: span.start_ns)


def said(span: Span) -> tuple:
    """All that a span says, without what differs from one run to the next."""
    parts = [(event.name, event.attributes) for event in span.events], [link.attributes for link in span.links]
    return span.name, span.attributes, *parts, span.status_message, span.scope, span.resource


@pytest.mark.parametrize("mode", ["on", "content", "mark"])
def test_received_spans_come_out_as_live_ones(mode, tmp_path):
    for name in ("live", "plain"):
        (tmp_path / name).mkdir()
    live, plain = App(tmp_path / "live", SpanScrubber(Scrubber(mode))), App(tmp_path / "plain")
    for app in (live, plain):
        for _, secret in SECRETS.values():
            spill(app, secret)
        call(app, KEY, "ok", **{"http.request.header.authorization": ("x",), "prompt_token_ids": (1, 2)})
        call(app, "write to jane@corp.io", "ok")
        call(app, "nothing", "to hide")
    received = list(scrub_records(spans_of(plain), RecordScrubber(Scrubber(mode), CONTENT_NAMES)))
    assert [said(span) for span in received] == [said(span) for span in spans_of(live)]


def test_records_without_secrets_are_the_very_same(tmp_path):
    app = App(tmp_path)
    call(app, "nothing", "to hide")
    log = LogRecord(trace_id="", span_id="", event_name="gen_ai.choice", time_ns=1, body={"password": "is spoken"})
    records = [*spans_of(app), log]
    scrubbed = list(scrub_records(records, RecordScrubber(Scrubber(), CONTENT_NAMES)))
    assert all(before is after for before, after in zip(records, scrubbed, strict=True))
