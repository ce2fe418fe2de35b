"""OTel's globals as at the start of a process, and as they were afterwards."""

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from opentelemetry.util._once import Once

from art_otel.tracing.api.context import recorder, use_recorder
from art_otel.tracing.setup.configure import Tracing
from art_otel.tracing.setup.settings import VARIABLES


@pytest.fixture
def otel(monkeypatch):
    """Nothing is set, and nothing stays."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(trace, "_set_tracer_provider", trace._set_tracer_provider)
    monkeypatch.setattr(trace.ProxyTracer, "_tracer", trace.ProxyTracer._tracer)
    monkeypatch.setattr(BaseInstrumentor, "instrument", BaseInstrumentor.instrument)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    before = recorder()
    use_recorder(None)
    yield trace
    use_recorder(before)


@pytest.fixture
def tracing(otel, tmp_path, monkeypatch):  # noqa: ARG001 # before it
    """Tracing as a process has it before anybody asks; none of it stays."""
    monkeypatch.chdir(tmp_path)
    fresh = Tracing()
    yield fresh
    fresh.shutdown()
