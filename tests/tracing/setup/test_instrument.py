"""The client is instrumented once, by whoever asked first or by the app, with real instrumentors in real processes."""

import sys
from importlib.metadata import EntryPoint

import pytest
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from art_otel.tracing.setup.instrument import Instrumentation, installed_instrumentors, is_disabled
from tests.tracing.setup.programs import ASK, asking, run_code

INSTRUMENTOR = """
import os
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from opentelemetry.instrumentation.utils import unwrap
import wrapt
def wrap(wrapped, instance, args, kwargs):
    with Instrumentor.tracer.start_as_current_span("chat mine", attributes={"gen_ai.operation.name": "chat"}):
        return wrapped(*args, **kwargs)
class Instrumentor(BaseInstrumentor):
    def instrumentation_dependencies(self):
        return ["openai"] if not os.environ.get("MINE_NEEDS") else [os.environ["MINE_NEEDS"]]
    def _instrument(self, tracer_provider=None, **kwargs):
        if os.environ.get("MINE_FAILS"):
            raise OSError("mine fails")
        Instrumentor.tracer = trace.get_tracer("openai.mine", tracer_provider=tracer_provider)
        wrapt.wrap_function_wrapper("openai.resources.chat.completions", "Completions.create", wrap)
    def _uninstrument(self, **kwargs):
        unwrap("openai.resources.chat.completions.Completions", "create")
"""
"""One that nobody has heard of, in a distribution of its own."""


@pytest.fixture
def program(tmp_path, server):
    """Runs code where `mine` is the only instrumentor that is installed."""
    (tmp_path / "mine.py").write_text(INSTRUMENTOR)
    metadata = tmp_path / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[opentelemetry_instrumentor]\nopenai = mine:Instrumentor\n")
    hide = """
import importlib.metadata as metadata
every = metadata.entry_points
def only_mine(**kwargs):
    return tuple(found for found in every(**kwargs) if found.name != "openai" or found.module == "mine")
metadata.entry_points = only_mine
"""

    def run(code: str, **settings: str):
        return run_code(tmp_path, hide + code, ART_OTEL_ENABLED="1", **asking(server), **settings)

    return run


@pytest.mark.long
def test_an_instrumentor_that_nobody_knows_is_used_where_it_is_the_only_one(program):
    found = program(f"import art_otel{ASK}")
    assert (found.code, found.errors) == (0, "")
    assert found.ended == ["chat mine", "rollout app.py"]


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [{"MINE_FAILS": "1"}, pytest.param({"MINE_NEEDS": "openai < 1"}, marks=pytest.mark.program)]
)
def test_an_instrumentor_that_does_not_start_does_not_stop_the_app(program, settings):
    found = program(f"import art_otel{ASK}", **settings)
    assert (found.code, found.ended) == (0, ["chat m", "rollout app.py"])
    assert ("mine fails" in found.errors) == ("MINE_FAILS" in settings)


@pytest.mark.long
def test_ours_gives_way_to_the_app_s_of_the_same_kind(program):
    code = f"""import art_otel, openai
from mine import Instrumentor
Instrumentor().instrument()
{ASK}"""
    assert program(code).ended == ["chat mine", "rollout app.py"]


@pytest.mark.program
def test_after_shutdown_nothing_is_recorded(program):
    code = f"""import art_otel, openai
art_otel.configure().shutdown()
{ASK}"""
    found = program(code)
    assert (found.code, found.errors, found.spans) == (0, "", [])


@pytest.mark.program
def test_it_begins_again_where_the_client_is_known_already(program):
    code = f"""import art_otel, openai
art_otel.configure().shutdown()
art_otel.configure(policy_version="v7")
{ASK}"""
    found = program(code)
    assert found.ended == ["chat mine", "rollout app.py"]
    assert "v7" in str(found.spans)


@pytest.mark.long
def test_where_none_is_installed_calls_have_spans_of_ours(program):
    code = f"""metadata.entry_points = lambda **kwargs: ()
import art_otel{ASK}"""
    found = program(code)
    assert (found.code, found.errors) == (0, "")
    assert found.ended == ["chat m", "rollout app.py"]


@pytest.mark.parametrize(("value", "disabled"), [("", False), ("requests", False), ("a, openai", True), ("*", True)])
def test_otel_s_variable_may_disable_it(value, disabled):
    assert is_disabled({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": value}) == disabled


def test_a_fault_while_giving_way_does_not_stop_the_app(caplog, monkeypatch):
    ours = Instrumentation(lambda _: None)
    monkeypatch.setattr("art_otel.tracing.setup.instrument.installed_instrumentors", lambda: 1 / 0)
    assert ours._before_instrument(lambda: "theirs", object(), (), {}) == "theirs"
    assert "could not hand over to" in caplog.text


def test_instrumentors_have_names():
    assert "openllmetry" in [one.label for one in installed_instrumentors()]


@pytest.fixture
def mine(otel, monkeypatch, tmp_path):  # noqa: ARG001 # BaseInstrumentor is put back afterwards
    """An instrumentor of this process that wraps nothing, the only one that is installed."""
    (tmp_path / "mine_here.py").write_text(INSTRUMENTOR.replace("    wrapt.wrap", "    return\n        wrapt.wrap"))
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_point = EntryPoint("openai", "mine_here:Instrumentor", "opentelemetry_instrumentor")
    monkeypatch.setattr("art_otel.tracing.setup.instrument.entry_points", lambda **_: (entry_point, entry_point))
    monkeypatch.delenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", raising=False)
    yield entry_point.load()
    del sys.modules["mine_here"]


def test_ours_starts_once_and_gives_way_once(mine, otel):
    providers = []
    instrumentation = Instrumentation(providers.append)
    instrumentation.watch()
    instrumentation.start("none")
    (known,) = installed_instrumentors()
    assert not known.active
    instrumentation.start("auto")
    instrumentation.start("auto")
    assert known.active
    ours = mine.tracer
    theirs = otel.NoOpTracerProvider()
    mine().instrument(tracer_provider=theirs)
    assert known.active
    assert providers == [theirs]
    assert isinstance(ours.start_span("unseen"), otel.NonRecordingSpan)
    instrumentation.start("auto")
    instrumentation.pause()
    assert known.active, "what is the app's stays"


def test_an_instrumentor_of_another_client_is_none_of_our_business(mine, otel):
    instrumentation = Instrumentation(pytest.fail)
    instrumentation.watch()
    instrumentation.start("auto")
    (known,) = installed_instrumentors()

    class Other(BaseInstrumentor):
        def instrumentation_dependencies(self):
            return []

        def _uninstrument(self, **kwargs):
            pass

    Other().instrument(tracer_provider=object())
    assert known.active
    assert mine().is_instrumented_by_opentelemetry
    ours = mine.tracer
    assert instrumentation.pause() is None
    assert isinstance(ours.start_span("unseen"), otel.NonRecordingSpan)
    with ours.start_as_current_span("unseen"):
        pass
    instrumentation.start("none")
    assert not known.active


@pytest.mark.parametrize("settings", [{"MINE_FAILS": "1"}, {"MINE_NEEDS": "openai < 1"}])
def test_one_that_does_not_start_is_not_in_use(mine, monkeypatch, settings):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    instrumentation = Instrumentation(pytest.fail)
    instrumentation.watch()
    instrumentation.start("auto")
    assert not mine().is_instrumented_by_opentelemetry


def test_one_that_was_there_before_stays_and_a_missing_one_is_named(mine, caplog):
    instrumentation = Instrumentation(pytest.fail)
    instrumentation.start("openinference")
    assert "openinference is not installed" in caplog.text
    mine().instrument()
    instrumentation.start("auto")
    instrumentation.pause()
    assert mine().is_instrumented_by_opentelemetry
