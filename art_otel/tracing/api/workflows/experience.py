"""Experience: one sampled completion of a workflow, under the names of Trinity-RFT's `Experience`.

Invariant: what was recorded cannot be changed. A reward that is set is recorded as one of the call.
"""

from typing import NamedTuple

from art_otel.calls import Choice, InferenceCall, Logprobs, TokenIds
from art_otel.tracing.api import scalars
from art_otel.tracing.api.rewards.rewards import reward as give_reward
from art_otel.tracing.api.running.running import RunningTrajectory


class ExperienceId(NamedTuple):
    """Which step of the rollout it is of, and the span of its call."""

    step: int | None
    suffix: str


class Experience:
    """One choice of an LLM call. `call` is the whole call, `choice` the choice; what is unknown is None."""

    def __init__(self, running: RunningTrajectory, call: InferenceCall, choice: Choice) -> None:
        self.call = call
        self.choice = choice
        self._running = running
        self._reward: float | None = None
        self._is_set = False

    @property
    def response_text(self) -> str | None:
        """The text that was sampled."""
        return self.choice.message.content

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


def experiences_of(running: RunningTrajectory, call: InferenceCall) -> list[Experience]:
    """One a choice; a call that failed has none."""
    return [] if call.failed else [Experience(running, call, choice) for choice in call.choices or ()]
