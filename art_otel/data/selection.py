"""Selection: which trajectories are learned from.

Invariant: every trajectory is selected, or there is one reason why it is skipped, the first of: split, training step
(of which a manifest tells without its parts), not chosen by its id, incomplete (by its own reason), ended on a failed
call, status, policy version, nothing of the policy's in it (`completions`). What is unknown is never fresh where
freshness was asked for.

A reason of incompleteness leaves out only where it concerns what is trained. Token ids are asked for the gaps of ids,
text for those of text; whoever makes ids of the text of completions that have none asks for both.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from art_otel.data.completions import (
    NOT_THE_POLICYS,
    ClosedStreams,
    CompletionChoice,
    Constrained,
    ContextExceeded,
    Images,
    Length,
    Names,
    SeveralModels,
)
from art_otel.data.options import as_names, validate
from art_otel.data.sources import Chunk, read_numbered
from art_otel.data.versions import HOW_TO_WRITE, version_number, with_model_versions
from art_otel.store import Part, Wanted
from art_otel.store.files import Rows
from art_otel.trajectories import (
    CONTEXT_EXCEEDED,
    EXPLANATIONS,
    FAILED_CALL,
    End,
    Status,
    TextUntrained,
    TokensUntrained,
    Trajectory,
    Turn,
    concern_of,
    versions_in,
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

    def sampled_by(self, trajectory: Trajectory) -> Iterator[str | None]:
        """The model of each completion of the policy whose verdict lets it be trained. Shape: (turns,).

        None for the others. A model without token ids counts, too: that it trains nothing is chance, no choice.
        """
        for turn, reason in zip(trajectory.turns, self.completions.reasons(trajectory), strict=True):
            untrained = untrained_in(turn, self.view)
            call = trajectory.calls[turn.call]
            is_trained = reason not in NOT_THE_POLICYS and untrained is None
            yield (call.request_model or call.response_model) if is_trained else None

    def skip_reason(self, trajectory: Trajectory) -> str | None:
        """Why the trajectory is skipped; None when it is selected."""
        if not self.takes_split(trajectory.split):
            return "split"
        if self.training_step is not None and trajectory.training_step not in self.training_step:
            return "training step"
        if self.rollouts is not None and trajectory.rollout_id not in self.rollouts:
            return NOT_CHOSEN
        if self.allow_incomplete is not True:
            reason = _reason_of_gap(trajectory, self.allow_incomplete or frozenset[str](), self.view)
            if reason is not None:
                return reason
        if not self.takes_status(trajectory.status, trajectory.end):
            return "status"
        of_turns = self.completions.reasons(trajectory)
        return self.version_reason(trajectory, of_turns) or self.completions.refuses(of_turns)

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

    def takes_status(self, status: Status, end: End | None) -> bool:
        """Whether trajectories of this status and end are selected.

        A rollout whose context was exceeded is as valid as one that is `ok`, also where its function let the error of
        the server out.
        """
        if self.status is None or status in self.status:
            return True
        return status == "error" and end == CONTEXT_EXCEEDED and "ok" in self.status

    def __str__(self) -> str:
        """All options, the same in every process: sets have an order of their own in each."""
        sets = (self.allow_incomplete, self.split, self.status, self.training_step)
        texts = [sorted(map(repr, names)) if isinstance(names, frozenset) else names for names in sets]
        ids = self.rollouts and blake2b(repr(sorted(self.rollouts)).encode(), digest_size=8).hexdigest()
        return f"{texts} {ids} {self.version} {self.max_staleness} {self.completions} {self.closed_streams} {self.view}"

    def versioned(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with the versions that its request models name, where nobody said any."""
        return with_model_versions(trajectory, self.version)

    def version_reason(self, trajectory: Trajectory, of_turns: Sequence[str | None]) -> str | None:
        """Why the trajectory is skipped for the versions that sampled it; None where it is not.

        `of_turns` has why options leave completions out: who is not the policy has no version of it. Shape: (turns,).
        """
        if (trained := self.version) is None:
            return None
        calls_of_others = {
            turn.call for turn, reason in zip(trajectory.turns, of_turns, strict=True) if reason in NOT_THE_POLICYS
        }
        if calls_of_others.issuperset(turn.call for turn in trajectory.turns) and calls_of_others:
            return None  # that nothing is the policy's is the reason
        recorded = versions_in(self.versioned(trajectory), calls_of_others)
        versions = {version for version in recorded if version is not None}
        if not versions or None in recorded:
            return "no policy version"
        if self.max_staleness is None:
            return None if versions == {trained} else "another policy version"
        newest, numbers = version_number(trained), [version_number(version) for version in versions]
        comparable = [number for number in numbers if number is not None]
        if newest is None or len(comparable) < len(numbers):
            return "policy version without a number"
        return "stale" if newest - min(comparable) > self.max_staleness else None


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


def check_models(chunks: Iterable[Chunk], selection: Selection) -> None:
    """Raise UsageError where selected rollouts have completions of several models, and nobody chose among them."""
    if not selection.completions.is_open:
        return
    several = SeveralModels(selection.version)
    for number, trajectory in read_numbered(chunks, selection.outline):
        if selection.skip_reason(trajectory) is None:
            several.add(number, selection.sampled_by(trajectory))
    several.check()


def untrained_in(turn: Turn, view: View) -> TokensUntrained | TextUntrained | None:
    """Why a completion must not be trained where this is learned from; None where it may be."""
    is_text = view == "text" or (view == "made tokens" and not turn.has_tokens)
    return turn.text_untrained if is_text else turn.tokens_untrained


def concerns(reason: str, view: View) -> bool:
    """Whether a reason of incompleteness says anything of what is trained."""
    return view == "made tokens" or concern_of(reason) in (view, "both")


def _reason_of_gap(trajectory: Trajectory, allowed: frozenset[str], view: View) -> str | None:
    if view == "made tokens" and all(turn.has_tokens for turn in trajectory.turns):
        view = "tokens"  # nothing is made
    if missing := [reason for reason in trajectory.incomplete_reasons.keys() - allowed if concerns(reason, view)]:
        return f"incomplete: {min(missing)}"
    return ENDED_ON_FAILURE if ENDED_ON_FAILURE not in allowed and trajectory.end == FAILED_CALL else None
