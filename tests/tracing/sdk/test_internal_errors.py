"""InternalErrorHandler: no exception of ours reaches the app, each is counted, and few are logged."""

import asyncio
import signal
import sys

import pytest

from art_otel.tracing.internal_errors import InternalErrorHandler, guarded


def fail(handler: InternalErrorHandler, times: int = 1) -> None:
    for _ in range(times):
        with handler:
            raise ValueError("a fault")


def test_faults_are_counted_and_few_are_logged(caplog):
    handler, other = InternalErrorHandler("a call is lost"), InternalErrorHandler("a span is lost")
    fail(handler, 9)
    fail(other)
    assert (handler.faults, other.faults) == (9, 1)
    told = "art-otel: {} (fault {} of this kind; please report it)"
    assert [record.message for record in caplog.records] == [
        *(told.format("a call is lost", number) for number in (1, 2, 4, 8)),
        told.format("a span is lost", 1),
    ]
    assert all(record.exc_info[0] is ValueError for record in caplog.records)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_what_stops_the_app_goes_through(stop):
    handler = InternalErrorHandler("nothing")
    with pytest.raises(stop), handler:
        raise stop
    assert handler.faults == 0


class TimeLimit:
    """As RQ and Celery have one: its signal comes in the middle of whatever runs."""

    def end(self, *_: object) -> None:
        raise ValueError("too long")


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_time_limit_goes_through():
    handler = InternalErrorHandler("nothing")
    before = signal.signal(signal.SIGUSR1, TimeLimit().end)
    try:
        with pytest.raises(ValueError, match="too long"), handler:
            signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(ValueError, match="too long"):
            guarded(lambda: signal.raise_signal(signal.SIGUSR1))()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handler.faults == 0
