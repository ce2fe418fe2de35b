"""Data: what trainers compute on, as numpy arrays, and conversations for those that take messages.

`art_otel.batches`, `message_batches` and `preference_batches` begin here.
"""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.data.arranging.collate import Batch as Batch
    from art_otel.data.conversations.preferences import preference_batches as preference_batches
    from art_otel.data.conversations.sft import message_batches as message_batches
    from art_otel.data.loader import Batches as Batches
    from art_otel.data.report import BatchReport as BatchReport
    from art_otel.data.rewards.advantages import ADVANTAGES as ADVANTAGES
    from art_otel.data.rewards.advantages import Advantages as Advantages
    from art_otel.data.rewards.advantages import Rewards as Rewards
    from art_otel.data.rewards.advantages import centered as centered
    from art_otel.data.rewards.advantages import dr_grpo as dr_grpo
    from art_otel.data.rewards.advantages import grpo as grpo
    from art_otel.data.rewards.advantages import reinforce as reinforce
    from art_otel.data.rewards.advantages import rloo as rloo
    from art_otel.data.rewards.advantages import step_level as step_level
    from art_otel.data.rewards.credit import CREDITS as CREDITS
    from art_otel.data.rewards.credit import Credit as Credit
    from art_otel.data.rewards.credit import TurnRewards as TurnRewards
    from art_otel.data.rewards.credit import call_reward as call_reward
    from art_otel.data.rewards.credit import discounted as discounted
    from art_otel.data.rewards.credit import outcome_reward as outcome_reward
    from art_otel.data.rewards.credit import reward_function as reward_function
    from art_otel.data.rewards.credit import step_reward as step_reward
    from art_otel.data.rewards.credit import weighted as weighted
    from art_otel.data.sequences.builder import Verdict as Verdict
