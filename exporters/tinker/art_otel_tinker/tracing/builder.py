"""TracedBuilder: a builder whose environments are rollouts of one group.

Invariant: it takes, gives and raises what the builder in it does, can be pickled where that can, and may be used by
several tasks at once, each with a group of its own.

Source: `EnvGroupBuilder` of `tinker_cookbook.rl.types`, and `do_group_rollout`, 0.6.1.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar, cast

from art_otel_tinker.tracing.about import About
from art_otel_tinker.tracing.env import TracedEnv, episode_of, untraced
from art_otel_tinker.tracing.expected import expect
from art_otel_tinker.tracing.group import Group
from art_otel_tinker.tracing.internal_errors import handle_tinker_errors
from art_otel_tinker.tracing.proxy import Proxy

_Builder = TypeVar("_Builder")

_GROUP: Final[ContextVar[Group | None]] = ContextVar("art_otel_tinker_group", default=None)
"""The group that this task, or the one that it cleans up for, runs."""


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
            group = Group.of(self.__wrapped__, self._self_about)
            _GROUP.set(group)
        return [TracedEnv(env, group.about, group) for env in envs]

    async def compute_group_rewards(self, trajectory_group: Sequence[Any], env_group: Sequence[Any]) -> Any:  # noqa: ANN401 # as EnvGroupBuilder
        """What the builder makes of the trajectories."""
        traced = [env for env in env_group if isinstance(env, TracedEnv)]
        group = traced[0].traced_group if traced else self._group()
        try:
            rewarded = await self.__wrapped__.compute_group_rewards(trajectory_group, [*map(untraced, env_group)])
        except BaseException as error:
            if group is not None:
                group.fail(error)
            raise
        if group is not None:
            with handle_tinker_errors:
                group.grade(trajectory_group, [*map(episode_of, env_group)], rewarded)
        return rewarded

    async def cleanup(self) -> None:
        """The group is over."""
        try:
            await self.__wrapped__.cleanup()
        finally:
            group = self._group()
            if group is not None:
                group.end()

    def _group(self) -> Group | None:
        group = _GROUP.get()
        return group if group is not None and group.builder is self.__wrapped__ else None

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 # as object
        return TracedBuilder, (self.__wrapped__, self._self_about)


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


def _tags(builder: Any) -> tuple[str, ...]:  # noqa: ANN401 # EnvGroupBuilder
    with handle_tinker_errors:
        return tuple(map(str, builder.logging_tags()))
    return ()
