"""art-otel trajectories for Trinity-RFT: Experience buffers, written without Trinity and without torch."""

from typing import Final

from art_otel.exporting import Exporter, Folder, Format, no_place
from art_otel_trinity.database import DatabaseConfig, DatabaseFile
from art_otel_trinity.experiences import ExperiencesConfig, encode_experiences
from art_otel_trinity.payloads import encode_payloads

_NEEDS: Final = "token ids and logprobs; a reward, unless no advantages are asked for"
_NOT_CARRIED: Final = {
    "rewards": "an experience has one reward, and token_level_reward with the option token_rewards",
    **no_place("logs", "parent_rollout_id", "started_at"),
    "ended_at": "as started_at",
    **no_place("usage", "parameters"),
    "policy version of each call": "an experience has that of the first call it trains",
}

EXPORTER: Final = Exporter(
    name="trinity",
    summary="Trinity-RFT: experience buffers with token ids, action masks, logprobs, rewards and advantages",
    formats=(
        Format(
            name="experiences",
            summary="an SQLite database that Trinity's trainer reads as its experience buffer",
            input="trajectories",
            needs=_NEEDS,
            not_carried=_NOT_CARRIED,
            config=DatabaseConfig,
            encode=encode_experiences,
            sink=DatabaseFile,
            advantage="grpo_sample",
            carries_images=True,
        ),
        Format(
            name="payloads",
            summary="a file a task as an explorer sends it: bytes for Experience.deserialize_many",
            input="trajectories",
            needs=_NEEDS,
            not_carried=_NOT_CARRIED,
            config=ExperiencesConfig,
            encode=encode_payloads,
            sink=lambda _: Folder(),
            advantage="grpo_sample",
            carries_images=True,
        ),
    ),
)
