"""art-otel trajectories for TRL: pre-tokenized SFT, conversational SFT, DPO and GRPO."""

from typing import Final

from art_otel.exporting import Exporter, Format, no_place
from art_otel_trl.conversations import DPO, ChatConfig, DpoConfig, chat_file, encode_chat, encode_dpo
from art_otel_trl.tokens import GRPO, SFT, encode_grpo, encode_sft

_NEVER: Final = {
    "rewards": "TRL takes one number a row: the reward that counts, in the column `reward`",
    **no_place("metrics", "metadata", "logs"),
}
_TOKENS: Final = _NEVER | {"tools": "the token ids hold what the policy saw of them"}
_CHAT: Final = _NEVER | {
    "token_ids": "TRL tokenizes the messages itself",
    "logprobs": "TRL tokenizes the messages itself",
    **no_place("policy_version"),
}

EXPORTER: Final = Exporter(
    name="trl",
    summary="TRL's SFTTrainer, DPOTrainer and GRPOTrainer",
    formats=(
        Format(
            name="sft",
            summary="pre-tokenized Parquet for SFTTrainer: trained are exactly the sampled tokens",
            input="sequences",
            needs="token ids",
            not_carried=_TOKENS | {"logprobs": "SFT takes none"},
            encode=encode_sft,
            sink=lambda _: SFT,
            imitates=True,
        ),
        Format(
            name="chat",
            summary="conversations for SFTTrainer, tokenized there with a chat template",
            input="conversations",
            needs="recorded messages",
            not_carried=_CHAT,
            config=ChatConfig,
            encode=encode_chat,
            sink=chat_file,
        ),
        Format(
            name="dpo",
            summary="prompt, chosen and rejected conversations for DPOTrainer",
            input="preferences",
            needs="recorded messages, group ids, and rewards that differ within a group",
            not_carried=_CHAT,
            config=DpoConfig,
            encode=encode_dpo,
            sink=lambda _: DPO,
        ),
        Format(
            name="grpo",
            summary="rollouts for GRPOTrainer's rollout_func; art_otel_trl.rollouts.Replay reads them",
            input="sequences",
            needs="token ids and prompts of one token or more; logprobs and rewards where there are any",
            not_carried=_TOKENS,
            encode=encode_grpo,
            sink=lambda _: GRPO,
            load="art_otel_trl.rollouts.Replay.read({files}, num_generations=4)",
        ),
    ),
)
