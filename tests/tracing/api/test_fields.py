"""What is said of a rollout by name: in the decorator, and while it runs."""

import asyncio

import pytest

import art_otel
from art_otel import gather_trajectory, get_current_trajectory, reward, rollout, step
from art_otel.errors import UsageError
from art_otel.tracing.api.scalars import MAX_REPR


def test_every_field_of_the_running_trajectory_is_recorded(app):
    given = {"group_id": "g", "split": "val", "name": "sums", "training_step": 3, "attempt": 2, "reward": 0.5}
    with rollout(metadata={"a": 1}) as trajectory:
        for name, value in given.items():
            setattr(trajectory, name, value)
        trajectory.metadata = {"task": {"level": [1, None]}}
        trajectory.metrics = {"m": 1}
        assert {name: getattr(trajectory, name) for name in given} == given
    found = app.stored()["sums"]
    assert {name: getattr(found, name) for name in given} == given
    assert (found.metadata, found.metrics) == ({"a": 1, "task": {"level": [1, None]}}, {"m": 1.0})


@pytest.mark.usefixtures("app")
def test_anything_else_is_an_error_that_names_the_fields():
    with rollout() as trajectory, step() as this:
        for name in ("grup_id", "rollout_id", "calls", "span"):
            with pytest.raises(AttributeError, match=f"no field '{name}' .*group_id, split, name, .*reward"):
                setattr(trajectory, name, "x")
        with pytest.raises(AttributeError, match="reward, env_state, extra"):
            this.rewrd = 1.0
        for name, value in {"training_step": 1.5, "attempt": "one", "split": 3.5, "name": None}.items():
            with pytest.raises(UsageError, match=f"^{name} is of type"):
                setattr(trajectory, name, value)


@pytest.mark.parametrize(
    "wrong", [{"attempt": "one"}, {"training_step": 1.5}, {"split": 1.5}, {"group_id": ["g"]}, {"name": 0.5}]
)
def test_a_wrong_type_is_refused_where_the_decorator_stands(wrong):
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} is of type"):
        rollout(**wrong)


def test_a_class_is_no_rollout():
    with pytest.raises(UsageError, match=r"not on the class .*Agent"):

        @rollout
        class Agent:
            pass


def test_the_group_follows_from_the_arguments(app):
    @rollout(name="agent", group_id=lambda task, *, level=0: f"{task}-{level}")
    async def agent(task, *, level=0):  # noqa: ARG001 # recorded
        return await app.ask_later(task)

    @rollout(group_id=lambda: 0.5)
    def wrong():
        raise AssertionError("never begun")

    groups = [asyncio.run(gather_trajectory(agent("t", **named))).group_id for named in ({}, {"level": 2})]
    assert groups == ["t-0", "t-2"]
    with pytest.raises(UsageError, match="group_id is of type float"):
        wrong()
    with pytest.raises(UsageError, match="a block has no arguments"), rollout(group_id=lambda: "g"):
        pass


class Opaque:
    def __repr__(self):
        return "o" * (MAX_REPR + 1)


def test_arguments_and_the_returned_value_are_recorded_when_asked_for(app):
    class Agent:
        @rollout(name="method", capture_args=True, capture_result=True)
        def run(self, task, *, limits=(), **options):  # noqa: ARG002 # recorded
            return {"answer": [task, None]}

    @rollout(name="async", capture_args=True, capture_result=True, metadata={"args": "own"})
    async def later(thing):
        return thing

    Agent().run("t", limits=[1.5], note={"a": True})
    asyncio.run(later(Opaque()))
    found = app.stored()
    assert found["method"].metadata == {
        "args": {"task": "t", "limits": [1.5], "note": {"a": True}},
        "result": {"answer": ["t", None]},
    }
    assert found["async"].metadata == {"args": "own", "result": "o" * MAX_REPR + "…"}


def test_a_step_keeps_the_state_of_its_environment(app):
    with rollout(name="agent"), step() as this:
        this.env_state["board"] = [[0, 1], None]
        this.extra = {"note": {"a": 1}}
        app.ask("one")
        for wrong in (object(), float("nan"), {1: object()}):
            with pytest.raises(UsageError, match=r"env_state\['x'\] of type"):
                this.env_state["x"] = wrong
        with pytest.raises(UsageError, match="extra is of type list"):
            this.extra = [1]
    (call,) = app.stored()["agent"].calls
    assert (call.env_state, call.extra) == ({"board": [[0, 1], None]}, {"note": {"a": 1}})


def test_components_without_a_final_reward_are_told(app, caplog):
    with rollout(name="agent"):
        reward(1, "correctness")
        reward(0.5, "format")
    assert app.stored()["agent"].reward is None
    assert "rewards named correctness, format were given, but no final reward" in caplog.text
    assert "art_otel.reward(value) without a name" in caplog.text


@pytest.mark.usefixtures("app")
def test_components_with_a_final_reward_are_not(caplog):
    with rollout(name="agent"):
        reward(1, "correctness")
        reward(0.5, "format")
        reward(0.75)
    with rollout(name="agent"):
        reward(1, "correctness")
    assert caplog.text == ""


def test_the_only_name_that_was_given_as_a_reward_is_final_now_or_later(app):
    with rollout(name="agent"):
        reward(1, "correctness")
    with rollout(name="late") as late:
        pass
    reward(1, "correctness", target=late)
    assert [app.stored()[name].reward for name in ("agent", "late")] == [1.0, 1.0]


def test_an_episode_s_field_after_its_end_is_told(app, caplog):
    with rollout(name="agent") as trajectory:
        assert get_current_trajectory() is trajectory
    trajectory.group_id = "late"
    assert app.stored()["agent"].group_id is None
    assert "rollout agent has ended; its group_id is no longer recorded" in caplog.text


def test_what_the_package_offers():
    assert art_otel.__version__
    assert {"convert", "export", "RolloutSpanProcessor", "tool", "__version__"} <= set(dir(art_otel))
