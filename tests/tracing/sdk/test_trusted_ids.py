"""Whose rollout ids are believed where they come with a request: that of a stranger is none of ours."""

import json

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanProcessor

from art_otel.tracing.api.context import trust_rollout_ids
from tests.conversions import convert_files
from tests.examples import daily
from tests.tracing.sdk.spans import Traced
from tests.tracing.setup.programs import run_code

FOREIGN = {"art.rollout.id": "theirs"}


@pytest.fixture(autouse=True)
def run(monkeypatch):
    monkeypatch.setenv("ART_OTEL_RUN", "this-run")
    yield
    trust_rollout_ids("own")


class FromBaggage(SpanProcessor):
    """Copies baggage onto each span, as `opentelemetry-processor-baggage` does."""

    def on_start(self, span, parent_context=None):
        span.set_attributes({name: str(value) for name, value in baggage.get_all(parent_context).items()})


def asked(service: Traced, entries: dict[str, str]) -> set[str]:
    """The rollouts of a call in a request that came with this baggage, as the dump has them."""
    context = Context()
    for name, value in entries.items():
        context = baggage.set_baggage(name, value, context)
    token = otel_context.attach(context)
    with service.app.start_as_current_span("POST /", kind=trace.SpanKind.SERVER):
        service.call("q")
    otel_context.detach(token)
    found, _ = service.convert()
    assert [len(one.calls) for one in found] == [1]
    return {one.rollout_id for one in found}


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(
    ("trust", "run_of_caller", "is_joined"),
    [
        ("own", None, False),
        ("own", "another-run", False),
        ("own", "this-run", True),
        ("any", None, True),
        ("none", "this-run", False),
    ],
)
def test_an_id_is_believed_as_the_setting_says(tmp_path, trust, run_of_caller, is_joined, copies):
    service = Traced(tmp_path)
    if copies:
        processors = service.provider._active_span_processor._span_processors
        service.provider._active_span_processor._span_processors = (FromBaggage(), *processors)
    trust_rollout_ids(trust)
    entries = FOREIGN if run_of_caller is None else {**FOREIGN, "art_otel.run": run_of_caller}
    assert ("theirs" in asked(service, entries)) == is_joined


SERVICE = """
import json, sys
import art_otel
from opentelemetry import context, propagate, trace
context.attach(propagate.extract(json.loads(sys.argv[1])))
with trace.get_tracer("service").start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}):
    pass
"""
CALLER = """
import json, os, subprocess, sys
import art_otel
from opentelemetry import propagate
with art_otel.rollout(name="agent"):
    headers = {}
    propagate.inject(headers)
    del headers["traceparent"]
    environment = {name: value for name, value in os.environ.items() if name not in json.loads(sys.argv[2])}
    environment |= json.loads(sys.argv[3])
    subprocess.run([sys.executable, "-c", sys.argv[1], json.dumps(headers)], check=True, env=environment)
"""


@pytest.mark.parametrize(
    ("left_out", "settings", "rollouts"),
    daily(
        [(["ART_OTEL_RUN"], {}, 2), ([], {}, 1), (["ART_OTEL_RUN"], {"ART_OTEL_TRUST_ROLLOUT_IDS": "any"}, 1)], one_in=3
    ),
)
def test_a_child_process_joins_and_another_service_joins_where_it_is_set(tmp_path, left_out, settings, rollouts):
    arguments = [SERVICE, json.dumps(left_out), json.dumps(settings)]
    code = f"import sys; sys.argv += {arguments!r}\n{CALLER}"
    program = run_code(tmp_path, code, ART_OTEL_ENABLED="1")
    assert (program.code, program.errors) == (0, "")
    found, _ = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert len(found) == rollouts
