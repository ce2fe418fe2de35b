"""Config: the options of the format."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutsConfig:
    """Options of `rollouts`."""

    agent: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="the agent of every rollout, by which NeMo Gym reports (without: the name)"),
    ] = None
