"""Option texts: the options of `art_otel.batches` that decide what is trained, as texts of a form or a URL.

A text has the meaning of the option with this name; an option without a text has the default of `art_otel.batches`. A
text that no option can have raises a UsageError with the option's name.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from art_otel.data.advantages import ADVANTAGES, ADVANTAGES_OVER_GROUPS, ADVANTAGES_OVER_REWARDS
from art_otel.data.credit import CREDIT_EXAMPLES, CREDITS, read_credit, read_weights
from art_otel.data.options import DescribedOption
from art_otel.data.plan import ZeroVariance
from art_otel.data.selection import OPTIONS

NONE: Final = "none"


def read_options(texts: Mapping[str, str]) -> dict[str, Any]:
    """Read keywords of `art_otel.batches` from texts by name; empty texts are left out. Raises UsageError.

    `batches` itself checks the values.
    """
    return {name: option.read_text(name, texts[name]) for name, option in OPTION_TEXTS.items() if texts.get(name)}


def _advantage(text: str) -> str | None:
    return None if text == NONE else text


_ADVANTAGES: Final = (*ADVANTAGES, *ADVANTAGES_OVER_GROUPS, *ADVANTAGES_OVER_REWARDS, NONE)

OPTION_TEXTS: Final[Mapping[str, DescribedOption]] = {
    "credit": DescribedOption(
        type=Any,
        default="outcome_reward",
        label="Credit",
        help="Which reward a turn is trained with: the rollout's, its step's or its call's.",
        read=read_credit,
        choices=(*CREDITS, *CREDIT_EXAMPLES),
    ),
    "advantage": DescribedOption(
        type=Literal[_ADVANTAGES],  # pyright: ignore[reportInvalidTypeForm] # the names are counted in one table
        default="grpo",
        label="Advantage",
        help="How rewards become advantages; none weights all tokens equally.",
        read=_advantage,
        choices=_ADVANTAGES,
    ),
    "zero_variance": DescribedOption(
        type=ZeroVariance,
        default="keep",
        label="Groups of equal rewards",
        help="drop skips groups in which all known rewards are equal.",
        choices=get_args(ZeroVariance),
    ),
    **OPTIONS,
    "max_tokens": DescribedOption(
        type=int, default=None, label="Longest sequence", help="In tokens; empty allows any length.", read=int
    ),
    "overflow": DescribedOption(
        type=Literal["drop", "truncate"],
        default="drop",
        label="Longer sequences",
        help="drop leaves them out, truncate cuts their ends.",
        choices=("drop", "truncate"),
    ),
    "token_rewards": DescribedOption(
        type=Any,
        default=None,
        label="Rewards of tokens",
        help="Names of rewards of spans of tokens, with weights: style=0.2, format=1.",
        read=read_weights,
    ),
}
"""The options that decide what is trained, in the order in which a form shows them."""
