"""Settings: how a gateway asks model servers, and what it records. Each setting stands here once.

To add a setting:

    GatewaySettings    the field with its default, its help text and further arguments of argparse's `add_argument`;
                       the flag of `art-otel gateway` is made from these
    GatewayKeywords    its type, for callers of `art_otel.gateway`

The command line loads this module for every verb, so it imports nothing of a server.
"""

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from art_otel.errors import UsageError

Tokens: TypeAlias = Literal["auto", "passthrough", "exact", "off"]
"""How the gateway gets token ids: `auto` is `exact` where the server can do that, else `passthrough`."""

Translate: TypeAlias = Literal["auto", "never"]
"""Whether requests may be translated to another dialect for their server."""


class GatewayKeywords(TypedDict, total=False):
    """The settings as keywords; GatewaySettings says what they mean."""

    tokens: Tokens
    keep_reasoning: bool
    policy_version_header: str | None
    models: str | Iterable[str] | None
    translate: Translate
    max_calls: int | None


def read_models(names: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Names of models, given as one text with commas or as several texts: `"a, b"` gives `("a", "b")`."""
    if isinstance(names, str):
        names = names.split(",")
    return None if names is None else tuple(name.strip() for name in names)


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """The settings, described by their help texts. Raises UsageError for an invalid value."""

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
        """Check the values at run time: not every caller uses a type checker."""
        for name, choices in (("tokens", get_args(Tokens)), ("translate", get_args(Translate))):
            if getattr(self, name) not in choices:
                raise UsageError(f"{name}={getattr(self, name)!r}: use one of {', '.join(choices)}")
        if self.max_calls is not None and self.max_calls < 1:
            raise UsageError(f"max_calls={self.max_calls}: give a whole number, 1 or more")


SETTINGS: Final[tuple["Field[Any]", ...]] = fields(GatewaySettings)
"""The fields, in the order in which the command line shows them."""
