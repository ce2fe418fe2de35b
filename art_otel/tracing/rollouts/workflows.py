"""Workflows: agents written as a loop of steps, with rewards for each step or one at the end.

Invariant: every step is a step span of one rollout, the one that is running or else a new one, and `reward` sees only
calls that were made in the workflow's own steps. It is called after its step, so what a judge calls is in no step.
Names, loops and rewards are those of Trinity-RFT 0.6.0 (trinity/common/workflows/step_wise_workflow.py), with calls for
experiences. Where nothing is set up the loop runs all the same, with empty calls.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context as otel_context

from art_otel.calls import InferenceCall
from art_otel.tracing.rollouts.context import running_trajectory
from art_otel.tracing.rollouts.gather_scope import scope_in
from art_otel.tracing.rollouts.rewards import reward as give_reward
from art_otel.tracing.rollouts.rollout import rollout
from art_otel.tracing.rollouts.running import RunningTrajectory
from art_otel.tracing.rollouts.step import step

ACTUAL_ENV_STEPS: Final = "actual_env_steps"
"""The metric that says how many steps a rollout's workflows made; one that raised was not made."""


class _Workflow:
    max_step_num: Any
    """At most so many steps are made, an int. A property as in Trinity, or an attribute; so no narrower type holds."""


class _AsyncWorkflow(_Workflow):
    async def run(self) -> None:
        """Make the steps and reward them."""
        raise NotImplementedError

    async def run_async(self) -> None:
        """`run`."""
        await self.run()

    async def step(self, step_num: int) -> bool:
        """One step, counted from 0. Whether to go on."""
        raise NotImplementedError

    async def step_async(self, step_num: int) -> bool:
        """`step`."""
        return await self.step(step_num=step_num)


class StepWiseReward(_Workflow):
    """Override `step`, `reward` and `max_step_num`; `run` makes the steps and rewards each by itself."""

    def run(self) -> None:
        """Make steps until one gives False or there were `max_step_num`, each rewarded, the last one too.

        It is a rollout of its own where none is running. What `step` and `reward` raise is raised.
        """
        with _rollout_of(self) as running:
            for step_num in range(self.max_step_num):
                with step() as this:
                    goes_on = self.step(step_num=step_num)
                _count_step(running)
                value = self.reward(_calls_of(running, [this.index]), step_num=step_num)
                if value is not None:
                    give_reward(value, target=this)
                if not goes_on:
                    break

    def step(self, step_num: int) -> bool:
        """One step, counted from 0. Whether to go on."""
        raise NotImplementedError

    def reward(self, calls: list[InferenceCall], step_num: int) -> float | None:
        """What the step was worth in which these calls were made; None where nobody knows."""
        raise NotImplementedError


class AsyncStepWiseReward(_AsyncWorkflow):
    """As StepWiseReward, awaited. Trinity's own names, `step_async`, `reward_async` and `run_async`, do as well."""

    async def run(self) -> None:
        """As StepWiseReward."""
        with _rollout_of(self) as running:
            for step_num in range(self.max_step_num):
                with step() as this:
                    goes_on = await self.step_async(step_num=step_num)
                _count_step(running)
                calls = await asyncio.to_thread(_calls_of, running, [this.index])
                value = await self.reward_async(calls, step_num=step_num)
                if value is not None:
                    give_reward(value, target=this)
                if not goes_on:
                    break

    async def reward(self, calls: list[InferenceCall], step_num: int) -> float | None:
        """As StepWiseReward."""
        raise NotImplementedError

    async def reward_async(self, calls: list[InferenceCall], step_num: int) -> float | None:
        """`reward`."""
        return await self.reward(calls, step_num=step_num)


class RewardPropagation(_Workflow):
    """Override `step`, `reward` and `max_step_num`; `run` makes the steps and rewards all of them together."""

    def run(self) -> None:
        """As StepWiseReward, but that one reward is given at the end: that of the rollout, and so of its every call."""
        with _rollout_of(self) as running:
            steps: list[int | None] = []
            for step_num in range(self.max_step_num):
                with step() as this:
                    steps.append(this.index)
                    goes_on = self.step(step_num=step_num)
                _count_step(running)
                if not goes_on:
                    break
            value = self.reward(_calls_of(running, steps))
            if value is not None:
                give_reward(value, target=running)

    def step(self, step_num: int) -> bool:
        """One step, counted from 0. Whether to go on."""
        raise NotImplementedError

    def reward(self, calls: list[InferenceCall]) -> float | None:
        """What all steps together were worth, in which these calls were made; None where nobody knows."""
        raise NotImplementedError


class AsyncRewardPropagation(_AsyncWorkflow):
    """As RewardPropagation, awaited. Trinity's own names, `step_async`, `reward_async` and `run_async`, do as well."""

    async def run(self) -> None:
        """As RewardPropagation."""
        with _rollout_of(self) as running:
            steps: list[int | None] = []
            for step_num in range(self.max_step_num):
                with step() as this:
                    steps.append(this.index)
                    goes_on = await self.step_async(step_num=step_num)
                _count_step(running)
                if not goes_on:
                    break
            calls = await asyncio.to_thread(_calls_of, running, steps)
            value = await self.reward_async(calls)
            if value is not None:
                give_reward(value, target=running)

    async def reward(self, calls: list[InferenceCall]) -> float | None:
        """As RewardPropagation."""
        raise NotImplementedError

    async def reward_async(self, calls: list[InferenceCall]) -> float | None:
        """`reward`."""
        return await self.reward(calls)


@contextmanager
def _rollout_of(workflow: _Workflow) -> Generator[RunningTrajectory]:
    """The rollout that is running; a new one where there is none, or where somebody waits for one to begin."""
    running = running_trajectory()
    scope = scope_in(otel_context.get_current())
    if running is not None and (scope is None or scope.is_nested):
        yield running
    else:
        with rollout(name=type(workflow).__name__) as begun:
            yield begun


def _count_step(running: RunningTrajectory) -> None:
    """Several workflows in one rollout make its steps together."""
    running.metrics[ACTUAL_ENV_STEPS] = running.metrics.get(ACTUAL_ENV_STEPS, 0) + 1


def _calls_of(running: RunningTrajectory, steps: Sequence[int | None]) -> list[InferenceCall]:
    """The calls recorded in these steps so far."""
    own = set(steps) - {None}
    return [call for call in running.calls if call.step in own]
