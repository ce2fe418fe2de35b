"""Calls in the name of another process that handed on its trace and nothing else, as most services do."""

from contextlib import contextmanager

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.conversions import convert_files
from tests.tracing.sdk.spans import Traced
from tests.tracing.sdk.test_late_calls import Dump, Framework

TRACE_ALONE = TraceContextTextMapPropagator()


class Caller:
    """An app with nothing but OTel's SDK, and its dump."""

    def __init__(self, folder):
        self.dump = folder / "caller.jsonl"
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(Dump(self.dump)))
        self.app = self.provider.get_tracer("caller")

    def span(self, name, **attributes):
        named = {f"art.{key.replace('_', '.')}": value for key, value in attributes.items()}
        return self.app.start_as_current_span(name, attributes=named)

    def rollout(self, number):
        return self.span("rollout task", rollout_id=f"r{number}", reward=float(number))


@contextmanager
def arriving():
    """Inside, what came with a request of the code around is current, as a web framework makes it; no baggage."""
    headers = {}
    TRACE_ALONE.inject(headers)
    token = otel_context.attach(TRACE_ALONE.extract(headers, otel_context.Context()))
    yield
    otel_context.detach(token)


def direct(service):
    service.call("q")


def served(service):
    with service.app.start_as_current_span("POST /", kind=trace.SpanKind.SERVER):
        service.call("q")


def shown_by_its_end(service):
    with service.model("q"):
        pass


WAYS = pytest.mark.parametrize("ask", [direct, served, shown_by_its_end])


def together(service, *others):
    """Of the service's spool and other dumps, of which every span is used: the calls of each rollout, and these."""
    service.processor.shutdown()
    found, report = convert_files(service.folder / "together", service.folder / "spool", *others)
    assert report.spans.used == report.spans.read - report.spans.ignored.get("start of a span that ended", 0)
    return {one.rollout_id: len(one.calls) for one in found}, found


@WAYS
@pytest.mark.parametrize("own", [True, False])
def test_a_call_belongs_to_the_rollout_that_asked(tmp_path, ask, own):
    caller, service = Caller(tmp_path), Framework(tmp_path, own=own)
    for number in range(2):
        with caller.rollout(number), caller.span("POST"), arriving():
            ask(service)
    calls, found = together(service, caller.dump)
    assert calls == {"r0": 1, "r1": 1}
    assert [(one.complete, one.reward, one.metadata) for one in found] == [(True, 0.0, {}), (True, 1.0, {})]


@WAYS
def test_without_the_caller_s_spans_it_is_a_rollout_as_it_was(tmp_path, ask):
    caller, service = Caller(tmp_path), Framework(tmp_path)
    for number in range(2):
        with caller.rollout(number), arriving():
            ask(service)
    found, _ = service.convert()
    assert [(len(one.calls), one.complete, one.metadata) for one in found] == [(1, True, {}), (1, True, {})]


@WAYS
def test_a_caller_that_names_no_rollout_is_one(tmp_path, ask):
    caller, service = Caller(tmp_path), Framework(tmp_path)
    with caller.span("agent") as root:
        for _ in range(2):
            with arriving():
                ask(service)
    calls, (found,) = together(service, caller.dump)
    assert calls == {f"{root.get_span_context().trace_id:032x}": 2}
    assert (found.name, found.complete) == ("agent", True)


@WAYS
def test_a_chain_of_services_is_one_rollout(tmp_path, ask):
    caller, first, second = Caller(tmp_path), Framework(tmp_path / "first"), Framework(tmp_path / "second")
    with caller.rollout(0), arriving():
        first.call("plan")
        with first.app.start_as_current_span("POST /"):
            with arriving():
                ask(second)
            first.call("sum up")
    second.processor.shutdown()
    calls, (found,) = together(first, second.folder / "spool", caller.dump)
    assert calls == {"r0": 3}
    assert found.complete
    without_caller, _ = convert_files(tmp_path / "services", first.folder / "spool", second.folder / "spool")
    assert [len(one.calls) for one in without_caller] == [3]


@WAYS
def test_caller_and_service_in_one_process(tmp_path, ask):
    app = Framework(tmp_path)
    for number in range(2):
        with app.rollout("task", f"r{number}"), arriving():
            ask(app)
    with app.app.start_as_current_span("nobody named it"), arriving():
        ask(app)
    found, _ = app.convert()
    assert {one.name: len(one.calls) for one in found} == {"task": 1, "nobody named it": 1}
    assert len(found) == 3
    assert all(one.complete for one in found)


def test_what_the_caller_counted_and_nobody_has_is_missing_all_the_same(tmp_path):
    caller, service = Caller(tmp_path), Traced(tmp_path)
    with caller.span("rollout task", rollout_id="r", rollout_spans_started=4, rollout_spans_ended=4), arriving():
        served(service)
    _, (found,) = together(service, caller.dump)
    assert found.incomplete_reasons == {"spans missing": 4}


def test_calls_below_one_span_of_another_process_are_one_rollout(tmp_path):
    caller, service = Caller(tmp_path), Framework(tmp_path)
    for _ in range(2):
        with caller.span("agent"), arriving(), service.model("one"):
            service.call("one")
            service.call("two")
    found, _ = service.convert()
    assert [len(one.calls) for one in found] == [2, 2]


def test_a_call_whose_parent_ended_belongs_to_that_and_not_to_the_process(tmp_path):
    app = Framework(tmp_path)
    with app.chain("no call is in it") as inside:
        pass
    for question in ("one", "two"):
        with trace.use_span(trace.get_current_span(inside)):
            app.call(question)
    app.call("by itself")
    app.processor.shutdown()
    for dumps, name in (([], "openai.chat"), ([app.dump], "no call is in it")):
        found, _ = convert_files(tmp_path / name, tmp_path / "spool", *dumps)
        assert {one.name: len(one.calls) for one in found} == {name: 2, "app.py": 1}
