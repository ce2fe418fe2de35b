"""step(): numbered parts of a rollout."""

from enum import IntEnum

import pytest

from art_otel import reward, rollout, step
from art_otel.tracing.api.step import current_step
from tests.tracing.api.app import questions


class Level(IntEnum):
    EASY = 1
    HARD = 2


def test_steps_are_counted_per_rollout(app):
    for name in ("one", "two"):
        with rollout(name=name):
            for number in range(3):
                with step() as this:
                    assert this.index == number
                    app.ask(f"{number}")
            with step(7):
                app.ask("7")
            with step(name="plan") as this:
                app.ask("8")
                assert this.index == 8
    found = app.stored()
    for name in ("one", "two"):
        assert [(call.step, call.input_messages[0].content) for call in found[name].calls] == [
            (number, f"{number}") for number in (0, 1, 2, 7, 8)
        ]
        assert found[name].complete


def test_a_step_that_raises(app):
    with rollout(name="agent") as trajectory:
        with pytest.raises(ValueError, match="bad"), step():
            raise ValueError("bad")
        with step() as outer, step() as inner:
            assert current_step(trajectory) is inner
            assert outer.index == 1
        assert current_step(trajectory) is None
    assert app.stored()["agent"].status == "ok"


def test_a_nested_rollout_has_steps_of_its_own(app):
    with rollout(name="outer"), step(), step(), rollout(name="inner") as inner:
        assert current_step(inner) is None
        with step() as this:
            app.ask("one")
            assert this.index == 0
    assert [call.step for call in app.stored()["inner"].calls] == [0]


def test_outside_of_every_rollout_nothing_is_recorded(app, caplog):
    with step() as this:
        this.reward = 1.0
    with step(3):
        pass
    assert (this.index, caplog.text.count("outside of a rollout")) == (None, 1)
    assert app.spool.counts.written == 0


@pytest.mark.usefixtures("nothing_set_up")
def test_without_set_up():
    with rollout(), step() as this:
        this.reward = 1.0
    assert (this.index, this.reward) == (0, 1.0)


def test_what_is_no_index_has_the_next_number(app, caplog):
    with rollout(name="agent"):
        for wrong in ("first", 2**70, 1.5):
            with step(wrong) as this:
                app.ask(f"{this.index}")
                reward(1.0, name=f"of {this.index}")
    found = app.stored()["agent"]
    assert [(call.step, question) for call, question in zip(found.calls, questions(found), strict=True)] == [
        (number, f"{number}") for number in range(3)
    ]
    assert [given.step for given in found.rewards] == [0, 1, 2]
    assert caplog.text.count("the next number") == 1


def test_an_index_of_another_type_is_a_number(app):
    with rollout(name="agent"), step(Level.HARD) as this:
        app.ask("one")
    assert (this.index, app.stored()["agent"].calls[0].step) == (2, 2)
