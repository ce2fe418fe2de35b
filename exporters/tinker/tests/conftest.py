"""An app that is traced, and no fault of ours that goes unseen."""

import pytest
from opentelemetry import trace

from art_otel.tracing import guest
from art_otel.tracing.api.recorder import recorder, use_recorder
from art_otel.tracing.guest import AS_GUEST
from art_otel_tinker.tracing.guest import GUEST
from tests.tracing.api.app import App


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Traced as `configure()` would."""
    before, faults = recorder(), (AS_GUEST.faults, GUEST.faults)
    monkeypatch.setattr(guest, "_said", set())
    traced = App(tmp_path)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", traced.provider)
    yield traced
    use_recorder(before)
    assert (AS_GUEST.faults, GUEST.faults, traced.processor.faults) == (*faults, 0)
