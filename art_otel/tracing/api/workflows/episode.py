"""Episode: one run of a workflow, which is a rollout or a part of one.

Invariant: every step is a step span of one rollout, the one that is running or else a new one, and only calls made in
these steps are experiences.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as otel_context

from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import running_trajectory
from art_otel.tracing.api.gather_scope import scope_in
from art_otel.tracing.api.recorder import recorder
from art_otel.tracing.api.rewards.rewards import reward as give_reward
from art_otel.tracing.api.rollout import rollout
from art_otel.tracing.api.running.running import RunningTrajectory
from art_otel.tracing.api.step import Step, step
from art_otel.tracing.api.workflows.experience import Experience, experiences_of
from art_otel.tracing.internal_errors import warn_once

ACTUAL_ENV_STEPS: Final = "actual_env_steps"
"""The metric that says how many steps a rollout's workflows made; one that raised was not made."""


class Episode:
    """`experiences` are those of all steps so far, in the order of the calls. Made by `begin_episode`."""

    def __init__(self, running: RunningTrajectory) -> None:
        self._running = running
        self._step: Step | None = None
        self.experiences: list[Experience] = []

    @contextmanager
    def step(self) -> Generator[None]:
        """Make one step. Several workflows in one rollout count its steps together."""
        with step() as self._step:
            yield
        metrics = self._running.metrics
        metrics[ACTUAL_ENV_STEPS] = metrics.get(ACTUAL_ENV_STEPS, 0) + 1

    def collect(self) -> list[Experience]:
        """Return the experiences of the last step, and add them to `experiences`."""
        number = None if self._step is None else self._step.index
        calls = [] if number is None else [call for call in self._running.calls if call.step == number]
        experiences = [one for call in calls for one in experiences_of(self._running, call)]
        self.experiences.extend(experiences)
        return experiences

    def reward_step(self, value: float | None, experiences: list[Experience]) -> None:
        """Give the last step a reward; None says nothing."""
        self._give(value, self._step, experiences)

    def reward_all(self, value: float | None) -> None:
        """Give the rollout a reward; None says nothing."""
        self._give(value, self._running, self.experiences)

    def _give(
        self, value: float | None, target: Step | RunningTrajectory | None, experiences: list[Experience]
    ) -> None:
        number = None if value is None else scalars.reward(value, "reward")
        if number is None or target is None:
            return
        give_reward(number, target=target)
        for one in experiences:
            one.inherit_reward(number)


@contextmanager
def begin_episode(name: str) -> Generator[Episode]:
    """An episode of the running rollout; of a new one where none runs, or where somebody waits for one to begin."""
    running = running_trajectory()
    scope = scope_in(otel_context.get_current())
    if running is not None and (scope is None or scope.is_nested):
        yield _episode(running)
        return
    with rollout(name=name) as begun:
        yield _episode(begun)


def _episode(running: RunningTrajectory) -> Episode:
    if recorder() is None:
        warn_once(
            "nothing records, so workflows have no experiences and reward() is given none: call art_otel.configure()"
            " first, or gather the run"
        )
    return Episode(running)
