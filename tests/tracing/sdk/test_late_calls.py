"""Calls that only their end shows to be calls, as frameworks' instrumentors write them: recorded as dumps have them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from art_otel.tracing.sdk.span_lines import OtlpJsonEncoder, without_content
from tests.conversions import convert_files
from tests.tracing.sdk.spans import Traced

FRAMEWORK = "openinference.instrumentation.langchain"


class Dump(SpanExporter):
    """The app's own dump of its spans, scopes and all."""

    def __init__(self, path):
        self.path = path

    def export(self, spans):
        with self.path.open("ab") as file:
            file.writelines(OtlpJsonEncoder().line(span) + b"\n" for span in spans)
        return SpanExportResult.SUCCESS


class Framework(Traced):
    """An app whose framework makes spans that are not current."""

    def __init__(self, folder, **options):
        super().__init__(folder, **options)
        self.dump = folder / "dump.jsonl"
        self.provider.add_span_processor(SimpleSpanProcessor(Dump(self.dump)))
        self.framework = self.provider.get_tracer(FRAMEWORK)

    @contextmanager
    def chain(self, name: str, above: Context | None = None) -> Iterator[Context]:
        span = self.framework.start_span(name, context=above)
        yield trace.set_span_in_context(span)
        span.end()

    @contextmanager
    def model(self, question: str, above: Context | None = None) -> Iterator[None]:
        """A model's span of LangChain by OpenInference: what it is it says before it ends."""
        span = self.framework.start_span("ChatOpenAI", context=above)
        yield
        span.set_attribute("openinference.span.kind", "LLM")
        span.set_attribute("llm.invocation_parameters", '{"model": "m"}')
        for direction, role, text in (("input", "user", question), ("output", "assistant", "a")):
            span.set_attribute(f"llm.{direction}_messages.0.message.role", role)
            span.set_attribute(f"llm.{direction}_messages.0.message.content", text)
        span.end()

    def convert(self):
        """As Traced; the app's own dump gives the same."""
        trajectories, report = super().convert()
        dumped, _ = convert_files(self.folder / "dumped", self.dump)
        assert dumped == trajectories
        return trajectories, report


def test_the_chain_around_a_call_is_the_rollout(tmp_path):
    app = Framework(tmp_path)
    with app.chain("RunnableSequence") as inside:
        app.framework.start_span("ChatPromptTemplate", context=inside).end()
        for question in ("one", "two"):
            with app.model(question, inside):
                pass
    (found,), report = app.convert()
    assert (found.name, len(found.calls), found.status, found.complete) == ("RunnableSequence", 2, "ok", True)
    assert report.spans.used == 4


def test_a_call_that_nothing_is_around_joins_the_process(tmp_path):
    app = Framework(tmp_path)
    for question in ("one", "two"):
        with app.model(question):
            pass
    (found,), _ = app.convert()
    assert (found.name, len(found.calls), found.complete) == ("app.py", 2, True)


def test_without_a_rollout_of_the_process_it_is_its_own(tmp_path):
    app = Framework(tmp_path, own=False, about={"art.split": "val"})
    with app.model("one"):
        pass
    (found,), _ = app.convert()
    assert (found.name, found.split, len(found.calls), found.complete) == ("ChatOpenAI", "val", 1, True)


@pytest.mark.parametrize("in_chain", [False, True])
def test_a_call_that_the_client_s_instrumentor_saw_too_is_one_call(tmp_path, in_chain):
    app = Framework(tmp_path)
    with app.chain("RunnableSequence") as inside, app.model("one", inside if in_chain else None):
        app.call("one")
    (found,), _ = app.convert()
    assert (found.name, len(found.calls), found.complete) == ("app.py", 1, True)


def test_branches_that_ran_before_a_call_started_are_in_its_rollout(tmp_path):
    app = Framework(tmp_path)
    with app.chain("GET /ask") as inside, app.chain("left", inside) as left, app.chain("right", inside) as right:
        for branch in (left, right):
            with trace.use_span(trace.get_current_span(branch)):
                app.call("one")
    (found,), report = app.convert()
    assert (found.name, len(found.calls), found.complete) == ("GET /ask", 2, True)
    assert report.spans.used == 5


def test_in_a_rollout_it_is_a_span_as_any(tmp_path):
    app = Framework(tmp_path)
    with app.rollout("agent", "r1"), app.chain("RunnableSequence") as inside, app.model("one", inside):
        app.call("one")
    (found,), _ = app.convert()
    assert (found.rollout_id, len(found.calls), found.complete) == ("r1", 1, True)


def test_what_is_no_call_begins_nothing(tmp_path):
    app = Framework(tmp_path)
    with app.chain("RunnableSequence") as inside:
        span = app.framework.start_span("retriever", context=inside)
        span.set_attribute("openinference.span.kind", "RETRIEVER")
        span.end()
    app.processor.shutdown()
    assert not (tmp_path / "spool").exists()


def test_what_a_rewrite_takes_out_nobody_gets(tmp_path):
    app = Framework(tmp_path, rewrites=[_emptied])
    with app.model("secret"):
        pass
    app.processor.shutdown()
    assert b"ChatOpenAI" in app.dump.read_bytes()
    assert b"secret" not in app.dump.read_bytes()


def _emptied(span):
    without_content(span)
    return span


def test_branches_that_ran_before_it_was_known_are_in_the_rollout(tmp_path):
    app = Framework(tmp_path)
    with app.chain("Parallel") as inside, app.chain("left", inside) as left, app.chain("right", inside) as right:
        tool = app.framework.start_span("tool", context=right)
        with app.model("two", right), app.model("one", left):
            pass
        tool.end()
        with trace.use_span(trace.get_current_span(right)):
            app.call("three")
    (found,), report = app.convert()
    assert (found.name, len(found.calls), found.complete) == ("Parallel", 3, True)
    assert report.spans.used == 7
