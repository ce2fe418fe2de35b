"""Sequences: a trajectory as token sequences with masks, logprobs and advantages, and a verdict on each completion.

Invariant: each completion is trained in exactly one sequence, or its verdict is the reason why not. All arrays of a
sequence have one length. The loss mask covers exactly the completions that are trained in this history and have a
reward to train with; outside of it advantages are 0.0 and logprobs are numbers.
"""

from collections import Counter
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import not_
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from art_otel.calls import TokenIds
from art_otel.data.choosing import untrained_in
from art_otel.data.completion_sampling import CompletionSampling, completion_sampling, of_each_token
from art_otel.data.plan import TurnReward
from art_otel.data.rewards import UNUSABLE, TokenRewards, Weights, count_by_name, token_rewards
from art_otel.data.token_facts import routed_experts, sampling_mask, weight_versions
from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import CompletionSpan, TokenHistory, Trajectory, token_histories, version_of

Overflow: TypeAlias = Literal["drop", "truncate", "raise"]
EMPTY: Final = "no tokens sampled"
NO_IDS: Final = "no token ids"
NOTHING: Final = "nothing sampled"
TOO_LONG: Final = "longer than max_tokens"

_NO_EXTRAS: Final[TokenRewards] = {}
"""The token rewards of ids that were made here: such rewards are given for positions among the server's ids."""


class SequenceHistories(NamedTuple):
    """The token histories of a trajectory: `recorded` of the server's ids, `made` of ids that were made here of text.

    `skipped` is why turns are in none of them, where that is not that they have no ids.
    """

    recorded: Sequence[TokenHistory]
    made: Sequence[TokenHistory] = ()
    skipped: Mapping[int, str] = {}


HistorySource: TypeAlias = Callable[[Trajectory], SequenceHistories]


class SequenceCounts(NamedTuple):
    """What reports count of a sequence: tokens, and completions of which something is said."""

    tokens: int
    trained_tokens: int
    completions: int
    without_logprobs: int
    zero_advantage_tokens: int
    zero_logprobs: int
    altered: tuple[str, ...] = ()
    without_stop_token: int = 0
    retokenized: bool = False


@dataclass(frozen=True, slots=True)
class PlannedSequence:
    """A sequence of another rank, known by its counts alone. `number` is that of its trajectory."""

    number: int
    counts: SequenceCounts

    def __len__(self) -> int:
        return self.counts.tokens


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TokenSequence:
    """Arrays of shape (tokens,): int32 ids, bool mask, float32 logprobs, advantages and token rewards.

    `logprobs` are 0.0 where nothing was sampled and NaN where a trained token has none. `advantages` and
    `token_rewards` are None where nobody asked for them. `completions` are those under the mask, of at least one token,
    `rewards` the reward of each, `samplings` how each was sampled. `policy_version` is that of the first trained call.
    `retokenized` says that the ids are not the server's. `weight_versions` (int64) has the number of the version that
    sampled each trained token, -1 elsewhere. `routed_experts` (int32, shape (tokens, layers, experts), -1 where
    unknown) and `sampling_mask` (the ids that each trained token could have been) are None where nobody asked for them.
    `rollout_tokens` counts the trained tokens of all sequences of the rollout.
    """

    rollout_id: str
    group_id: str | None
    training_step: int | None
    gathering: str | None
    policy_version: str | None
    turns: tuple[int, ...]
    completions: tuple[CompletionSpan, ...]
    rewards: tuple[float | None, ...]
    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    advantages: NDArray[np.float32] | None
    token_rewards: NDArray[np.float32] | None = None
    samplings: tuple[CompletionSampling, ...]
    retokenized: bool = False
    weight_versions: NDArray[np.int64]
    routed_experts: NDArray[np.int32] | None = None
    sampling_mask: tuple[TokenIds, ...] | None = None
    rollout_tokens: int = 0

    def __len__(self) -> int:
        return len(self.input_ids)

    def __repr__(self) -> str:
        return f"<TokenSequence {len(self)} tokens, {self.trained_tokens} trained, rollout {self.rollout_id!r:.100}>"

    @property
    def reward(self) -> float | None:
        """The reward of the last trained completion."""
        return self.rewards[-1]

    @property
    def trained_tokens(self) -> int:
        """How many tokens are under the mask."""
        return int(np.count_nonzero(self.loss_mask))

    @property
    def without_logprobs(self) -> int:
        """How many trained tokens have no logprob."""
        return int(np.count_nonzero(np.isnan(self.logprobs)))

    @property
    def counts(self) -> SequenceCounts:
        """What reports count of it."""
        trained = self.trained_tokens
        with_gradient = trained if self.advantages is None else int(np.count_nonzero(self.advantages))  # 0.0 elsewhere
        return SequenceCounts(
            tokens=len(self),
            trained_tokens=trained,
            completions=len(self.completions),
            without_logprobs=self.without_logprobs,
            zero_advantage_tokens=trained - with_gradient,
            zero_logprobs=sum(one.has_zero_logprobs for one in self.samplings),
            altered=tuple([one.altered for one in self.samplings if one.altered is not None]),
            without_stop_token=sum(not span.is_end_known for span in self.completions),
            retokenized=self.retokenized,
        )

    @property
    def temperature(self) -> NDArray[np.float32]:
        """The temperature of each trained token: NaN where its request has none, 1.0 elsewhere. Shape: (tokens,)."""
        return of_each_token("temperature", self.completions, self.samplings, len(self))

    @property
    def top_p(self) -> NDArray[np.float32]:
        """The top-p of each trained token: NaN where its request has none, 1.0 elsewhere. Shape: (tokens,)."""
        return of_each_token("top_p", self.completions, self.samplings, len(self))

    def scored(self) -> "TokenSequence | None":
        """The sequence without its completions of which a logprob is unknown; None where all are of these."""
        unknown = np.isnan(self.logprobs)
        if not unknown.any():
            return self
        kept = [not unknown[span.start : span.end].any() for span in self.completions]
        if not any(kept):
            return None
        mask = self.loss_mask.copy()
        for span in compress(self.completions, map(not_, kept)):
            mask[span.start : span.end] = False
        return replace(
            self,
            completions=tuple(compress(self.completions, kept)),
            rewards=tuple(compress(self.rewards, kept)),
            samplings=tuple(compress(self.samplings, kept)),
            loss_mask=mask,
            logprobs=np.where(unknown, np.float32(0), self.logprobs),
            advantages=None if self.advantages is None else np.where(mask, self.advantages, np.float32(0)),
            token_rewards=None if self.token_rewards is None else np.where(mask, self.token_rewards, np.float32(0)),
            weight_versions=np.where(mask, self.weight_versions, -1),
        )

    def truncate(self, size: int) -> "TokenSequence | None":
        """The sequence's first `size` tokens; None where they train nothing."""
        completions = tuple(span for span in self.completions if span.start < size)
        if not completions:
            return None
        return replace(
            self,
            completions=completions,
            rewards=self.rewards[: len(completions)],
            samplings=self.samplings[: len(completions)],
            input_ids=self.input_ids[:size],
            loss_mask=self.loss_mask[:size],
            logprobs=self.logprobs[:size],
            advantages=None if self.advantages is None else self.advantages[:size],
            token_rewards=None if self.token_rewards is None else self.token_rewards[:size],
            weight_versions=self.weight_versions[:size],
            routed_experts=None if self.routed_experts is None else self.routed_experts[:size],
            sampling_mask=None if self.sampling_mask is None else self.sampling_mask[:size],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What is trained of one trajectory.

    `skipped` is the reason why nothing of it is trained, or None if something is. `completions` has shape (turns,):
    None for a completion that is trained, otherwise the reason why not. It is empty if an option refused the whole
    trajectory.
    """

    rollout_id: str
    skipped: str | None
    completions: tuple[str | None, ...] = ()


_NO_VERDICT: Final = Verdict(rollout_id="", skipped=None)


@dataclass(kw_only=True, slots=True)
class BuiltSequences:
    """The sequences of one trajectory and the verdict on it.

    `dropped` are sequences longer than `max_tokens`; `truncated` counts those that were cut, `truncated_tokens` what
    they lost. `token_rewards` counts those given by name, `unplaced_token_rewards` completions
    that have some, but no tokens of the server's.
    """

    sequences: list[TokenSequence]
    verdict: Verdict
    dropped: list[TokenSequence] = field(default_factory=list[TokenSequence])
    truncated: int = 0
    truncated_tokens: int = 0
    truncated_trained_tokens: int = 0
    unplaced_token_rewards: int = 0
    token_rewards: Counter[str] = field(default_factory=Counter[str])


def recorded_histories(trajectory: Trajectory) -> SequenceHistories:
    """The histories of the token ids that the server gave."""
    return SequenceHistories(token_histories(trajectory))


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceBuilder:
    """Builds the sequences of trajectories.

    `max_tokens` is the longest a sequence may be (None: any length), `overflow` what becomes of a longer one, `weights`
    are those of token rewards. `histories` gives the token histories; `tokenizer` names what makes some of messages.
    `token_facts` names what else of each token is given. Which completions an option leaves out, their `TurnReward`
    says.
    """

    advantages: bool
    max_tokens: int | None = None
    overflow: Overflow = "drop"
    weights: Weights | None = None
    histories: HistorySource = recorded_histories
    tokenizer: str | None = None
    token_facts: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """What decides which sequences there are."""
        weights = sorted((self.weights or {}).items())
        limit = f"max_tokens={self.max_tokens} overflow={self.overflow}"
        made_of = f"token_rewards={weights} tokenizer={self.tokenizer} token_facts={sorted(self.token_facts)}"
        return f"{limit} {made_of}"

    @property
    def is_recorded(self) -> bool:
        """Whether columns tell all sequences: no token is made here, and no fact of a token changes what is known."""
        return self.tokenizer is None and not self.token_facts

    @property
    def wanted(self) -> Wanted:
        """The parts of trajectories that are read."""
        return Wanted(messages=self.tokenizer is not None, token_facts=self.token_facts)

    def build(self, trajectory: Trajectory, turn_rewards: Sequence[TurnReward]) -> BuiltSequences:
        """Build the sequences of a selected trajectory. `turn_rewards` has shape (turns,).

        Raises UsageError for a sequence that is too long, where `overflow` says so.
        """
        recorded, made, skipped_turns = self.histories(trajectory)
        histories = [*((history, False) for history in recorded), *((history, True) for history in made)]
        # Whatever the rewards are. Where ids are made, it is the text of a completion without ids that has to be right.
        view = "tokens" if self.tokenizer is None else "made tokens"
        with_tokens = {turn for history, _ in histories for turn in history.turns}
        reasons: list[str | None] = [
            untrained_in(turn, view) or (None if position in with_tokens else skipped_turns.get(position, NO_IDS))
            for position, turn in enumerate(trajectory.turns)
        ]
        built = BuiltSequences(sequences=[], verdict=_NO_VERDICT)
        extras = None
        if self.weights is not None:
            extras = token_rewards(trajectory, self.weights)
            built.token_rewards = count_by_name(trajectory, self.weights)
        for history, retokenized in histories:
            if retokenized and extras:
                built.unplaced_token_rewards += sum(turn in extras for turn in history.turns)
            sequence = _build_sequence(
                trajectory,
                history,
                turn_rewards,
                reasons,
                advantages=self.advantages,
                token_rewards=_NO_EXTRAS if retokenized and extras is not None else extras,
                token_facts=self.token_facts,
                retokenized=retokenized,
            )
            if sequence is not None:
                self._add(sequence, built, reasons)
        tokens = sum(sequence.trained_tokens for sequence in built.sequences)
        built.sequences = [replace(sequence, rollout_tokens=tokens) for sequence in built.sequences]
        skipped = None if built.sequences else _most_common(reasons)
        built.verdict = Verdict(rollout_id=trajectory.rollout_id, skipped=skipped, completions=tuple(reasons))
        return built

    def _add(self, sequence: TokenSequence, built: BuiltSequences, reasons: list[str | None]) -> None:
        """Add the sequence, or what `overflow` leaves of one that is too long."""
        if self.max_tokens is None or len(sequence) <= self.max_tokens:
            built.sequences.append(sequence)
            return
        if self.overflow == "raise":
            raise UsageError(
                f"rollout {sequence.rollout_id}: a sequence of {len(sequence)} tokens, max_tokens is {self.max_tokens};"
                ' allow more, or say overflow="drop" or "truncate"'
            )
        rest = sequence.truncate(self.max_tokens) if self.overflow == "truncate" else None
        for span in sequence.completions[0 if rest is None else len(rest.completions) :]:
            reasons[span.turn] = TOO_LONG
        if rest is None:
            built.dropped.append(sequence)
            return
        built.sequences.append(rest)
        built.truncated += 1
        built.truncated_tokens += len(sequence) - len(rest)
        built.truncated_trained_tokens += sequence.trained_tokens - rest.trained_tokens


def _most_common(reasons: Sequence[str | None]) -> str:
    """Why no sequence came of a trajectory: what most of its completions were skipped for."""
    counts = Counter(reason for reason in reasons if reason is not None).most_common(1)
    return counts[0][0] if counts else NOTHING


def _build_sequence(
    trajectory: Trajectory,
    history: TokenHistory,
    turn_rewards: Sequence[TurnReward],
    reasons: MutableSequence[str | None],
    *,
    advantages: bool,
    token_rewards: TokenRewards | None = None,
    token_facts: frozenset[str] = frozenset(),
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
        gathering=trajectory.gathering,
        policy_version=version_of(trajectory, trajectory.calls[trajectory.turns[trained[0].turn].call]),
        turns=history.turns,
        completions=tuple(trained),
        rewards=tuple([turn_rewards[span.turn].reward for span in trained]),
        input_ids=np.frombuffer(history.token_ids.data, "<i4"),
        loss_mask=mask,
        logprobs=_logprobs(trajectory, history, mask, masked="sampling_mask" in token_facts, retokenized=retokenized),
        advantages=gains,
        token_rewards=None if token_rewards is None else _extras(token_rewards, trained, len(mask)),
        samplings=tuple([_sampling(trajectory, span, retokenized=retokenized) for span in trained]),
        retokenized=retokenized,
        weight_versions=weight_versions(trajectory, trained, len(mask)),
        routed_experts=routed_experts(trajectory, history.spans, len(mask))
        if "routed_experts" in token_facts and not retokenized
        else None,
        sampling_mask=sampling_mask(trajectory, trained, len(mask)) if "sampling_mask" in token_facts else None,
    )


def _skip_reason(span: CompletionSpan, turn_reward: TurnReward, token_rewards: TokenRewards | None) -> str | None:
    if span.start == span.end:
        return EMPTY
    unusable = token_rewards is not None and token_rewards.get(span.turn, ()) is None
    return turn_reward.skipped or (UNUSABLE if unusable else None)


def _sampling(trajectory: Trajectory, span: CompletionSpan, *, retokenized: bool) -> CompletionSampling:
    turn = trajectory.turns[span.turn]
    return completion_sampling(trajectory.calls[turn.call], turn, has_logprobs=not retokenized)


def _mask(history: TokenHistory, trained: Sequence[CompletionSpan]) -> NDArray[np.bool_]:
    """Mask these completions alone. Shape: (tokens,)."""
    mask = np.zeros(len(history.token_ids), np.bool_)
    for span in trained:
        mask[span.start : span.end] = True
    return mask


def _logprobs(
    trajectory: Trajectory, history: TokenHistory, mask: NDArray[np.bool_], *, masked: bool, retokenized: bool
) -> NDArray[np.float32]:
    """The history's logprobs, NaN in trained completions that have none or whose logprobs are masked.

    Where sampling masks are given (`masked`), such a completion that has one keeps its logprobs: who applies the
    mask compares with the distribution from which it was sampled.
    """
    has_masked = any(trajectory.calls[trajectory.turns[turn].call].has_masked_logprobs for turn in history.turns)
    if history.logprobs is not None and not has_masked:
        logprobs = np.frombuffer(history.logprobs.data, "<f4")
    else:
        logprobs = np.zeros(len(mask), np.float32)
        for span in history.spans:
            recorded = None if retokenized else _recorded_logprobs(trajectory, span, masked=masked)
            logprobs[span.start : span.end] = np.nan if recorded is None else recorded
    unknown = np.isnan(logprobs)
    return np.where(unknown & ~mask, np.float32(0), logprobs) if unknown.any() else logprobs


def _recorded_logprobs(trajectory: Trajectory, span: CompletionSpan, *, masked: bool) -> NDArray[np.float32] | None:
    """The policy's logprobs of a completion, None where they are unknown."""
    turn = trajectory.turns[span.turn]
    is_known = (masked and turn.sampling_mask is not None) or not trajectory.calls[turn.call].has_masked_logprobs
    logprobs = turn.logprobs if is_known else None
    if logprobs is None or len(logprobs) != span.end - span.start:
        return None
    return np.frombuffer(logprobs.data, "<f4")


def _extras(token_rewards: TokenRewards, trained: Sequence[CompletionSpan], size: int) -> NDArray[np.float32]:
    extras = np.zeros(size, np.float32)
    for span in trained:
        extras[span.start : span.end] = token_rewards.get(span.turn, 0.0)
    return extras
