"""The processor: each span in its rollout, nothing raised, live and spool equal."""

import random
import threading
from collections import OrderedDict

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind

from art_otel.live import RolloutBuffer
from art_otel.tracing.api.context import SCOPE
from art_otel.tracing.sdk.rollout_registry import MAX_BYTES
from art_otel.tracing.sdk.span_lines import without_content
from art_otel.tracing.setup.providers import RolloutSampler, SystemIdGenerator
from tests.tracing.sdk.spans import INSTRUMENTOR, Traced


def names(trajectories):
    return {trajectory.name: len(trajectory.calls) for trajectory in trajectories}


def test_a_declared_rollout_has_its_spans(tmp_path):
    app = Traced(tmp_path)
    with app.rollout("agent", "r1"), app.app.start_as_current_span("tool"):
        app.call("one")
        app.call("two")
    (found,), report = app.convert()
    assert (found.rollout_id, found.name, len(found.calls), found.complete) == ("r1", "agent", 2, True)
    assert report.spans.used == 4


def test_calls_that_nothing_is_around_join_the_process(tmp_path):
    app = Traced(tmp_path)
    threads = [threading.Thread(target=app.call, args=(f"q{number}",)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (found,), _ = app.convert()
    assert (found.name, len(found.calls), found.status, found.complete) == ("app.py", 5, "ok", True)


def test_an_instrumentors_span_around_the_clients_own_joins_the_process(tmp_path):
    """Anthropic's client traces itself below the span of OpenInference, whose name says nothing and whose kind does."""
    traced = Traced(tmp_path)
    openinference = traced.provider.get_tracer("openinference.instrumentation.anthropic")
    client = traced.provider.get_tracer("com.anthropic.sdk.python")
    for number in range(2):
        kind, operation = {"openinference.span.kind": "LLM"}, {"gen_ai.operation.name": "chat"}
        with openinference.start_as_current_span("messages.create", attributes=kind) as call:
            client.start_span("anthropic.messages.create", attributes=operation).end()
            call.set_attribute("llm.input_messages.0.message.role", "user")
            call.set_attribute("llm.input_messages.0.message.content", f"q{number}")
            call.set_attribute("llm.output_messages.0.message.role", "assistant")
            call.set_attribute("llm.output_messages.0.message.content", "a")
    (trajectory,), _ = traced.convert()
    assert (trajectory.name, len(trajectory.calls)) == ("app.py", 2)


def test_a_span_around_a_call_is_the_rollout(tmp_path):
    app = Traced(tmp_path)
    with app.app.start_as_current_span("GET /ask"):
        with app.app.start_as_current_span("db"):
            pass
        with app.app.start_as_current_span("agent"):
            app.call("one")
    with app.app.start_as_current_span("GET /health"), app.app.start_as_current_span("db"):
        pass
    (found,), report = app.convert()
    assert (found.name, len(found.calls), found.complete) == ("GET /ask", 1, True)
    assert report.spans.used == 4
    assert report.spans.ignored == {"start of a span that ended": 2}


def test_spans_that_match_a_glob_are_rollouts(tmp_path):
    app = Traced(tmp_path, rollout_spans=["solve *"])
    with app.app.start_as_current_span("train"):
        for task in "ab":
            with app.app.start_as_current_span(f"solve {task}"):
                app.call(task)
    assert names(app.convert()[0]) == {"solve a": 1, "solve b": 1}


def test_nested_rollouts_keep_their_own(tmp_path):
    app = Traced(tmp_path)
    with app.rollout("outer", "o"):
        app.call("one")
        with app.rollout("inner", "i"):
            app.call("two")
    inner, outer = app.convert()[0]
    assert (inner.name, inner.parent_rollout_id, len(inner.calls), inner.complete) == ("inner", "o", 1, True)
    assert (outer.name, len(outer.calls), outer.complete) == ("outer", 1, True)


def test_baggage_brings_a_rollout_from_another_service(tmp_path, monkeypatch):
    monkeypatch.setenv("ART_OTEL_RUN", "run")
    app = Traced(tmp_path)
    remote = trace.NonRecordingSpan(trace.SpanContext(7, 8, is_remote=True, trace_flags=trace.TraceFlags(1)))
    context = trace.set_span_in_context(remote, baggage.set_baggage("art.rollout.id", "far", Context()))
    context = baggage.set_baggage("art_otel.run", "run", context)
    with app.app.start_as_current_span("GET /tool", context=context):
        app.call("one")
    (found,), _ = app.convert()
    assert (found.rollout_id, len(found.calls)) == ("far", 1)
    assert "missing root" in found.incomplete_reasons


def test_a_child_that_starts_after_its_parent_ended_still_belongs(tmp_path):
    app = Traced(tmp_path)
    with app.rollout("agent", "r1") as root:
        context = trace.set_span_in_context(root)
        with app.app.start_as_current_span("tool") as tool:
            late = trace.set_span_in_context(tool, context)
    app.app.start_span("late", context=late).end()
    (found,), report = app.convert()
    assert found.rollout_id == "r1"
    assert report.spans.used == 3


def test_what_never_ended_is_unfinished(tmp_path):
    app = Traced(tmp_path)
    with app.rollout("agent", "r1"):
        app.instrumentor.start_span("openai.chat", kind=trace.SpanKind.CLIENT)
        app.spool.flush()
        trajectories, _ = app.convert()
    assert [(one.status, one.incomplete_reasons["not ended"]) for one in trajectories] == [("unfinished", 2)]


def test_the_start_of_a_call_is_written_for_those_who_look_before_it_ends(tmp_path):
    app = Traced(tmp_path)
    app.app = app.provider.get_tracer(SCOPE)
    with app.rollout("agent", "r1"):
        span = app.instrumentor.start_span("openai.chat", attributes={"gen_ai.operation.name": "chat"})
        assert app.processor.spool.counts.written == 1
        assert [call.end_ns for call in app.rollouts.calls("r1")] == [None]
        assert len(app.rollouts.calls("r1")) == 1
        assert app.processor.spool.counts.written == 2
        app.call("one")
        assert app.processor.spool.counts.written == 3
        span.end()
    (found,), _ = app.convert()
    assert [call.end_ns is None for call in found.calls] == [False, False]


def test_what_never_ended_is_named(tmp_path, caplog):
    app = Traced(tmp_path)
    with app.rollout("agent", "r1"):
        app.app.start_span("Crew Created")
    app.app.start_span("of no rollout")
    (found,), _ = app.convert()
    assert found.complete, "nobody certified it"
    assert "spans of rollouts have not ended, so that their trajectories are incomplete: Crew Created\n" in caplog.text
    assert "of no rollout" not in caplog.text


def test_a_call_keeps_its_step_though_the_step_never_ended(tmp_path):
    app = Traced(tmp_path)
    with (
        app.rollout("agent", "r1"),
        app.app.start_as_current_span("step 3", attributes={"art.step.index": 3}),
    ):
        app.call("one")
        app.spool.flush()
        (found,), _ = app.convert()
    assert [call.step for call in found.calls] == [3]
    assert found.incomplete_reasons["not ended"] == 2


def test_rollouts_are_recorded_whatever_the_app_samples(tmp_path):
    exported = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    app = Traced(tmp_path, provider=provider)
    provider.sampler = RolloutSampler(provider.sampler)
    provider.add_span_processor(SimpleSpanProcessor(exported))
    app.app, app.instrumentor = provider.get_tracer("app 2"), provider.get_tracer(INSTRUMENTOR, "2")
    with app.rollout("agent", "r1"), app.app.start_as_current_span("tool"):
        app.call("one")
    with app.app.start_as_current_span("request"):
        app.call("nobody marked its rollout")
    app.call("nothing is around it")
    with app.app.start_as_current_span("other") as other:
        assert not other.get_span_context().trace_flags.sampled
    found, _ = app.convert()
    assert {one.name: (len(one.calls), one.complete) for one in found} == {
        "agent": (1, True),
        "request": (1, True),
        "app.py": (1, True),
    }
    assert exported.get_finished_spans() == ()


def test_queries_that_the_app_does_not_sample_are_recorded_in_rollouts_only(tmp_path):
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    app = Traced(tmp_path, provider=provider)
    provider.sampler = RolloutSampler(provider.sampler)
    app.app, app.instrumentor = provider.get_tracer("app 2"), provider.get_tracer(INSTRUMENTOR, "2")

    def ask_others():
        query = app.app.start_span("SELECT", attributes={"db.system.name": "postgresql"})
        request = app.app.start_span("GET", kind=SpanKind.CLIENT, attributes={"http.request.method": "GET"})
        assert not any(span.get_span_context().trace_flags.sampled for span in (query, request))
        query.end()
        request.end()
        return hasattr(query, "attributes")

    with app.app.start_as_current_span("POST /solve", attributes={"http.request.method": "POST"}):
        before = ask_others()
        app.call("nobody marked its rollout")
        after = ask_others()
    with app.rollout("agent", "r1"):
        inside = ask_others()
    assert (before, after, inside) == (False, True, True)
    found, report = app.convert()
    assert {one.name: (len(one.calls), one.complete) for one in found} == {
        "POST /solve": (1, True),
        "agent": (0, True),
    }
    assert report.spans.used == 3 + 1 + 1 + 2


def test_ids_do_not_depend_on_random():
    found = set()
    for _ in range(100):
        random.seed(1)
        found.add((SystemIdGenerator().generate_trace_id(), SystemIdGenerator().generate_span_id()))
    assert len(found) == 100


@pytest.mark.parametrize("where", ["_start", "_end", "_flush", "_shut_down"])
def test_faults_stay_here(tmp_path, where, monkeypatch, caplog):
    app = Traced(tmp_path)

    def fail(*_args):
        raise RuntimeError("a fault")

    monkeypatch.setattr(app.processor, where, fail)
    for _ in range(100):
        with app.rollout("agent", "r1"):
            app.call("one")
        app.processor.force_flush()
        app.processor.shutdown()
    assert app.processor.faults == {"_start": 200, "_end": 200}.get(where, 100)
    assert 0 < len(caplog.records) < 10
    assert app.processor.force_flush() is False


def test_a_rewrite_that_fails_writes_nothing(tmp_path):
    def fail(_span):
        raise RuntimeError("a fault")

    app = Traced(tmp_path, rewrites=[fail])
    with app.rollout("agent", "r1"):
        app.call("a secret")
    assert b"a secret" not in b"".join(path.read_bytes() for path in (tmp_path / "spool").glob("*"))


def test_memory_is_bounded_and_the_spool_has_it_all(tmp_path, caplog):
    app = Traced(tmp_path, rollouts=RolloutBuffer(max_open=4, grace=60))
    for number in range(10):
        with app.rollout("agent", f"r{number}"):
            for question in range(3):
                app.call(f"q{question}")
    assert app.rollouts.evicted > 0
    assert "no longer assembled live" in caplog.text
    trajectories, _ = app.convert()
    assert [(one.rollout_id, len(one.calls), one.complete) for one in trajectories] == [
        (f"r{number}", 3, True) for number in range(10)
    ]


def test_what_is_done_is_let_go(tmp_path):
    app = Traced(tmp_path, rollouts=RolloutBuffer(grace=0))
    for number in range(3):
        with app.rollout("agent", f"r{number}"):
            app.call("q")
    assert app.rollouts.trajectory("r0") is None
    assert app.rollouts.has_ended("r0")


class EndsAtAnyTime(OrderedDict):
    """Running spans, of which another thread ends one right after it was looked for."""

    def __init__(self, running, span) -> None:
        super().__init__(running)
        self.span = span

    def __contains__(self, key) -> bool:
        is_there = super().__contains__(key)
        if is_there and self.span is not None:
            span, self.span = self.span, None
            span.end()
        return is_there


def test_a_parent_that_ends_while_its_child_starts_costs_no_rollout(tmp_path):
    traced = Traced(tmp_path)
    with traced.rollout("innocent", "r1"):
        outside = otel_context.attach(Context())
        parent = traced.app.start_span("parent")
        registry = traced.processor.registry
        registry._running = EndsAtAnyTime(registry._running, parent)
        with trace.use_span(parent, end_on_exit=False):
            traced.call("one")
        parent.end()
        otel_context.detach(outside)
    assert traced.processor.faults == 0
    found, _ = traced.convert()
    assert {one.rollout_id: one.complete for one in found}["r1"]


def test_whether_a_rollout_has_calls_is_known_without_reading_lines(tmp_path, monkeypatch):
    traced = Traced(tmp_path)
    monkeypatch.setattr("art_otel.spool.SpooledLine.read", None)
    with traced.rollout("agent", "r1"):
        assert not traced.rollouts.has_llm_calls("r1")
        traced.call("one")
        assert traced.rollouts.has_llm_calls("r1")
    with traced.rollout("late", "r2"), traced.app.start_as_current_span("only its end says so") as span:
        span.set_attribute("openinference.span.kind", "LLM")
    assert traced.rollouts.has_llm_calls("r2")


def test_spans_that_wait_for_a_rollout_are_bounded_by_their_text(tmp_path):
    traced = Traced(tmp_path)
    with traced.app.start_as_current_span("a worker's loop"):
        for _ in range(3 * MAX_BYTES // 1_000_000):
            with traced.app.start_as_current_span("job", attributes={"document": "x" * 1_000_000}):
                pass
    pending = traced.processor._pending
    assert sum(len(spans) for spans in pending._traces.values()) * 1_000_000 <= MAX_BYTES


def test_a_call_that_runs_around_a_nested_rollout_is_shown_in_both(tmp_path):
    app = Traced(tmp_path)
    app.app = app.provider.get_tracer(SCOPE)
    with app.rollout("outer", "o"):
        call = app.instrumentor.start_span("openai.chat", attributes={"gen_ai.operation.name": "chat"})
        with trace.use_span(call), app.rollout("inner", "i"):
            app.call("one")
        assert [one.end_ns is None for one in app.rollouts.calls("o")] == [True]
        call.end()
    inner, outer = app.convert()[0]
    assert (len(inner.calls), len(outer.calls)) == (1, 1)


@pytest.mark.parametrize("rewrites", [(), (without_content,)])
def test_a_rollouts_span_says_what_was_first_asked_and_last_answered(tmp_path, rewrites):
    traced, exporter = Traced(tmp_path, rewrites=rewrites), InMemorySpanExporter()
    traced.provider.add_span_processor(SimpleSpanProcessor(exporter))
    with traced.rollout("r", "r"):
        traced.call("first", "one")
        traced.call("second", "two")
        with traced.instrumentor.start_as_current_span("openai.chat", kind=SpanKind.CLIENT) as judge:
            judge.set_attribute("gen_ai.operation.name", "chat")
            judge.set_attribute("gen_ai.request.model", "judge")
    *_, root = exporter.get_finished_spans()
    shown = {name: root.attributes.get(name) for name in ("openinference.span.kind", "input.value", "output.value")}
    (trajectory,), _ = traced.convert()
    assert len(trajectory.calls) == 3
    if rewrites:
        assert set(shown.values()) == {None}
    else:
        assert shown == {"openinference.span.kind": "CHAIN", "input.value": "first", "output.value": "two"}
        assert [call.input_messages[0].content for call in trajectory.calls[:2]] == ["first", "second"]
