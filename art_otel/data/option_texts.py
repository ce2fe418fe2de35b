"""Option texts: the options of `art_otel.batches` that decide what is trained, as a form or an address holds them.

Invariant: a text means what the option of that name means; without one it is the default of `art_otel.batches`. What
no option can be is a UsageError that names it.
"""

import math
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from art_otel.attributes import REWARD_NAME
from art_otel.data.advantages import ADVANTAGES, ADVANTAGES_OVER_GROUPS, ADVANTAGES_OVER_REWARDS
from art_otel.data.batches import batches
from art_otel.data.completions import ClosedStreams, Constrained, ContextExceeded, Images, Length
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
from art_otel.data.plan import ZeroVariance
from art_otel.errors import UsageError
from art_otel.trajectories import Status

ANY: Final = "any"
NONE: Final = "none"


class OptionText(NamedTuple):
    """An option as a form shows it: a `choice` of its choices, a `number`, or a `text` for which they are examples.

    `read` gives the value that `art_otel.batches` takes.
    """

    name: str
    kind: Literal["choice", "number", "text"]
    label: str
    help: str
    read: Callable[[str], object]
    choices: tuple[str, ...] = ()


def read_options(texts: Mapping[str, str]) -> dict[str, Any]:
    """The keywords of `art_otel.batches` that the texts mean, by their names; empty texts are none. Raises UsageError.

    What the values may be `batches` itself checks.
    """
    return {option.name: _read(option, texts[option.name]) for option in OPTION_TEXTS if texts.get(option.name)}


def default_text(name: str) -> str | None:
    """The default of the option as a text; None where there is no default."""
    default: object = signature(batches).parameters[name].default
    if isinstance(default, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", default)))
    return None if default is None else str(default).lower()


def _read(option: OptionText, text: str) -> object:
    if option.kind == "choice" and text not in option.choices:
        raise UsageError(f"{option.name}={text!r:.100}: use one of {', '.join(option.choices)}")
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{option.name}={text!r:.100}: {error}") from error


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


_MOST_STEPS: Final = 100_000
"""All of them are held in memory."""
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


def _names(text: str) -> tuple[str, ...] | None:
    return None if text == ANY else _some(text)


def _some(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _steps(text: str) -> list[int]:
    """Steps and ranges of steps, the last step included: `3, 10-19`."""
    steps: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        span = range(int(first), int(last if dash else first) + 1)
        if not span:
            raise ValueError(f"{part.strip()} ends before it begins")
        if len(steps) + len(span) > _MOST_STEPS:
            raise ValueError(f"at most {_MOST_STEPS:,} steps")
        steps += span
    return steps


def _allowed(text: str) -> object:
    return text == "true" if text in ("true", "false") else _names(text)


OPTION_TEXTS: Final = (
    OptionText(
        "credit",
        "text",
        "Credit",
        "Which reward a turn is trained with: the rollout's, its step's or its call's.",
        read_credit,
        (*CREDITS, *_EXAMPLES),
    ),
    OptionText(
        "advantage",
        "choice",
        "Advantage",
        "How a reward is compared with those of its group; none trains all alike.",
        _advantage,
        (*ADVANTAGES, *ADVANTAGES_OVER_GROUPS, *ADVANTAGES_OVER_REWARDS, NONE),
    ),
    OptionText(
        "zero_variance",
        "choice",
        "Groups of equal rewards",
        "drop skips groups in which all known rewards are equal.",
        str,
        get_args(ZeroVariance),
    ),
    OptionText(
        "status",
        "text",
        "Status",
        "Rollouts that ended so, one or several; any takes all.",
        _names,
        (*get_args(Status), ANY),
    ),
    OptionText(
        "split",
        "text",
        "Split",
        "Rollouts of this split, or of several; * takes all. Empty leaves out val, validation, test and eval.",
        _names,
    ),
    OptionText("rollouts", "text", "Rollouts", "Those of these ids, with commas between; empty takes all.", _names),
    OptionText("training_step", "text", "Training step", "One, several, or a range such as 10-19.", _steps),
    OptionText(
        "allow_incomplete",
        "text",
        "Allow incomplete",
        "true trains also rollouts of which something is missing; or name the reasons that do no harm.",
        _allowed,
        ("false", "true"),
    ),
    OptionText(
        "policy_version", "text", "Policy version", "Rollouts that this version sampled from first to last.", str
    ),
    OptionText("max_staleness", "number", "Versions behind", "So many versions behind it are taken, too.", int),
    OptionText("max_tokens", "number", "Longest sequence", "In tokens; empty allows any length.", int),
    OptionText(
        "overflow",
        "choice",
        "Longer sequences",
        "drop leaves them out, truncate cuts their ends.",
        str,
        ("drop", "truncate"),
    ),
    OptionText(
        "models",
        "text",
        "Models",
        "Only completions of these request models, names or globs with commas between; ! excludes, * takes all.",
        _some,
        ("policy-*", "!*judge*", "*"),
    ),
    OptionText(
        "agents",
        "text",
        "Agents",
        "Only completions of these agents, likewise.",
        _some,
        ("solver", "!critic"),
    ),
    OptionText(
        "context_exceeded",
        "choice",
        "Context exceeded",
        "Rollouts that outgrew the context: mask makes them only context, drop leaves them out.",
        str,
        get_args(ContextExceeded),
    ),
    OptionText(
        "length",
        "choice",
        "Cut at max_tokens",
        "mask trains no completion that was cut at max_tokens; drop leaves its rollout out.",
        str,
        get_args(Length),
    ),
    OptionText(
        "closed_streams",
        "choice",
        "Streams that the app closed",
        "train learns the ids that came before the app closed the stream.",
        str,
        get_args(ClosedStreams),
    ),
    OptionText(
        "constrained",
        "choice",
        "Constrained sampling",
        "drop trains no completion whose request allowed only some tokens, or moved them.",
        str,
        get_args(Constrained),
    ),
    OptionText(
        "images",
        "choice",
        "Behind images",
        "placeholders trains completions whose prompt has images, audio or files, for which ids have placeholders.",
        str,
        get_args(Images),
    ),
    OptionText(
        "token_rewards",
        "text",
        "Rewards of tokens",
        "Names of rewards of spans of tokens, with weights: style=0.2, format=1.",
        _weights,
    ),
)
"""The options that decide what is trained, in the order in which a form shows them."""
