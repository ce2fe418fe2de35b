"""A processor of the app that raises costs the app nothing, and the rollout only what it broke."""

import pytest
from opentelemetry.sdk.trace import SpanProcessor

from art_otel import get_current_trajectory, reward, rollout, step
from art_otel.tracing.internal_errors import handle_internal_errors
from art_otel.tracing.sdk.rollout_registry import ProcessRollout


class Broken(SpanProcessor):
    """A processor of the app that raises."""

    def __init__(self, *where: str) -> None:
        self.where = where

    def on_start(self, _span, **_):
        if "start" in self.where:
            raise RuntimeError("broken start")

    def on_end(self, _span):
        if "end" in self.where:
            raise RuntimeError("broken end")


@pytest.mark.parametrize("where", ["start", "end"])
def test_a_broken_processor_of_the_app_stops_no_rollout(app, where, caplog):
    app.provider.add_span_processor(Broken(where))

    @rollout(name="agent")
    def agent():
        with step():
            return get_current_trajectory().name

    assert agent() == "agent"
    reward(0.5, rollout_id="another")
    assert handle_internal_errors.faults == 3
    assert f"broken {where}" in caplog.text
    handle_internal_errors.faults = 0
    if where == "end":
        assert app.stored()["agent"].status == "ok"


def test_a_broken_processor_of_the_app_stops_no_exit_handler(app, caplog):
    own = ProcessRollout(lambda: app.provider.get_tracer("art_otel"), app.rollouts, name="own")
    own.join()
    app.provider.add_span_processor(Broken("end"))
    own.end()
    assert handle_internal_errors.faults == 1
    assert "broken end" in caplog.text
    handle_internal_errors.faults = 0
    assert app.stored()["own"].complete
