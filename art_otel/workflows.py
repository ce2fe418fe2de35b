"""Workflows: agents written as a loop of steps, with rewards for each step or one at the end.

Invariant: names, signatures, loops and rewards are those of Trinity-RFT 0.6.0
(trinity/common/workflows/step_wise_workflow.py), and nothing of it is imported. Every step is a step span of one
rollout, the one that is running or else a new one. `reward` is called after its step, so what a judge calls is in no
step. Where nothing is set up the run is recorded in memory; where tracing is off the loop runs without experiences.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from opentelemetry import context as otel_context

from art_otel.calls import Logprobs, TokenIds
from art_otel.errors import UsageError
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import recorder, running_trajectory, scope_in
from art_otel.tracing.api.rewards import reward as give_reward
from art_otel.tracing.api.rollout import rollout
from art_otel.tracing.api.running import RunningTrajectory
from art_otel.tracing.api.step import Step, step
from art_otel.tracing.internal_errors import warn_once
from art_otel.tracing.setup.configure import tracing

if TYPE_CHECKING:
    from art_otel.trajectories import Call, Turn

ACTUAL_ENV_STEPS: Final = "actual_env_steps"
"""The metric that says how many steps a rollout's workflows made; one that raised was not made."""


class ExperienceId(NamedTuple):
    """Which step of the rollout it is of, and the span of its call."""

    step: int | None
    suffix: str


class Experience:
    """One sampled completion, under the names of Trinity-RFT's `Experience`; what is unknown is None.

    `call` is the whole call, `choice` the choice: as they were recorded, and not to be changed.
    """

    def __init__(self, running: RunningTrajectory, call: "Call", choice: "Turn") -> None:
        self.call = call
        self.choice = choice
        self._running = running
        self._reward: float | None = None
        self._is_set = False

    @property
    def response_text(self) -> str | None:
        """The text that was sampled."""
        return None if self.choice.message is None else self.choice.message.content

    @property
    def tokens(self) -> TokenIds | None:
        """Token ids of the prompt, then of the completion; None where either is unknown. Shape: (tokens,)."""
        prompt, completion = self.call.prompt_token_ids, self.choice.token_ids
        return None if prompt is None or completion is None else prompt + completion

    @property
    def prompt_length(self) -> int | None:
        """How many of `tokens` are the prompt."""
        return None if self.call.prompt_token_ids is None else len(self.call.prompt_token_ids)

    @property
    def logprobs(self) -> Logprobs | None:
        """The logprobs of the completion's tokens."""
        return self.choice.logprobs

    @property
    def step(self) -> int | None:
        """The index of its step."""
        return self.call.step

    @property
    def eid(self) -> ExperienceId:
        """The experience's id."""
        return ExperienceId(self.call.step, self.call.span_id)

    @property
    def metrics(self) -> dict[str, float]:
        """The rollout's metrics, which all of its experiences have; they are written when it ends."""
        return self._running.metrics

    @property
    def reward(self) -> float | None:
        """What it is worth: what was set here, else what its workflow gave its step or its rollout.

        Set it to give its call a reward, or its choice where the call has several. What is no finite number is refused
        with a warning.
        """
        return self._reward

    @reward.setter
    def reward(self, value: float) -> None:
        number = scalars.reward(value, "reward")
        if number is None:
            return
        self._reward, self._is_set = number, True
        of_several = len(self.call.choices or ()) > 1
        choice = self.choice.index if of_several else None
        give_reward(number, target=self.call, rollout_id=self._running.rollout_id, choice=choice)

    def inherit_reward(self, value: float) -> None:
        """Take over the reward of its step or rollout."""
        if not self._is_set:
            self._reward = value

    def __repr__(self) -> str:
        return f"<Experience step {self.step}, reward {self._reward}: {(self.response_text or '')[:60]!r}>"


class _Workflow(ABC):  # noqa: B024 # its abstract property is hidden from type checkers
    def __init__(
        self,
        *,
        task: Any = None,  # noqa: ANN401 # whatever the app calls a task
        model: Any = None,  # noqa: ANN401 # Trinity's ModelWrapper, or what has its client
        auxiliary_models: Any = None,  # noqa: ANN401 # as model
        use_openai_client: bool = True,
    ) -> None:
        """Keep what is given. `client` is that of `model.get_openai_client()`, None without `use_openai_client`."""
        self.task = task
        self.model = model
        self.auxiliary_models = auxiliary_models
        make_client = getattr(model, "get_openai_client", None)
        if not use_openai_client:
            self.client = None
        elif make_client is not None:
            self.client = make_client()

    if TYPE_CHECKING:  # `max_step_num` is a property as in Trinity or an attribute, so no narrower type holds
        client: Any
        max_step_num: Any
    else:

        @cached_property  # so that a class may set its own
        def client(self) -> Any:  # noqa: ANN401 # whatever the model makes
            """The model's client. Raises UsageError where the model can make none."""
            name = type(self).__name__
            raise UsageError(
                f"{name}.client: its model, {self.model!r:.200}, has no get_openai_client(); give {name}(model=…) one"
                " that has it, or set self.client in __init__"
            )

        @property
        @abstractmethod
        def max_step_num(self) -> int:
            """At most so many steps are made. An attribute of the class does as well."""


class _SyncWorkflow(_Workflow):
    _async_form: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 # Python's own signature
        super().__init_subclass__(**kwargs)
        for method in ("step", "reward"):
            if iscoroutinefunction(getattr(cls, method)):
                raise TypeError(
                    f"{cls.__name__}.{method} is async, and nothing would await it: derive {cls.__name__} from "
                    f"art_otel.workflows.{cls._async_form} and name the method {method}_async"
                )

    @abstractmethod
    def step(self, step_num: int) -> bool:
        """Make one step, counted from 0, and return whether to go on."""


class _AsyncWorkflow(_Workflow):
    @abstractmethod
    async def step_async(self, step_num: int) -> bool:
        """Make one step, counted from 0, and return whether to go on."""


class StepWiseRewardWorkflow(_SyncWorkflow):
    """Define `step`, `reward` and `max_step_num`. `run` makes the steps and gives each step its own reward."""

    _async_form = "AsyncStepWiseRewardWorkflow"

    def run(self) -> list[Experience]:
        """Make steps until `step` returns False or there were `max_step_num`. Reward each step, also the last one.

        It is a rollout of its own if none is running. Exceptions of `step` and `reward` are raised.
        """
        with _begin_episode(type(self).__name__) as episode:
            for step_num in range(self.max_step_num):
                with episode.step():
                    goes_on = self.step(step_num=step_num)
                exps = episode.collect()
                episode.reward_step(self.reward(exps, step_num=step_num), exps)
                if not goes_on:
                    break
        return episode.experiences

    @abstractmethod
    def reward(self, exps: list[Experience], step_num: int) -> float | None:
        """Return the reward of the step in which these experiences were sampled; None if it is unknown."""


class AsyncStepWiseRewardWorkflow(_AsyncWorkflow):
    """The async form of StepWiseRewardWorkflow: define `step_async`, `reward_async` and `max_step_num`."""

    async def run_async(self) -> list[Experience]:
        """Make steps until one returns False or there were `max_step_num`. Reward each step, also the last one."""
        with _begin_episode(type(self).__name__) as episode:
            for step_num in range(self.max_step_num):
                with episode.step():
                    goes_on = await self.step_async(step_num=step_num)
                exps = await asyncio.to_thread(episode.collect)
                episode.reward_step(await self.reward_async(exps, step_num=step_num), exps)
                if not goes_on:
                    break
        return episode.experiences

    @abstractmethod
    async def reward_async(self, exps: list[Experience], step_num: int) -> float | None:
        """Return the reward of the step in which these experiences were sampled; None if it is unknown."""


class RewardPropagationWorkflow(_SyncWorkflow):
    """Define `step`, `reward` and `max_step_num`. `run` makes the steps and gives one reward for all of them."""

    _async_form = "AsyncRewardPropagationWorkflow"

    def run(self) -> list[Experience]:
        """Make steps as StepWiseRewardWorkflow does. Give one reward to the rollout, and so to each of its calls."""
        with _begin_episode(type(self).__name__) as episode:
            for step_num in range(self.max_step_num):
                with episode.step():
                    goes_on = self.step(step_num=step_num)
                episode.collect()
                if not goes_on:
                    break
            episode.reward_all(self.reward(episode.experiences))
        return episode.experiences

    @abstractmethod
    def reward(self, exps: list[Experience]) -> float | None:
        """Return the reward of all steps together, in which these experiences were sampled; None if it is unknown."""


class AsyncRewardPropagationWorkflow(_AsyncWorkflow):
    """The async form of RewardPropagationWorkflow: define `step_async`, `reward_async` and `max_step_num`."""

    async def run_async(self) -> list[Experience]:
        """Make steps. At the end, give one reward to the rollout, and so to each of its calls."""
        with _begin_episode(type(self).__name__) as episode:
            for step_num in range(self.max_step_num):
                with episode.step():
                    goes_on = await self.step_async(step_num=step_num)
                await asyncio.to_thread(episode.collect)
                if not goes_on:
                    break
            episode.reward_all(await self.reward_async(episode.experiences))
        return episode.experiences

    @abstractmethod
    async def reward_async(self, exps: list[Experience]) -> float | None:
        """Return the reward of all steps together, in which these experiences were sampled; None if it is unknown."""


class _RunningEpisode:
    """One run of a workflow, a rollout or a part of one. `experiences` are those of all steps so far."""

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
        """Return the experiences of the last step, and add them to `experiences`; a call that failed has none."""
        if recorder() is None:
            warn_once("workflows have no experiences, and reward() receives none, because tracing is turned off")
        number = None if self._step is None else self._step.index
        calls = [] if number is None else [call for call in self._running.calls if call.step == number]
        experiences = [
            Experience(self._running, call, choice)
            for call in calls
            if not call.failed
            for choice in call.choices or ()
        ]
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
def _begin_episode(name: str) -> Generator[_RunningEpisode]:
    """An episode of the running rollout; of a new one where none is recorded, or where one is waited for."""
    running = running_trajectory()
    scope = scope_in(otel_context.get_current())
    is_awaited = scope is not None and not scope.is_nested
    with tracing.in_memory():
        if running is not None and running.span.is_recording() and not is_awaited:
            yield _RunningEpisode(running)
            return
        with rollout(name=name) as begun:
            yield _RunningEpisode(begun)
