"""What real stores and the real console exporter wrote, as records and as trajectories."""

import io
import json
from pathlib import Path

import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, Status, StatusCode

from tests.conversions import convert_files
from tests.sources.requests import damages_of, read_bytes

EXPORTS = Path(__file__).parent.parent / "exports"


@pytest.mark.parametrize(
    ("name", "known", "rollouts"),
    [
        ("phoenix_rest_spans.json", "phoenix-json", ["r198", "r199"]),
        ("mlflow_traces.json", "mlflow-json", ["r293", "r295", "r297", "r299"]),
    ],
)
def test_a_real_export_is_trajectories(name, known, rollouts, tmp_path):
    trajectories, report = convert_files(tmp_path, EXPORTS / name)
    assert report.files[0].format == known
    assert not report.quarantine
    assert [trajectory.rollout_id for trajectory in trajectories] == rollouts
    assert report.calls.completed == report.calls.total == 2 * len(rollouts)
    for trajectory in trajectories:
        (reward,) = trajectory.rewards
        assert reward.value == float(trajectory.rollout_id[1:]) + 0.5
        first, second = trajectory.calls
        assert [message.role for message in first.input_messages] == ["system", "user"]
        assert first.input_messages[1].content == "turn 0 é ☃ "
        assert len(second.input_messages) == 4
        assert [call.choices[0].message.content for call in trajectory.calls] == ["ok 0", "ok 1"]
        assert {call.choices[0].finish_reason for call in trajectory.calls} == {"stop"}
        assert (first.request_model, first.parameters) == ("gpt-x", {"temperature": 1.0})
        assert (first.usage.input_tokens, first.usage.output_tokens) == (11, 7)


def test_a_record_of_phoenix(tmp_path):
    records, _ = read_bytes(tmp_path, (EXPORTS / "phoenix_rest_spans.json").read_bytes())
    root, call, *_ = records
    assert (root.trace_id, root.span_id) == ("b9541be634f5b7aab1218c2e66ae006f", "5b6c9b14db7d46c1")
    assert (root.parent_span_id, call.parent_span_id) == (None, "5b6c9b14db7d46c1")
    assert root.attributes["openinference.span.kind"] == "AGENT"
    assert root.attributes["art.metrics.keys"] == ["a", "b"]
    assert (root.start_ns, root.end_ns) == (1795187123394419000, 1795187123394545000)
    assert call.attributes["llm.input_messages.1.message.content"] == "turn 0 é ☃ "
    assert [(event.name, event.attributes) for event in call.events] == [
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop"})
    ]


def test_a_record_of_mlflow(tmp_path):
    records, _ = read_bytes(tmp_path, (EXPORTS / "mlflow_traces.json").read_bytes())
    root, call, *_ = records
    assert (root.trace_id, root.span_id) == ("e6c43dfc11b88d072455ae5bdb5a7b0b", "2960bd2805d56b6e")
    assert call.parent_span_id == root.span_id
    assert root.attributes["art.rollout.id"] == "r299"
    assert root.attributes["art.reward"] == 299.5
    assert root.attributes["art.ok"] is True
    assert root.attributes["art.metrics.keys"] == ["a", "b"]
    assert root.resource.attributes["service.name"] == "art-rollouts"
    assert json.loads(call.attributes["gen_ai.input.messages"])[0]["role"] == "system"
    assert call.events[0].attributes == {"index": 0, "finish_reason": "stop"}


def test_the_console_exporter_of_a_running_program(tmp_path):
    out, memory = io.StringIO(), InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "agent", "ports": [1, 2]}))
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out)))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("lib")
    with tracer.start_as_current_span(
        "outer", attributes={"flag": True, "list": [0.5, 1.5], "text": 'a "b"\n'}
    ) as outer:
        out.write("step 1 of {3\n")
        with tracer.start_as_current_span("inner", links=[Link(outer.get_span_context(), {"why": "test"})]) as inner:
            inner.add_event("happened", {"count": 3})
            inner.set_status(Status(StatusCode.ERROR, "no luck"))
        out.write("[done] ")
    records, account = read_bytes(tmp_path, out.getvalue().encode())
    assert (account.format, account.quarantined, account.not_in_format[0]) == ("console", 0, "instrumentation scope")
    for found, written in zip(records, memory.get_finished_spans(), strict=True):
        assert (found.name, found.kind) == (written.name, "internal")
        assert int(found.span_id, 16) == written.context.span_id
        assert found.parent_span_id == (f"{written.parent.span_id:016x}" if written.parent else None)
        assert found.attributes == {
            name: list(v) if isinstance(v, tuple) else v for name, v in written.attributes.items()
        }
        assert abs(found.start_ns - written.start_time) <= 1000
        assert found.resource.attributes["ports"] == [1, 2]
    inner, outer = records
    assert (inner.status, inner.status_message) == ("error", "no luck")
    assert (inner.events[0].name, inner.events[0].attributes) == ("happened", {"count": 3})
    assert (inner.links[0].span_id, inner.links[0].attributes) == (outer.span_id, {"why": "test"})


def test_the_console_of_a_program_that_logs(tmp_path):
    out = io.StringIO()
    provider, loggers = TracerProvider(), LoggerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out)))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(ConsoleLogRecordExporter(out=out)))
    logger = loggers.get_logger("lib")
    bodies = ["a line", None, 5, {"content": 'hi "{', "list": [{"a": [1, {"b": None}]}]}]
    logger.emit(LogRecord(body="outside of any span"))
    with provider.get_tracer("lib").start_as_current_span("call"):
        for body in bodies:
            out.write('progress {"a": 1\n')
            logger.emit(LogRecord(event_name="e", body=body, attributes={"n": 1}))
    out.write('{"trace_id": "0x1", "msg": "what a program logs by itself"}\n')
    records, account = read_bytes(tmp_path, out.getvalue().encode())
    assert (account.format, account.spans, account.log_records, account.quarantined) == ("console", 1, 4, 0)
    assert account.logs_without_span == 1
    *found, call = records
    assert {one.key for one in found} == {call.key}
    assert [(one.event_name, one.body, one.attributes) for one in found] == [("e", body, {"n": 1}) for body in bodies]
    assert all(call.start_ns - 1000 <= one.time_ns <= call.end_ns for one in found)
    records, account = read_bytes(tmp_path, out.getvalue().replace('"hi', '"\x00hi').encode())
    assert [(one.reason, one.kind, one.span_id) for one in damages_of(records)] == [("not JSON", "unknown", None)]
    assert (account.spans, account.log_records) == (1, 3)
