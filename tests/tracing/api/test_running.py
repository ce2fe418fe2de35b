"""The running trajectory: what was recorded so far, and what the app tells it."""

import logging
import math
import threading
from enum import IntEnum
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel import get_current_trajectory, reward, rollout, step
from art_otel.errors import UsageError
from art_otel.tracing.api import scalars


def test_what_was_recorded_so_far(app):
    with rollout(name="agent") as trajectory:
        assert (trajectory.calls, trajectory.turns) == ((), ())
        app.ask("one")
        assert [call.input_messages[0].content for call in trajectory.calls] == ["one"]
        assert trajectory.calls is trajectory.calls
        app.ask("two")
        assert (len(trajectory.calls), len(trajectory.turns)) == (2, 2)
        with app.recorded("three", "a", None):
            assert [call.end_ns is None for call in trajectory.calls] == [False, False, True]
    assert len(trajectory.calls) == 3
    assert app.stored()["agent"].calls == trajectory.calls


def test_logs_metrics_and_metadata(app):
    with rollout(name="agent", metadata={"task": 1, "kept": "k"}) as trajectory:
        trajectory.log("first", 2)
        trajectory.log(None)
        trajectory.metrics["steps"] = 3
        trajectory.metrics["ratio"] = 0.5
        trajectory.metrics["passed"] = True
        trajectory.metadata["seen"] = [1, 2]
        trajectory.metadata["task"] = 2
        trajectory.metadata["gone"] = 1
        del trajectory.metadata["gone"]
    found = app.stored()["agent"]
    assert found.logs == ("first", "2", "None")
    assert found.metrics == {"passed": 1.0, "ratio": 0.5, "steps": 3.0}
    assert found.metadata == {"task": 2, "kept": "k", "seen": [1, 2]}


def test_bad_values_are_kept_as_text_and_logged_once(app, caplog):
    with rollout(name="agent") as trajectory:
        trajectory.metrics["bad"] = math.nan
        trajectory.metrics["worse"] = "many"
        trajectory.metadata["infinite"] = math.inf
        trajectory.metadata["huge"] = 2**70
        trajectory.metadata["object"] = {1}
        trajectory.metadata["null"] = None
    found = app.stored()["agent"]
    assert found.metadata == {
        "art.metric.bad": "nan",
        "art.metric.worse": "many",
        "huge": str(2**70),
        "infinite": "inf",
        "null": None,
        "object": "{1}",
    }
    assert found.complete
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 4
    assert "metric 'bad' is not a finite number (got nan)" in said[0]


def test_the_last_reward_counts(app, caplog):
    with rollout(name="agent") as trajectory:
        assert trajectory.reward is None
        trajectory.reward = 0.25
        trajectory.reward = 0.5
        trajectory.reward = math.nan
        trajectory.reward = "good"
        assert trajectory.reward == 0.5
    assert "reward 'reward' must be a finite number (got nan)" in caplog.text
    trajectory.reward = 1.0
    assert "has ended" in caplog.text
    found = app.stored()["agent"]
    assert (found.reward, [reward.source for reward in found.rewards]) == (0.5, ["attribute"])


def test_after_the_end(app, caplog):
    with rollout(name="agent") as trajectory:
        pass
    trajectory.log("late")
    trajectory.log("later")
    assert caplog.text.count("its log is no longer recorded") == 1
    assert app.stored()["agent"].logs == ()


def test_many_threads_use_one(app):
    with rollout(name="agent") as trajectory:
        barrier = threading.Barrier(8)

        def use(number):
            barrier.wait()
            for count in range(15):
                trajectory.log(f"{number} {count}")
                trajectory.metrics[f"m{number}"] = count
                trajectory.number_step(None)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with step() as following:
            assert following.index == 120
    found = app.stored()["agent"]
    assert (len(found.logs), set(found.metrics.values())) == (120, {14.0})


def test_what_fails_to_be_told_costs_nothing_else(app, caplog):
    class Mute:
        def __str__(self):
            raise RuntimeError("no words")

    with rollout(name="agent", metadata={"mute": Mute()}) as trajectory:
        trajectory.log(Mute(), "heard")
        trajectory.metadata["loop"] = loop = []
        loop.append(loop)
        trajectory.metadata["number"] = 1
    found = app.stored()["agent"]
    assert (found.logs, found.metadata) == (
        ("<test_what_fails_to_be_told_costs_nothing_else.<locals>.Mute>", "heard"),
        {
            "loop": "[[...]]",
            "mute": "<test_what_fails_to_be_told_costs_nothing_else.<locals>.Mute>",
            "number": 1,
        },
    )
    assert "metadata 'loop' is not a JSON value (got list)" in caplog.text


@pytest.mark.parametrize("wrong", [[1], 5, "abc", [("a", 1)], {"a"}])
def test_what_is_no_mapping_is_ignored_and_said(app, caplog, wrong):
    with rollout(name="agent", metadata=wrong) as trajectory:
        trajectory.metadata["kept"] = 1
        trajectory.metrics["kept"] = 1
        trajectory.metadata = wrong
        trajectory.metrics = wrong
    found = app.stored()["agent"]
    assert (found.metadata, found.metrics) == ({"kept": 1}, {"kept": 1.0})
    kind = f"must be a mapping of names to values (got {type(wrong).__name__}); ignored"
    assert caplog.messages == [f"art-otel: metadata {kind}", f"art-otel: metrics {kind}"]


@pytest.mark.usefixtures("nothing_set_up")
@pytest.mark.parametrize("wrong", [[1], 5, "abc"])
def test_what_is_no_mapping_is_ignored_where_nothing_is_set_up(wrong):
    @rollout(metadata=wrong)
    def agent():
        running = get_current_trajectory()
        running.metadata = running.metrics = wrong
        return running

    assert (agent().metadata, agent().metrics) == ({}, {})


def test_mappings_of_any_kind_are_taken(app):
    with rollout(name="agent", metadata=MappingProxyType({"a": 1})) as trajectory:
        trajectory.metrics = MappingProxyType({"b": 2})
    found = app.stored()["agent"]
    assert (found.metadata, found.metrics) == ({"a": 1}, {"b": 2.0})


def test_what_is_kept_as_text_is_not_told_to_the_log(app, caplog):
    class Client:
        def __repr__(self):
            return "Client(password='hush')"

    with rollout(name="agent", metadata={"client": Client()}) as trajectory:
        trajectory.metrics["score"] = "hush"
        reward("hush", "style")
        with pytest.raises(UsageError, match=r"of type .*Client: give"):
            reward(1.0, target=Client())
    assert "'client'" in caplog.text
    assert "hush" not in caplog.text
    assert app.stored()["agent"].metadata["client"] == "Client(password='hush')"


class Level(IntEnum):
    EASY = 1
    HARD = 2


@pytest.mark.parametrize("number", [Level.HARD, np.int64(2), np.uint8(2)])
def test_whole_numbers_of_other_types_are_numbers(app, number):
    with rollout(name="agent", attempt=number, training_step=number, metadata={"seed": number}) as trajectory:
        trajectory.metadata["late"] = number
        reward(0.5, step=number)
    found = app.stored()["agent"]
    assert (found.attempt, found.training_step, found.metadata) == (2, 2, {"seed": 2, "late": 2})
    assert [given.step for given in found.rewards] == [2]


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(), _ANYTHING, max_size=4))
def test_whatever_is_metadata_becomes_attributes(values):
    written = scalars.metadata(values)
    names = [name.partition(".")[2].partition(".")[2] for name in written]
    assert sorted(names) == sorted(values)
    assert all(type(value) in (str, bool, int, float) for value in written.values())


@given(_ANYTHING)
def test_whatever_is_a_metric_becomes_a_finite_number_or_text(value):
    found = scalars.metric(value, "m")
    assert isinstance(found, str) or math.isfinite(found)
