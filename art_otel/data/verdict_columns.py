"""Verdict columns: what is trained of every trajectory of some files, decided from their columns.

Invariant: the verdicts, the tokens and the report are those of `Batches.verdicts()`, which restores each trajectory
with its tokens. Credits get trajectories with no more than rewards and places of calls, so functions of the user are
refused. Where those raise UsageError because nobody chose one of several models, these say which rows that concerns.

    columns ─► reasons of completions ─► refused trajectories ─► plan ─► sequences as lengths ─► reasons ─► counts

A sequence is known by the turn that it ends with; a reason of a completion by its position in `REASONS`.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.data.columns import (
    DECIDING,
    OF_CREDITS,
    Columns,
    Flags,
    Ints,
    among,
    flags,
    flattened,
    group_numbers,
    lengths,
    light,
    mixed_version_groups,
    numbers,
    read_columns,
)
from art_otel.data.completion_columns import CODES, REASONS, left_out_turns, several_models
from art_otel.data.completion_sampling import FEW, UNKNOWN
from art_otel.data.completions import SEVERAL, CompletionChoice, SeveralModels
from art_otel.data.credit import shared_steps
from art_otel.data.plan import Plan, Scoring, Units, add_units, finish_plan, rewards_of
from art_otel.data.report import NAMED, BatchReport
from art_otel.data.rewards import LARGEST, UNUSABLE, Weights, count_by_name, names_without_final, token_rewards
from art_otel.data.selection import ENDED_ON_FAILURE, NOT_CHOSEN, Selection, concerns
from art_otel.data.sequences import EMPTY, NO_IDS, NOTHING, TOO_LONG, Overflow, SequenceBuilder
from art_otel.data.sources import Chunk, read_numbered
from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import CONTEXT_EXCEEDED, FAILED_CALL


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictColumns:
    """`skipped[i]` is why nothing of row i is trained, None where something is; `refused` marks rows an option refused.

    `completions` has a position in REASONS for each turn, -1 for none; those of row i begin at `turn_ends[i]`.
    `advantages` are those of turns that may be trained, `trained` and `sampled` count tokens of each row, those that
    were recorded; `counted` marks rows of which all were. `problem` says what has to be chosen before anything can be
    trained; rows of which nobody chose a model are skipped as `several models`. Shapes: (rows,), (turns,) and, of
    `turn_ends`, (rows + 1,).
    """

    skipped: list[str | None]
    refused: Flags
    completions: NDArray[np.int32]
    turn_ends: Ints
    advantages: NDArray[np.float64] | None
    trained: Ints
    sampled: Ints
    counted: Flags
    report: BatchReport
    problem: str | None


def verdict_columns(
    chunks: Sequence[Chunk], selection: Selection, scoring: Scoring, builder: SequenceBuilder, report: BatchReport
) -> VerdictColumns:
    """Decide what is trained of the trajectories in these chunks, and count it in the report.

    Raises StoreError; UsageError where trajectories are in memory, where a tokenizer makes tokens, for a credit that is
    a function of the user, and for a sequence that is too long where `overflow` says so.
    """
    if builder.tokenizer is not None or builder.token_facts:
        raise UsageError("tokenizer or token_facts: verdicts from columns are of what is recorded; use verdicts()")
    if not scoring.credit.reads_rewards_alone:
        raise UsageError(
            f"credit={scoring.credit.name!r:.100}: verdicts from columns know rewards and places of calls alone, a"
            " function may read more; use verdicts()"
        )
    is_simple = scoring.credit.reads_final_reward and builder.weights is None and selection.version is None
    read = read_columns(chunks, DECIDING if is_simple else (*DECIDING, *OF_CREDITS))
    left_out = left_out_turns(read, selection.completions)
    refused = _refused(read, chunks, selection, left_out)
    selected = np.array([reason is None for reason in refused], np.bool_)
    plan, of_turns = _plan(read, refused, scoring, selection.completions, left_out)
    problem = None
    if selection.completions.is_open:
        is_rewarded = of_turns.reasons != CODES["no reward"]
        several = several_models(read, selected[read.turn_rows] & is_rewarded, left_out, selection.version)
        problem = several.problem()
        for row in several.rollouts:
            refused[row], selected[row] = SEVERAL, False
    skipped = np.where(left_out >= 0, left_out, of_turns.reasons)
    if builder.weights is not None:
        unusable = _count_token_rewards(read, selected, builder.weights, report)
        skipped = np.where(unusable & (skipped < 0), CODES[UNUSABLE], skipped)
    decision = _decide(read, selected, skipped)
    if builder.max_tokens is not None:
        _limit(read, decision, builder.max_tokens, builder.overflow, report)
    _count(read, selected, decision, report)
    uncounted = flags(read.of_call("uncounted"))[read.turn_calls]
    report.uncounted_completions = int((decision.trained & uncounted).sum())
    report.trajectories = read.rows
    report.no_final_reward.update(plan.no_final_reward)
    report.compared, report.mixed_version_groups = plan.compared, plan.mixed_version_groups
    report.without_logprobs = _without_logprobs(read, chunks, decision)
    _count_sampling(read, decision, report)
    if of_turns.advantages is not None:
        report.zero_advantage_tokens = int(decision.tokens[of_turns.advantages.astype(np.float32) == 0].sum())
    if plan.credit.per == "step":
        report.shared_steps = sum(len(shared_steps(light(read, row))) for row in np.flatnonzero(selected).tolist())
    whole = _whole_verdicts(read, refused, decision)
    report.trajectories_used = whole.count(None)
    report.trajectories_skipped.update(reason for reason in whole if reason is not None)
    return VerdictColumns(
        skipped=whole,
        refused=~selected,
        completions=np.where(selected[read.turn_rows], decision.reasons, -1).astype(np.int32),
        turn_ends=read.turn_ends,
        advantages=of_turns.advantages,
        trained=_summed(read, decision.tokens),
        sampled=_summed(read, read.sampled_tokens),
        counted=_summed(read, flags(read.of_turn("sampled_tokens").is_null()).astype(np.int64)) == 0,
        report=report,
        problem=problem,
    )


def _refused(
    read: Columns, chunks: Sequence[Chunk], selection: Selection, left_out: NDArray[np.int32]
) -> list[str | None]:
    """Why each row is refused as a whole, None where it is selected: `Selection.skip_reason` of all rows."""
    reasons: list[str | None] = [chunk.left_out for chunk in chunks for _ in range(chunk.rows)]
    for refused, why in _refusals(read, selection):
        for row in np.flatnonzero(refused).tolist():
            reasons[row] = reasons[row] or (why if isinstance(why, str) else why[row])
    touched = range(read.rows) if selection.version is not None else np.unique(read.turn_rows[left_out >= 0]).tolist()
    for row in touched:
        if reasons[row] is not None:
            continue
        codes = left_out[read.turn_ends[row] : read.turn_ends[row + 1]].tolist()
        of_turns = [None if code < 0 else REASONS[code] for code in codes]
        if selection.version is not None:
            reasons[row] = selection.version_reason(light(read, row), of_turns)
        reasons[row] = reasons[row] or selection.completions.refuses(of_turns)
    return reasons


def _refusals(read: Columns, selection: Selection) -> Iterator[tuple[Flags, str | list[str | None]]]:
    """Give the rows that one option after the other refuses, and why."""
    splits = read.column("split")
    if others := [split for split in splits.unique().to_pylist() if not selection.takes_split(split)]:
        yield among(splits, others), "split"
    if selection.training_step is not None:
        yield ~among(read.column("training_step"), selection.training_step), "training step"
    if selection.rollouts is not None:
        yield ~among(read.column("rollout_id"), selection.rollouts), NOT_CHOSEN
    if selection.allow_incomplete is not True:
        allowed = selection.allow_incomplete or frozenset[str]()
        gaps = _first_gaps(read, selection, allowed)
        yield np.array([gap is not None for gap in gaps], np.bool_), gaps
        if ENDED_ON_FAILURE not in allowed:
            yield among(read.column("end"), {FAILED_CALL}), ENDED_ON_FAILURE
    if selection.status is not None:
        statuses, ends = read.column("status").to_pylist(), read.column("end").to_pylist()
        taken = [selection.takes_status(*each) for each in zip(statuses, ends, strict=True)]
        yield ~np.array(taken, np.bool_), "status"


def _first_gaps(read: Columns, selection: Selection, allowed: frozenset[str]) -> list[str | None]:
    """The first of each row's incomplete reasons that leave it out, None where there is none. Shape: (rows,)."""
    gaps, ends = flattened(read.table.column("incomplete_reasons"))
    texts = pc.struct_field(gaps, "reason").dictionary_encode()
    names = texts.dictionary.to_pylist()
    leaving_out = sorted(name for name in set(names) - allowed if concerns(name, selection.view))
    ranks = {name: rank for rank, name in enumerate(leaving_out)}
    none = len(ranks)
    of_gap = np.array([ranks.get(name, none) for name in names], np.int64)
    first = np.full(read.rows, none)
    rows = np.repeat(np.arange(read.rows), np.diff(ends))
    np.minimum.at(first, rows, of_gap[numbers(texts.indices, 0)] if len(of_gap) else rows)
    words = [*(f"incomplete: {name}" for name in ranks), None]
    return [words[rank] for rank in first.tolist()]


@dataclass(frozen=True, slots=True)
class _OfTurns:
    """What each turn would be trained with: why not (a position in REASONS, -1), and with what advantage."""

    reasons: NDArray[np.int32]
    advantages: NDArray[np.float64] | None


def _plan(
    read: Columns,
    refused: Sequence[str | None],
    scoring: Scoring,
    completions: CompletionChoice,
    left_out: NDArray[np.int32],
) -> tuple[Plan, _OfTurns]:
    """The plan of the rows, which is that of `make_plan`, and what it says of each turn."""
    credit = scoring.credit
    keys, names = group_numbers(read)
    selected = np.array([reason is None for reason in refused], np.bool_)
    without_final = Counter[str]()
    if credit.reads_final_reward:
        without = selected & ~flags(read.column("reward").is_valid()) & (lengths(read.table.column("rewards")) > 0)
        names_by_row = (names_without_final(light(read, row)) for row in np.flatnonzero(without).tolist())
        without_final.update(", ".join(each) for each in names_by_row if each)
        units = _units_of_rollouts(read, selected, keys)
    else:
        units = Units()
        for row, reason in enumerate(refused):
            if reason is None:
                codes = left_out[read.turn_ends[row] : read.turn_ends[row + 1]].tolist()
                of_turns = [None if code < 0 else REASONS[code] for code in codes]
                one = light(read, row)
                add_units(units, one, int(keys[row]), credit, rewards_of(one, credit), of_turns)
            units.ends.append(len(units.keys))
    skipped = {row: reason for row, reason in enumerate(refused) if reason is not None}
    plan = finish_plan(
        units,
        names,
        scoring,
        completions,
        skipped=skipped,
        fingerprint="",
        no_final_reward=without_final,
        several_models=SeveralModels(),
        mixed_version_groups=mixed_version_groups(read, selected, keys),
    )
    return plan, _of_rollouts(read, plan) if credit.per == "rollout" else _of_each_turn(read, plan, refused)


def _units_of_rollouts(read: Columns, selected: Flags, keys: Ints) -> Units:
    """A unit for each selected row that has turns, with its final reward."""
    has_unit = selected & (np.diff(read.turn_ends) > 0)
    rewards = pc.fill_null(read.column("reward"), np.nan).to_numpy(zero_copy_only=False).astype(np.float64)
    usable = np.where(np.isnan(rewards) & flags(read.column("reward").is_valid()), np.inf, rewards)
    usable = np.where(np.abs(usable) >= LARGEST, np.inf, usable)
    count = int(has_unit.sum())
    return Units(
        ends=array("q", np.cumsum(has_unit).astype(np.int64).tobytes()),
        keys=array("q", bytes(8 * count)),
        groups=array("q", keys[has_unit].tobytes()),
        moments=array("q", bytes(8 * count)),
        rewards=array("d", usable[has_unit].tobytes()),
    )


def _of_rollouts(read: Columns, plan: Plan) -> _OfTurns:
    """What the turns of each row are trained with, where all turns of a row have one reward."""
    ends = np.array([0, *plan.units.ends], np.int64)
    has_unit = np.diff(ends) > 0
    units = ends[:-1][has_unit]
    reasons = np.full(read.rows, -1 if plan.advantages is None else CODES["no reward"], np.int32)
    rewards = np.array(plan.units.rewards, np.float64)
    unknown = -1 if plan.advantages is None else np.where(np.isnan(rewards), CODES["no reward"], CODES[UNUSABLE])
    of_unit = np.where(np.isfinite(rewards), np.where(plan.zero_variance, CODES["zero variance"], -1), unknown)
    reasons[has_unit] = of_unit[units]
    advantages = None
    if plan.advantages is not None:
        advantages = np.zeros(read.rows)
        advantages[has_unit] = plan.advantages[units]
        advantages = advantages[read.turn_rows]
    return _OfTurns(reasons[read.turn_rows], advantages)


def _of_each_turn(read: Columns, plan: Plan, refused: Sequence[str | None]) -> _OfTurns:
    """What each turn is trained with, where steps or calls have rewards of their own."""
    reasons: list[int] = []
    advantages: list[float] = []
    for row, reason in enumerate(refused):
        if reason is not None:
            count = int(read.turn_ends[row + 1] - read.turn_ends[row])
            reasons += [-1] * count
            advantages += [0.0] * count
            continue
        for one in plan.unit_rewards(row, light(read, row)):
            reasons.append(CODES.get(one.skipped or "", -1))
            advantages.append(one.advantage or 0.0)
    return _OfTurns(np.array(reasons, np.int32), None if plan.advantages is None else np.array(advantages, np.float64))


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


def _decide(read: Columns, selected: Flags, skipped: NDArray[np.int32]) -> _Decision:
    """Decide by histories and by what turns are skipped for (a position in REASONS, or -1), however long they are."""
    owners = _owners(read)
    reasons = _codes_of(read.tokens_untrained)
    reasons[(owners < 0) & (reasons < 0)] = CODES[NO_IDS]
    trains = selected[read.turn_rows] & (owners >= 0) & (reasons < 0)
    reasons = np.where(trains, np.where(read.sampled_tokens == 0, CODES[EMPTY], skipped), reasons)
    trained = trains & (reasons < 0)
    sequences = np.unique(owners[trained])
    return _Decision(
        reasons=reasons,
        owners=owners,
        trained=trained,
        tokens=np.where(trained, read.sampled_tokens, 0),
        sequences=sequences,
        lengths=(read.prompt_tokens + read.sampled_tokens)[sequences],
    )


def _limit(read: Columns, decision: _Decision, limit: int, overflow: Overflow, report: BatchReport) -> None:
    """Drop or truncate the sequences that are longer, and count them. Raises UsageError where overflow says so."""
    is_long = decision.lengths > limit
    too_long = decision.sequences[is_long]
    if not len(too_long):
        return
    if overflow == "raise":
        rollout_id = read.column("rollout_id")[int(read.turn_rows[too_long[0]])].as_py()
        raise UsageError(
            f"rollout {rollout_id}: a sequence of {decision.lengths[is_long][0]} tokens, max_tokens is {limit};"
            ' allow more, or say overflow="drop" or "truncate"'
        )
    in_long = decision.trained & np.isin(decision.owners, too_long)
    kept = in_long & (read.prompt_tokens < limit) & (overflow == "truncate")
    dropped = np.setdiff1d(too_long, decision.owners[kept])
    in_dropped = in_long & np.isin(decision.owners, dropped)
    tokens = np.where(in_long & ~kept, 0, decision.tokens)
    tokens[kept] = np.minimum(tokens, limit - read.prompt_tokens)[kept]
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


def _count(read: Columns, selected: Flags, decision: _Decision, report: BatchReport) -> None:
    """Count what was decided of completions and sequences."""
    reasons = decision.reasons[selected[read.turn_rows]]
    report.completions = len(reasons)
    report.trained_completions = int(decision.trained.sum())
    report.completions_skipped.update(REASONS[code] for code in reasons[reasons >= 0].tolist())
    report.sequences = len(decision.sequences)
    report.tokens = int(decision.lengths.sum())
    report.trained_tokens = int(decision.tokens.sum())
    unusable = selected[read.turn_rows] & (decision.reasons == CODES[UNUSABLE])
    rows = list(dict.fromkeys(read.turn_rows[unusable].tolist()))[:NAMED]
    report.unusable_rewards += [read.column("rollout_id")[row].as_py() for row in rows]
    of_selected = selected[np.repeat(np.arange(read.rows), np.diff(read.call_ends))]
    report.context_exceeded = int((among(read.column("end"), {CONTEXT_EXCEEDED}) & selected).sum())
    report.drifts, report.rewritten_prompts = (
        int((flags(read.of_call(name).is_valid()) & of_selected).sum()) for name in ("drifted_at", "rewritten_at")
    )


def _owners(read: Columns) -> Ints:
    """The turn with which the first token history ends that holds each turn; -1 where none does. Shape: (turns,).

    As `token_histories`: such a turn has ids, and no turn with ids continues it.
    """
    count = len(read.parents)
    continued = np.zeros(count, np.bool_)
    continued[read.parents[read.has_tokens & (read.parents >= 0)]] = True
    turns = leaves = np.flatnonzero(read.has_tokens & ~continued)
    owners = np.full(count, count)
    while len(turns):  # one step towards the roots, of all histories at once
        np.minimum.at(owners, turns, leaves)
        goes_on = read.parents[turns] >= 0
        turns, leaves = read.parents[turns[goes_on]], leaves[goes_on]
    return np.where(owners == count, -1, owners)


def _without_logprobs(read: Columns, chunks: Sequence[Chunk], decision: _Decision) -> int:
    """How many trained tokens have no logprob: of completions whose logprobs are masked none has.

    Of a completion that was cut and has some, only its logprobs tell which.
    """
    masked = _of_turns_calls(read, "has_masked_logprobs")
    unscored = numbers(read.of_turn("unscored_tokens"), 0)
    sampled, trained, tokens = read.sampled_tokens, decision.trained, decision.tokens
    in_part = trained & (tokens < sampled) & ~masked & (unscored > 0) & (unscored < sampled)
    counts = np.where(masked, tokens, np.minimum(unscored, tokens))
    rows = set(read.turn_rows[in_part].tolist())
    for row, trajectory in read_numbered(chunks, Wanted(messages=False), rows) if rows else ():
        for turn in np.flatnonzero(in_part & (read.turn_rows == row)).tolist():
            logprobs = trajectory.turns[turn - int(read.turn_ends[row])].logprobs
            known = np.frombuffer(logprobs.data if logprobs else b"", "<f4")[: tokens[turn]]
            counts[turn] = np.isnan(known).sum()
    return int(counts[trained].sum())


def _count_sampling(read: Columns, decision: _Decision, report: BatchReport) -> None:
    """Count trained completions as `completion_sampling` describes them."""
    sampled, unscored = read.sampled_tokens, numbers(read.of_turn("unscored_tokens"), 0)
    is_scored = decision.trained & ~_of_turns_calls(read, "has_masked_logprobs") & (unscored < sampled)
    altered = is_scored & _of_turns_calls(read, "is_altered")
    modes = read.of_call("logprobs_mode").take(pa.array(read.turn_calls[altered])).to_pylist()
    report.altered_sampling.update(mode or UNKNOWN for mode in modes)
    is_zero = (numbers(read.of_turn("zero_logprobs"), 0) == sampled) & (sampled > FEW)
    may_be_certain = _of_turns_calls(read, "is_constrained") | _of_turns_calls(read, "is_greedy")
    report.zero_logprobs = int((is_scored & is_zero & ~may_be_certain).sum())


def _of_turns_calls(read: Columns, name: str) -> Flags:
    """A flag of the call of each turn. Shape: (turns,)."""
    return flags(read.of_call(name))[read.turn_calls]


def _count_token_rewards(read: Columns, selected: Flags, weights: Weights, report: BatchReport) -> Flags:
    """Count rewards of spans of tokens by name. Gives the turns of which they are no usable numbers: (turns,)."""
    unusable = np.zeros(len(read.parents), np.bool_)
    for row in np.flatnonzero(selected).tolist():
        one = light(read, row)
        report.token_rewards.update(count_by_name(one, weights))
        for position, values in token_rewards(one, weights).items():
            unusable[read.turn_ends[row] + position] = values is None
    return unusable


def _whole_verdicts(read: Columns, refused: Sequence[str | None], decision: _Decision) -> list[str | None]:
    """Why nothing of each row is trained: refused, or what most of its completions are skipped for."""
    reasons = decision.reasons
    has_sequence = np.bincount(read.turn_rows[decision.sequences], minlength=read.rows) > 0
    whole = list(refused)
    starts, ends = read.turn_ends[:-1], read.turn_ends[1:]
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


def _codes_of(reasons: pa.Array) -> NDArray[np.int32]:
    """The positions of the texts in REASONS, -1 for null."""
    encoded = reasons.dictionary_encode()
    codes = np.array([*(CODES[name] for name in encoded.dictionary.to_pylist()), -1], np.int32)
    return codes[numbers(encoded.indices, -1)]


def _summed(read: Columns, values: Ints) -> Ints:
    """Sum a number of each turn for each row."""
    return np.diff(np.concatenate([[0], np.cumsum(values)])[read.turn_ends]).astype(np.int64)
