import pytest
from opentelemetry import trace

from art_otel.tracing import autoload, internal_errors
from art_otel.tracing.api.context import recorder, use_recorder
from art_otel.tracing.internal_errors import handle_internal_errors
from tests.tracing.api.app import App


@pytest.fixture(autouse=True)
def nothing_goes_wrong(monkeypatch):
    """No fault of ours is swallowed unseen, and each test hears every warning."""
    monkeypatch.setattr(internal_errors, "_warned", set())
    monkeypatch.setattr(handle_internal_errors, "faults", 0)  # of several only some are logged
    yield
    assert handle_internal_errors.faults == 0


@pytest.fixture
def app(tmp_path, monkeypatch):
    """An app that is traced."""
    before = recorder()
    traced = App(tmp_path)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", traced.provider)
    yield traced
    use_recorder(before)
    assert traced.processor.faults == 0


@pytest.fixture
def nothing_set_up(monkeypatch):
    """A process without OTel's SDK, of which nobody said whether it is traced."""
    before = recorder()
    use_recorder(None)
    monkeypatch.setattr(autoload, "_off_by_app", False)
    monkeypatch.delenv("ART_OTEL_ENABLED", raising=False)
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    yield
    use_recorder(before)
