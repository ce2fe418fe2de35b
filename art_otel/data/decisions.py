"""Decisions: which completions are trained, in which sequences and with which numbers, and why the others are not.

    columns ─► plan (rollouts, rewards, baselines) ─► sequences as numbers ─► reasons ─► counts

Invariant: every completion of a rollout that is not refused is trained in exactly one sequence, or has exactly one
reason: the first of `REASONS` that applies. Batches, exports and the page all use these decisions, so that they agree.

Decisions are made over columns, without reading messages and tokens. Three of them need trajectories:

    the ids that a tokenizer makes of messages      `TrainingDecisions.made_of`, for completions without ids
    the logprobs that a cut completion keeps        `_without_logprobs`, if some of its logprobs are unknown
    the rewards of a credit that is a function      `plan`
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from art_otel.data.choosing import HOW_SAMPLED, NOT_THE_POLICYS
from art_otel.data.columns import EVERY_PART, Coded, Columns, Flags, Floats, Ints, columns_of
from art_otel.data.credit import token_rewards_by_turn
from art_otel.data.rewards import UNUSABLE, Weights
from art_otel.data.sources import Chunk, read_ids, read_numbered
from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import CONTEXT_EXCEEDED, TextUntrained, TokenHistory, TokensUntrained, Trajectory

Overflow: TypeAlias = Literal["drop", "truncate", "raise"]

NO_IDS: Final = "no token ids"
EMPTY: Final = "no tokens sampled"
TOO_LONG: Final = "longer than max_tokens"
NOTHING: Final = "nothing sampled"
NOT_MADE: Final = (
    "messages unknown", "not a chat", "continues a message", "not text alone", "rejected by the chat template",
    "prompt rendered otherwise", "not rendered whole",
)  # fmt: skip
"""Why a tokenizer cannot make the ids of a completion."""

_FEW: Final = 8
"""A completion of at most so many tokens may really have had a probability of 1 for each (logprob 0.0)."""

_UNKNOWN_MODE: Final = "unknown"
"""The name of the distribution that logprobs are of, if it was not recorded."""

REASONS: Final = tuple(
    dict.fromkeys(
        (*get_args(TokensUntrained), *get_args(TextUntrained), *NOT_MADE, NO_IDS, EMPTY, *NOT_THE_POLICYS,
         *HOW_SAMPLED, "zero variance", "no reward", UNUSABLE, TOO_LONG)
    )
)  # fmt: skip
"""All reasons why a completion is not trained. If several apply, the first of this list counts."""
CODES: Final = {reason: code for code, reason in enumerate(REASONS)}
"""The position of each reason in REASONS."""

Codes: TypeAlias = NDArray[np.int8]
"""Positions in REASONS; -1 means no reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceOptions:
    """Options of `art_otel.batches` that decide which sequences there are.

    `weights` are the weights of token rewards, `tokenizer` is the name of the tokenizer for messages without ids,
    `advantages` says whether batches have advantages.
    """

    advantages: bool
    max_tokens: int | None = None
    overflow: Overflow = "drop"
    weights: Weights | None = None
    tokenizer: str | None = None
    token_facts: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """The options that decide which sequences there are, for the name of a stored plan."""
        weights = sorted((self.weights or {}).items())
        limit = f"max_tokens={self.max_tokens} overflow={self.overflow}"
        made_of = f"token_rewards={weights} tokenizer={self.tokenizer} token_facts={sorted(self.token_facts)}"
        return f"{limit} {made_of}"

    @property
    def has_masks(self) -> bool:
        """Whether batches have sampling masks: with a mask, logprobs of grammar-masked sampling can be used."""
        return "sampling_mask" in self.token_facts

    @property
    def wanted(self) -> Wanted:
        """The parts of trajectories that must be read."""
        return Wanted(messages=self.tokenizer is not None, token_facts=self.token_facts)


class TurnReward(NamedTuple):
    """The reward and advantage that a turn is trained with; `skipped` is the reason why it is not trained.

    `reward` is None if it is unknown or unusable: NaN, infinite, or at least 1e37. `advantage` is None without the
    option `advantage`, or without a usable reward.
    """

    reward: float | None = None
    advantage: float | None = None
    skipped: str | None = None


class SequenceCounts(NamedTuple):
    """Counts of one sequence for reports: tokens, trained completions, and of these how many are remarkable."""

    tokens: int
    trained_tokens: int
    completions: int
    without_logprobs: int
    zero_advantage_tokens: int
    zero_logprobs: int
    without_stop_token: int
    retokenized: int
    altered: tuple[str, ...] = ()


CountsByName: TypeAlias = Mapping[str, NDArray[np.int32]]
"""Counts of each rollout for reports, by the names of `BatchReport`; `too_long` counts skipped sequences. A name whose
counts are all 0 may be missing. Shape: (rows,)."""


class RolloutDecision(NamedTuple):
    """The decisions of one rollout: its turns, and its sequences in the order of its token histories."""

    turns: tuple[TurnReward, ...]
    sequences: list[SequenceCounts]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingDecisions:
    """The decisions of some rollouts, as columns. A row is a rollout; turns and sequences of all rows are in one array.

    Shapes: (rows,), (turns,), (sequences,), and (rows + 1,) of offsets.
    """

    refused: Coded  # why an option leaves the row out as a whole
    turn_offsets: Ints  # the turns of row i are [turn_offsets[i], turn_offsets[i + 1])
    reasons: Codes  # why the turn is not trained; -1 also in refused rows
    rewards: Floats  # NaN without a usable reward
    advantages: Floats  # NaN without an advantage
    to_make: Flags  # turns whose ids a tokenizer makes, so that their reasons are not final
    sequence_offsets: Ints
    sequences: NDArray[np.int32]  # the numbers of `SequenceCounts`, shape (sequences, 8)
    altered: Mapping[str, NDArray[np.int32]]  # completions sampled from another distribution, by their logprobs' mode
    counts: CountsByName
    token_rewards: Mapping[str, Ints] = field(default_factory=dict[str, Ints])  # rewards of spans of tokens, by name
    unusable: Mapping[int, str]  # the ids of rows with an unusable reward
    turn_sampled: NDArray[np.int32]  # sampled tokens that were recorded
    turn_trained: NDArray[np.int32]  # sampled tokens that are trained
    counted: Flags  # rows of which all sampled tokens were recorded

    def __len__(self) -> int:
        return len(self.counted)

    def of(self, rows: Sequence[int]) -> "TrainingDecisions":
        """The decisions of some rows, in the order of `rows`."""
        chosen = np.asarray(rows, np.int64)
        (turns, turn_offsets), (sequences, sequence_offsets) = (
            _ranges(offsets, chosen) for offsets in (self.turn_offsets, self.sequence_offsets)
        )
        return TrainingDecisions(
            refused=self.refused[chosen],
            turn_offsets=turn_offsets,
            reasons=self.reasons[turns],
            rewards=self.rewards[turns],
            advantages=self.advantages[turns],
            to_make=self.to_make[turns],
            sequence_offsets=sequence_offsets,
            sequences=self.sequences[sequences],
            altered={mode: counts[sequences] for mode, counts in self.altered.items()},
            counts={name: counts[chosen] for name, counts in self.counts.items()},
            token_rewards={name: counts[chosen] for name, counts in self.token_rewards.items()},
            unusable={place: self.unusable[row] for place, row in enumerate(rows) if row in self.unusable}
            if self.unusable
            else {},
            turn_sampled=self.turn_sampled[turns],
            turn_trained=self.turn_trained[turns],
            counted=self.counted[chosen],
        )

    def each(self) -> Iterator[RolloutDecision]:
        """The decision of each row, as objects."""
        reasons = [None if code < 0 else REASONS[code] for code in self.reasons.tolist()]
        numbers = zip(_or_none(self.rewards), _or_none(self.advantages), reasons, strict=True)
        turns = [TurnReward(*each) for each in numbers]
        sequences = [SequenceCounts(*each) for each in self.sequences.tolist()]
        for mode, counts in self.altered.items():
            for place in np.flatnonzero(counts).tolist():
                altered = (*sequences[place].altered, *(mode,) * int(counts[place]))
                sequences[place] = sequences[place]._replace(altered=altered)
        ends = zip(self.turn_offsets.tolist(), self.sequence_offsets.tolist(), strict=True)
        start, first = next(ends)
        for end, last in ends:
            yield RolloutDecision(tuple(turns[start:end]), sequences[first:last])
            start, first = end, last

    @property
    def skipped(self) -> list[str | None]:
        """Why a row trains nothing: refused, or the most common reason of its completions; None if it trains."""
        whole: list[str | None] = list(self.refused)
        ends = self.turn_offsets.tolist()
        for row in np.flatnonzero((np.diff(self.sequence_offsets) == 0) & ~self.refused.known).tolist():
            codes = self.reasons[ends[row] : ends[row + 1]].tolist()
            whole[row] = most_common_reason([REASONS[code] for code in codes])
        return whole

    @property
    def is_unusable(self) -> Flags:
        """Which rows train nothing and have an unusable reward. Shape: (rows,)."""
        trained = _summed((self.reasons < 0).astype(np.int64), self.turn_offsets) > 0
        return ~trained & np.isin(np.arange(len(self)), list(self.unusable))

    @property
    def trained(self) -> Ints:
        """How many tokens of each row are trained. Shape: (rows,)."""
        return _summed(self.turn_trained, self.turn_offsets)

    @property
    def sampled(self) -> Ints:
        """How many sampled tokens of each row were recorded. Shape: (rows,)."""
        return _summed(self.turn_sampled, self.turn_offsets)

    def made_of(
        self,
        made: Sequence[TokenHistory],
        not_made: Mapping[int, str],
        rewarded: frozenset[int],
        options: SequenceOptions,
        rollout_id: str,
    ) -> "TrainingDecisions":
        """Add the sequences that a tokenizer made of a rollout's messages to the decisions of this rollout.

        `not_made` has the reasons of turns without made ids. `rewarded` turns have token rewards, which belong to the
        server's ids and cannot be placed in made ids: they are counted. Raises UsageError for a sequence that is too
        long with `overflow="raise"`.
        """
        reasons = self.reasons.copy()
        in_history = {span.turn for history in made for span in history.spans}
        for turn in np.flatnonzero(self.to_make).tolist():
            if turn not in in_history:
                reasons[turn] = CODES[not_made.get(turn, NO_IDS)]
        of_histories = [(number, span) for number, history in enumerate(made) for span in history.spans]
        for _, span in of_histories:
            if span.start == span.end:
                reasons[span.turn] = CODES[EMPTY]
        spans = [span for _, span in of_histories if reasons[span.turn] < 0]
        turns, starts, ends = np.array([(one.turn, one.start, one.end) for one in spans], np.int64).reshape(-1, 3).T
        places = [number for number, span in of_histories if reasons[span.turn] < 0]
        numbers, sequences = np.unique(np.array(places, np.int64), return_inverse=True)
        placed = TrainedSpans(
            turns=turns,
            sequences=sequences,
            starts=starts,
            sizes=ends - starts,
            lengths=np.array([len(made[number].token_ids) for number in map(int, numbers)], np.int64),
            rows=np.zeros(len(numbers), np.int64),
        )
        fitted, counts = _fit(placed, reasons, options, 1, lambda _: rollout_id)
        is_end_unknown = {span.turn for span in spans if not span.is_end_known}
        sizes = fitted.sizes
        numbers_of = _sequence_counts(
            fitted,
            without_logprobs=sizes,
            zero_advantage_tokens=sizes * (self.advantages[fitted.turns].astype(np.float32) == 0),
            without_stop_token=np.array([turn in is_end_unknown for turn in fitted.turns.tolist()], np.int64),
            retokenized=1,
        )
        unplaced = sum(turn in rewarded for history in made for turn in history.turns)
        turn_trained = self.turn_trained.copy()
        turn_trained[fitted.turns] = fitted.sizes
        return replace(
            self,
            reasons=reasons,
            turn_trained=turn_trained,
            sequence_offsets=np.array([0, len(self.sequences) + len(numbers_of)]),
            sequences=np.concatenate([self.sequences, numbers_of]),
            altered={mode: np.append(each, np.zeros_like(numbers_of[:, 0])) for mode, each in self.altered.items()},
            counts=_sums(self.counts, _counts_of(1, **counts, unplaced_token_rewards=unplaced)),
        )


class TrainedSpans(NamedTuple):
    """The trained completions and their places: `sizes[i]` tokens from `starts[i]` of sequence `sequences[i]`.

    Completion i is turn `turns[i]`. Sequence j has `lengths[j]` tokens and is of rollout `rows[j]`. Shapes:
    (completions,) and (sequences,).
    """

    turns: Ints
    sequences: Ints
    starts: Ints
    sizes: Ints
    lengths: Ints
    rows: Ints


def decide(
    columns: Columns,
    chunks: Sequence[Chunk],
    refused: Coded,
    untrained: Coded,
    turns: tuple[Floats, Floats, Coded],
    options: SequenceOptions | None,
    shared_steps: Ints,
) -> TrainingDecisions:
    """Decide what is trained of the rollouts of these chunks; `columns` are their columns.

    `refused` is why a rollout is left out, `untrained` why a completion must not be trained, `turns` has the reward and
    advantage of each completion, and why these or an option leave it out. Without `options` there are no sequences:
    every completion without a reason is trained as text. Raises StoreError if a file cannot be read, UsageError for a
    sequence that is too long with `overflow="raise"`.
    """
    rewards, advantages, left_out = turns
    rows, selected = columns.turn_rows, ~refused.known
    sampled = np.maximum(columns.sampled_tokens, 0)
    reasons, skipped = _codes_of(untrained), _codes_of(left_out)
    to_make = np.zeros(len(rows), np.bool_)
    counts: dict[str, Any] = {}
    names: dict[str, Ints] = {}
    sequences = np.zeros((0, len(SequenceCounts._fields) - 1), np.int32)
    altered: Mapping[str, NDArray[np.int32]] = {}
    sequence_rows = np.zeros(0, np.int64)
    turn_trained = np.zeros(len(rows), np.int32)
    if options is not None:
        if options.weights is not None:
            names, is_unusable = token_rewards_by_turn(columns, selected, options.weights)
            skipped = np.where(is_unusable & (skipped < 0), CODES[UNUSABLE], skipped).astype(np.int8)
        owners = _owners(columns)
        has_none = (owners < 0) & (reasons < 0)
        if options.tokenizer is None:
            reasons[has_none] = CODES[NO_IDS]
        else:
            to_make = has_none & selected[rows]
        reasons[(reasons < 0) & (owners >= 0) & (sampled == 0)] = CODES[EMPTY]
        reasons = np.where(reasons < 0, skipped, reasons)
        of_ids = np.flatnonzero(selected[rows] & (owners >= 0) & (reasons < 0))
        leaves, places = np.unique(owners[of_ids], return_inverse=True)
        spans = TrainedSpans(
            turns=of_ids,
            sequences=places,
            starts=columns.prompt_tokens[of_ids],
            sizes=sampled[of_ids],
            lengths=(columns.prompt_tokens + sampled)[leaves],
            rows=rows[leaves],
        )
        fitted, counts = _fit(spans, reasons, options, len(columns), lambda row: read_ids(chunks, [row])[row])
        turn_trained[fitted.turns] = fitted.sizes
        sequence_rows = fitted.rows
        sequences, altered = _recorded_sequences(columns, chunks, fitted, advantages, has_masks=options.has_masks)
    else:
        reasons = np.where(reasons < 0, skipped, reasons)
    reasons[~selected[rows]] = -1  # a refused rollout is counted once, not again with each of its completions
    is_uncounted = (turn_trained > 0) & columns.is_uncounted[columns.turn_calls]
    return TrainingDecisions(
        refused=refused,
        turn_offsets=columns.turn_offsets,
        reasons=reasons,
        rewards=rewards,
        advantages=advantages,
        to_make=to_make,
        sequence_offsets=np.searchsorted(sequence_rows, np.arange(len(columns) + 1)),
        sequences=sequences,
        altered=altered,
        counts=_counts_of(
            len(columns),
            context_exceeded=columns.end.equals(CONTEXT_EXCEEDED) & selected,
            drifts=np.where(selected, columns.drifts, 0),
            rewritten_prompts=np.where(selected, columns.rewritten_prompts, 0),
            uncounted_completions=_summed(is_uncounted.astype(np.int64), columns.turn_offsets),
            shared_steps=np.where(selected, np.bincount(shared_steps, minlength=len(columns)), 0),
            **counts,
        ),
        token_rewards=names,
        unusable=read_ids(chunks, np.unique(rows[reasons == CODES[UNUSABLE]]).tolist()),
        turn_sampled=sampled.astype(np.int32),
        turn_trained=turn_trained,
        counted=_summed((columns.sampled_tokens < 0).astype(np.int64), columns.turn_offsets) == 0,
    )


def decide_again(trajectory: Trajectory, turns: Sequence[TurnReward], options: SequenceOptions) -> TrainingDecisions:
    """Decide again, with `options`, what is trained of one trajectory in memory.

    `turns` are the earlier decisions of its turns. Raises UsageError for a sequence that is too long with
    `overflow="raise"`.
    """
    columns = columns_of([trajectory], EVERY_PART)
    numbers = [(turn.reward, turn.advantage) for turn in turns]
    rewards, advantages = np.array(numbers, np.float64).reshape(-1, 2).T  # None is NaN
    return decide(
        columns,
        [Chunk(first=0, rows=1, stored=[trajectory])],
        Coded.of([None]),
        Coded.of(turn.skipped for turn in turns),
        (rewards, advantages, Coded.of(None for _ in turns)),
        options,
        np.zeros(0, np.int64),
    )


def most_common_reason(reasons: Sequence[str | None]) -> str:
    """The most common reason of a rollout's completions, the first one among equally common; NOTHING without any."""
    counts = Counter(reason for reason in reasons if reason is not None).most_common(1)
    return counts[0][0] if counts else NOTHING


def _owners(columns: Columns) -> Ints:
    """For each turn the leaf of the first token history that has it; -1 without one. Shape: (turns,).

    The same leaves as in `token_histories`: turns with ids that no turn with ids continues.
    """
    count = len(columns.call)
    has_parent = columns.token_parent >= 0
    parents = columns.turn_offsets[columns.turn_rows] + columns.token_parent
    continued = np.zeros(count, np.bool_)
    continued[parents[columns.has_tokens & has_parent]] = True
    turns = leaves = np.flatnonzero(columns.has_tokens & ~continued)
    owners = np.full(count, count)
    while len(turns):  # one step towards the roots for all histories at once: a loop over turns would be slow in Python
        np.minimum.at(owners, turns, leaves)
        goes_on = has_parent[turns]
        turns, leaves = parents[turns[goes_on]], leaves[goes_on]
    return np.where(owners == count, -1, owners)


def _fit(
    spans: TrainedSpans, reasons: Codes, options: SequenceOptions, rollouts: int, name_of: Callable[[int], str]
) -> tuple[TrainedSpans, dict[str, Ints]]:
    """Fit the sequences into `max_tokens`; return them and counts per rollout, and set TOO_LONG in `reasons`.

    A sequence that is too long is dropped, or with `overflow="truncate"` loses its end:

        max_tokens=6   prompt prompt A A tool B|B       A is whole, B loses a token
                       prompt prompt A A tool tool|B    B is too long

    Raises UsageError with `overflow="raise"`.
    """
    limit = options.max_tokens
    if limit is None or not (is_long := spans.lengths > limit).any():
        return spans, {}
    if options.overflow == "raise":
        first = int(np.argmax(is_long))
        raise UsageError(
            f"rollout {name_of(int(spans.rows[first]))}: a sequence has {spans.lengths[first]} tokens, but max_tokens "
            f'is {limit}; raise it, or choose overflow="drop" or "truncate"'
        )
    in_long = is_long[spans.sequences]
    kept = ~in_long | ((spans.starts < limit) & (options.overflow == "truncate"))
    has_some = np.bincount(spans.sequences[kept], minlength=len(spans.lengths)) > 0
    sizes = np.where(in_long, np.minimum(spans.sizes, np.maximum(limit - spans.starts, 0)), spans.sizes)
    lost = np.where(kept, spans.sizes - sizes, spans.sizes)
    of_kept = has_some[spans.sequences]
    reasons[spans.turns[~kept]] = CODES[TOO_LONG]
    is_cut = is_long & has_some

    def by_rollout(rows: Ints, numbers: Any) -> Ints:  # noqa: ANN401 # one for all, or for each
        return np.bincount(rows, np.broadcast_to(numbers, len(rows)), rollouts).astype(np.int64)

    rows = spans.rows[spans.sequences]
    counts = {
        "too_long": by_rollout(spans.rows[~has_some], 1),
        "skipped_trained_tokens": by_rollout(rows[~of_kept], lost[~of_kept]),
        "truncated_sequences": by_rollout(spans.rows[is_cut], 1),
        "truncated_tokens": by_rollout(spans.rows[is_cut], (spans.lengths - limit)[is_cut]),
        "truncated_trained_tokens": by_rollout(rows[of_kept], lost[of_kept]),
    }
    positions = np.cumsum(has_some) - 1
    fitted = TrainedSpans(
        turns=spans.turns[kept],
        sequences=positions[spans.sequences[kept]],
        starts=spans.starts[kept],
        sizes=sizes[kept],
        lengths=np.minimum(spans.lengths, limit)[has_some],
        rows=spans.rows[has_some],
    )
    return fitted, counts


def _recorded_sequences(
    columns: Columns, chunks: Sequence[Chunk], spans: TrainedSpans, advantages: Floats, *, has_masks: bool
) -> tuple[NDArray[np.int32], Mapping[str, NDArray[np.int32]]]:
    """Count what the sequences of a server's ids have. Shape: (sequences, 8).

    The second result counts completions that were sampled from another distribution than the policy's, by the mode of
    their logprobs. Shape: (sequences,).
    """
    turns, sizes = spans.turns, spans.sizes
    calls, sampled = columns.turn_calls[turns], columns.sampled_tokens[turns]
    # `is_zero`: all logprobs are exactly 0.0 although nothing forced these tokens, so the server gave no real logprobs.
    # `is_altered`: not sampled at temperature 1 from all tokens.
    is_masked = columns.has_masked_logprobs[calls]
    is_scored = ~is_masked & (np.maximum(columns.unscored_tokens[turns], 0) < sampled)
    is_zero = is_scored & (np.maximum(columns.zero_logprobs[turns], 0) == sampled) & (sampled > _FEW)
    is_zero &= ~(columns.is_constrained | columns.is_greedy)[calls]
    is_altered = is_scored & columns.is_altered[calls]
    places, modes = spans.sequences[is_altered], columns.logprobs_mode[calls[is_altered]]
    altered = {
        mode or _UNKNOWN_MODE: np.bincount(places[modes.equals(mode)], minlength=len(spans.lengths)).astype(np.int32)
        for mode in dict.fromkeys(modes)
    }
    if has_masks:
        is_masked &= ~columns.has_sampling_mask[turns]
    counts = _sequence_counts(
        spans,
        without_logprobs=_without_logprobs(columns, chunks, spans, is_masked),
        zero_advantage_tokens=sizes * (advantages[turns].astype(np.float32) == 0),
        zero_logprobs=is_zero,
    )
    return counts, altered


def _without_logprobs(columns: Columns, chunks: Sequence[Chunk], spans: TrainedSpans, masked: Flags) -> Ints:
    """How many trained tokens of each span have no logprob; with `masked` logprobs none has one. Shape: (spans,)."""
    unscored = np.maximum(columns.unscored_tokens[spans.turns], 0)
    sampled = columns.sampled_tokens[spans.turns]
    counts = np.where(masked, spans.sizes, np.minimum(unscored, spans.sizes))
    # If a completion was cut and some of its logprobs are unknown, the columns do not say which: read them.
    in_part = (spans.sizes < sampled) & ~masked & (unscored > 0) & (unscored < sampled)
    places: dict[int, list[int]] = {}
    for place in np.flatnonzero(in_part).tolist():
        places.setdefault(int(columns.turn_rows[spans.turns[place]]), []).append(place)
    for row, trajectory in read_numbered(chunks, Wanted(messages=False), places) if places else ():
        for place in places[row]:
            logprobs = trajectory.turns[int(spans.turns[place] - columns.turn_offsets[row])].logprobs
            known = np.frombuffer(logprobs.data if logprobs else b"", "<f4")[: spans.sizes[place]]
            counts[place] = np.isnan(known).sum()
    return counts


def _sequence_counts(
    spans: TrainedSpans,
    *,
    without_logprobs: Ints,
    zero_advantage_tokens: Ints,
    zero_logprobs: Flags | int = 0,
    without_stop_token: Ints | int = 0,
    retokenized: int = 0,
) -> NDArray[np.int32]:
    """The numbers of `SequenceCounts` of each sequence. Shape: (sequences, 8)."""
    counts = np.zeros((len(spans.lengths), len(SequenceCounts._fields) - 1), np.int32)
    counts[:, 0], counts[:, -1] = spans.lengths, retokenized
    of_spans = (spans.sizes, 1, without_logprobs, zero_advantage_tokens, zero_logprobs, without_stop_token)
    for place, numbers in enumerate(of_spans, 1):
        if np.any(numbers):
            weights = np.broadcast_to(numbers, len(spans.turns))
            counts[:, place] = np.bincount(spans.sequences, weights, len(spans.lengths))
    return counts


def _counts_of(rollouts: int, **counts: Any) -> CountsByName:  # noqa: ANN401 # a number, or one a rollout
    """The counts of each rollout by name, without names whose counts are all 0."""
    return {name: np.broadcast_to(one, rollouts).astype(np.int32) for name, one in counts.items() if np.any(one)}


def _sums(one: CountsByName, other: CountsByName) -> CountsByName:
    shared = {name: one[name] + other[name] for name in one.keys() & other.keys()}
    return {**one, **other, **shared}


def _codes_of(reasons: Coded) -> Codes:
    """The positions of the texts in REASONS, -1 for None. Raises KeyError for a text that is not among them."""
    return np.array([-1 if reason is None else CODES[reason] for reason in reasons.values], np.int8)[reasons.codes]


def _or_none(numbers: Floats) -> list[float | None]:
    """The numbers, None for NaN."""
    return [number if number == number else None for number in numbers.tolist()]  # noqa: PLR0124 # NaN alone is not


def _ranges(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """The positions of the items of these rows, row after row, and the offsets of the rows among these.

    offsets [0, 2, 5], rows [1, 0]      positions [2, 3, 4, 0, 1], offsets [0, 3, 5]
    """
    sizes = offsets[rows + 1] - offsets[rows]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return np.arange(int(ends[-1])) + np.repeat(offsets[rows] - ends[:-1], sizes), ends


def _summed(values: NDArray[Any], offsets: Ints) -> Ints:
    """Sum the items' values for each row."""
    return np.diff(np.concatenate([[0], np.cumsum(values)])[offsets]).astype(np.int64)
