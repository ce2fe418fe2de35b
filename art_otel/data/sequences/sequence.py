"""TokenSequence: one token history with what it is trained with, the unit that batches are made of.

Invariant: all arrays of a sequence have one length. The loss mask covers exactly the completions that are trained in
this history and have a reward to train with; outside of it advantages are 0.0 and logprobs are numbers.
"""

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from art_otel.calls import Logprobs, TokenIds
from art_otel.data.rewards.plan import TurnReward
from art_otel.data.rewards.token_rewards import TokenRewards
from art_otel.data.rewards.usable import UNUSABLE
from art_otel.trajectories import CompletionSpan, Trajectory, version_of

EMPTY: Final = "no tokens sampled"


class History(Protocol):
    """A path through the turns as tokens: a TokenHistory, or messages that were tokenized here."""

    @property
    def token_ids(self) -> TokenIds:
        """Shape: (tokens,)."""
        ...

    @property
    def turns(self) -> tuple[int, ...]:
        """Positions in the trajectory."""
        ...

    @property
    def spans(self) -> tuple[CompletionSpan, ...]:
        """Where the completions of the turns stand."""
        ...

    @property
    def loss_mask(self) -> bytes:
        """A byte a token, 1 in the completions that are trained here."""
        ...

    @property
    def logprobs(self) -> Logprobs | None:
        """Shape: (tokens,), 0.0 where nothing was sampled; None where those of a trained completion are unknown."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TokenSequence:
    """Arrays of shape (tokens,): int32 ids, bool mask, float32 logprobs, advantages and token rewards.

    `logprobs` are 0.0 where nothing was sampled and NaN where a trained token has none. `advantages` and
    `token_rewards` are None where nobody asked for them. `completions` are those under the mask, of at least one token,
    `rewards` the reward of each. `policy_version` is that of the first trained call. `retokenized`
    says that the ids are not the server's.
    """

    rollout_id: str
    group_id: str | None
    training_step: int | None
    policy_version: str | None
    turns: tuple[int, ...]
    completions: tuple[CompletionSpan, ...]
    rewards: tuple[float | None, ...]
    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    advantages: NDArray[np.float32] | None
    token_rewards: NDArray[np.float32] | None = None
    retokenized: bool = False

    def __len__(self) -> int:
        return len(self.input_ids)

    def __repr__(self) -> str:
        return f"<TokenSequence {len(self)} tokens, {self.trained_tokens} trained, rollout {self.rollout_id!r:.100}>"

    @property
    def reward(self) -> float | None:
        """That of the last trained completion."""
        return self.rewards[-1]

    @property
    def trained_tokens(self) -> int:
        """How many tokens are under the mask."""
        return int(np.count_nonzero(self.loss_mask))

    @property
    def without_logprobs(self) -> int:
        """How many of these have no logprob."""
        return int(np.count_nonzero(np.isnan(self.logprobs)))

    def truncate(self, size: int) -> "TokenSequence | None":
        """The sequence's first `size` tokens; None where they train nothing."""
        completions = tuple(span for span in self.completions if span.start < size)
        if not completions:
            return None
        return replace(
            self,
            completions=completions,
            rewards=self.rewards[: len(completions)],
            input_ids=self.input_ids[:size],
            loss_mask=self.loss_mask[:size],
            logprobs=self.logprobs[:size],
            advantages=None if self.advantages is None else self.advantages[:size],
            token_rewards=None if self.token_rewards is None else self.token_rewards[:size],
        )


def build_sequence(
    trajectory: Trajectory,
    history: History,
    turn_rewards: Sequence[TurnReward],
    reasons: MutableSequence[str | None],
    *,
    advantages: bool,
    token_rewards: TokenRewards | None = None,
    retokenized: bool = False,
) -> TokenSequence | None:
    """Build the sequence of a history; None where it trains nothing.

    `turn_rewards` and `reasons` have shape (turns,), of the trajectory. `reasons` gets why completions that this
    history would train are skipped: nobody rewarded them, say.
    """
    trained: list[CompletionSpan] = []
    skipped = False
    for span in history.spans:
        if span.trained:
            reason = _skip_reason(span, turn_rewards[span.turn], token_rewards)
            if reason is None:
                trained.append(span)
            else:
                reasons[span.turn] = reason
                skipped = True
    if not trained:
        return None
    mask = _mask(history, trained) if skipped else np.frombuffer(history.loss_mask, np.bool_)
    gains = None
    if advantages:
        gains = np.zeros(len(mask), np.float32)
        for span in trained:
            gains[span.start : span.end] = turn_rewards[span.turn].advantage or 0.0
    return TokenSequence(
        rollout_id=trajectory.rollout_id,
        group_id=trajectory.group_id,
        training_step=trajectory.training_step,
        policy_version=version_of(trajectory, trajectory.calls[trajectory.turns[trained[0].turn].call]),
        turns=history.turns,
        completions=tuple(trained),
        rewards=tuple([turn_rewards[span.turn].reward for span in trained]),
        input_ids=np.frombuffer(history.token_ids.data, "<i4"),
        loss_mask=mask,
        logprobs=_logprobs(trajectory, history, mask, retokenized=retokenized),
        advantages=gains,
        token_rewards=None if token_rewards is None else _extras(token_rewards, trained, len(mask)),
        retokenized=retokenized,
    )


def _skip_reason(span: CompletionSpan, turn_reward: TurnReward, token_rewards: TokenRewards | None) -> str | None:
    if span.start == span.end:
        return EMPTY
    unusable = token_rewards is not None and token_rewards.get(span.turn, ()) is None
    return turn_reward.skipped or (UNUSABLE if unusable else None)


def _mask(history: History, trained: Sequence[CompletionSpan]) -> NDArray[np.bool_]:
    """The loss mask of these completions alone."""
    mask = np.zeros(len(history.token_ids), np.bool_)
    for span in trained:
        mask[span.start : span.end] = True
    return mask


def _logprobs(
    trajectory: Trajectory, history: History, mask: NDArray[np.bool_], *, retokenized: bool
) -> NDArray[np.float32]:
    """The history's logprobs, NaN in trained completions that have none."""
    if history.logprobs is not None:
        logprobs = np.frombuffer(history.logprobs.data, "<f4")
    else:
        logprobs = np.zeros(len(mask), np.float32)
        for span in history.spans:
            recorded = None if retokenized else _recorded_logprobs(trajectory, span)
            logprobs[span.start : span.end] = np.nan if recorded is None else recorded
    unknown = np.isnan(logprobs)
    return np.where(unknown & ~mask, np.float32(0), logprobs) if unknown.any() else logprobs


def _recorded_logprobs(trajectory: Trajectory, span: CompletionSpan) -> NDArray[np.float32] | None:
    """The logprobs of a completion, None where they are unknown."""
    logprobs = trajectory.turns[span.turn].logprobs
    if logprobs is None or len(logprobs) != span.end - span.start:
        return None
    return np.frombuffer(logprobs.data, "<f4")


def _extras(token_rewards: TokenRewards, trained: Sequence[CompletionSpan], size: int) -> NDArray[np.float32]:
    extras = np.zeros(size, np.float32)
    for span in trained:
        extras[span.start : span.end] = token_rewards.get(span.turn, 0.0)
    return extras
