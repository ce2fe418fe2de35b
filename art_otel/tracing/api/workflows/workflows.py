"""Workflows: agents written as a loop of steps, with rewards for each step or one at the end.

Invariant: names, signatures, loops and rewards are those of Trinity-RFT 0.6.0
(trinity/common/workflows/step_wise_workflow.py), and nothing of it is imported. `reward` is called after its step, so
what a judge calls is in no step. Where nothing records the loop runs all the same, without experiences.
"""

import asyncio
from abc import ABC, abstractmethod
from functools import cached_property
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar

from art_otel.errors import UsageError
from art_otel.tracing.api.workflows.episode import begin_episode
from art_otel.tracing.api.workflows.experience import Experience


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
                    f"{cls.__name__}.{method} is async, and nothing would await it: derive {cls.__name__} from"
                    f" art_otel.{cls._async_form} and call the method {method}_async"
                )

    @abstractmethod
    def step(self, step_num: int) -> bool:
        """One step, counted from 0. Whether to go on."""


class _AsyncWorkflow(_Workflow):
    @abstractmethod
    async def step_async(self, step_num: int) -> bool:
        """One step, counted from 0. Whether to go on."""


class StepWiseRewardWorkflow(_SyncWorkflow):
    """Define `step`, `reward` and `max_step_num`; `run` makes the steps and rewards each by itself."""

    _async_form = "AsyncStepWiseRewardWorkflow"

    def run(self) -> list[Experience]:
        """Make steps until one gives False or there were `max_step_num`, each rewarded, the last one too.

        It is a rollout of its own where none is running. What `step` and `reward` raise is raised.
        """
        with begin_episode(type(self).__name__) as episode:
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
        """What the step was worth in which these were sampled; None where nobody knows."""


class AsyncStepWiseRewardWorkflow(_AsyncWorkflow):
    """As StepWiseRewardWorkflow, awaited: define `step_async`, `reward_async` and `max_step_num`."""

    async def run_async(self) -> list[Experience]:
        """As StepWiseRewardWorkflow."""
        with begin_episode(type(self).__name__) as episode:
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
        """What the step was worth in which these were sampled; None where nobody knows."""


class RewardPropagationWorkflow(_SyncWorkflow):
    """Define `step`, `reward` and `max_step_num`; `run` makes the steps and rewards all of them together."""

    _async_form = "AsyncRewardPropagationWorkflow"

    def run(self) -> list[Experience]:
        """As StepWiseRewardWorkflow, with one reward at the end: that of the rollout, and so of each of its calls."""
        with begin_episode(type(self).__name__) as episode:
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
        """What all steps together were worth, in which these were sampled; None where nobody knows."""


class AsyncRewardPropagationWorkflow(_AsyncWorkflow):
    """As RewardPropagationWorkflow, awaited: define `step_async`, `reward_async` and `max_step_num`."""

    async def run_async(self) -> list[Experience]:
        """As RewardPropagationWorkflow."""
        with begin_episode(type(self).__name__) as episode:
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
        """What all steps together were worth, in which these were sampled; None where nobody knows."""
