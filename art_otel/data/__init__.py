"""Data: what trainers compute on, as numpy arrays, and conversations for those that take messages.

`art_otel.batches`, `message_batches` and `preference_batches` begin here.
"""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.data.advantages import ADVANTAGES as ADVANTAGES
    from art_otel.data.advantages import ADVANTAGES_OVER_GROUPS as ADVANTAGES_OVER_GROUPS
    from art_otel.data.advantages import ADVANTAGES_OVER_REWARDS as ADVANTAGES_OVER_REWARDS
    from art_otel.data.advantages import Advantages as Advantages
    from art_otel.data.advantages import NamedRewards as NamedRewards
    from art_otel.data.advantages import OverGroups as OverGroups
    from art_otel.data.advantages import OverRewards as OverRewards
    from art_otel.data.advantages import Rewards as Rewards
    from art_otel.data.advantages import centered as centered
    from art_otel.data.advantages import dr_grpo as dr_grpo
    from art_otel.data.advantages import gdpo as gdpo
    from art_otel.data.advantages import grpo as grpo
    from art_otel.data.advantages import grpo_batch as grpo_batch
    from art_otel.data.advantages import reinforce as reinforce
    from art_otel.data.advantages import reinforce_plus_plus as reinforce_plus_plus
    from art_otel.data.advantages import reinforce_plus_plus_baseline as reinforce_plus_plus_baseline
    from art_otel.data.advantages import rloo as rloo
    from art_otel.data.advantages import step_level as step_level
    from art_otel.data.arranging import Batch as Batch
    from art_otel.data.credit import CREDITS as CREDITS
    from art_otel.data.credit import Credit as Credit
    from art_otel.data.credit import TurnRewards as TurnRewards
    from art_otel.data.credit import call_reward as call_reward
    from art_otel.data.credit import discounted as discounted
    from art_otel.data.credit import outcome_reward as outcome_reward
    from art_otel.data.credit import reward_function as reward_function
    from art_otel.data.credit import step_reward as step_reward
    from art_otel.data.credit import weighted as weighted
    from art_otel.data.loader import Batches as Batches
    from art_otel.data.preferences import preference_batches as preference_batches
    from art_otel.data.report import BatchReport as BatchReport
    from art_otel.data.sequences import Decision as Decision
    from art_otel.data.sft import message_batches as message_batches
