"""Data: what trainers compute on, as numpy arrays, and conversations for those that take messages.

`art_otel.batches`, `art_otel.message_batches` and `art_otel.preference_batches` begin here.
"""

from art_otel.data.arranging.collate import Batch
from art_otel.data.loader import Batches
from art_otel.data.report import BatchReport
from art_otel.data.rewards.advantages import (
    ADVANTAGES,
    Advantages,
    Rewards,
    centered,
    dr_grpo,
    grpo,
    reinforce,
    rloo,
    step_level,
)
from art_otel.data.rewards.credit import (
    CREDITS,
    Credit,
    TurnRewards,
    call_reward,
    discounted,
    outcome_reward,
    reward_function,
    step_reward,
    weighted,
)
from art_otel.data.sequences.builder import Verdict

__all__ = [
    "ADVANTAGES",
    "CREDITS",
    "Advantages",
    "Batch",
    "BatchReport",
    "Batches",
    "Credit",
    "Rewards",
    "TurnRewards",
    "Verdict",
    "call_reward",
    "centered",
    "discounted",
    "dr_grpo",
    "grpo",
    "outcome_reward",
    "reinforce",
    "reward_function",
    "rloo",
    "step_level",
    "step_reward",
    "weighted",
]
