"""reward(): each lands where it should, live and in the spool."""

import math

import pytest
from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from art_otel import get_current_trajectory, reward, rollout, score_group, step
from art_otel.errors import UsageError
from art_otel.tracing import internal_errors
from art_otel.trajectories import Trajectory


def told(trajectory) -> list[tuple]:
    return [(given.name, given.value, given.step, given.target) for given in trajectory.rewards]


def test_on_the_rollout_and_on_a_step(app):
    with rollout(name="agent") as trajectory:
        reward(0.5, "format", explanation="short")
        with step() as first:
            reward(0.25)
            reward(None, "grade", label="good")
            assert first.reward == 0.25
            reward(0.75, target=trajectory)
        with step():
            reward(True, "late", step=0)
            reward(0.1, "never", step=9)
            reward(0.2, "on step", target=first)
        assert trajectory.reward == 0.75
    found = app.stored()["agent"]
    (step_id,) = {given.target for given in found.rewards if given.name == "grade"}
    aside = {given.target for given in found.rewards if given.name == "never"}
    assert sorted(told(found), key=str) == sorted(
        [
            ("format", 0.5, None, None),
            ("reward", 0.25, 0, step_id),
            ("grade", None, 0, step_id),
            ("reward", 0.75, None, None),
            ("late", 1.0, 0, step_id),
            ("never", 0.1, 9, aside.pop()),
            ("on step", 0.2, 0, step_id),
        ],
        key=str,
    )
    by_name = {given.name: given for given in found.rewards}
    assert (by_name["format"].explanation, by_name["grade"].label) == ("short", "good")
    assert (found.reward, found.complete, found.incomplete_reasons) == (0.75, True, {})


def test_the_last_word_counts_however_it_was_given(app):
    with rollout(name="event last") as trajectory:
        trajectory.reward = 1.0
        reward(0.5)
        assert trajectory.reward == 0.5
    with rollout(name="assigned last") as trajectory:
        reward(0.5)
        trajectory.reward = 1.0
        reward(0.1, "another")
        assert trajectory.reward == 1.0
    found = app.stored()
    assert (found["event last"].reward, found["assigned last"].reward) == (0.5, 1.0)


def test_on_a_call(app):
    with rollout(name="agent") as trajectory:
        with app.recorded("one", "a", "r1") as running:
            reward(0.1, "while it runs", target=running)
        app.ask("two", response_id="r2")
        with step():
            reward(0.2, "by response", target="r2")
        reward(0.3, "by span", target=running)
        reward(0.4, "by context", target=running.get_span_context())
        reward(0.5, "by call", target=trajectory.calls[1])
    found = app.stored()["agent"]
    one, two = (call.span_id for call in found.calls)
    assert {given.name: given.target for given in found.rewards} == {
        "while it runs": one,
        "by response": two,
        "by span": one,
        "by context": one,
        "by call": two,
    }
    assert (found.reward, found.complete) == (None, True)


def test_a_choice_and_tokens_of_a_call(app):
    with rollout(name="agent") as trajectory:
        with app.recorded("one", "a", "r1") as running:
            reward(0.1, "while it runs", target=running, choice=0)
        reward(0.2, "by response", target="r1", tokens=(0, 4))
        reward(0.3, "by span", target=running, choice=0, tokens=[2, 3])
        reward(0.4, "by call", target=trajectory.calls[0], tokens=(1, 2))
    reward(0.5, "later", rollout_id=trajectory.rollout_id, target="r1", choice=True - 1, tokens=(5, 6))
    found = app.stored()["agent"]
    assert {given.name: (given.choice, given.token_start, given.token_end) for given in found.rewards} == {
        "while it runs": (0, None, None),
        "by response": (None, 0, 4),
        "by span": (0, 2, 3),
        "by call": (None, 1, 2),
        "later": (0, 5, 6),
    }
    assert {given.target for given in found.rewards} == {found.calls[0].span_id}
    assert (found.reward, found.complete) == (None, True)


@pytest.mark.parametrize(
    ("choice", "tokens"),
    [
        *((-1, None), ("one", None), (0.5, None)),
        *(
            (None, (3, 3)),
            (None, (4, 3)),
            (None, (-1, 3)),
            (None, (1,)),
            (None, (1, 2, 3)),
            (None, 5),
            (None, ("a", "b")),
        ),
        (0, (None, 3)),
    ],
)
def test_a_part_that_no_call_has_is_refused(app, caplog, choice, tokens):
    with rollout(name="agent"):
        app.ask("one", response_id="r1")
        reward(0.5, target="r1", choice=choice, tokens=tokens)
    found = app.stored()["agent"]
    assert (found.rewards, found.complete) == ((), True)
    assert "names no part of a call" in caplog.text


def test_choice_and_tokens_need_a_call(app):
    with rollout(name="agent") as running:
        for target in (None, running):
            with pytest.raises(UsageError, match="parts of a call"):
                reward(0.5, target=target, tokens=(0, 1))
        with step() as this, pytest.raises(UsageError, match="parts of a call"):
            reward(0.5, target=this, choice=0)
    assert app.stored()["agent"].rewards == ()


@pytest.mark.usefixtures("nothing_set_up")
def test_outside_of_every_rollout_rewards_and_steps_warn_once_and_never_raise(caplog, monkeypatch):
    monkeypatch.setattr(internal_errors, "_warned", set())
    for _ in range(2):
        with step():
            reward(1.0)
    assert caplog.text.count("step() outside of a rollout") == 1
    assert caplog.text.count("reward() outside of a rollout") == 1


def test_what_cannot_be_judged_is_said(app):
    with rollout(name="agent"), pytest.raises(UsageError, match="response's id"):
        reward(1.0, target=3)
    assert app.stored()["agent"].rewards == ()


def test_what_is_no_number_is_refused(app, caplog):
    class Tensor:
        def __float__(self):
            return 0.5

    class Broken:
        def __float__(self):
            raise RuntimeError("broken")

    with rollout(name="agent"):
        for value in (math.nan, math.inf, "good", 10**400, Broken(), None):
            reward(value, "bad", label=None)
        reward(math.nan, "bad", label="with a label")
        reward(Tensor(), "tensor")
    found = app.stored()["agent"]
    assert told(found) == [("tensor", 0.5, None, None)]
    assert "reward 'bad' must be a finite number" in caplog.text


def test_in_a_service_that_the_rollout_calls(app):
    headers: dict[str, str] = {}
    with rollout(name="agent"):
        propagate.inject(headers)
    token = otel_context.attach(propagate.extract({"baggage": headers["baggage"]}))
    try:
        reward(0.5)
        with pytest.raises(UsageError):
            get_current_trajectory()
    finally:
        otel_context.detach(token)
    assert app.stored()["agent"].reward == 0.5


@pytest.mark.usefixtures("nothing_set_up")
def test_without_set_up(caplog):
    with rollout() as running:
        reward(1.0)
        reward(1.0, target="r1")
        reward(1.0, step=7)
        with step() as this:
            reward(0.5)
    with step() as outside:
        pass
    caplog.clear()
    reward(2.0, target=running)
    reward(2.0, target=running, step=7)
    reward(2.0, target=this)
    reward(2.0, target=outside)
    reward(2.0, target=trace.INVALID_SPAN)
    reward(2.0, target=trace.INVALID_SPAN_CONTEXT)
    assert caplog.messages == []
    reward(2.0, rollout_id="r")


def judge():
    """Rewards as a script gives them to what was recorded elsewhere."""
    one, two = (Trajectory(rollout_id=name, trace_id="ab" * 16) for name in "ab")
    reward(1.0, rollout_id="a")
    reward(1.0, target="r1", rollout_id="a")
    reward(1.0, target=one)
    return score_group([one, two], lambda _: [0.25, 0.5])


@pytest.mark.usefixtures("nothing_set_up")
def test_a_judge_that_nobody_set_up_hears_of_it_once(caplog):
    assert [one.reward for one in judge()] == [0.25, 0.5]
    (said,) = caplog.messages
    assert "not recorded, because tracing is not set up in it; call art_otel.configure() first" in said


@pytest.mark.usefixtures("nothing_set_up")
@pytest.mark.parametrize("setting", ["ART_OTEL_ENABLED=0", "ART_OTEL_ENABLED=False", "OTEL_SDK_DISABLED=true"])
def test_who_turned_tracing_off_hears_nothing(monkeypatch, caplog, setting):
    monkeypatch.setenv(*setting.split("="))
    judge()
    assert caplog.messages == []


def test_a_judge_whose_spans_another_set_up_exports_hears_nothing(monkeypatch, caplog):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    judge()
    rewards = [span for span in exporter.get_finished_spans() if span.name.startswith("reward ")]
    assert (caplog.messages, len(rewards)) == ([], 5)
