"""TracedEnv: an environment whose episode is a rollout, each step a step span with the call that it answers.

Invariant: it takes, gives and raises what the environment in it does. Prompts are kept as the environment gave them,
before any step.

Source: `Env` of `tinker_cookbook.rl.types` 0.6.1.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import art_otel
from art_otel_tinker.tracing.about import About
from art_otel_tinker.tracing.episode import Episode, EpisodeError
from art_otel_tinker.tracing.expected import expect
from art_otel_tinker.tracing.group import Group
from art_otel_tinker.tracing.internal_errors import handle_tinker_errors
from art_otel_tinker.tracing.proxy import Proxy

_Env = TypeVar("_Env")


class TracedEnv(Proxy):
    """The group grades its episode; without one, the episode ends with its last step."""

    def __init__(self, env: Any, about: About, group: Group | None = None) -> None:  # noqa: ANN401 # Env
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
    def traced_group(self) -> Group | None:
        """The one that it is of."""
        return self._self_group

    def _begin(self) -> Episode | None:
        """A new episode; None where nothing records it."""
        with handle_tinker_errors:
            if self._self_episode is not None:
                self._self_episode.fail(EpisodeError("the environment began anew"))
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


def untraced(env: Any) -> Any:  # noqa: ANN401 # Env
    """The environment in a traced one."""
    return env.__wrapped__ if isinstance(env, TracedEnv) else env


def episode_of(env: Any) -> Episode | None:  # noqa: ANN401 # Env
    """The episode that a traced environment is in."""
    return env.traced_episode if isinstance(env, TracedEnv) else None
