"""Choosing: which rollouts and which of their completions are learned from, decided over columns.

A rollout is chosen, or there is one reason why it is refused: the first of the list in `choose`. A completion of a
chosen rollout is trained, or an option leaves it out, or it must not be trained (`untrained`). Whose a completion is
comes first: what another model, another agent or a marked call sampled is not the policy's, is trained nowhere and
counts in no baseline. How it was sampled comes second: such a completion is only context, but its rollout is compared
with the others.

    one rollout    policy: plan     judge: score 0.7     policy: answer, cut at max_tokens
    models=["policy"], length="mask"
                   trained          another model        cut at max_tokens: context only

Unknown is never fresh where freshness was asked for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from art_otel.data.columns import Coded, ColumnPart, Columns, Flags, reason_where
from art_otel.data.model_names import (
    ANOTHER_MODEL,
    is_among,
    is_version_of,
    policy_name,
    version_number,
)
from art_otel.data.selection import ENDED_ON_FAILURE, Selection, View
from art_otel.data.sources import Chunk, read_columns, why_left_out
from art_otel.errors import UsageError
from art_otel.trajectories import CONTEXT_EXCEEDED, FAILED_CALL, concern_of

MARKED: Final = "marked untrained"
ANOTHER_AGENT: Final = "another agent"
NOT_THE_POLICYS: Final = (MARKED, ANOTHER_MODEL, ANOTHER_AGENT)
"""Reasons by which a completion is not the policy's, and counts in no baseline."""

CUT: Final = "cut at max_tokens"
FILTERED: Final = "cut by a filter"
IMAGES: Final = "images not carried"
CONSTRAINED: Final = "constrained sampling"
HOW_SAMPLED: Final = (CONTEXT_EXCEEDED, CUT, FILTERED, IMAGES, CONSTRAINED)
"""Reasons by which a completion of the policy is only context."""

SEVERAL: Final = "several models"
"""Why a rollout trains nothing where several models sampled it and nobody chose. What trains raises instead."""

STREAM_BROKE: Final = "stream broke"
NOT_CHOSEN: Final = "not chosen"


class Chosen(NamedTuple):
    """What is chosen of some columns.

    `refused` is why a rollout is left out as a whole, `left_out` why an option leaves a completion out, `untrained` why
    it must not be trained where this is learned from; each is None where it is not. Shapes: (rollouts,) and (turns,).
    """

    refused: Coded
    left_out: Coded
    untrained: Coded


def parts_for(selection: Selection) -> frozenset[ColumnPart]:
    """What has to be read to choose by these options."""
    parts: set[ColumnPart] = {"choosing"}
    if selection.version is not None:
        parts.add("crediting")
    if selection.rollouts is not None:
        parts.add("naming")
    return frozenset(parts)


def choose(columns: Columns, selection: Selection, of_parts: Sequence[str | None]) -> Chosen:
    """Decide which rollouts are learned from, and which of their completions are not, whatever their rewards.

    `of_parts` is why the part that a rollout stands in is left out unread. Shape: (rollouts,).
    """
    left_out = left_out_by(selection, columns)
    refused = Coded.of(of_parts).or_else(reason_where(~columns.split.where(selection.takes_split), "split"))
    if selection.training_step is not None:
        taken = columns.training_step.where(selection.training_step.__contains__)
        refused = refused.or_else(reason_where(~taken, "training step"))
    if (ids := selection.rollouts) is not None:
        taken = np.array([one in ids for one in columns.rollout_id], np.bool_)
        refused = refused.or_else(reason_where(~taken, NOT_CHOSEN))
    if selection.allow_incomplete is not True:
        allowed: frozenset[str] = selection.allow_incomplete or frozenset()
        refused = refused.or_else(_gaps(columns, allowed, selection.view))
        if ENDED_ON_FAILURE not in allowed:
            refused = refused.or_else(reason_where(columns.end.equals(FAILED_CALL), ENDED_ON_FAILURE))
    if selection.status is not None:
        taken = columns.status.where(selection.status.__contains__)
        # A context that was exceeded is as valid as `ok`, also where the function let the server's error out.
        if "ok" in selection.status:
            taken |= columns.status.equals("error") & columns.end.equals(CONTEXT_EXCEEDED)
        refused = refused.or_else(reason_where(~taken, "status"))
    if selection.version is not None:
        refused = refused.or_else(_versions(columns, selection.version, selection.max_staleness, left_out))
    fates = {CONTEXT_EXCEEDED: selection.context_exceeded, CUT: selection.length, FILTERED: selection.length}
    for reason, fate in fates.items():
        if fate == "drop":
            refused = refused.or_else(reason_where(columns.any_turn(left_out.equals(reason)), reason))
    # A rollout in which nothing is the policy's is refused for what most of it is.
    counts = np.array(
        [np.bincount(columns.turn_rows[left_out.equals(one)], minlength=len(columns)) for one in NOT_THE_POLICYS]
    )
    is_none = (columns.turns > 0) & (counts.sum(axis=0) == columns.turns)
    most = Coded(np.where(is_none, counts.argmax(axis=0), len(NOT_THE_POLICYS)), (*NOT_THE_POLICYS, None))
    return Chosen(refused.or_else(most), left_out, untrained(columns, selection))


def left_out_by(selection: Selection, columns: Columns) -> Coded:
    """Why an option leaves each completion out, the first of these reasons; None where none does. Shape: (turns,)."""
    calls = columns.turn_calls
    is_cut = columns.finish_reason.equals("length")
    is_filtered = columns.finish_reason.equals("content_filter")
    is_exceeded = columns.end.equals(CONTEXT_EXCEEDED)[columns.turn_rows]
    rules = [
        (columns.marked_untrained.known[calls], MARKED),
        (~columns.model.where(lambda model: is_among(selection.models, model))[calls], ANOTHER_MODEL),
        (~columns.agent.where(lambda agent: is_among(selection.agents, agent))[calls], ANOTHER_AGENT),
        # What leaves out the whole rollout comes before what masks: else a mask would hide it.
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
    """Why completions must not be trained, of their ids or of their text. Shape: (turns,)."""
    if selection.view == "text":
        return columns.text_untrained
    tokens = columns.tokens_untrained
    if selection.closed_streams == "train":
        # What came of a stream that the app closed is what was sampled, up to there.
        tokens = tokens.without(tokens.equals(STREAM_BROKE) & columns.closed[columns.turn_calls])
    if selection.view == "tokens":
        return tokens
    texts = columns.text_untrained.without(columns.has_tokens)
    return tokens.without(~columns.has_tokens).or_else(texts)


def _gaps(columns: Columns, allowed: frozenset[str], view: View) -> Coded:
    """The first incomplete reason of each rollout, by the alphabet, that leaves it out. Shape: (rollouts,).

    A reason leaves out only where it concerns what is trained: token ids are asked for the gaps of ids, text for those
    of text. Whoever makes ids of text asks for both, in rollouts where ids are made.
    """

    def concerns(reason: str | None, what: View) -> bool:
        return reason is not None and (what == "made tokens" or concern_of(reason) in (what, "both"))

    rows, gaps = np.repeat(np.arange(len(columns)), columns.gaps), columns.gap
    leaving_out = gaps.where(lambda reason: reason not in allowed and concerns(reason, view))
    if view == "made tokens":
        is_made = columns.any_turn(~columns.has_tokens)
        leaving_out &= is_made[rows] | gaps.where(lambda reason: concerns(reason, "tokens"))
    names = sorted(gaps.values[:-1])
    ranks = np.array([*map(names.index, gaps.values[:-1]), len(names)], np.int64)[gaps.codes]
    first = np.full(len(columns), len(names))
    np.minimum.at(first, rows[leaving_out], ranks[leaving_out])
    return Coded(first, [*(f"incomplete: {name}" for name in names), None])


_NOT_FRESH: Final = (None, "", "policy version without a number", "no policy version")
"""Why a rollout is not fresh, the worst last; the second depends on what was asked."""


def _versions(columns: Columns, trained: str, max_staleness: int | None, left_out: Coded) -> Coded:
    """Why each rollout is refused for the versions that sampled it, the worst of them. Shape: (rollouts,).

    Versions of completions that are not the policy's do not count:

        rollout   first, last       where no call says one, or all is the policy's
        call      version           also None, but where it failed before anything was sampled, or its spans say it
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
    # Where nobody says a version, request models may be named for it, as LoRA adapters are.
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
    # That nothing is the policy's is the reason, then.
    worst[has_others & ~columns.any_turn(~is_others[turn_calls])] = 0
    stale = "another policy version" if max_staleness is None else "stale"
    return Coded.of(stale if reason == "" else reason for reason in _NOT_FRESH)[worst]


def _badness(version: str | None, trained: str, max_staleness: int | None) -> int:
    """Why a rollout with this version is not fresh, as a position in `_NOT_FRESH`."""
    if version is None:
        return 3
    if max_staleness is None:
        return int(version != trained)
    newest, number = version_number(trained), version_number(version)
    return 2 if newest is None or number is None else int(newest - number > max_staleness)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeveralModels:
    """The `rollouts`, by number, in which several models sampled what would be trained, and nobody chose among them.

    Which of them is the policy cannot be told: a judge looks like a policy. So nothing is guessed. `completions` counts
    those of each model.
    """

    rollouts: tuple[int, ...] = ()
    completions: Counter[str] = field(default_factory=Counter[str])

    @property
    def problem(self) -> str | None:
        """What to choose, and how; None where no rollout has several models."""
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
        """Raise UsageError where a rollout has several models."""
        if self.problem is not None:
            raise UsageError(self.problem)


def several_models(columns: Columns, chosen: Chosen, selection: Selection, rewarded: Flags) -> SeveralModels:
    """Find the rollouts of several models; none where somebody chose among them.

    `rewarded` are the completions with a reward to train with. A model without token ids counts, too: that it trains
    nothing is chance, no choice. Versions of one policy are one model (`policy_name`), and so are those of the version
    that was asked for.
    """
    if selection.chooses_models:
        return SeveralModels()
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
    """What is chosen of some chunks: of rollouts by their numbers, why completions are left out. Shape: (turns,).

    `skipped` counts the others of all `trajectories`, by reason.
    """

    trajectories: int
    skipped: Counter[str]
    reasons: Mapping[int, list[str | None]]


def choose_rollouts(chunks: Sequence[Chunk], selection: Selection) -> ChosenRollouts:
    """Choose rollouts whatever their rewards.

    Raises StoreError; UsageError where some have completions of several models, and nobody chose among these.
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
