"""Config: the options of the format."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True, kw_only=True, slots=True)
class TripletsConfig:
    """Options of `triplets`."""

    reward: Annotated[
        Literal["last", "each"],
        Meta(
            description="which triplets have a reward: the last one alone, which has the rollout's, or each its own"
            " (for rewards of steps or calls). What reads triplets adds their rewards up"
        ),
    ] = "last"
    raw_content: Annotated[
        bool, Meta(description="write the messages of prompts and responses beside their token ids")
    ] = True
