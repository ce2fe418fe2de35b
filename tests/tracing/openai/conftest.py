"""A server for all tests, and clients under each instrumentor."""

import pytest
from opentelemetry import trace

from art_otel.tracing.openai import install, uninstall
from tests.certificates import NO_CERTIFICATES
from tests.tracing.openai.instrumented import INSTRUMENTORS, Instrumented, instrumented


@pytest.fixture(params=sorted(INSTRUMENTORS))
def instrumentor(request):
    return request.param


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    for name, value in NO_CERTIFICATES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def uninstalled():
    yield
    uninstall()


@pytest.fixture
def app(server, instrumentor, uninstalled, monkeypatch):  # noqa: ARG001 # undoes at the end
    """An app whose calls are captured, with tokens asked for."""
    found = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    install(request_tokens=True, policy_version_header="x-policy-version")
    with instrumented(instrumentor, found.provider):
        yield found


@pytest.fixture
def traced(server, uninstalled, monkeypatch):  # noqa: ARG001 # undoes at the end
    """An app under OpenLLMetry whose calls are captured, with nothing asked for."""
    found = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    install()
    with instrumented("openllmetry", found.provider):
        yield found
