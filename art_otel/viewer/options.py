"""PlanOptions: the options of `art_otel.batches` that the page offers, as an address holds them.

Invariant: what is not in the address is the default of `art_otel.batches`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from art_otel.data import ADVANTAGES, CREDITS, Batches
from art_otel.data.batches import batches
from art_otel.data.options import validate
from art_otel.data.sources import Sources
from art_otel.trajectories import Status

ANY: Final = "any"
NONE: Final = "none"

_CreditName = Literal["outcome_reward", "step_reward", "call_reward"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """`status` is a status or `any`, `split` a split or None for any, `advantage` a name or `none`."""

    credit: _CreditName = "outcome_reward"
    advantage: Literal["grpo", "grpo_sample", "dr_grpo", "rloo", "centered", "none"] = "grpo"
    status: Literal["ok", "error", "cancelled", "unfinished", "any"] = "ok"
    split: str | None = None
    allow_incomplete: bool = False
    zero_variance: Literal["keep", "drop"] = "keep"
    max_tokens: int | None = None
    overflow: Literal["drop", "truncate"] = "drop"

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "PlanOptions":
        """Read the options of a query. Raises UsageError for a value that an option cannot have."""
        values = {name: query[name] for name in cls.__slots__ if query.get(name)}
        return validate(cls, values, owner="the plan", texts=True)

    def batches(self, sources: Sources) -> Batches:
        """What `art_otel.batches` makes of the sources with these options. Raises UsageError."""
        return batches(
            sources,
            credit=self.credit,
            advantage=None if self.advantage == NONE else self.advantage,
            status=None if self.status == ANY else self.status,
            split=self.split,
            allow_incomplete=self.allow_incomplete,
            zero_variance=self.zero_variance,
            max_tokens=self.max_tokens,
            overflow=self.overflow,
        )


DEFAULTS: Final = PlanOptions()


def described_options(options: PlanOptions, splits: Sequence[str]) -> list[dict[str, Any]]:
    """Describe the options as a form needs them."""
    choices: dict[str, Sequence[str]] = {
        "credit": CREDITS,
        "advantage": (*ADVANTAGES, NONE),
        "status": (*get_args(Status), ANY),
        "split": splits,
        "zero_variance": ("keep", "drop"),
        "overflow": ("drop", "truncate"),
    }
    return [
        {
            "name": name,
            "label": label,
            "kind": kind,
            "choices": list(choices.get(name, ())),
            "default": cast(object, getattr(DEFAULTS, name)),
            "value": cast(object, getattr(options, name)),
            "help": text,
        }
        for name, label, kind, text in _FORM
    ]


_FORM: Final = (
    ("credit", "Credit", "choice", "Which reward a turn is trained with: the rollout's, its step's or its call's."),
    ("advantage", "Advantage", "choice", "How a reward is compared with those of its group; none trains all alike."),
    ("status", "Status", "choice", "Rollouts that ended so; any takes all."),
    ("split", "Split", "choice", "Rollouts of this split; empty takes all."),
    ("allow_incomplete", "Allow incomplete", "flag", "Train also rollouts of which something is missing."),
    ("zero_variance", "Groups of equal rewards", "choice", "drop skips groups in which all known rewards are equal."),
    ("max_tokens", "Longest sequence", "number", "In tokens; empty allows any length."),
    ("overflow", "Longer sequences", "choice", "drop leaves them out, truncate cuts their ends."),
)
