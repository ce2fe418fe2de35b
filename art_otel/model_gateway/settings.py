"""Settings: how a gateway asks model servers, and what it records. Each stands here once.

To add one, for example how often a server is asked:

    GatewaySettings    the field, with its default, and with its help text and what else argparse's `add_argument`
                       takes: the flag of `art-otel gateway` is made of it
    GatewayKeywords    its type, for callers of `art_otel.gateway`

The modules of the command line load this one for every verb, so it loads nothing of a server.
"""

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from art_otel.errors import UsageError

Tokens: TypeAlias = Literal["auto", "passthrough", "exact", "off"]
"""How token ids are had: `auto` is `exact` where the server can, else `passthrough`."""

Translate: TypeAlias = Literal["auto", "never"]
"""Whether requests may go to a server in another dialect."""


class GatewayKeywords(TypedDict, total=False):
    """The settings as keywords; GatewaySettings says what they mean."""

    tokens: Tokens
    keep_reasoning: bool
    policy_version_header: str | None
    models: str | Iterable[str] | None
    translate: Translate
    max_calls: int | None


def read_models(names: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Names of models: one text, in which commas may stand between, or several."""
    if isinstance(names, str):
        names = names.split(",")
    return None if names is None else tuple(name.strip() for name in names)


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """The settings. Raises UsageError for a value that is none."""

    tokens: Tokens = field(
        default="auto",
        metadata={
            "help": "how to get token ids. exact: sample from ids, in every dialect, and keep the ids of earlier turns"
            " in prompts (vLLM 0.32 with --enable-scale-out); passthrough: ask the server for ids, and remove them"
            " from the agent's answer; off: ask for nothing (default: auto, the best way that the server supports)",
            "choices": get_args(Tokens),
        },
    )
    keep_reasoning: bool = field(
        default=False,
        metadata={
            "help": "with exact tokens: prompts keep the reasoning of earlier turns, even if the template removes it;"
            " each such call says so",
            "action": "store_true",
        },
    )
    policy_version_header: str | None = field(
        default=None,
        metadata={"help": "the response header with the version of the weights", "metavar": "NAME"},
    )
    models: str | Iterable[str] | None = field(
        default=None,
        metadata={
            "help": "mark calls of other models than these as untrained: names or globs separated by commas, ! "
            "excludes ('policy-*,!*judge*') (default: mark none)",
            "metavar": "NAMES",
        },
    )
    translate: Translate = field(
        default="auto",
        metadata={
            "help": "auto: Messages, Responses and Gemini's generateContent go to the server as Chat Completions if it"
            " lacks them, or has them without token ids while its Chat Completions have ids; never: they go as they"
            " are (default: auto)",
            "choices": get_args(Translate),
        },
    )
    max_calls: int | None = field(
        default=None,
        metadata={
            "help": "the largest number of calls in a rollout; further calls get an answer that ends the agent's "
            "loop, and are not recorded (default: no limit)",
            "type": int,
            "metavar": "N",
        },
    )

    def __post_init__(self) -> None:
        """Check the values that no type checker has seen."""
        for name, choices in (("tokens", get_args(Tokens)), ("translate", get_args(Translate))):
            if getattr(self, name) not in choices:
                raise UsageError(f"{name}={getattr(self, name)!r}: use one of {', '.join(choices)}")
        if self.max_calls is not None and self.max_calls < 1:
            raise UsageError(f"max_calls={self.max_calls}: give a whole number, 1 or more")


SETTINGS: Final[tuple["Field[Any]", ...]] = fields(GatewaySettings)
"""In the order in which the command line shows them."""
