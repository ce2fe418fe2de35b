"""Config: the options of the format."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutsConfig:
    """Options of `rollouts`."""

    reward_at: Annotated[
        Literal["end", "completions"],
        Meta(
            description="a reward for a history, or one for each token, where each completion has its own at its last"
            " token, for rewards of steps or calls"
        ),
    ] = "end"
