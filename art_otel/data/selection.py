"""Selection: the options that choose the rollouts, and the completions of these, that are trained.

Each option is defined once, in `Selection`: its type, its default and its texts. `art_otel.batches`,
`message_batches`, `preference_batches`, `art_otel.export` and the page take the options from there; `choosing` applies
them. How to add one, for example `tools="drop"`:

    Selection          a field `tools`, with its DescribedOption; SelectionKeywords: what callers write
    choosing           the rule: a line in `left_out_by`, if it concerns completions, or in `choose`
    cures              what helps against its reason
    cli/export         its flag

`where` and shares of a `split` need more than columns: `filters` turns them into `rollouts` first.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from hashlib import blake2b
from numbers import Integral
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict, cast, get_args, get_type_hints

import msgspec

from art_otel.calls import ClosedStreams
from art_otel.data.model_names import HOW_TO_WRITE, Names, version_number
from art_otel.data.options import DescribedOption, as_names
from art_otel.errors import UsageError
from art_otel.store import Part, Wanted
from art_otel.store.files import Rows
from art_otel.trajectories import EXPLANATIONS, Status, plain_id

View: TypeAlias = Literal["tokens", "text", "made tokens"]
"""The trained form of a trajectory: the server's ids, text, or ids that are made of text if the server gave none."""

_Staleness: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Fate: TypeAlias = Literal["keep", "mask", "drop"]
_Constrained: TypeAlias = Literal["keep", "mask"]
_Images: TypeAlias = Literal["mask", "placeholders"]

HELD_OUT: Final = frozenset({"val", "validation", "test", "eval"})
"""Splits that are trained only if the options name them."""
EVERY_SPLIT: Final = "*"
ENDED_ON_FAILURE: Final = "ended on a failed call"

OUTLINE: Final = Wanted(messages=False, tokens=False)
"""The parts that planning reads: neither messages nor tokens."""

ANY: Final = "any"
_MOST_STEPS: Final = 100_000
"""The most training steps of an option: all are in memory."""


def read_names(text: str) -> tuple[str, ...]:
    """Read names that are separated by commas."""
    return tuple(part.strip() for part in text.split(","))


def _names_or_any(text: str) -> tuple[str, ...] | None:
    return None if text == ANY else read_names(text)


def _allowed(text: str) -> object:
    return text == "true" if text in ("true", "false") else read_names(text)


def _steps(text: str) -> list[int]:
    """Read steps and ranges of steps: `3, 10-19`. The last step of a range is included."""
    steps: list[int] = []
    for part in text.split(","):
        first, dash, last = map(str.strip, part.partition("-"))
        bounds = (first, last if dash else first)
        if not all(one.isdecimal() for one in bounds):
            raise ValueError(f"{part.strip()!r:.100} is no step and no range of steps; write 3, or 3,10-19")
        span = range(int(bounds[0]), int(bounds[1]) + 1)
        if not span:
            raise ValueError(f"{part.strip()} ends before it begins")
        if len(steps) + len(span) > _MOST_STEPS:
            raise ValueError(f"at most {_MOST_STEPS:,} steps")
        steps += span
    return steps


class SelectionKeywords(TypedDict, total=False):
    """The options as callers write them. `Selection` has their meaning."""

    status: Status | Iterable[Status] | None
    split: str | Iterable[str | None] | None
    part: str | None
    where: str | None
    rollouts: str | Iterable[str] | None
    training_step: int | Iterable[int | None] | None
    allow_incomplete: bool | Iterable[str]
    policy_version: str | int | None
    max_staleness: int | None
    models: Names
    agents: Names
    context_exceeded: _Fate
    length: _Fate
    closed_streams: ClosedStreams
    constrained: _Constrained
    images: _Images


def listed_options(selection: SelectionKeywords) -> SelectionKeywords:
    """The options with iterators as tuples, because the options are read more than once."""
    given: Mapping[str, object] = cast("dict[str, object]", selection)
    listed = {
        name: as_names(one) if isinstance(one, Iterator) else one  # pyright: ignore[reportUnknownArgumentType] # of any items
        for name, one in given.items()
    }
    return cast(SelectionKeywords, listed)


class Selection:
    """The checked options, each with its texts for a form.

        Selection(view="text", status="ok", models=["policy-*", "!*-judge"])

    `policy_version` must be the version of every call. With `max_staleness`, each version may be that many versions
    older, compared by number: 12 in `12`, `step-12` and `policy-v12`. Calls without a version have the rollout's, or
    the version that the request's model names. Raises UsageError for an unknown option, an invalid value, and an
    option for ids if text is trained.
    """

    view: View
    status: Annotated[
        frozenset[Status] | None,
        DescribedOption(
            default=frozenset({"ok"}),
            label="Status",
            help="Only rollouts with these statuses; any includes all.",
            read=_names_or_any,
            choices=(*get_args(Status), ANY),
        ),
    ]
    split: Annotated[
        frozenset[str | None] | None,
        DescribedOption(
            default=None,
            label="Split",
            help="Only rollouts of these splits; * includes all. Empty leaves out val, validation, test and eval."
            " Shares such as 0.9/0.1 divide the tasks into train and val.",
            read=_names_or_any,
        ),
    ]
    part: Annotated[
        str | None,
        DescribedOption(
            default=None,
            label="Part",
            help="With shares as split: train (the default), val, or test.",
        ),
    ]
    where: Annotated[
        str | None,
        DescribedOption(
            default=None,
            label="Where",
            help="Rollouts with these rewards, metadata and fields: correctness>=0.5&difficulty=easy.",
            choices=("correctness>=0.5", "difficulty=easy&tags!=internal"),
        ),
    ]
    rollouts: Annotated[
        frozenset[str] | None,
        DescribedOption(
            default=None,
            label="Rollouts",
            help="Only rollouts with these ids, separated by commas; empty includes all.",
            read=_names_or_any,
        ),
    ]
    training_step: Annotated[
        frozenset[int | None] | None,
        DescribedOption(
            default=None,
            label="Training step",
            help="One, several, or a range such as 10-19.",
            read=_steps,
        ),
    ]
    allow_incomplete: Annotated[
        bool | frozenset[str],
        DescribedOption(
            default=False,
            label="Allow incomplete",
            help="true also trains rollouts in which something is missing; or name the reasons that you accept.",
            read=_allowed,
            choices=("false", "true"),
        ),
    ]
    policy_version: Annotated[
        str | int | None,
        DescribedOption(
            default=None,
            label="Policy version",
            help="Rollouts that this version sampled from first to last.",
        ),
    ]
    max_staleness: Annotated[
        _Staleness | None,
        DescribedOption(
            default=None,
            label="Versions behind",
            help="Also include rollouts up to this many versions older.",
            read=int,
        ),
    ]
    models: Annotated[
        tuple[str, ...] | None,
        DescribedOption(
            default=None,
            label="Models",
            help="Only completions of these request models, names or globs separated by commas; ! excludes, * "
            "includes all.",
            read=read_names,
            choices=("policy-*", "!*judge*", "*"),
        ),
    ]
    agents: Annotated[
        tuple[str, ...] | None,
        DescribedOption(
            default=None,
            label="Agents",
            help="Only completions of these agents, likewise.",
            read=read_names,
            choices=("solver", "!critic"),
        ),
    ]
    context_exceeded: Annotated[
        _Fate,
        DescribedOption(
            default="keep",
            label="Context exceeded",
            help="Rollouts that exceeded the context: mask keeps them as context only, drop leaves them out.",
            choices=get_args(_Fate),
        ),
    ]
    length: Annotated[
        _Fate,
        DescribedOption(
            default="keep",
            label="Cut answers",
            help="mask trains no completion that was cut at max_tokens or by a filter; drop leaves its rollout out.",
            choices=get_args(_Fate),
            of_text="mask",  # a chat template would end a cut answer as if the policy had
        ),
    ]
    closed_streams: Annotated[
        ClosedStreams,
        DescribedOption(
            default="mask",
            label="Streams that the app closed",
            help="train learns the ids that came before the app closed the stream.",
            choices=get_args(ClosedStreams),
            only_of_ids=True,
        ),
    ]
    constrained: Annotated[
        _Constrained,
        DescribedOption(
            default="keep",
            label="Constrained sampling",
            help="mask trains no completion whose request allowed only some tokens, or moved them.",
            choices=get_args(_Constrained),
        ),
    ]
    images: Annotated[
        _Images,
        DescribedOption(
            default="mask",
            label="Behind images",
            help="placeholders trains completions whose prompt has images, audio or files, for which ids have"
            " placeholders.",
            choices=get_args(_Images),
            of_text="placeholders",  # messages carry their images
            only_of_ids=True,
        ),
    ]

    def __init__(self, *, view: View = "tokens", **given: Any) -> None:  # noqa: ANN401 # SelectionKeywords
        self.view = view
        if unknown := given.keys() - OPTIONS.keys():
            raise UsageError(f"there is no option {min(unknown)!r} to select by; there are {', '.join(OPTIONS)}")
        for name in ("where", "part"):
            if given.get(name) is not None:
                raise UsageError(
                    f"{name}={given[name]!r}: this option works only where rollouts are read, as in art_otel.batches"
                )
        if isinstance(step := given.get("training_step"), Integral):
            given["training_step"] = (step,)
        for name, option in OPTIONS.items():
            if name in given and view == "text" and option.only_of_ids:
                raise UsageError(
                    f"{name}={given[name]!r}: this option is for token ids, but conversations and preferences are "
                    "trained as text; leave it out"
                )
            default = option.of_text if view == "text" and option.of_text else option.default
            setattr(self, name, option.check(name, given.get(name, default)))
        if self.rollouts is not None:
            self.rollouts |= {plain_id(one) for one in self.rollouts}
        if not isinstance(self.allow_incomplete, bool):
            reasons = (*EXPLANATIONS, ENDED_ON_FAILURE)
            if no_reasons := sorted(self.allow_incomplete - set(reasons)):
                raise UsageError(
                    f"allow_incomplete={no_reasons}: unknown reasons; use True, or some of {', '.join(reasons)}"
                )
        if self.max_staleness is not None and version_number(self.version) is None:
            raise UsageError(
                f"max_staleness={self.max_staleness!r} with policy_version={self.policy_version!r}: name the version "
                f"that is trained now, with a number to compare. {HOW_TO_WRITE}"
            )

    def __str__(self) -> str:
        """All options as text. Sets are sorted, because their order differs between processes."""
        values: dict[str, Any] = {name: getattr(self, name) for name in OPTIONS} | {"policy_version": self.version}
        ids = self.rollouts and blake2b(repr(sorted(self.rollouts)).encode(), digest_size=8).hexdigest()
        texts = {
            name: sorted(map(repr, cast(frozenset[object], one))) if isinstance(one, frozenset) else one
            for name, one in values.items()
        }
        return f"{texts | {'rollouts': ids}} {self.view}"

    @property
    def version(self) -> str | None:
        """The policy version as text."""
        return None if self.policy_version is None else str(self.policy_version)

    @property
    def chooses_models(self) -> bool:
        """Whether an option chooses by model or agent."""
        return self.models is not None or self.agents is not None

    @property
    def outline(self) -> Wanted:
        """The parts of a trajectory that selecting reads: no messages, and tokens only for the view `made tokens`."""
        return msgspec.structs.replace(OUTLINE, tokens=self.view == "made tokens")

    def of_view(self, view: View) -> "Selection":
        """The same options with another view."""
        other = copy(self)
        other.view = view
        return other

    def why_none_of(self, part: Part) -> str | None:
        """Why every trajectory of a part is skipped, by the manifest alone; None if some may be selected."""
        if not any(map(self.takes_split, part.splits)):
            return "split"
        return Rows(training_steps=self.training_step).why_none_of(part)

    def takes_split(self, split: str | None) -> bool:
        """Whether trajectories of this split are selected."""
        if self.split is None:
            return split not in HELD_OUT
        return split in self.split or EVERY_SPLIT in self.split


_HINTS: Final = get_type_hints(Selection, include_extras=True).items()
OPTIONS: Final[Mapping[str, DescribedOption]] = {
    name: replace(get_args(hint)[1], type=get_args(hint)[0]) for name, hint in _HINTS if name != "view"
}
"""The options by their names, in the order in which a form shows them."""
