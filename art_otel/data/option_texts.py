"""Option texts: the options of `art_otel.batches` that decide what is trained, as a form or an address holds them.

A text means what the option of that name means; without one it is the default of `art_otel.batches`. What no option can
be is a UsageError that names it.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from art_otel.attributes import REWARD_NAME
from art_otel.data.advantages import ADVANTAGES, ADVANTAGES_OVER_GROUPS, ADVANTAGES_OVER_REWARDS
from art_otel.data.credit import (
    CREDITS,
    Credit,
    call_reward,
    discounted,
    find_credit,
    outcome_reward,
    step_reward,
)
from art_otel.data.credit import weighted as weighted_credit
from art_otel.data.options import DescribedOption
from art_otel.data.plan import ZeroVariance
from art_otel.data.selection import OPTIONS
from art_otel.errors import UsageError

NONE: Final = "none"


def read_options(texts: Mapping[str, str]) -> dict[str, Any]:
    """The keywords of `art_otel.batches` that the texts mean, by their names; empty texts are none. Raises UsageError.

    What the values may be `batches` itself checks.
    """
    return {name: option.read_text(name, texts[name]) for name, option in OPTION_TEXTS.items() if texts.get(name)}


def read_credit(text: str) -> Credit:
    """The credit that a text names: one of the names, or a function of `art_otel.data` with what it is given.

    `outcome_reward(correct)`, `step_reward(style)`, `weighted(correct=1, style=0.2)`, `discounted(0.99)`. Raises
    UsageError, which names the part that is wrong and a text that is right.
    """
    name, opening, rest = text.strip().partition("(")
    name = name.rstrip()
    if name in CREDITS and not opening:
        return find_credit(name)
    if name not in _CREDIT_EXAMPLES:
        raise UsageError(f"credit={text!r:.100}: use one of {', '.join((*CREDITS, *_EXAMPLES))}")
    try:
        return _make_credit(name, opening + rest)
    except ValueError as error:
        raise UsageError(f"credit={text!r:.100}: {error}; write {_CREDIT_EXAMPLES[name]}") from error


def _make_credit(name: str, arguments: str) -> Credit:
    """The credit of this name and its arguments in parentheses. Raises ValueError, which names the bad part."""
    if not arguments.endswith(")"):
        raise ValueError("the ) at the end is missing" if arguments else "what it is made of is missing")
    argument = arguments[1:-1].strip()
    match name:
        case "weighted":
            return weighted_credit(_weights(argument))
        case "discounted":
            if (gamma := _number(argument)) is None or not 0 <= gamma <= 1:
                raise ValueError(f"{argument!r:.100} is no number from 0 to 1")
            return discounted(gamma)
        case "step_reward":
            return step_reward(argument or REWARD_NAME)
        case "call_reward":
            return call_reward(argument or REWARD_NAME)
        case _:
            return outcome_reward(argument or None)


_EXAMPLES: Final = ("outcome_reward(correct)", "weighted(correct=1, style=0.2)", "discounted(0.99)")
_CREDIT_EXAMPLES: Final = {example.partition("(")[0]: example for example in _EXAMPLES} | {
    "step_reward": "step_reward(style)",
    "call_reward": "call_reward(style)",
}


def _weights(text: str) -> dict[str, float]:
    """The names of rewards with their weights: 1.0 for a name alone. Raises ValueError, which names the bad part."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = map(str.strip, part.partition("="))
        number = _number(weight) if equals else 1.0
        if not name:
            raise ValueError(f"{part.strip()!r:.100} has no name of a reward")
        if number is None:
            raise ValueError(f"the weight of {name!r:.100} is {weight!r:.100}, which is no finite number")
        if name in weights:
            raise ValueError(f"{name!r:.100} has two weights")
        weights[name] = number
    return weights


def _number(text: str) -> float | None:
    """The finite number that a text is, None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


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
        choices=(*CREDITS, *_EXAMPLES),
    ),
    "advantage": DescribedOption(
        type=Literal[_ADVANTAGES],  # pyright: ignore[reportInvalidTypeForm] # the names are counted in one table
        default="grpo",
        label="Advantage",
        help="How a reward is compared with those of its group; none trains all alike.",
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
        read=_weights,
    ),
}
"""The options that decide what is trained, in the order in which a form shows them."""
