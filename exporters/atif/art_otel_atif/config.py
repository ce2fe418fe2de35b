"""Config: the options of the format."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, kw_only=True, slots=True)
class TrajectoriesConfig:
    """Options of `trajectories`."""

    prompt_token_ids: Annotated[
        bool,
        Meta(
            description="ATIF repeats the whole prompt's ids in every step; false makes documents of long rollouts"
            " much smaller"
        ),
    ] = True
    agent_version: Annotated[str, Meta(description="agent.version, which ATIF requires and spans do not tell")] = (
        "unknown"
    )
