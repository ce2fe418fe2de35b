"""art-otel trajectories for verl: multi-turn SFT, rollouts as a DataProto, and prompts."""

from typing import Final

from art_otel.exporting import Exporter, Format, no_place
from art_otel_verl.conversations import PROMPTS, SFT, PromptsConfig, encode_prompts, encode_sft
from art_otel_verl.rollouts import ROLLOUTS, VerlRolloutsConfig, encode_rollouts

_NEVER: Final = no_place("metrics", "metadata", "logs")
_CHAT: Final = _NEVER | {
    **no_place("rewards"),
    "token_ids": "verl tokenizes the messages itself",
    "logprobs": "verl tokenizes the messages itself",
    **no_place("policy_version"),
}

EXPORTER: Final = Exporter(
    name="verl",
    summary="verl's SFT and RL datasets, and rollouts as a DataProto",
    formats=(
        Format(
            name="sft",
            summary="multi-turn SFT Parquet for MultiTurnSFTDataset; art_otel_verl.sft_dataset reads all of it",
            input="conversations",
            needs="recorded messages",
            not_carried=_CHAT,
            encode=encode_sft,
            sink=lambda _: SFT,
        ),
        Format(
            name="rollouts",
            summary="rollouts as tokens; art_otel_verl.rollouts.load_rollouts makes a DataProto of them",
            input="trajectories",
            needs="token ids, prompts of one token or more, and rewards",
            not_carried=_NEVER | {"tools": "the token ids hold what the policy saw of them"},
            config=VerlRolloutsConfig,
            encode=encode_rollouts,
            sink=lambda _: ROLLOUTS,
            advantage="grpo_sample",
            load="art_otel_verl.rollouts.load_rollouts({files})",
        ),
        Format(
            name="prompts",
            summary="the first prompt of each group for RLHFDataset, to roll out again",
            input="trajectories",
            needs="recorded messages",
            not_carried=_CHAT
            | {
                "metadata": "one name of it can be the ground truth",
                "tools": "verl takes tools from its own configuration",
                "reward": "prompts are rolled out anew",
            },
            config=PromptsConfig,
            encode=encode_prompts,
            carries_images=True,
            sink=lambda _: PROMPTS,
        ),
    ),
)
