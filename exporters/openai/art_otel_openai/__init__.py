"""art-otel trajectories as OpenAI fine-tuning files: SFT and preference JSONL."""

from typing import Final

from art_otel.exporting import Exporter, Format, JsonLines, no_place
from art_otel_openai.fine_tuning import OpenAISftConfig, PreferenceConfig, encode_preferences, encode_sft

_NOT_CARRIED: Final = {
    "reward": "the files hold conversations; rewards only choose them",
    "rewards": "the files hold conversations; rewards only choose them",
    "token_ids": "OpenAI tokenizes the messages itself",
    "logprobs": "OpenAI tokenizes the messages itself",
    "reasoning": "OpenAI takes no reasoning in messages; `changed` counts the messages that had some",
    **no_place("metrics", "metadata", "logs", "group_id", "policy_version"),
}

EXPORTER: Final = Exporter(
    name="openai",
    summary="OpenAI fine-tuning files, which many other services and trainers read too",
    formats=(
        Format(
            name="sft",
            summary="supervised fine-tuning: one history per line, with weight 1 for messages that are trained in it",
            input="conversations",
            needs="recorded messages",
            not_carried=_NOT_CARRIED,
            config=OpenAISftConfig,
            encode=encode_sft,
            sink=lambda _: JsonLines(),
        ),
        Format(
            name="preference",
            summary="direct preference optimization: one pair per line, the best and the worst of each group",
            input="preferences",
            needs="recorded messages, group ids, and rewards that differ within a group",
            not_carried=_NOT_CARRIED,
            config=PreferenceConfig,
            encode=encode_preferences,
            sink=lambda _: JsonLines(),
        ),
    ),
)
