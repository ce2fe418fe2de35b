"""Selection: which trajectories are learned from.

Invariant: every trajectory is selected, or there is one reason why it is skipped, the first of: split, training step
(of which a manifest tells without its parts), not chosen by its id, incomplete (by its own reason), ended on a failed
call, status, policy version, nothing of the policy's in it (`completions`). What is unknown is never fresh where
freshness was asked for.

A reason of incompleteness leaves out only where it concerns what is trained. Token ids are asked for the gaps of ids,
text for those of text; whoever makes ids of the text of completions that have none asks for both.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from art_otel.data.columns import Coded, Columns, Flags, Ints, reason_where
from art_otel.data.completions import (
    CUT,
    NOT_THE_POLICYS,
    STREAM_BROKE,
    ClosedStreams,
    CompletionChoice,
    CompletionFacts,
    Constrained,
    ContextExceeded,
    Images,
    Length,
    Names,
    SeveralModels,
)
from art_otel.data.options import as_names, validate
from art_otel.data.sources import Chunk, read_columns, why_left_out
from art_otel.data.versions import HOW_TO_WRITE, is_version_of, version_number, with_model_versions
from art_otel.store import Part, Wanted
from art_otel.store.files import Rows
from art_otel.trajectories import (
    CONTEXT_EXCEEDED,
    EXPLANATIONS,
    FAILED_CALL,
    Status,
    TextUntrained,
    TokensUntrained,
    Trajectory,
    Turn,
    concern_of,
    with_turns,
)

AllowIncomplete: TypeAlias = bool | Iterable[str]
"""True for every incomplete trajectory, or the reasons that do no harm."""

Split: TypeAlias = str | Iterable[str | None] | None
"""One split or several, "*" for all; [None] the trajectories without one. None is all but those of `HELD_OUT`."""

HELD_OUT: Final = frozenset({"val", "validation", "test", "eval"})
"""Splits that are trained only where the options name them."""

EVERY_SPLIT: Final = "*"

TrainingStep: TypeAlias = int | Iterable[int | None] | None
"""One training step or several; None is every step, [None] the trajectories without one."""

View: TypeAlias = Literal["tokens", "text", "made tokens"]
"""What is trained of a trajectory: the ids of the server, text, or ids that are made of text where there are none."""

StatusFilter: TypeAlias = Status | Iterable[Status] | None
"""One status or several; None is every status."""

OUTLINE: Final = Wanted(messages=False, tokens=False)
"""What planning reads: neither messages nor tokens."""

NOT_CHOSEN: Final = "not chosen"
ENDED_ON_FAILURE: Final = "ended on a failed call"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which trajectories are read: options of `art_otel.batches` by the same names.

    With `max_staleness`, each of a trajectory's policy versions may be so many versions behind `policy_version`,
    compared by their numbers: 12 of `12`, `step-12` and `policy-v12`. Without it `policy_version` must be that of every
    call. Where no call has a version, all have the rollout's, or each has that which its request model names.
    """

    allow_incomplete: bool | frozenset[str] = False
    split: frozenset[str | None] | None = None
    training_step: frozenset[int | None] | None = None
    status: frozenset[Status] | None = frozenset({"ok"})
    rollouts: frozenset[str] | None = None
    policy_version: str | int | None = None
    max_staleness: Annotated[int, msgspec.Meta(ge=0)] | None = None
    completions: CompletionChoice = CompletionChoice()
    closed_streams: ClosedStreams = "drop"
    view: View = "tokens"

    def __post_init__(self) -> None:
        """Raise ValueError for reasons that do not exist and a staleness that has nothing to compare with."""
        if not isinstance(self.allow_incomplete, bool):
            reasons = (*EXPLANATIONS, ENDED_ON_FAILURE)
            if unknown := self.allow_incomplete - set(reasons):
                raise ValueError(
                    f"allow_incomplete={sorted(unknown)}: no such reasons; use True, or some of {', '.join(reasons)}"
                )
        if self.max_staleness is not None and version_number(self.version) is None:
            raise ValueError(
                f"max_staleness={self.max_staleness!r} with policy_version={self.policy_version!r}: say which version"
                f" is trained now, with a number to compare. {HOW_TO_WRITE}"
            )

    @property
    def version(self) -> str | None:
        """The policy version as text."""
        return None if self.policy_version is None else str(self.policy_version)

    @property
    def outline(self) -> Wanted:
        """What of a trajectory selecting reads: neither messages nor, but where ids are made of text, tokens."""
        return msgspec.structs.replace(OUTLINE, tokens=self.view == "made tokens")

    def why_none_of(self, part: Part) -> str | None:
        """Why every trajectory of a part is skipped, as far as the manifest tells; None where some may be selected."""
        if not any(map(self.takes_split, part.splits)):
            return "split"
        return Rows(training_steps=self.training_step).why_none_of(part)

    def takes_split(self, split: str | None) -> bool:
        """Whether trajectories of this split are selected."""
        if self.split is None:
            return split not in HELD_OUT
        return split in self.split or EVERY_SPLIT in self.split

    def __str__(self) -> str:
        """All options, the same in every process: sets have an order of their own in each."""
        sets = (self.allow_incomplete, self.split, self.status, self.training_step)
        texts = [sorted(map(repr, names)) if isinstance(names, frozenset) else names for names in sets]
        ids = self.rollouts and blake2b(repr(sorted(self.rollouts)).encode(), digest_size=8).hexdigest()
        return f"{texts} {ids} {self.version} {self.max_staleness} {self.completions} {self.closed_streams} {self.view}"

    def prepared(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with the versions that its request models name, where nobody said any, and what is lifted.

        That is the verdict on streams that the app closed, where their ids are to be trained.
        """
        trajectory = with_model_versions(trajectory, self.version)
        if self.closed_streams == "drop" or all(turn.tokens_untrained != STREAM_BROKE for turn in trajectory.turns):
            return trajectory
        turns = tuple(
            msgspec.structs.replace(turn, tokens_untrained=None)
            if turn.tokens_untrained == STREAM_BROKE and trajectory.calls[turn.call].closed_by_app is not None
            else turn
            for turn in trajectory.turns
        )
        return with_turns(trajectory, turns)


def select(  # noqa: PLR0913 # every one is an option that users know by its name
    *,
    allow_incomplete: AllowIncomplete,
    split: Split,
    status: StatusFilter,
    training_step: TrainingStep = None,
    rollouts: str | Iterable[str] | None = None,
    policy_version: str | int | None = None,
    max_staleness: int | None = None,
    models: Names = None,
    agents: Names = None,
    context_exceeded: ContextExceeded = "keep",
    length: Length = "keep",
    closed_streams: ClosedStreams = "drop",
    constrained: Constrained = "keep",
    images: Images = "placeholders",
    view: View = "tokens",
) -> Selection:
    """Make a Selection of what callers write. Raises UsageError for what makes no sense."""
    completions = validate(
        CompletionChoice,
        {
            "models": as_names(models),
            "agents": as_names(agents),
            "context_exceeded": context_exceeded,
            "length": length,
            "constrained": constrained,
            "images": images,
        },
    )
    return validate(
        Selection,
        {
            "completions": completions,
            "closed_streams": closed_streams,
            "view": view,
            "allow_incomplete": as_names(allow_incomplete),
            "split": as_names(split),
            "status": as_names(status),
            "training_step": as_names((training_step,) if isinstance(training_step, int) else training_step),
            "rollouts": as_names(rollouts),
            "policy_version": policy_version,
            "max_staleness": max_staleness,
        },
    )


class Chosen(NamedTuple):
    """What is chosen of some columns.

    `refused` is why a rollout is left out as a whole, `left_out` why an option leaves a completion out, `untrained` why
    it must not be trained where this is learned from; each is None where it is not. Shapes: (rollouts,) and (turns,).
    """

    refused: Coded
    left_out: Coded
    untrained: Coded


def choose(columns: Columns, selection: Selection, of_parts: Sequence[str | None]) -> Chosen:
    """Decide which rollouts are learned from, and which of their completions are not, whatever their rewards.

    `of_parts` is why the part that a rollout stands in is left out unread. Shape: (rollouts,).
    """
    left_out = _left_out(columns, selection.completions)
    refused = Coded.of(of_parts)
    refused = refused.or_else(reason_where(~columns.split.where(selection.takes_split), "split"))
    for column, wanted, reason in (
        (columns.training_step, selection.training_step, "training step"),
        (columns.rollout_id, selection.rollouts, NOT_CHOSEN),
    ):
        if wanted is not None:
            refused = refused.or_else(reason_where(~column.where(wanted.__contains__), reason))
    if selection.allow_incomplete is not True:
        allowed = selection.allow_incomplete or frozenset[str]()
        refused = refused.or_else(_gaps(columns, allowed, selection.view))
        if ENDED_ON_FAILURE not in allowed:
            refused = refused.or_else(reason_where(columns.end.equals(FAILED_CALL), ENDED_ON_FAILURE))
    if (wanted_status := selection.status) is not None:
        taken = columns.status.where(wanted_status.__contains__)
        # A context that was exceeded is as valid as `ok`, also where the function let the server's error out.
        if "ok" in wanted_status:
            taken |= columns.status.equals("error") & columns.end.equals(CONTEXT_EXCEEDED)
        refused = refused.or_else(reason_where(~taken, "status"))
    if selection.version is not None:
        refused = refused.or_else(_versions(columns, selection.version, selection.max_staleness, left_out))
    refused = refused.or_else(_refusals(columns, selection.completions, left_out))
    return Chosen(refused, left_out, untrained(columns, selection))


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
    columns = read_columns(chunks, crediting=selection.version is not None)
    chosen = choose(columns, selection, why_left_out(chunks))
    several_models(columns, chosen, selection, np.ones(len(columns.call), np.bool_)).check()
    left_out, ends = list(chosen.left_out), columns.turn_ends.tolist()
    return ChosenRollouts(
        trajectories=len(columns),
        skipped=Counter(reason for reason in chosen.refused if reason is not None),
        reasons={
            row: left_out[ends[row] : ends[row + 1]] for row, reason in enumerate(chosen.refused) if reason is None
        },
    )


def several_models(columns: Columns, chosen: Chosen, selection: Selection, rewarded: Flags) -> SeveralModels:
    """The rollouts in which several models sampled what would be trained; none where somebody chose among them.

    `rewarded` are the completions with a reward to train with. A model without token ids counts, too: that it trains
    nothing is chance, no choice.
    """
    several = SeveralModels(selection.version)
    if not selection.completions.is_open:
        return several
    trained = rewarded & ~chosen.refused.known[columns.turn_rows] & ~chosen.untrained.known
    trained &= ~chosen.left_out.where(NOT_THE_POLICYS.__contains__)
    models = columns.model[columns.turn_calls]
    trained &= models.known
    rows, codes = columns.turn_rows[trained], models.codes[trained]
    largest, smallest = np.full(len(columns), -1), np.full(len(columns), len(models.values))
    np.maximum.at(largest, rows, codes)
    np.minimum.at(smallest, rows, codes)
    for row in np.flatnonzero((largest >= 0) & (largest != smallest)).tolist():
        turns = slice(columns.turn_ends[row], columns.turn_ends[row + 1])
        several.add(row, models[turns][trained[turns]])
    return several


def untrained_in(turn: Turn, view: View) -> TokensUntrained | TextUntrained | None:
    """Why a completion must not be trained where this is learned from; None where it may be."""
    is_text = view == "text" or (view == "made tokens" and not turn.has_tokens)
    return turn.text_untrained if is_text else turn.tokens_untrained


def concerns(reason: str, view: View) -> bool:
    """Whether a reason of incompleteness says anything of what is trained."""
    return view == "made tokens" or concern_of(reason) in (view, "both")


def _left_out(columns: Columns, choice: CompletionChoice) -> Coded:
    """Why an option leaves each completion out; None where none does. Shape: (turns,).

    Of a million completions there are few kinds, and each is asked once:

        model    agent   finish_reason   …
        policy   -       stop            …      trained
        judge    -       stop            …      another model
    """
    calls = columns.turn_calls
    facts = [
        columns.model[calls],
        columns.agent[calls],
        columns.marked_untrained[calls],
        columns.end[columns.turn_rows],
        columns.finish_reason,
        *(Coded(flags[calls].astype(np.int8), (False, True)) for flags in (columns.is_constrained, columns.has_media)),
    ]
    codes = np.zeros(len(calls), np.int64)
    for column in facts:
        codes = codes * len(column.values) + column.codes
    _, first, kinds = np.unique(codes, return_index=True, return_inverse=True)
    reasons = [choice.skip_reason(CompletionFacts(*each)) for each in zip(*(one[first] for one in facts), strict=True)]
    return Coded.of(reasons)[kinds]


def _refusals(columns: Columns, choice: CompletionChoice, reasons: Coded) -> Coded:
    """Why a rollout whose completions are not trained for these reasons is left out as a whole; None if it is not.

    It is where nothing in it is the policy's, with `context_exceeded="drop"` where its context was exceeded, and
    with `length="drop"` where something was cut. Such a rollout counts in no baseline. Shape: (rollouts,).
    """

    def counts_of(reason: str) -> Ints:
        return np.bincount(columns.turn_rows[reasons.equals(reason)], minlength=len(columns))

    refused = Coded.of([None] * len(columns))
    for option, reason in ((choice.context_exceeded, CONTEXT_EXCEEDED), (choice.length, CUT)):
        if option == "drop":
            refused = refused.or_else(reason_where(counts_of(reason) > 0, reason))
    of_others = np.array([counts_of(reason) for reason in NOT_THE_POLICYS])
    is_all = (columns.turns > 0) & (of_others.sum(axis=0) == columns.turns)
    most = Coded(np.where(is_all, of_others.argmax(axis=0), len(NOT_THE_POLICYS)), (*NOT_THE_POLICYS, None))
    return refused.or_else(most)


def untrained(columns: Columns, selection: Selection) -> Coded:
    """Why completions must not be trained, of their ids or of their text. Shape: (turns,)."""
    tokens = columns.tokens_untrained
    if selection.closed_streams == "train":
        # What came of a stream that the app closed is what was sampled, up to there.
        is_lifted = tokens.equals(STREAM_BROKE) & columns.closed[columns.turn_calls]
        tokens = Coded(np.where(is_lifted, len(tokens.values) - 1, tokens.codes), tokens.values)
    if selection.view == "tokens":
        return tokens
    if selection.view == "text":
        return columns.text_untrained
    of_ids = Coded(np.where(columns.has_tokens, tokens.codes, len(tokens.values) - 1), tokens.values)
    texts = columns.text_untrained
    return of_ids.or_else(Coded(np.where(columns.has_tokens, len(texts.values) - 1, texts.codes), texts.values))


def _gaps(columns: Columns, allowed: frozenset[str], view: View) -> Coded:
    """The first of each rollout's incomplete reasons that leaves it out, in alphabetical order. Shape: (rollouts,)."""
    rows, gaps = np.repeat(np.arange(len(columns)), columns.gaps), columns.gap
    leaving_out = gaps.where(lambda reason: reason not in allowed and reason is not None and concerns(reason, view))
    if view == "made tokens":
        is_made = np.zeros(len(columns), np.bool_)
        is_made[columns.turn_rows[~columns.has_tokens]] = True
        # Where nothing is made, only the gaps of ids concern what is trained.
        leaving_out &= is_made[rows] | gaps.where(lambda reason: reason is not None and concerns(reason, "tokens"))
    names = sorted(gaps.values[:-1])
    ranks = Coded(np.array([*map(names.index, gaps.values[:-1]), len(names)], np.int64)[gaps.codes], (*names, None))
    first = np.full(len(columns), len(names))
    np.minimum.at(first, rows[leaving_out], ranks.codes[leaving_out])
    return Coded(first, [*(f"incomplete: {name}" for name in names), None])


def _versions(columns: Columns, trained: str, max_staleness: int | None, left_out: Coded) -> Coded:
    """Why each rollout is skipped for the versions that sampled it; None where it is not. Shape: (rollouts,).

    The versions are those of the rollout, of every call and of what it sampled, as `trajectories.versions_in` lists
    them; a call that failed before anything was sampled needs none. Who is not the policy has no version of it.
    """
    is_others, sampled, has_spans = (np.zeros(len(columns.step), np.bool_) for _ in range(3))
    is_others[columns.turn_calls[left_out.where(NOT_THE_POLICYS.__contains__)]] = True
    sampled[columns.turn_calls] = True
    has_spans[columns.turn_calls[columns.version_spans > 0]] = True
    span_turns = np.repeat(np.arange(len(columns.call)), columns.version_spans)

    def any_in_row(rows: Ints) -> Flags:
        return np.bincount(rows, minlength=len(columns)) > 0

    says_any = any_in_row(columns.call_rows[columns.version.known])
    of_rollout = columns.version_first.known
    is_told = says_any | of_rollout | any_in_row(columns.call_rows[columns.version_end.known])
    is_told |= any_in_row(columns.turn_rows[span_turns])
    # Where nobody says a version, request models may be named for it, as LoRA adapters are.
    named = columns.request_model.where(lambda name: name is not None and is_version_of(name, trained))
    named &= ~is_told[columns.call_rows]
    models = columns.request_model
    of_calls = columns.version.or_else(Coded(np.where(named, models.codes, len(models.values) - 1), models.values))
    says_any |= any_in_row(columns.call_rows[named])

    has_others = any_in_row(columns.call_rows[is_others])
    counts_rollout = of_rollout & (~says_any | ~has_others)
    counts_call = ~is_others & ~(of_rollout & ~says_any)[columns.call_rows]
    counts_version = counts_call & (of_calls.known | (~has_spans & (sampled | ~columns.failed)))
    counts_end = counts_call & columns.version_end.known
    counts_span = counts_call[columns.turn_calls[span_turns]]
    worst = np.zeros(len(columns), np.int64)
    seen = np.zeros(len(columns), np.bool_)
    for rows, versions in (
        (np.flatnonzero(counts_rollout), columns.version_first[counts_rollout]),
        (np.flatnonzero(counts_rollout), columns.version_last[counts_rollout]),
        (columns.call_rows[counts_version], of_calls[counts_version]),
        (columns.call_rows[counts_end], columns.version_end[counts_end]),
        (columns.turn_rows[span_turns][counts_span], columns.span_version[counts_span]),
    ):
        badness = np.array([_badness(version, trained, max_staleness) for version in versions.values], np.int64)
        np.maximum.at(worst, rows, badness[versions.codes])
        seen[rows[versions.known]] = True
    worst[~seen] = _NO_VERSION
    # That nothing is the policy's is the reason, then.
    worst[has_others & ~any_in_row(columns.turn_rows[~is_others[columns.turn_calls]])] = 0
    first = "another policy version" if max_staleness is None else "stale"
    reasons = (None, first, "policy version without a number", "no policy version")
    return Coded.of(reasons)[worst]


_NO_VERSION: Final = 3


def _badness(version: str | None, trained: str, max_staleness: int | None) -> int:
    """Why a rollout with this version is skipped: 0 for not at all, 1 for its version, 2 for one without a number."""
    if version is None:
        return _NO_VERSION
    if max_staleness is None:
        return int(version != trained)
    newest, number = version_number(trained), version_number(version)
    if newest is None or number is None:
        return 2
    return int(newest - number > max_staleness)
