"""Workflow classes: a loop of steps, rewarded each by itself or all at the end."""

import asyncio
import math
from functools import partial

import pytest

from art_otel import gather_trajectories, gather_trajectory, gather_trajectory_groups, rollout, step
from art_otel.workflows import (
    AsyncRewardPropagationWorkflow,
    AsyncStepWiseRewardWorkflow,
    RewardPropagationWorkflow,
    StepWiseRewardWorkflow,
)
from tests.tracing.api.app import questions


class Planned:
    """`plan` says what each step asks; the last of them gives False unless it `goes_on`."""

    def __init__(self, app, plan, *, goes_on=False, most=9):
        self.app, self.plan, self.goes_on, self.most = app, plan, goes_on, most
        self.judged = []

    @property
    def max_step_num(self):
        return self.most

    def ask(self, step_num):
        for question in self.plan[step_num]:
            self.app.ask(question, response_id=f"r-{question}")
        return self.goes_on or step_num + 1 < len(self.plan)

    def note(self, exps, step_num=None):
        asked = [one.call.input_messages[-1].content for one in exps]
        self.judged.append((step_num, asked))
        return len(asked) / 8


class StepWise(Planned, StepWiseRewardWorkflow):
    def step(self, step_num):
        return self.ask(step_num)

    def reward(self, exps, step_num):
        return self.note(exps, step_num)


class AsyncStepWise(Planned, AsyncStepWiseRewardWorkflow):
    async def step_async(self, step_num):
        await asyncio.sleep(0)
        return self.ask(step_num)

    async def reward_async(self, exps, step_num):
        return self.note(exps, step_num)


class Propagation(Planned, RewardPropagationWorkflow):
    def step(self, step_num):
        return self.ask(step_num)

    def reward(self, exps):
        return self.note(exps)


class AsyncPropagation(Planned, AsyncRewardPropagationWorkflow):
    async def step_async(self, step_num):
        await asyncio.sleep(0)
        return self.ask(step_num)

    async def reward_async(self, exps):
        return self.note(exps)


STEP_WISE = [StepWise, AsyncStepWise]
PROPAGATION = [Propagation, AsyncPropagation]
EACH = [*STEP_WISE, *PROPAGATION]


def run(workflow):
    """The experiences of a run."""
    return asyncio.run(workflow.run_async()) if hasattr(workflow, "run_async") else workflow.run()


@pytest.mark.parametrize("kind", STEP_WISE)
def test_each_step_has_its_own_reward(app, kind):
    workflow = kind(app, [["a"], ["b", "c"], []])
    run(workflow)
    found = app.stored()[kind.__name__]
    assert workflow.judged == [(0, ["a"]), (1, ["b", "c"]), (2, [])]
    assert [(call.step, asked) for call, asked in zip(found.calls, questions(found), strict=True)] == [
        (0, "a"),
        (1, "b"),
        (1, "c"),
    ]
    assert [(given.step, given.value) for given in found.rewards] == [(0, 0.125), (1, 0.25), (2, 0.0)]
    assert not {given.target for given in found.rewards} & {call.span_id for call in found.calls}
    assert (found.reward, found.metrics, found.status) == (None, {"actual_env_steps": 3.0}, "ok")
    assert found.complete


@pytest.mark.parametrize("kind", PROPAGATION)
def test_one_reward_at_the_end_is_that_of_the_rollout(app, kind):
    workflow = kind(app, [["a"], ["b", "c"], []])
    run(workflow)
    found = app.stored()[kind.__name__]
    assert workflow.judged == [(None, ["a", "b", "c"])]
    assert [call.step for call in found.calls] == [0, 1, 1]
    assert [(given.step, given.target, given.value) for given in found.rewards] == [(None, None, 0.375)]
    assert (found.reward, found.metrics, found.complete) == (0.375, {"actual_env_steps": 3.0}, True)


@pytest.mark.parametrize("kind", EACH)
def test_the_most_steps_end_it_too(app, kind):
    run(kind(app, [["a"], ["b"], ["c"]], goes_on=True, most=2))
    found = app.stored()[kind.__name__]
    assert questions(found) == ["a", "b"]
    assert found.metrics == {"actual_env_steps": 2.0}


def test_no_steps_at_all(app):
    for kind in EACH:
        run(kind(app, [], most=0))
    found = app.stored()
    assert {name: (one.reward, one.metrics) for name, one in found.items()} == {
        kind.__name__: (0.0 if kind in PROPAGATION else None, {}) for kind in EACH
    }


@pytest.mark.parametrize("kind", EACH)
def test_inside_a_running_rollout_it_is_a_part_of_it(app, kind):
    first, second = kind(app, [["a"], ["b"]]), kind(app, [["c"], ["d"]])
    with rollout(name="agent"):
        with step():
            app.ask("before")
        run(first)
        app.ask("between")
        run(second)
    (found,) = app.stored().values()
    assert [asked for _, called in (*first.judged, *second.judged) for asked in called] == ["a", "b", "c", "d"]
    assert [call.step for call in found.calls] == [0, 1, 2, None, 3, 4]
    assert found.complete
    if kind in STEP_WISE:
        assert [given.step for given in found.rewards] == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("where", ["step", "reward"])
def test_what_is_raised_goes_on_and_the_steps_are_kept(app, kind, where):
    class Broken(kind):
        def ask(self, step_num):
            if where == "step" and step_num == 1:
                raise ValueError("broken")
            return super().ask(step_num)

        def note(self, calls, step_num=None):
            if where == "reward" and step_num in (None, 1):
                raise ValueError("broken")
            return super().note(calls, step_num)

    with pytest.raises(ValueError, match="broken"):
        run(Broken(app, [["a"], ["b"]]))
    found = app.stored()["Broken"]
    assert (found.status, found.error) == ("error", "ValueError: broken")
    assert questions(found) == (["a"] if where == "step" else ["a", "b"])
    assert found.calls[0].step == 0
    assert [given.value for given in found.rewards] == ([0.125] if kind in STEP_WISE else [])


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("value", [None, math.nan])
def test_no_reward_is_unknown_and_not_zero(app, kind, value):
    class Unsure(kind):
        def note(self, calls, step_num=None):
            super().note(calls, step_num)
            return value

    run(Unsure(app, [["a"]]))
    found = app.stored()["Unsure"]
    assert (found.rewards, found.reward, found.complete) == ((), None, True)


def test_a_judge_s_calls_are_in_no_step(app):
    class Judged(StepWise):
        def reward(self, calls, step_num):
            self.app.ask("how good?")
            return super().reward(calls, step_num)

    workflow = Judged(app, [["a"], ["b"]])
    run(workflow)
    assert workflow.judged == [(0, ["a"]), (1, ["b"])]
    assert [call.step for call in app.stored()["Judged"].calls] == [0, None, 1, None]


def test_many_at_once_and_gathered(app):
    def works(count):
        workflows = [EACH[number % len(EACH)](app, [[f"{number}-0"], [f"{number}-1"]]) for number in range(count)]
        return [
            workflow.run_async() if hasattr(workflow, "run_async") else partial(workflow.run) for workflow in workflows
        ]

    async def gather():
        return await gather_trajectories(works(24), max_concurrent=7), await gather_trajectory_groups(
            {"task": works(6)}
        )

    found, (group,) = asyncio.run(gather())
    for number, trajectory in enumerate(found):
        assert questions(trajectory) == [f"{number}-0", f"{number}-1"]
        assert trajectory.name == EACH[number % len(EACH)].__name__
        assert (trajectory.metrics, trajectory.complete) == ({"actual_env_steps": 2.0}, True)
    assert {trajectory.group_id for trajectory in group.trajectories} == {"task"}


def test_gathered_inside_a_rollout_it_is_a_rollout_of_its_own(app):
    @rollout(name="outer")
    async def outer():
        return await gather_trajectory(AsyncPropagation(app, [["a"]]).run_async())

    outer_one = asyncio.run(gather_trajectory(outer()))
    inner = outer_one.result
    assert (inner.name, inner.parent_rollout_id, inner.reward) == ("AsyncPropagation", outer_one.rollout_id, 0.125)
    assert outer_one.calls == ()


@pytest.mark.parametrize("kind", EACH)
def test_a_run_gives_experiences_whose_rewards_can_be_set(app, kind):
    first, second = run(kind(app, [["a"], ["b"]]))
    value = 0.125 if kind in STEP_WISE else 0.25
    assert [(one.step, one.eid.step, one.reward, one.metrics["actual_env_steps"]) for one in (first, second)] == [
        (0, 0, value, 2),
        (1, 1, value, 2),
    ]
    assert (first.response_text, first.tokens, first.call.response_id) == ("a", None, "r-a")
    second.reward = 0.75
    second.reward = float("inf")
    found = app.stored()[kind.__name__]
    assert second.reward == 0.75
    (given,) = [one for one in found.rewards if one.target == second.call.span_id]
    assert (given.value, given.step, given.name) == (0.75, 1, "reward")


def test_a_reward_that_is_set_while_it_runs_stays(app):
    class Set(StepWise):
        def reward(self, exps, step_num):
            for one in exps:
                one.reward = 1
            return super().reward(exps, step_num)

    experiences = run(Set(app, [["a", "b"]]))
    found = app.stored()["Set"]
    assert [one.reward for one in experiences] == [1.0, 1.0]
    spans = [call.span_id for call in found.calls]
    assert {one.target: one.value for one in found.rewards if one.target in spans} == dict.fromkeys(spans, 1.0)
    assert {one.value for one in found.rewards if one.target not in spans} == {0.25}
