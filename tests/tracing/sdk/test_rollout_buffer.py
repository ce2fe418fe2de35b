"""The live assembler's bounds: what is let go is no longer assembled, and counted to the end all the same."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import baggage, context, trace
from opentelemetry.context import Context

from art_otel import gather_trajectories, get_current_trajectory, rollout
from art_otel.live import RolloutBuffer, RolloutCounts, buffer
from art_otel.spool.line import FoundFile, SpooledLine
from art_otel.tracing.api.context import recorder, use_recorder
from tests.examples import examples
from tests.tracing.api.app import App

BOUNDS = {"age": {"max_age": 0}, "number": {"max_open": 1}}


@pytest.fixture
def app_with(tmp_path, monkeypatch):
    """An app whose assembler has these bounds."""
    before = recorder()

    def make(**bounds) -> App:
        app = App(tmp_path, rollouts=RolloutBuffer(**bounds))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", app.provider)
        return app

    yield make
    use_recorder(before)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_certificate_counts_what_started_before_its_rollout_was_let_go(app_with, bound, caplog):
    app = app_with(**BOUNDS[bound])
    with rollout(name="long"):
        app.ask("one")
        app.app.start_span("execute_tool x")
        with rollout(name="other"):
            app.ask("of another")
        app.ask("two")
    assert "no longer assembled live" in caplog.text
    found = app.stored()
    assert (len(found["long"].calls), found["long"].incomplete_reasons) == (2, {"spans missing": 1})
    assert found["other"].complete


@pytest.mark.parametrize("bound", BOUNDS)
def test_what_somebody_waits_for_is_never_let_go(app_with, bound):
    app = app_with(grace=0, **BOUNDS[bound])

    @rollout(name="agent")
    async def agent(number: int) -> None:
        for turn in range(3):
            await app.ask_later(f"{number} {turn}")
        assert len(get_current_trajectory().calls) == 3

    found = asyncio.run(gather_trajectories(agent(number) for number in range(5)))
    assert [(len(one.calls), one.complete) for one in found] == [(3, True)] * 5
    assert app.rollouts.evicted == 0


def test_the_process_s_own_rollout_is_counted_and_not_held(app_with):
    app = app_with()
    app.ask("one")
    app.ask("two")
    (rollout_id,) = app.rollouts._rollouts
    assert (app.rollouts._rollouts[rollout_id].lines, app.rollouts.counts(rollout_id)) == ([], RolloutCounts(2, 2))
    assert [(len(one.calls), one.complete) for one in app.convert()[0]] == [(2, True)]


def test_rollouts_that_are_counted_are_bounded(app_with, monkeypatch):
    monkeypatch.setattr(buffer, "_MAX_COUNTED", 3)
    app = app_with(max_open=1)
    ids = [f"r{number}" for number in range(10)]
    for rollout_id in ids:
        app.app.start_span("rollout never ends", attributes={"art.rollout.id": rollout_id})
    assert len([known for known in ids if app.rollouts.counts(known) is not None]) == 3


def test_rollouts_of_other_services_are_let_go(app_with, caplog, monkeypatch):
    monkeypatch.setenv("ART_OTEL_RUN", "run")
    app = app_with(grace=0, max_open=4)
    for number in range(20):
        far = baggage.set_baggage("art_otel.run", "run", Context())
        token = context.attach(baggage.set_baggage("art.rollout.id", f"far{number}", far))
        with app.app.start_as_current_span("GET /ask"):
            app.ask("one")
        assert app.rollouts.counts(f"far{number}") is None
        context.detach(token)
    assert (app.rollouts.evicted, caplog.text) == (0, "")
    trajectories, _ = app.convert()
    assert {one.rollout_id for one in trajectories} == {f"far{number}" for number in range(20)}


PLACE = SpooledLine(file=FoundFile(Path("spool")), offset=0, size=10)
LINE = b"x" * 10
steps = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["start", "end", "keep", "release", "add"]),
        st.sampled_from([PLACE, LINE]),
    ),
    max_size=60,
)


@settings(max_examples=examples(300))
@given(steps, st.integers(1, 3), st.sampled_from([0.0, 1e9]))
def test_whatever_is_let_go_running_rollouts_are_counted(taken, most, age):
    """And memory holds no line of what nobody waits for, whatever comes in which order."""
    rollouts = RolloutBuffer(max_open=most, max_age=age, grace=0)
    started: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for name in "abc":
        rollouts.started(name, is_root=True)
    for name, what, line in taken:
        if what == "start":
            assert rollouts.started(name, is_root=False)
            started[name] += 1
        elif what == "end" and ended[name] < started[name]:
            rollouts.ended(name, line, is_root=False)
            ended[name] += 1
        elif what == "add":
            rollouts.add(name, line)
        elif what in ("keep", "release"):
            getattr(rollouts, what)(name)
        assert all(rollouts.counts(known) == RolloutCounts(started[known], ended[known]) for known in "abc")
        assert not [one for one in rollouts._rollouts.values() if not one.waiting and LINE in one.lines]
    for name in "abc":
        for _ in taken:
            rollouts.release(name)
        for _ in range(started[name] - ended[name]):
            rollouts.ended(name, PLACE, is_root=False)
        rollouts.ended(name, PLACE, is_root=True)
    assert not rollouts._rollouts, "each had its grace"


@given(steps, st.integers(1, 3), st.sampled_from([0.0, 1e9]))
def test_what_somebody_waits_for_loses_no_line(taken, most, age):
    rollouts = RolloutBuffer(max_open=most, max_age=age, grace=0)
    rollouts.started("gathered", is_root=True)
    rollouts.keep("gathered")
    for number, (name, what, line) in enumerate(taken, 1):
        rollouts.started(name, is_root=what == "start")
        rollouts.ended(name, line, is_root=what == "end")
        rollouts.add("gathered", line)
        assert len(rollouts._rollouts["gathered"].lines) == number
