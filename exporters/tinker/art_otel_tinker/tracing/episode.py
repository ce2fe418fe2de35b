"""Episode: one run of an environment as a rollout, and the group of those that one builder runs together.

Invariant: an episode begins once and ends once. Its context is attached only while the environment runs, so that many
run at once, and whoever ends it may be another task. What the group made of a trajectory goes to the episode that the
policy's tokens in it were given to, the very objects, wherever it stands in the list. Whatever was not graded ends as
failed.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import msgspec
from opentelemetry import context as otel_context

import art_otel
from art_otel import attributes as names
from art_otel_tinker.rollouts import FINAL_REWARD
from art_otel_tinker.tracing.calls import MODEL, PolicyCall, PolicyPrompt, begin_call, chat_tools, watch_renderer
from art_otel_tinker.tracing.wrapping import handle_tinker_errors


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """`policy_version` is asked anew for each call where it is a function. `tags` are those of the group."""

    name: str
    group_id: str | None = None
    split: str | None = None
    training_step: int | None = None
    model: str | None = None
    policy_version: str | Callable[[], str | None] | None = None
    tags: tuple[str, ...] = ()

    def version(self) -> str | None:
        """The policy version at this moment; None where nobody knows."""
        with handle_tinker_errors:
            return self.policy_version() if callable(self.policy_version) else self.policy_version
        return None


_COMPONENTS: Final = ("correct", "format", "win_minus_loss")
"""The metrics of `ProblemEnv` (tinker_cookbook.rl.problem_env) and of `PairwisePreferenceGroupBuilder`
(tinker_cookbook.rl.preference_envs) that are parts of a reward, 0.6.1."""


def call_facts(env: object, about: About) -> dict[str, str]:
    """What stands on the span of every call: the model, and the tools that it was told of."""
    facts: dict[str, str] = {} if about.model is None else {MODEL: about.model}
    with handle_tinker_errors:
        tools = chat_tools(env)
        if tools is not None:
            facts[names.REQUEST_PARAMETERS] = json_text({"tools": tools})
    return facts


def state_facts(env: Any) -> dict[str, object]:  # noqa: ANN401 # any Env
    """What stands in the state of the environment at every step: the answer that a problem has."""
    with handle_tinker_errors:
        if callable(getattr(env, "get_reference_answer", None)):
            return {"reference_answer": env.get_reference_answer()}
    return {}


def reward_components(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What the reward was made of, of the metrics of a step or a group."""
    return {name: float(metrics[name]) for name in _COMPONENTS if name in metrics}


def attribute(value: object) -> str | bool | int | float:
    """A value as an attribute: as it is where one can hold it, else as JSON."""
    plain: object = msgspec.to_builtins(value, enc_hook=_plain)
    return plain if isinstance(plain, (str, bool, int, float)) else json_text(plain)


def json_text(value: object) -> str:
    """A value as JSON; a tensor of one element is its number, and what JSON has no word for its text."""
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: object) -> object:
    item: Any = getattr(value, "item", None)
    return item() if callable(item) else str(value)


STOP: Final = "stop/"
"""How the metric begins that says why an episode ended."""


class EpisodeError(Exception):
    """The rollout was over and its episode was not, or nobody said what it was worth."""


class Episode:
    """`graded_later`: somebody will call `grade` with its transitions, which have the logprobs, or `end`.

    `actions` are the lists of tokens that the policy gave, the objects themselves, by which they are known.
    """

    def __init__(self, env: object, about: About, *, graded_later: bool) -> None:
        self.is_over = self.is_done = False
        self.actions: list[list[int]] = []
        self._about = about
        self._graded_later = graded_later
        self._task = copy_context()
        self._opened = art_otel.rollout(
            name=about.name,
            group_id=about.group_id,
            split=about.split,
            training_step=about.training_step,
            metadata={"tags": list(about.tags)} if about.tags else None,
        )
        self.running = self._task.run(self._opened.__enter__)
        self._context = self._task.run(otel_context.get_current)
        self._renderer = watch_renderer(env) if self.is_recorded else None
        self._call_facts = call_facts(env, about) if self.is_recorded else {}
        self._state_facts = state_facts(env) if self.is_recorded else {}
        self._prompt: PolicyPrompt | None = None
        self._call: PolicyCall | None = None
        self._waiting: list[PolicyCall] = []
        self._rewards: list[float] = []
        self._error: BaseException | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether anybody records its spans."""
        return self.running.span.is_recording()

    @contextmanager
    def inside(self) -> Generator[None]:
        """The environment runs: what it does belongs to the rollout, and what it raises goes on and is noted."""
        token = otel_context.attach(self._context)
        try:
            yield
        except BaseException as error:
            self._error = error
            with handle_tinker_errors:
                self._settle(at_once=False)
                if not self._graded_later:
                    self.end()
            raise
        finally:
            otel_context.detach(token)

    def observe(self, observation: object) -> None:
        """Keep what the policy is asked next."""
        self._prompt = PolicyPrompt.of(observation, self._renderer)

    def begin(self, first: Any) -> None:  # noqa: ANN401 # an observation and a stop condition, or an overflow
        """What the environment began with; of a prompt that is too long nothing will be sampled."""
        version = self._about.version()
        if version is not None:
            self.running.span.set_attribute(names.POLICY_VERSION, version)
        if isinstance(first, tuple):
            self.observe(cast(tuple[object, ...], first)[0])
            return
        self._rewards.append(float(first.reward))
        self.running.log(*(f"{name}: {text}" for name, text in first.logs.items()))
        self._stopped(first.metrics)

    def act(self, action: list[int], extra: Mapping[str, Any] | None) -> None:
        """The policy answered. It is recorded before the environment knows."""
        if self._prompt is None:
            return
        self.actions.append(action)
        version = self._about.version()
        facts = self._call_facts if version is None else {**self._call_facts, names.POLICY_VERSION: version}
        self._call = begin_call(self._prompt, action, (extra or {}).get("stop_reason"), self._renderer, facts)

    def result(self, step: art_otel.Step, step_result: Any) -> None:  # noqa: ANN401 # StepResult
        """Record the environment's result of the step."""
        self._settle(at_once=True)
        self._rewards.append(float(step_result.reward))
        for name, value in reward_components(step_result.metrics).items():
            art_otel.reward(value, name, target=step)
        step.reward = step_result.reward
        state = {
            "metrics": step_result.metrics,
            "logs": step_result.logs,
            "episode_done": step_result.episode_done,
            **self._state_facts,
        }
        step.span.set_attributes({f"{names.ENV_STATE}.{name}": attribute(value) for name, value in state.items()})
        self.observe(step_result.next_observation)
        if step_result.episode_done:
            self._stopped(step_result.metrics)

    def grade(
        self, transitions: Sequence[Any], stop_reason: str | None, reward: float, metrics: Mapping[str, float]
    ) -> None:
        """The group says what it is worth, and ends it. Its reward is the sum of its steps and of the group's."""
        answers = {id(transition.ac.tokens): transition.ac for transition in transitions}
        for call in self._waiting:
            call.answer = answers.get(id(call.action))
            # The rollout goes on without a step that was cut off, as by a limit of time.
            call.end(error=self._error if call.answer is None else None)
        self._waiting = []
        for name, value in {**reward_components(metrics), FINAL_REWARD: float(reward)}.items():
            art_otel.reward(value, name, target=self.running)
        self.running.reward = sum(transition.reward for transition in transitions) + reward
        self.running.metrics.update(metrics)
        self.running.metadata["stop_reason"] = stop_reason
        self._error = None
        self.end()

    def fail(self, error: BaseException) -> None:
        """It could not be graded; what went wrong before counts first."""
        self._error = self._error or error
        self.end()

    def end(self) -> None:
        """End the rollout, with what was raised in it. Without a group its reward is the sum of its steps."""
        if self.is_over:
            return
        self.is_over = True
        error = self._error
        with handle_tinker_errors:
            for call in self._waiting:
                call.end()
            if not self._graded_later and error is None and self._rewards:
                self.running.reward = sum(self._rewards)
        self._task.run(self._opened.__exit__, None if error is None else type(error), error, None)

    def _settle(self, *, at_once: bool) -> None:
        """The environment has answered, or failed to: end the call, unless `grade` knows more of it."""
        call, self._call = self._call, None
        if call is None:
            return
        if self._graded_later and not (at_once and call.answer is not None):
            self._waiting.append(call)
        else:
            call.end()

    def _stopped(self, metrics: Mapping[str, Any]) -> None:
        reason = next((name.removeprefix(STOP) for name in metrics if name.startswith(STOP)), None)
        self.running.metadata["stop_reason"] = reason
        self.is_done = True


@dataclass(kw_only=True, slots=True)
class EpisodeGroup:
    """One run of `builder`. `is_graded`: the next environments that the builder makes are another group's."""

    builder: object
    about: About
    episodes: list[Episode] = field(default_factory=list[Episode])
    is_graded: bool = False

    @staticmethod
    def of(builder: object, about: About) -> "EpisodeGroup":
        """A new group, with an id of its own from the operating system where none was given."""
        group_id = os.urandom(8).hex() if about.group_id is None else about.group_id
        return EpisodeGroup(builder=builder, about=replace(about, group_id=group_id))

    def grade(
        self,
        trajectories: Sequence[Any],
        fallbacks: Sequence[Episode | None],
        rewarded: Sequence[tuple[float, Mapping[str, float]]],
    ) -> None:
        """Give each episode its logprobs, reward and metrics, and end it.

        `fallbacks` are the episodes of the environments at the same positions, for trajectories whose tokens name none.
        """
        self.is_graded = True
        owners = {id(action): episode for episode in self.episodes for action in episode.actions}
        for trajectory, fallback, (reward, metrics) in zip(trajectories, fallbacks, rewarded, strict=True):
            with handle_tinker_errors:
                acted = (owners.get(id(transition.ac.tokens)) for transition in trajectory.transitions)
                episode = next((owner for owner in acted if owner is not None), fallback)
                if episode is not None:
                    episode.grade(trajectory.transitions, trajectory.stop_reason, reward, metrics)

    def fail(self, error: BaseException) -> None:
        """End what is left."""
        self.is_graded = True
        for episode in self.episodes:
            with handle_tinker_errors:
                episode.fail(error)

    def end(self) -> None:
        """The builder is done with it."""
        self.fail(EpisodeError("the group ended before this episode was rewarded"))
