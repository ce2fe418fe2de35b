"""Sequences: the trained histories of a trajectory as arrays: ids, masks, logprobs and advantages.

    input_ids     1  2  3 11 12 13  4 21        a history of two turns; the second is not trained
    loss_mask     0  0  0  1  1  1  0  0
    advantages    0  0  0 .5 .5 .5  0  0

Invariant: nothing is decided here, only in `decisions`. Each trained completion is trained in the first history that
has it, within `max_tokens`. All arrays of a sequence have one length. The loss mask covers exactly the trained
completions; outside of the mask advantages are 0.0 and no logprob is NaN.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from art_otel.calls import TokenIds
from art_otel.data.decisions import SequenceCounts, SequenceOptions, TurnReward
from art_otel.data.rewards import TokenRewards, token_rewards
from art_otel.data.token_facts import of_each_token, routed_experts, sampling_mask, weight_versions
from art_otel.sampling import Sampling
from art_otel.trajectories import CompletionSpan, TokenHistory, Trajectory, token_histories, version_of


class MadeHistories(NamedTuple):
    """The token histories that a tokenizer made of messages; `skipped` has the reasons of turns without one."""

    histories: Sequence[TokenHistory] = ()
    skipped: Mapping[int, str] = {}


MakeHistories: TypeAlias = Callable[[Trajectory], MadeHistories]


@dataclass(frozen=True, slots=True)
class PlannedSequence:
    """A decided sequence of trajectory `number`; `built` is None if another rank builds and gives it."""

    number: int
    counts: SequenceCounts
    built: "TokenSequence | None" = None

    def __len__(self) -> int:
        return self.counts.tokens


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TokenSequence:
    """Arrays of shape (tokens,): int32 ids, bool mask, float32 logprobs, advantages and token rewards.

    `logprobs` are 0.0 for tokens that were not sampled, NaN for trained tokens without one. `advantages` and
    `token_rewards` are None if they were not requested. `completions` are the trained ones, of at least one token,
    `rewards` the reward of each, `samplings` how each was sampled. `policy_version` is that of the first trained call.
    `retokenized`: the ids are not the server's. `weight_versions` (int64) has the number of the version that sampled
    each trained token, -1 for other tokens. `routed_experts` (int32, shape (tokens, layers, experts), -1 if unknown)
    and `sampling_mask` (the ids that each trained token could have been) are None if they were not requested.
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
    samplings: tuple[Sampling, ...]
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
    def temperature(self) -> NDArray[np.float32]:
        """The temperature of each trained token, NaN if its request has none; 1.0 elsewhere. Shape: (tokens,)."""
        return of_each_token("temperature", self.completions, self.samplings, len(self))

    @property
    def top_p(self) -> NDArray[np.float32]:
        """The top-p of each trained token, NaN if its request has none; 1.0 elsewhere. Shape: (tokens,)."""
        return of_each_token("top_p", self.completions, self.samplings, len(self))

    def scored(self) -> "TokenSequence | None":
        """The sequence without completions that lack a logprob; None if all do. For trainers that need logprobs."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What is trained of one trajectory.

    `skipped` is the reason why nothing of it is trained, or None if something is. `completions` has shape (turns,):
    None for a completion that is trained, otherwise the reason why not. It is empty if an option refused the whole
    trajectory.
    """

    rollout_id: str
    skipped: str | None
    completions: tuple[str | None, ...] = ()


def build_sequences(
    trajectory: Trajectory,
    turns: Sequence[TurnReward],
    options: SequenceOptions,
    made: Sequence[TokenHistory] = (),
) -> list[TokenSequence]:
    """Build the sequences of a trajectory from the decisions on its turns. Shape of `turns`: (turns,).

    First come the sequences of the server's ids, then those of histories that a tokenizer `made`.
    """
    trained_before: set[int] = set()
    completions: list[tuple[TokenHistory, list[CompletionSpan], bool]] = []
    recorded = token_histories(trajectory)
    for place, history in enumerate((*recorded, *made)):
        trained = [
            span for span in history.spans if turns[span.turn].skipped is None and span.turn not in trained_before
        ]
        trained_before.update(history.turns)
        if trained:
            completions.append((history, trained, place >= len(recorded)))
    if not completions:
        return []
    limit = options.max_tokens
    every = [span for _, spans, _ in completions for span in spans]
    tokens = sum([(span.end if limit is None else min(span.end, limit)) - span.start for span in every])
    extras = None if options.weights is None else token_rewards(trajectory, options.weights)
    return [
        _build_sequence(trajectory, history, trained, turns, options, extras, tokens=tokens, retokenized=is_made)
        for history, trained, is_made in completions
    ]


def _build_sequence(
    trajectory: Trajectory,
    history: TokenHistory,
    trained: Sequence[CompletionSpan],
    turns: Sequence[TurnReward],
    options: SequenceOptions,
    token_rewards: TokenRewards | None,
    *,
    tokens: int,
    retokenized: bool,
) -> TokenSequence:
    """Build the sequence of a history that trains these completions. `tokens`: trained tokens of the whole rollout."""
    size = len(history.token_ids)
    mask = np.zeros(size, np.bool_)
    gains = np.zeros(size, np.float32) if options.advantages else None
    extras = None if token_rewards is None else np.zeros(size, np.float32)
    for span in trained:
        place = slice(span.start, span.end)
        mask[place] = True
        if gains is not None:
            gains[place] = turns[span.turn].advantage or 0.0
        # The positions of token rewards are those of the server's tokens, not of made ones.
        if extras is not None and token_rewards and not retokenized:
            given = token_rewards.get(span.turn)
            extras[place] = 0.0 if given is None else given
    experts = None
    if "routed_experts" in options.token_facts and not retokenized:
        experts = routed_experts(trajectory, history.spans, size)
    end = None if options.max_tokens is None or size <= options.max_tokens else options.max_tokens
    masks = sampling_mask(trajectory, trained, size) if options.has_masks else None
    calls = trajectory.calls
    return TokenSequence(
        rollout_id=trajectory.rollout_id,
        group_id=trajectory.group_id,
        training_step=trajectory.training_step,
        gathering=trajectory.gathering,
        policy_version=version_of(trajectory, calls[trajectory.turns[trained[0].turn].call]),
        turns=history.turns,
        completions=tuple(trained),
        rewards=tuple([turns[span.turn].reward for span in trained]),
        input_ids=np.frombuffer(history.token_ids.data, "<i4")[:end],
        loss_mask=mask[:end],
        logprobs=_logprobs(trajectory, history, trained, mask, has_masks=options.has_masks, retokenized=retokenized)[
            :end
        ],
        advantages=None if gains is None else gains[:end],
        token_rewards=None if extras is None else extras[:end],
        samplings=tuple([calls[trajectory.turns[span.turn].call].sampling for span in trained]),
        retokenized=retokenized,
        weight_versions=weight_versions(trajectory, trained, size)[:end],
        routed_experts=None if experts is None else experts[:end],
        sampling_mask=None if masks is None else masks[:end],
        rollout_tokens=tokens,
    )


def _logprobs(
    trajectory: Trajectory,
    history: TokenHistory,
    trained: Sequence[CompletionSpan],
    mask: NDArray[np.bool_],
    *,
    has_masks: bool,
    retokenized: bool,
) -> NDArray[np.float32]:
    """The history's logprobs, NaN in trained completions that have none or whose logprobs a grammar masked."""
    # With a sampling mask the trainer can apply the same mask, so that such logprobs can be compared: they stay.
    turns = [trajectory.turns[turn] for turn in history.turns]
    is_masked = any(trajectory.calls[turn.call].has_masked_logprobs for turn in turns)
    # `TokenHistory.logprobs` disregards untrained completions, but the option `closed_streams` may train some of them.
    are_known = all(trajectory.turns[span.turn].logprobs is not None for span in trained)
    if history.logprobs is not None and are_known and not is_masked:
        logprobs = np.frombuffer(history.logprobs.data, "<f4")
    else:
        logprobs = np.zeros(len(mask), np.float32)
        for span in history.spans:
            recorded = None if retokenized else _recorded_logprobs(trajectory, span, has_masks=has_masks)
            logprobs[span.start : span.end] = np.nan if recorded is None else recorded
    unknown = np.isnan(logprobs)
    return np.where(unknown & ~mask, np.float32(0), logprobs) if unknown.any() else logprobs


def _recorded_logprobs(trajectory: Trajectory, span: CompletionSpan, *, has_masks: bool) -> NDArray[np.float32] | None:
    """The policy's logprobs of a completion; None if they are unknown."""
    turn = trajectory.turns[span.turn]
    is_known = (has_masks and turn.sampling_mask is not None) or not trajectory.calls[turn.call].has_masked_logprobs
    logprobs = turn.logprobs if is_known else None
    if logprobs is None or len(logprobs) != span.end - span.start:
        return None
    return np.frombuffer(logprobs.data, "<f4")
