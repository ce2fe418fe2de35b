"""Verdict columns: what is trained of every trajectory, counted without restoring one.

Invariant: the verdicts, the tokens and the report are those of `Batches.verdicts()`, which restores each trajectory
with its tokens. Where those raise UsageError because nobody chose one of several models, these say which rows that
concerns.

    columns ─► plan ─► sequences as lengths ─► reasons ─► counts

A sequence is known by the turn that it ends with; a reason of a completion by its position in `REASONS`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from art_otel.data.choosing import HOW_SAMPLED, NOT_THE_POLICYS, SEVERAL, untrained
from art_otel.data.columns import UNKNOWN, Coded, Columns, Flags, Floats, Ints
from art_otel.data.completion_sampling import FEW
from art_otel.data.completion_sampling import UNKNOWN as UNKNOWN_MODE
from art_otel.data.plan import Plan, Scoring, needs_credit, plan_columns
from art_otel.data.report import NAMED, BatchReport
from art_otel.data.rewards import UNUSABLE, RewardedPart, Weights, sum_parts
from art_otel.data.selection import Selection
from art_otel.data.sequences import (
    EMPTY,
    NO_IDS,
    NOTHING,
    TOO_LONG,
    Overflow,
    PlannedSequence,
    SequenceBuilder,
    SequenceCounts,
)
from art_otel.data.sources import Chunk, read_columns, read_numbered
from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import CONTEXT_EXCEEDED, TokensUntrained

REASONS: Final = (
    *get_args(TokensUntrained), NO_IDS, EMPTY, "no reward", UNUSABLE, "zero variance", *NOT_THE_POLICYS, *HOW_SAMPLED,
    TOO_LONG,
)  # fmt: skip
"""Reasons of completions."""
CODES: Final = {reason: code for code, reason in enumerate(REASONS)}
"""The position of each reason in REASONS."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictColumns:
    """`skipped[i]` is why nothing of row i is trained, None where something is; `refused` marks rows an option refused.

    `completions` has a position in REASONS for each turn, -1 for none; those of row i begin at `turn_offsets[i]`.
    `advantages` are those of turns that may be trained, `trained` and `sampled` count tokens of each row, those that
    were recorded; `counted` marks rows of which all were. `problem` says what has to be chosen before anything can be
    trained; rows of which nobody chose a model are skipped as `several models`. Shapes: (rows,), (turns,) and, of
    `turn_offsets`, (rows + 1,).
    """

    skipped: list[str | None]
    refused: Flags
    completions: NDArray[np.int32]
    turn_offsets: Ints
    advantages: Floats | None
    trained: Ints
    sampled: Ints
    counted: Flags
    report: BatchReport
    problem: str | None
    sequences: "PlannedSequences"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedSequences:
    """The numbers in `SequenceCounts` of every sequence, in its order; those of row i begin at `ends[i]`.

    `altered` has the words of the few sequences that have some. Shapes: (sequences, 6) and (rows + 1,).
    """

    ends: Ints
    counts: Ints
    altered: Mapping[int, tuple[str, ...]]

    def of_row(self, row: int) -> list[PlannedSequence]:
        """The sequences of a row."""
        start, end = int(self.ends[row]), int(self.ends[row + 1])
        return [
            PlannedSequence(row, SequenceCounts(*numbers, altered=self.altered.get(place, ())))
            for place, numbers in enumerate(self.counts[start:end].tolist(), start)
        ]


def verdict_columns(
    chunks: Sequence[Chunk],
    selection: Selection,
    scoring: Scoring,
    builder: SequenceBuilder,
    report: BatchReport,
    plan: Plan | None = None,
) -> VerdictColumns:
    """Decide what is trained of the trajectories in these chunks, and count it in the report.

    Raises StoreError; UsageError where a tokenizer makes tokens, and for a sequence that is too long where `overflow`
    says so.
    """
    if builder.tokenizer is not None or builder.token_facts:
        raise UsageError("tokenizer or token_facts: verdicts from columns are of what is recorded; use verdicts()")
    is_crediting = needs_credit(selection, scoring) or builder.weights is not None
    columns = read_columns(chunks, crediting=is_crediting, counting=True)
    plan = plan or plan_columns(columns, chunks, selection, scoring)
    refused = [plan.skipped.get(row) for row in range(len(columns))]
    for row in plan.several_models.rollouts:
        refused[row] = SEVERAL
    selected = np.array([reason is None for reason in refused], np.bool_)
    skipped = _codes_of(plan.reasons)
    if builder.weights is not None:
        unusable = _count_token_rewards(columns, selected, builder.weights, report)
        skipped = np.where(unusable & (skipped < 0), CODES[UNUSABLE], skipped)
    decision = _decide(columns, selected, _codes_of(untrained(columns, selection)), skipped)
    if builder.max_tokens is not None:
        _limit(columns, decision, builder.max_tokens, builder.overflow, report)
    _count(columns, selected, decision, report)
    report.trajectories = len(columns)
    report.no_final_reward.update(plan.no_final_reward)
    report.compared, report.mixed_version_groups = plan.compared, len(plan.mixed_version_groups)
    sequences = _planned(columns, chunks, decision, plan)
    altered = tuple(chain.from_iterable(sequences.altered.values()))
    report.give([SequenceCounts(*sequences.counts.sum(axis=0).tolist(), altered=altered)])
    report.sequences = len(decision.sequences)
    report.shared_steps = sum(count for row, count in plan.shared_steps.items() if selected[row])
    whole = _whole_verdicts(columns, refused, decision)
    report.trajectories_used = whole.count(None)
    report.trajectories_skipped.update(reason for reason in whole if reason is not None)
    return VerdictColumns(
        skipped=whole,
        refused=~selected,
        completions=np.where(selected[columns.turn_rows], decision.reasons, -1).astype(np.int32),
        turn_offsets=columns.turn_offsets,
        advantages=None if plan.advantages is None else np.nan_to_num(plan.advantage, nan=0.0),
        trained=_summed(columns, decision.tokens),
        sampled=_summed(columns, _sampled(columns)),
        counted=_summed(columns, (columns.sampled_tokens < 0).astype(np.int64)) == 0,
        report=report,
        problem=plan.several_models.problem,
        sequences=sequences,
    )


@dataclass(kw_only=True, slots=True)
class _Decision:
    """What becomes of each turn. `reasons` are positions in REASONS or -1, `tokens` those that are trained.

    `owners` are the turns with which the histories end that train them, -1 where none does. `sequences` are such turns
    of the sequences that are given, `lengths` their tokens.
    """

    reasons: NDArray[np.int32]
    owners: Ints
    trained: Flags
    tokens: Ints
    sequences: Ints
    lengths: Ints


def _decide(columns: Columns, selected: Flags, reasons: NDArray[np.int32], skipped: NDArray[np.int32]) -> _Decision:
    """Decide by histories, by the verdicts of turns and by what they are skipped for, however long they are."""
    owners = _owners(columns)
    reasons[(owners < 0) & (reasons < 0)] = CODES[NO_IDS]
    sampled = _sampled(columns)
    trains = selected[columns.turn_rows] & (owners >= 0) & (reasons < 0)
    reasons = np.where(trains, np.where(sampled == 0, CODES[EMPTY], skipped), reasons)
    trained = trains & (reasons < 0)
    sequences = np.unique(owners[trained])
    return _Decision(
        reasons=reasons,
        owners=owners,
        trained=trained,
        tokens=np.where(trained, sampled, 0),
        sequences=sequences,
        lengths=(columns.prompt_tokens + sampled)[sequences],
    )


def _limit(columns: Columns, decision: _Decision, limit: int, overflow: Overflow, report: BatchReport) -> None:
    """Drop or truncate the sequences that are longer, and count them. Raises UsageError where overflow says so."""
    is_long = decision.lengths > limit
    too_long = decision.sequences[is_long]
    if not len(too_long):
        return
    if overflow == "raise":
        rollout_id = columns.rollout_id[columns.turn_rows[too_long[0]]]
        raise UsageError(
            f"rollout {rollout_id}: a sequence of {decision.lengths[is_long][0]} tokens, max_tokens is {limit};"
            ' allow more, or say overflow="drop" or "truncate"'
        )
    in_long = decision.trained & np.isin(decision.owners, too_long)
    kept = in_long & (columns.prompt_tokens < limit) & (overflow == "truncate")
    dropped = np.setdiff1d(too_long, decision.owners[kept])
    in_dropped = in_long & np.isin(decision.owners, dropped)
    tokens = np.where(in_long & ~kept, 0, decision.tokens)
    tokens[kept] = np.minimum(tokens, limit - columns.prompt_tokens)[kept]
    if len(dropped):
        report.sequences_skipped[TOO_LONG] = len(dropped)
        report.skipped_trained_tokens = int(decision.tokens[in_dropped].sum())
    lost = np.where(np.isin(decision.sequences, dropped), 0, decision.lengths - limit)
    report.truncated_sequences = len(too_long) - len(dropped)
    report.truncated_tokens = int(lost[is_long].sum())
    report.truncated_trained_tokens = int((decision.tokens - tokens)[in_long & ~in_dropped].sum())
    decision.reasons[in_long & ~kept] = CODES[TOO_LONG]
    decision.trained &= ~in_long | kept
    decision.tokens = tokens
    remains = ~np.isin(decision.sequences, dropped)
    decision.sequences, decision.lengths = decision.sequences[remains], np.minimum(decision.lengths, limit)[remains]


def _count(columns: Columns, selected: Flags, decision: _Decision, report: BatchReport) -> None:
    """Count what was decided of completions and sequences."""
    reasons = decision.reasons[selected[columns.turn_rows]]
    report.completions = len(reasons)
    report.completions_skipped.update(REASONS[code] for code in reasons[reasons >= 0].tolist())
    unusable = selected[columns.turn_rows] & (decision.reasons == CODES[UNUSABLE])
    rows = list(dict.fromkeys(columns.turn_rows[unusable].tolist()))[:NAMED]
    report.unusable_rewards += columns.rollout_id[rows].tolist()
    report.uncounted_completions = int((decision.trained & columns.is_uncounted[columns.turn_calls]).sum())
    report.context_exceeded = int((columns.end.equals(CONTEXT_EXCEEDED) & selected).sum())
    report.drifts = int(columns.drifts[selected].sum())
    report.rewritten_prompts = int(columns.rewritten_prompts[selected].sum())


def _owners(columns: Columns) -> Ints:
    """The turn with which the first token history ends that holds each turn; -1 where none does. Shape: (turns,).

    As `token_histories`: such a turn has ids, and no turn with ids continues it.
    """
    count = len(columns.call)
    has_parent = columns.token_parent >= 0
    parents = columns.turn_offsets[columns.turn_rows] + columns.token_parent
    continued = np.zeros(count, np.bool_)
    continued[parents[columns.has_tokens & has_parent]] = True
    turns = leaves = np.flatnonzero(columns.has_tokens & ~continued)
    owners = np.full(count, count)
    while len(turns):  # one step towards the roots, of all histories at once
        np.minimum.at(owners, turns, leaves)
        goes_on = has_parent[turns]
        turns, leaves = parents[turns[goes_on]], leaves[goes_on]
    return np.where(owners == count, -1, owners)


def _planned(columns: Columns, chunks: Sequence[Chunk], decision: _Decision, plan: Plan) -> PlannedSequences:
    """Count what reports count of each sequence: the sums of its trained turns."""
    turns = np.flatnonzero(decision.trained)
    places = np.searchsorted(decision.sequences, decision.owners[turns])
    tokens, count = decision.tokens[turns], len(decision.sequences)
    # As `completion_sampling` describes them.
    calls, sampled = columns.turn_calls[turns], _sampled(columns)[turns]
    is_scored = ~columns.has_masked_logprobs[calls] & (np.maximum(columns.unscored_tokens[turns], 0) < sampled)
    is_zero = is_scored & (np.maximum(columns.zero_logprobs[turns], 0) == sampled) & (sampled > FEW)
    is_zero &= ~(columns.is_constrained | columns.is_greedy)[calls]
    is_flat = plan.advantage[turns].astype(np.float32) == 0
    altered: dict[int, tuple[str, ...]] = {}
    is_altered = is_scored & columns.is_altered[calls]
    for place, mode in zip(places[is_altered].tolist(), columns.logprobs_mode[calls[is_altered]], strict=True):
        altered[place] = (*altered.get(place, ()), mode or UNKNOWN_MODE)
    of_turns = (
        tokens,
        np.ones_like(tokens),
        _without_logprobs(columns, chunks, decision)[turns],
        tokens * is_flat,
        is_zero,
    )
    return PlannedSequences(
        ends=np.searchsorted(columns.turn_rows[decision.sequences], np.arange(len(columns) + 1)),
        counts=np.stack(
            [decision.lengths, *(np.bincount(places, weights=one, minlength=count) for one in of_turns)], axis=1
        ).astype(np.int64),
        altered=altered,
    )


def _without_logprobs(columns: Columns, chunks: Sequence[Chunk], decision: _Decision) -> Ints:
    """How many trained tokens of each turn have no logprob: of completions whose logprobs are masked none has.

    Of a completion that was cut and has some, only its logprobs tell which.
    """
    masked = columns.has_masked_logprobs[columns.turn_calls]
    unscored = np.maximum(columns.unscored_tokens, 0)
    sampled, tokens = _sampled(columns), decision.tokens
    in_part = decision.trained & (tokens < sampled) & ~masked & (unscored > 0) & (unscored < sampled)
    counts = np.where(masked, tokens, np.minimum(unscored, tokens))
    rows = set(columns.turn_rows[in_part].tolist())
    for row, trajectory in read_numbered(chunks, Wanted(messages=False), rows) if rows else ():
        for turn, of_turn in enumerate(trajectory.turns, int(columns.turn_offsets[row])):
            if in_part[turn]:
                logprobs = of_turn.logprobs
                known = np.frombuffer(logprobs.data if logprobs else b"", "<f4")[: tokens[turn]]
                counts[turn] = np.isnan(known).sum()
    return counts


def _count_token_rewards(columns: Columns, selected: Flags, weights: Weights, report: BatchReport) -> Flags:
    """Count rewards of spans of tokens by name. Gives the turns of which they are no usable numbers: (turns,)."""
    is_part = columns.reward_name.where(weights.__contains__) & columns.has_value & selected[columns.reward_rows]
    is_part &= (columns.token_start >= 0) & (columns.token_start < columns.token_end)
    rewards = np.flatnonzero(is_part)
    names = list(columns.reward_name[rewards])
    report.token_rewards.update(dict.fromkeys(weights, 0) if selected.any() else (), **Counter(names))
    rows, targets = columns.reward_rows[rewards], columns.target.codes_in(columns.span_id)[rewards]
    turns = np.flatnonzero(np.isin(columns.turn_rows, rows))
    of_turns = (columns.turn_rows, columns.span_id.codes[columns.turn_calls], columns.choice)
    places = dict(zip(zip(*(column[turns].tolist() for column in of_turns), strict=True), turns.tolist(), strict=True))
    parts: dict[int, dict[RewardedPart, float]] = {}
    choices = np.where(columns.reward_choice == UNKNOWN, 0, columns.reward_choice)[rewards]
    for reward, name, *key in zip(
        rewards.tolist(), names, rows.tolist(), targets.tolist(), choices.tolist(), strict=True
    ):
        if (turn := places.get(tuple(key))) is not None:
            part = int(columns.token_start[reward]), int(columns.token_end[reward]), name
            parts.setdefault(turn, {})[part] = float(columns.reward_value[reward]) * weights[name]
    unusable = np.zeros(len(columns.call), np.bool_)
    for turn, of_turn in parts.items():
        unusable[turn] = sum_parts(of_turn, int(max(columns.sampled_tokens[turn], 0))) is None
    return unusable


def _whole_verdicts(columns: Columns, refused: Sequence[str | None], decision: _Decision) -> list[str | None]:
    """Why nothing of each row is trained: refused, or what most of its completions are skipped for."""
    reasons = decision.reasons
    has_sequence = np.bincount(columns.turn_rows[decision.sequences], minlength=len(columns)) > 0
    whole = list(refused)
    starts, ends = columns.turn_offsets[:-1], columns.turn_offsets[1:]
    changes = np.concatenate([[0], np.cumsum(reasons[1:] != reasons[:-1])]) if len(reasons) else reasons
    for row in np.flatnonzero(~has_sequence).tolist():
        if whole[row] is None:
            start, end = starts[row], ends[row]
            if start == end:
                whole[row] = NOTHING
            elif changes[start] == changes[end - 1]:  # as most are
                whole[row] = REASONS[reasons[start]]
            else:
                whole[row] = REASONS[Counter(reasons[start:end].tolist()).most_common(1)[0][0]]
    return whole


def _codes_of(reasons: Coded) -> NDArray[np.int32]:
    """The positions of the texts in REASONS, -1 for None. Raises KeyError for a text that is not among them."""
    return np.array([-1 if reason is None else CODES[reason] for reason in reasons.values], np.int32)[reasons.codes]


def _sampled(columns: Columns) -> Ints:
    """How many tokens each turn has, 0 where that is unknown."""
    return np.maximum(columns.sampled_tokens, 0)


def _summed(columns: Columns, values: Ints) -> Ints:
    """Sum a number of each turn for each row."""
    return np.diff(np.concatenate([[0], np.cumsum(values)])[columns.turn_offsets]).astype(np.int64)
