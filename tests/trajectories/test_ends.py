"""How a rollout ended is decided in one place, by its calls."""

import pytest
from msgspec import structs

from art_otel.store import read_trajectories, write_trajectories
from tests.data.rollouts import assistant, call, rollout, user


def good(number, **times):
    return structs.replace(call(number, [user("a")], assistant(f"b{number}")), **times)


def bad(number, failure=None, error_type="Timeout", **times):
    return structs.replace(call(number, [user("a")], error_type=error_type, failure=failure), **times)


def exceeded(number, **times):
    return bad(number, "context exceeded", "400", **times)


def cancelled(number, **times):
    return bad(number, None, "asyncio.exceptions.CancelledError", **times)


@pytest.mark.parametrize(
    ("calls", "end"),
    [
        ([good(0)], None),
        ([], None),
        ([good(0), exceeded(1)], "context exceeded"),
        ([exceeded(0)], "context exceeded"),
        ([good(0), bad(1)], "failed call"),
        ([bad(0), exceeded(1)], "context exceeded"),
        ([exceeded(0), bad(1)], "failed call"),
        ([exceeded(0), structs.replace(bad(0), span_id="ff" * 8)], "failed call"),
        ([exceeded(0), good(1)], None),
        ([good(0), exceeded(1), exceeded(2)], "context exceeded"),
        ([good(0), exceeded(1, end_ns=None)], "context exceeded"),
    ],
)
def test_the_last_failed_call_tells_how_it_ended_if_no_call_completed_after_it(calls, end, tmp_path):
    one = rollout(calls)
    assert one.end == end
    write_trajectories([one], tmp_path / "d")
    assert [read.end for read in read_trajectories(tmp_path / "d")] == [end]


@pytest.mark.parametrize(
    ("calls", "end"),
    [
        ([good(0, start_ns=10, end_ns=20), cancelled(1, start_ns=10, end_ns=21)], None),
        ([good(0, start_ns=10, end_ns=20), cancelled(1, start_ns=12, end_ns=20)], None),
        ([good(0, start_ns=0, end_ns=9), cancelled(1, start_ns=10, end_ns=21)], "failed call"),  # a time-out of the app
        ([cancelled(1, start_ns=10, end_ns=21)], "failed call"),
        ([good(0, start_ns=10, end_ns=20), bad(1, start_ns=10, end_ns=21)], "failed call"),  # nobody cancelled it
        ([bad(0, start_ns=10, end_ns=20), cancelled(1, start_ns=10, end_ns=21)], "failed call"),
        (
            [exceeded(2, start_ns=1, end_ns=8), good(0, start_ns=2, end_ns=7), cancelled(1, start_ns=2, end_ns=9)],
            "context exceeded",
        ),
    ],
)
def test_a_call_that_lost_a_race_ended_nothing(calls, end):
    assert rollout(calls).end == end
