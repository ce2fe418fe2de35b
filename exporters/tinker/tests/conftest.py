"""An app that is traced, and no fault of ours that goes unseen."""

import pytest
from opentelemetry import trace

from art_otel.tracing import internal_errors
from art_otel.tracing.api.context import recorder, use_recorder
from art_otel.tracing.internal_errors import handle_internal_errors
from art_otel_tinker.tracing.wrapping import handle_tinker_errors
from tests.tracing.api.app import App


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Traced as `configure()` would."""
    before, faults = recorder(), (handle_internal_errors.faults, handle_tinker_errors.faults)
    monkeypatch.setattr(internal_errors, "_warned", set())
    traced = App(tmp_path)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", traced.provider)
    yield traced
    use_recorder(before)
    assert (handle_internal_errors.faults, handle_tinker_errors.faults, traced.processor.faults) == (*faults, 0)
