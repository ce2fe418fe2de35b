"""Config: the options of the formats."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True, kw_only=True, slots=True)
class SftConfig:
    """`sft` has no options."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutsConfig:
    """Options of `rollouts`."""

    reward_at: Annotated[
        Literal["end", "completions"],
        Meta(
            description="where rm_scores has the reward: at the row's last token, as verl puts it, or each completion's"
            " own at its last token, for rewards of steps or calls"
        ),
    ] = "end"
    token_rewards: Annotated[
        str | None, Meta(description="the name of a reward that was given to spans of tokens, to add to rm_scores")
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptsConfig:
    """Options of `prompts`."""

    data_source: Annotated[
        str | None, Meta(description="what verl chooses the reward function by; the rollout's name where not given")
    ] = None
    ground_truth: Annotated[str, Meta(description="the name of the metadata that is reward_model.ground_truth")] = (
        "ground_truth"
    )
