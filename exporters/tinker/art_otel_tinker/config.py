"""Config: the options of the formats."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, kw_only=True, slots=True)
class DatumsConfig:
    """Options of `datums`: there are none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutsConfig:
    """Options of `rollouts`."""

    split: Annotated[str, Meta(description="split of trajectories that have none")] = "train"
    iteration: Annotated[
        int, Meta(ge=0, description="iteration of trajectories that have no training step, or one below 0")
    ] = 0
    traces: Annotated[
        bool, Meta(description="whether each step has its trace: prompt, answer, rewards; without, lengths and numbers")
    ] = True
