"""Environments, their builders and datasets of them, traced: an episode is a rollout, a step a step span with its call.

Invariant: each takes, gives and raises what the object in it does, can be pickled where that can, and may be used by
several tasks at once, each with a group of its own. Prompts are kept as the environment gave them, before any step.
Batches have the shape that those of the dataset have.

Source: `Env`, `EnvGroupBuilder`, `RLDataset` and `RLDatasetBuilder` of `tinker_cookbook.rl.types`, `do_group_rollout`,
and `CompositeDataset` of `tinker_cookbook.distillation.datasets`, whose batches are builders and the numbers of their
datasets, 0.6.1.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import art_otel
from art_otel_tinker.tracing.episode import About, Episode, EpisodeError, EpisodeGroup
from art_otel_tinker.tracing.wrapping import Proxy, expect, handle_tinker_errors

_Env = TypeVar("_Env")
_Builder = TypeVar("_Builder")
_Dataset = TypeVar("_Dataset")
_DatasetBuilder = TypeVar("_DatasetBuilder")
_TRAIN: Final = "train"
_TEST: Final = "test"
_GROUP: Final[ContextVar[EpisodeGroup | None]] = ContextVar("art_otel_tinker_group", default=None)
"""The group that this task, or the one that it cleans up for, runs."""


def trace_dataset_builder(
    builder: _DatasetBuilder,
    *,
    model: str | None = None,
    policy_version: str | Callable[[], str | None] | None = None,
    enabled: bool = True,
) -> _DatasetBuilder:
    """The builder of traced datasets, of the splits `train` and `test`, for `rl.train.Config(dataset_builder=…)`.

    Raises UsageError for what is no dataset builder.
    """
    expect(builder, "RLDatasetBuilder", "__call__")
    if not enabled or isinstance(builder, _TracedDatasetBuilder):
        return builder
    return cast(_DatasetBuilder, _TracedDatasetBuilder(builder, _Sampled(model=model, policy_version=policy_version)))


def trace_dataset(
    dataset: _Dataset,
    *,
    split: str = _TRAIN,
    model: str | None = None,
    policy_version: str | Callable[[], str | None] | None = None,
    enabled: bool = True,
) -> _Dataset:
    """The dataset with traced builders, a CompositeDataset too. Of the split `train` a batch's index is the step.

    Raises UsageError for what is no dataset.
    """
    expect(dataset, "RLDataset (trace_dataset_builder takes the builder of one)", "get_batch")
    if not enabled or isinstance(dataset, _TracedDataset):
        return dataset
    return cast(_Dataset, _TracedDataset(dataset, split, _Sampled(model=model, policy_version=policy_version)))


def trace_builder(
    builder: _Builder,
    *,
    name: str | None = None,
    group_id: str | None = None,
    split: str | None = None,
    training_step: int | None = None,
    model: str | None = None,
    policy_version: str | Callable[[], str | None] | None = None,
    enabled: bool = True,
) -> _Builder:
    """The builder with its environments as rollouts of one group, which it rewards.

    It goes wherever the builder went. Each run has a group id of its own unless one is given; `name` is by default the
    builder's first tag. `policy_version` is asked for each call where it is a function. A rollout's reward is the sum
    of its steps and of what the group gave, which is kept as the reward `final_reward` too. `enabled=False` gives the
    builder itself. Raises UsageError for what is no builder of environments.
    """
    expect(builder, "EnvGroupBuilder", "make_envs", "compute_group_rewards")
    if not enabled or isinstance(builder, TracedBuilder):
        return builder
    tags = _tags(builder)
    about = About(
        name=name if name is not None else tags[0] if tags else type(builder).__name__,
        group_id=group_id,
        split=split,
        training_step=training_step,
        model=model,
        policy_version=policy_version,
        tags=tags,
    )
    return cast(_Builder, TracedBuilder(builder, about))


def trace_env(
    env: _Env,
    *,
    name: str | None = None,
    group_id: str | None = None,
    split: str | None = None,
    training_step: int | None = None,
    model: str | None = None,
    policy_version: str | Callable[[], str | None] | None = None,
    enabled: bool = True,
) -> _Env:
    """The environment as a rollout of its own, which ends with its episode; its reward is the sum of its steps.

    It goes wherever the environment went. `policy_version` is asked for each call where it is a function. Logprobs are
    recorded where the policy is traced too, with `trace_policy`. `enabled=False` gives the environment itself. Raises
    UsageError for what is no environment.
    """
    expect(env, "Env", "initial_observation", "step")
    if not enabled or isinstance(env, TracedEnv):
        return env
    about = About(
        name=type(env).__name__ if name is None else name,
        group_id=group_id,
        split=split,
        training_step=training_step,
        model=model,
        policy_version=policy_version,
    )
    return cast(_Env, TracedEnv(env, about))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sampled:
    """What is known of all rollouts of a dataset before they run."""

    model: str | None
    policy_version: str | Callable[[], str | None] | None


class _TracedDatasetBuilder(Proxy):
    def __init__(self, builder: Any, sampled: _Sampled) -> None:  # noqa: ANN401 # RLDatasetBuilder
        super().__init__(builder)
        self._self_sampled = sampled

    async def __call__(self) -> tuple[Any, Any]:
        train, test = await self.__wrapped__()
        traced = [
            None if dataset is None else _TracedDataset(dataset, split, self._self_sampled)
            for dataset, split in ((train, _TRAIN), (test, _TEST))
        ]
        return traced[0], traced[1]

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 # as object
        return _TracedDatasetBuilder, (self.__wrapped__, self._self_sampled)


class _TracedDataset(Proxy):
    def __init__(self, dataset: Any, split: str, sampled: _Sampled) -> None:  # noqa: ANN401 # RLDataset
        super().__init__(dataset)
        self._self_split = split
        self._self_sampled = sampled

    def get_batch(self, index: int) -> Any:  # noqa: ANN401 # as RLDataset, or as CompositeDataset
        return self._trace(self.__wrapped__.get_batch(index), index)

    def _trace(self, entry: Any, index: int) -> Any:  # noqa: ANN401 # as get_batch
        if isinstance(entry, list | tuple):
            items = cast(list[Any] | tuple[Any, ...], entry)
            traced = [self._trace(one, index) for one in items]
            return traced if isinstance(items, list) else tuple(traced)
        if not hasattr(entry, "make_envs"):
            return entry
        sampled, split = self._self_sampled, self._self_split
        step = index if split == _TRAIN else None
        return trace_builder(
            entry, split=split, training_step=step, model=sampled.model, policy_version=sampled.policy_version
        )


class TracedBuilder(Proxy):
    """An EnvGroupBuilder."""

    def __init__(self, builder: Any, about: About) -> None:  # noqa: ANN401 # EnvGroupBuilder
        super().__init__(builder)
        self._self_about = about

    async def make_envs(self) -> Sequence[Any]:
        """The environments, traced. Those made before the group is graded, as for another try, are of one group."""
        envs = await self.__wrapped__.make_envs()
        group = self._group()
        if group is None or group.is_graded:
            group = EpisodeGroup.of(self.__wrapped__, self._self_about)
            _GROUP.set(group)
        return [TracedEnv(env, group.about, group) for env in envs]

    async def compute_group_rewards(self, trajectory_group: Sequence[Any], env_group: Sequence[Any]) -> Any:  # noqa: ANN401 # as EnvGroupBuilder
        """What the builder makes of the trajectories."""
        traced = [env for env in env_group if isinstance(env, TracedEnv)]
        group = traced[0].traced_group if traced else self._group()
        try:
            rewarded = await self.__wrapped__.compute_group_rewards(trajectory_group, [*map(_untraced, env_group)])
        except BaseException as error:
            if group is not None:
                group.fail(error)
            raise
        if group is not None:
            with handle_tinker_errors:
                group.grade(trajectory_group, [*map(_episode_of, env_group)], rewarded)
        return rewarded

    async def cleanup(self) -> None:
        """The group is over."""
        try:
            await self.__wrapped__.cleanup()
        finally:
            group = self._group()
            if group is not None:
                group.end()

    def _group(self) -> EpisodeGroup | None:
        group = _GROUP.get()
        return group if group is not None and group.builder is self.__wrapped__ else None

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 # as object
        return TracedBuilder, (self.__wrapped__, self._self_about)


class TracedEnv(Proxy):
    """The group grades its episode; without one, the episode ends with its last step."""

    def __init__(self, env: Any, about: About, group: EpisodeGroup | None = None) -> None:  # noqa: ANN401 # Env
        super().__init__(env)
        self._self_about = about
        self._self_group = group
        self._self_episode: Episode | None = None

    async def initial_observation(self) -> Any:  # noqa: ANN401 # as Env
        """Begin the episode."""
        episode = self._begin()
        if episode is None:
            return await self.__wrapped__.initial_observation()
        with episode.inside():
            first = await self.__wrapped__.initial_observation()
        with handle_tinker_errors:
            episode.begin(first)
        self._end_if_done(episode)
        return first

    async def step(self, action: list[int], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as Env
        """Go on with what the policy sampled."""
        episode = self._self_episode
        if episode is None or episode.is_over:
            return await self.__wrapped__.step(action, *args, **kwargs)
        with episode.inside(), art_otel.step() as step:
            with handle_tinker_errors:
                episode.act(action, kwargs.get("extra"))
            result = await self.__wrapped__.step(action, *args, **kwargs)
            with handle_tinker_errors:
                episode.result(step, result)
        self._end_if_done(episode)
        return result

    @property
    def inject_messages(self) -> Callable[..., Awaitable[Any]]:
        """That of the environment, if it has one: a hook changes what the policy is asked next."""
        inject = self.__wrapped__.inject_messages

        async def observed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as EnvFromMessageEnv
            changed = await inject(*args, **kwargs)
            if self._self_episode is not None:
                with handle_tinker_errors:
                    self._self_episode.observe(changed[0])
            return changed

        return observed

    @property
    def traced_episode(self) -> Episode | None:
        """The one that it is in."""
        return self._self_episode

    @property
    def traced_group(self) -> EpisodeGroup | None:
        """The one that it is of."""
        return self._self_group

    def _begin(self) -> Episode | None:
        """A new episode; None where nothing records it."""
        with handle_tinker_errors:
            if self._self_episode is not None:
                self._self_episode.fail(EpisodeError("the environment was reset"))
            self._self_episode = None
            episode = Episode(self.__wrapped__, self._self_about, graded_later=self._self_group is not None)
            if not episode.is_recorded:
                episode.end()
                return None
            if self._self_group is not None:
                self._self_group.episodes.append(episode)
            self._self_episode = episode
        return self._self_episode

    def _end_if_done(self, episode: Episode) -> None:
        if episode.is_done and self._self_group is None:
            with handle_tinker_errors:
                episode.end()


def _untraced(env: Any) -> Any:  # noqa: ANN401 # Env
    """The environment in a traced one."""
    return env.__wrapped__ if isinstance(env, TracedEnv) else env


def _episode_of(env: Any) -> Episode | None:  # noqa: ANN401 # Env
    """The episode that a traced environment is in."""
    return env.traced_episode if isinstance(env, TracedEnv) else None


def _tags(builder: Any) -> tuple[str, ...]:  # noqa: ANN401 # EnvGroupBuilder
    with handle_tinker_errors:
        return tuple(map(str, builder.logging_tags()))
    return ()
