"""Config: the options of the formats."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

Unit: TypeAlias = Annotated[
    Literal["history", "call"],
    Meta(
        description="what an experience is: a history with all its completions under the action mask, or one completion"
        " behind its whole prompt, as Trinity's step-wise workflows make them"
    ),
]
Release: TypeAlias = Literal["0.6", "0.5"]
Logprobs: TypeAlias = Annotated[
    Literal["drop", "keep"],
    Meta(description="what becomes of completions without logprobs; Trinity trains them only with no reward"),
]
TokenRewards: TypeAlias = Annotated[
    str | None,
    Meta(
        description="name of rewards given to spans of tokens; every experience then has a token_level_reward: theirs,"
        " and its reward at the last token"
    ),
]
MaxTokens: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1)] | None,
    Meta(description="the longest history that is written, in tokens; longer ones are left out"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperiencesConfig:
    """Options of an experience, and of `payloads`."""

    unit: Unit = "history"
    without_logprobs: Logprobs = "drop"
    token_rewards: TokenRewards = None
    max_tokens: MaxTokens = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseConfig(ExperiencesConfig):
    """Options of `experiences`."""

    table: Annotated[
        str,
        Meta(
            pattern=r"^(?![Ss][Qq][Ll][Ii][Tt][Ee]_)[A-Za-z_][A-Za-z0-9_]*\Z",
            description="name of the table, Trinity's name of the buffer",
        ),
    ] = "experience_buffer"
    release: Annotated[
        Release, Meta(description="which Trinity reads it: from 0.6 on the bytes have a table of their own")
    ] = "0.6"
