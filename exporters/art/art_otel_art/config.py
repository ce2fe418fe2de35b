"""Config: the options of the formats."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True, kw_only=True, slots=True)
class TrajectoriesConfig:
    """Options of `trajectories`."""

    tool_calls: Annotated[
        Literal["keep", "drop"],
        Meta(
            description="for ART 0.5.18 and before, which renders tool calls a second time behind the sampled tokens"
            " that hold them: drop writes none beside these"
        ),
    ] = "keep"


@dataclass(frozen=True, kw_only=True, slots=True)
class LogConfig:
    """Options of `log`."""

    split: Annotated[str, Meta(description="the split of trajectories that have none")] = "train"
    step: Annotated[int, Meta(ge=0, description="the training step of trajectories that have none")] = 0
