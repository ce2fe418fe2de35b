"""A processor of the app that raises costs the app nothing, and the rollout only what it broke."""

import pytest
from opentelemetry.sdk.trace import SpanProcessor

from art_otel import get_current_trajectory, reward, rollout, step
from art_otel.tracing.guest import AS_GUEST
from art_otel.tracing.sdk.own_rollout import OwnRollout


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
    before = AS_GUEST.faults

    @rollout(name="agent")
    def agent():
        with step():
            return get_current_trajectory().name

    assert agent() == "agent"
    reward(0.5, rollout_id="another")
    assert AS_GUEST.faults == before + 3
    assert f"broken {where}" in caplog.text
    AS_GUEST.faults = before
    if where == "end":
        assert app.stored()["agent"].status == "ok"


def test_a_broken_processor_of_the_app_stops_no_exit_handler(app, caplog):
    own = OwnRollout(lambda: app.provider.get_tracer("art_otel"), app.rollouts, name="own")
    own.join()
    app.provider.add_span_processor(Broken("end"))
    before = AS_GUEST.faults
    own.end()
    assert AS_GUEST.faults == before + 1
    assert "broken end" in caplog.text
    AS_GUEST.faults = before
    assert app.stored()["own"].complete
