"""Choosing: which rollouts, and which of their completions, are trained, decided over columns.

    one rollout with models=["policy"], length="mask":
    policy: plan                               trained
    judge: score 0.7                           another model: not trained, and in no baseline
    policy: answer, cut at max_tokens          cut at max_tokens: context only, but its reward is in the baseline

Invariant: a rollout is chosen, or has one reason: the first that applies in `choose`. A completion of a chosen rollout
is trained, or has one reason from an option (`left_out_by`), or a verdict (`untrained`). Reasons that a completion is
not the policy's come before reasons of how the policy sampled it.

What is wrong with a call of a model or agent that was not chosen is not the policy's: neither the failure of such a
call nor what is lost of it refuses a rollout.

If the user asks for a policy version, an unknown version counts as a wrong one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from art_otel.calls import CallRecord
from art_otel.data.columns import UNKNOWN, Coded, ColumnPart, Columns, Flags, Ints, reason_where
from art_otel.data.model_names import ANOTHER_MODEL, is_among, is_version_of, policy_name, version_number
from art_otel.data.selection import ENDED_ON_FAILURE, Selection, View
from art_otel.data.sources import Chunk, read_columns, why_left_out
from art_otel.errors import UsageError
from art_otel.trajectories import CONTEXT_EXCEEDED, FAILED_CALL, concern_of, end_of, kinds_of

MARKED: Final = "marked untrained"
ANOTHER_AGENT: Final = "another agent"
NOT_THE_POLICYS: Final = (MARKED, ANOTHER_MODEL, ANOTHER_AGENT)
"""Reasons why a completion is not the policy's: it is not trained and counts in no baseline."""

CUT: Final = "cut at max_tokens"
FILTERED: Final = "cut by a filter"
IMAGES: Final = "images not carried"
CONSTRAINED: Final = "constrained sampling"
HOW_SAMPLED: Final = (CONTEXT_EXCEEDED, CUT, FILTERED, IMAGES, CONSTRAINED)
"""Reasons why a completion of the policy is only context. Its reward counts in the baseline."""

SEVERAL: Final = "several models"
"""The reason of a rollout of several models, if the option `models` is missing. `batches` raises an error instead."""

STREAM_BROKE: Final = "stream broke"
NOT_CHOSEN: Final = "not chosen"


class Chosen(NamedTuple):
    """The reasons why rollouts and completions are not trained; None where there is no such reason.

    `refused`: why a rollout is left out as a whole. Shape: (rollouts,). `left_out`: why an option leaves a completion
    out. `untrained`: the verdict why a completion must not be trained. Shapes: (turns,). `end` is how the sampling of
    the chosen calls of a rollout ended. Shape: (rollouts,).
    """

    end: Coded
    refused: Coded
    left_out: Coded
    untrained: Coded


def parts_for(selection: Selection) -> frozenset[ColumnPart]:
    """The parts of the columns that these options need."""
    parts: set[ColumnPart] = {"choosing"}
    if selection.chooses_models:
        parts.add("blaming")
    if selection.version is not None:
        parts.add("crediting")
    if selection.rollouts is not None:
        parts.add("naming")
    return frozenset(parts)


def choose(columns: Columns, selection: Selection, of_parts: Sequence[str | None]) -> Chosen:
    """Decide which rollouts and which of their completions are trained, without regard to rewards.

    `of_parts` is the reason why a rollout's part file is left out unread, or None. Shape: (rollouts,).
    """
    is_chosen = _is_chosen(columns, selection)
    end = _end(columns, is_chosen) if selection.chooses_models else columns.end
    left_out = left_out_by(selection, columns, end)
    refused = Coded.of(of_parts).or_else(reason_where(~columns.split.where(selection.takes_split), "split"))
    if selection.training_step is not None:
        taken = columns.training_step.where(selection.training_step.__contains__)
        refused = refused.or_else(reason_where(~taken, "training step"))
    if (ids := selection.rollouts) is not None:
        taken = np.array([one in ids for one in columns.rollout_id], np.bool_)
        refused = refused.or_else(reason_where(~taken, NOT_CHOSEN))
    if selection.allow_incomplete is not True:
        allowed: frozenset[str] = selection.allow_incomplete or frozenset()
        refused = refused.or_else(_gaps(columns, allowed, selection.view, is_chosen))
        if ENDED_ON_FAILURE not in allowed:
            refused = refused.or_else(reason_where(end.equals(FAILED_CALL), ENDED_ON_FAILURE))
    if selection.status is not None:
        taken = columns.status.where(selection.status.__contains__)
        # A rollout that exceeded its context is valid, even if the app's function raised the server's error.
        if "ok" in selection.status:
            taken |= columns.status.equals("error") & end.equals(CONTEXT_EXCEEDED)
        refused = refused.or_else(reason_where(~taken, "status"))
    if selection.version is not None:
        refused = refused.or_else(_versions(columns, selection.version, selection.max_staleness, left_out))
    fates = {CONTEXT_EXCEEDED: selection.context_exceeded, CUT: selection.length, FILTERED: selection.length}
    for reason, fate in fates.items():
        if fate == "drop":
            refused = refused.or_else(reason_where(columns.any_turn(left_out.equals(reason)), reason))
    # A rollout without any completion of the policy is refused, with the most common reason of its completions.
    counts = np.array(
        [np.bincount(columns.turn_rows[left_out.equals(one)], minlength=len(columns)) for one in NOT_THE_POLICYS]
    )
    is_none = (columns.turns > 0) & (counts.sum(axis=0) == columns.turns)
    most = Coded(np.where(is_none, counts.argmax(axis=0), len(NOT_THE_POLICYS)), (*NOT_THE_POLICYS, None))
    return Chosen(end, refused.or_else(most), left_out, untrained(columns, selection))


def left_out_by(selection: Selection, columns: Columns, end: Coded) -> Coded:
    """Why an option leaves each completion out: the first rule that applies; None if none does. Shape: (turns,)."""
    calls = columns.turn_calls
    is_cut = columns.finish_reason.equals("length")
    is_filtered = columns.finish_reason.equals("content_filter")
    is_exceeded = end.equals(CONTEXT_EXCEEDED)[columns.turn_rows]
    rules = [
        (columns.marked_untrained.known[calls], MARKED),
        (~columns.model.where(lambda model: is_among(selection.models, model))[calls], ANOTHER_MODEL),
        (~columns.agent.where(lambda agent: is_among(selection.agents, agent))[calls], ANOTHER_AGENT),
        # Reasons that drop the whole rollout come before reasons that mask a turn, else a mask would hide the drop.
        (is_exceeded & (selection.context_exceeded == "drop"), CONTEXT_EXCEEDED),
        (is_cut & (selection.length == "drop"), CUT),
        (is_filtered & (selection.length == "drop"), FILTERED),
        (is_exceeded & (selection.context_exceeded == "mask"), CONTEXT_EXCEEDED),
        (is_cut & (selection.length == "mask"), CUT),
        (is_filtered & (selection.length == "mask"), FILTERED),
        (columns.has_media[calls] & (selection.images == "mask"), IMAGES),
        (columns.is_constrained[calls] & (selection.constrained == "mask"), CONSTRAINED),
    ]
    reasons = (*NOT_THE_POLICYS, *HOW_SAMPLED)
    codes = np.full(len(calls), len(reasons), np.int8)
    for applies, reason in reversed(rules):
        codes[applies] = reasons.index(reason)
    return Coded(codes, (*reasons, None))


def untrained(columns: Columns, selection: Selection) -> Coded:
    """The verdict on each completion's ids, or on its text, by `selection.view`; None if trainable. Shape: (turns,)."""
    if selection.view == "text":
        return columns.text_untrained
    tokens = columns.tokens_untrained
    if selection.closed_streams == "train":
        # The tokens before the app closed a stream are really sampled ones, only the end is missing.
        tokens = tokens.without(tokens.equals(STREAM_BROKE) & columns.closed[columns.turn_calls])
    if selection.view == "tokens":
        return tokens
    texts = columns.text_untrained.without(columns.has_tokens)
    return tokens.without(~columns.has_tokens).or_else(texts)


def _is_chosen(columns: Columns, selection: Selection) -> Flags:
    """Which calls are of a model and an agent that are chosen. Shape: (calls,)."""
    return columns.model.where(lambda model: is_among(selection.models, model)) & columns.agent.where(
        lambda agent: is_among(selection.agents, agent)
    )


def _end(columns: Columns, is_chosen: Flags) -> Coded:
    """How the sampling of each rollout ended, as far as its chosen calls say. Shape: (rollouts,)."""
    ends: list[str | None] = list(columns.end)
    for row in np.flatnonzero(columns.any_call(columns.failed) & columns.any_call(~is_chosen)).tolist():
        first, behind = columns.call_offsets[row : row + 2].tolist()
        ends[row] = end_of([_outcome(columns, call) for call in range(first, behind) if is_chosen[call]])
    return Coded.of(ends)


def _outcome(columns: Columns, call: int) -> CallRecord:
    """What is known of when and how a call ended."""
    error_type, failure, marked = (
        column.values[column.codes[call]] for column in (columns.error_type, columns.failure, columns.marked_untrained)
    )
    return CallRecord(
        trace_id="",
        span_id="",
        operation_name="",
        start_ns=int(columns.start_ns[call]),
        end_ns=None if (end_ns := int(columns.end_ns[call])) == UNKNOWN else end_ns,
        error_type=error_type,
        error="" if columns.failed[call] else None,
        failure=failure,
        marked_untrained=marked,
    )


def _gaps(columns: Columns, allowed: frozenset[str], view: View, is_chosen: Flags) -> Coded:
    """The alphabetically first incomplete reason that refuses each rollout. Shape: (rollouts,).

    view               rollout is refused for reasons that concern
    tokens             token ids
    text               text
    made tokens        token ids; in rollouts where ids are made of text, all reasons

    A reason that only gaps of calls give that are not chosen refuses nothing.
    """

    def concerns(reason: str | None, what: View) -> bool:
        return reason is not None and (what == "made tokens" or concern_of(reason) in (what, "both"))

    rows, gaps = np.repeat(np.arange(len(columns)), columns.gaps), columns.gap
    leaving_out = gaps.where(lambda reason: reason not in allowed and concerns(reason, view))
    if view == "made tokens":
        is_made = columns.any_turn(~columns.has_tokens)
        leaving_out &= is_made[rows] | gaps.where(lambda reason: concerns(reason, "tokens"))
    leaving_out &= ~_of_others_alone(columns, rows, is_chosen)
    names = sorted(gaps.values[:-1])
    ranks = np.array([*map(names.index, gaps.values[:-1]), len(names)], np.int64)[gaps.codes]
    first = np.full(len(columns), len(names))
    np.minimum.at(first, rows[leaving_out], ranks[leaving_out])
    return Coded(first, [*(f"incomplete: {name}" for name in names), None])


def _of_others_alone(columns: Columns, rows: Ints, is_chosen: Flags) -> Flags:
    """Which incomplete reasons are given by calls that are not chosen, and by no chosen one. Shape: (gaps,)."""
    calls = np.repeat(np.arange(len(is_chosen)), columns.call_gaps)
    is_counted = ~columns.marked_untrained.known[calls]  # a marked call gives no reason
    of_others = np.zeros(len(rows), np.bool_)
    for reason in columns.gap.values[:-1]:
        gives = columns.call_gap.where(kinds_of(reason).__contains__) & is_counted
        by_others, by_chosen = (
            np.bincount(columns.call_rows[calls[gives & by]], minlength=len(columns)) > 0
            for by in (~is_chosen[calls], is_chosen[calls])
        )
        of_others |= columns.gap.equals(reason) & (by_others & ~by_chosen)[rows]
    return of_others


_NOT_FRESH: Final = (None, "", "policy version without a number", "no policy version")
"""Why a rollout's version is refused, the worst last. The empty text stands for `stale` or `another policy version`."""


def _versions(columns: Columns, trained: str, max_staleness: int | None, left_out: Coded) -> Coded:
    """Why each rollout is refused for its policy versions: the worst of them. Shape: (rollouts,).

    These versions count, except those of completions that are not the policy's:

        rollout   first, last version       if no call has a version, or all calls are the policy's
        call      version                   an unknown one counts, too, unless nothing was sampled or its spans have it
        call      version at its end
        turn      versions of spans of its tokens
    """
    rows_of_calls, turn_calls = columns.call_rows, columns.turn_calls
    spans = np.repeat(np.arange(len(columns.call)), columns.version_spans)  # the turn of each
    is_others, is_sampled, has_spans = (np.zeros(len(rows_of_calls), np.bool_) for _ in range(3))
    is_others[turn_calls[left_out.where(NOT_THE_POLICYS.__contains__)]] = True
    is_sampled[turn_calls] = True
    has_spans[turn_calls[spans]] = True

    versions, of_rollout = columns.version, columns.version_first.known
    says_call = columns.any_call(versions.known)
    says_any = says_call | of_rollout | columns.any_call(columns.version_end.known) | columns.any_call(has_spans)
    # Without any recorded version, the request's model may be named for it, as LoRA adapters are.
    names = columns.request_model
    is_named = names.where(lambda name: name is not None and is_version_of(name, trained)) & ~says_any[rows_of_calls]
    versions = versions.or_else(names.without(~is_named))
    says_call |= columns.any_call(is_named)

    has_others = columns.any_call(is_others)
    counts_rollout = np.flatnonzero(of_rollout & (~says_call | ~has_others))
    counts_call = ~is_others & ~(of_rollout & ~says_call)[rows_of_calls]
    counts_version = counts_call & (versions.known | (~has_spans & (is_sampled | ~columns.failed)))
    counts_end, counts_span = counts_call & columns.version_end.known, counts_call[turn_calls[spans]]
    worst, is_known = np.zeros(len(columns), np.int64), np.zeros(len(columns), np.bool_)
    for rows, said in (
        (counts_rollout, columns.version_first[counts_rollout]),
        (counts_rollout, columns.version_last[counts_rollout]),
        (rows_of_calls[counts_version], versions[counts_version]),
        (rows_of_calls[counts_end], columns.version_end[counts_end]),
        (columns.turn_rows[spans][counts_span], columns.span_version[counts_span]),
    ):
        badness = np.array([_badness(version, trained, max_staleness) for version in said.values], np.int64)
        np.maximum.at(worst, rows, badness[said.codes])
        is_known[rows[said.known]] = True
    worst[~is_known] = _badness(None, trained, max_staleness)
    # A rollout without any completion of the policy gets that reason in `choose`, so no version counts.
    worst[has_others & ~columns.any_turn(~is_others[turn_calls])] = 0
    stale = "another policy version" if max_staleness is None else "stale"
    return Coded.of(stale if reason == "" else reason for reason in _NOT_FRESH)[worst]


def _badness(version: str | None, trained: str, max_staleness: int | None) -> int:
    """Why a version is refused, as a position in `_NOT_FRESH`; 0 if it is accepted."""
    if version is None:
        return 3
    if max_staleness is None:
        return int(version != trained)
    newest, number = version_number(trained), version_number(version)
    return 2 if newest is None or number is None else int(newest - number > max_staleness)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeveralModels:
    """The `rollouts`, by number, with completions of several models, if no option chooses among the models.

    A recording does not show which model is the policy (a judge looks the same), so the user must choose.
    `completions` counts the completions of each model.
    """

    rollouts: tuple[int, ...] = ()
    completions: Counter[str] = field(default_factory=Counter[str])

    @property
    def problem(self) -> str | None:
        """A message that says how to choose; None if no rollout has several models."""
        if not self.rollouts:
            return None
        counts = ", ".join(f"{model!r}: {count:,}" for model, count in self.completions.most_common())
        first = self.completions.most_common(1)[0][0]
        number = "1 rollout has" if len(self.rollouts) == 1 else f"{len(self.rollouts):,} rollouts have"
        return (
            f"{number} completions of several models ({counts}), and no option says which one is trained."
            f' Choose with models=["{first}"] (--models {first}), or models="*" for all of them'
            " (docs/how-to/train-only-the-policy.md)"
        )

    def check(self) -> None:
        """Raise UsageError if a rollout has several models."""
        if self.problem is not None:
            raise UsageError(self.problem)


def several_models(columns: Columns, chosen: Chosen, selection: Selection, rewarded: Flags) -> SeveralModels:
    """Find the rollouts with completions of several models; none if the options choose among models.

    `rewarded` are the completions with a reward to train with. Shape: (turns,). Versions of one policy count as one
    model (`policy_name`), and so do all names of the asked version.
    """
    if selection.chooses_models:
        return SeveralModels()
    # A model without token ids counts, too: that it happens to train nothing is not the user's choice.
    models = columns.model[columns.turn_calls]
    trained = rewarded & models.known & ~chosen.refused.known[columns.turn_rows] & ~chosen.untrained.known
    trained &= ~chosen.left_out.where(NOT_THE_POLICYS.__contains__)
    asked = selection.version
    policies = Coded.of(
        None if model is None else "" if asked is not None and is_version_of(model, asked) else policy_name(model)
        for model in models.values
    )
    rows, codes = columns.turn_rows[trained], policies.codes[models.codes[trained]]
    largest, smallest = np.full(len(columns), -1), np.full(len(columns), len(policies.values))
    np.maximum.at(largest, rows, codes)
    np.minimum.at(smallest, rows, codes)
    has_several = (largest >= 0) & (largest != smallest)
    return SeveralModels(
        rollouts=tuple(np.flatnonzero(has_several).tolist()),
        completions=Counter(models[trained][has_several[rows]]),
    )


class ChosenRollouts(NamedTuple):
    """The chosen rollouts of some chunks.

    `reasons` has for each chosen rollout, by number, why an option leaves out each of its completions (None: it does
    not). `skipped` counts the other ones of all `trajectories`, by reason.
    """

    trajectories: int
    skipped: Counter[str]
    reasons: Mapping[int, list[str | None]]


def choose_rollouts(chunks: Sequence[Chunk], selection: Selection) -> ChosenRollouts:
    """Choose rollouts without regard to their rewards.

    Raises StoreError if a file cannot be read; UsageError if rollouts have completions of several models and the
    options do not choose among these.
    """
    columns = read_columns(chunks, parts_for(selection))
    chosen = choose(columns, selection, why_left_out(chunks))
    several_models(columns, chosen, selection, np.ones(len(columns.call), np.bool_)).check()
    left_out, ends = list(chosen.left_out), columns.turn_offsets.tolist()
    return ChosenRollouts(
        trajectories=len(columns),
        skipped=Counter(reason for reason in chosen.refused if reason is not None),
        reasons={
            row: left_out[ends[row] : ends[row + 1]] for row, reason in enumerate(chosen.refused) if reason is None
        },
    )
