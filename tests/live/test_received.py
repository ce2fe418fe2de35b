"""Law 2 through `art-otel serve`: what an app's exporter or a relay sends there is what its own spool gives."""

import pytest

from tests.live.environments import live_python
from tests.live.rotel import rotel
from tests.live.runs import APPS, by_run, run_app
from tests.live.test_relay import export_to
from tests.receiver.consuming import by_order, consume
from tests.receiver.serving import serving


@pytest.mark.parametrize("relay", [False, True], ids=["straight", "rotel"])
def test_received_and_spool_are_equal(server, tmp_path, instrumentor, relay):
    command = by_run(live_python(instrumentor), str(APPS / "weather_agent.py"))
    with serving(tmp_path / "received", "--grace", "1s") as serve:
        if relay:
            with rotel(tmp_path, serve.url) as collector:
                run = run_app(server, tmp_path, command, ART_OTEL_REQUEST_TOKENS="1", **export_to(collector))
        else:
            run = run_app(server, tmp_path, command, ART_OTEL_REQUEST_TOKENS="1", **export_to(serve.url))
        assert run.code == 0, run.errors
        assert run.trajectories
        serve.wait_until_all_ended()
        received = consume(serve.url, len(run.trajectories))
    spooled = by_order(run.trajectories)
    assert by_order(received) == spooled
    assert by_order(serve.convert(tmp_path / "converted")) == spooled
