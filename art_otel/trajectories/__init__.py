"""Trajectories: the spans of a rollout become turns, rewards and a verdict on completeness.

Read `model` first: it says what a trajectory is. `build` then shows how a group of spans becomes trajectories.
"""

from typing import TYPE_CHECKING

from art_otel.lazy_names import lazy_names

if TYPE_CHECKING:
    from art_otel.trajectories.accounting.completeness import EXPLANATIONS, explain
    from art_otel.trajectories.accounting.count import Verdict
    from art_otel.trajectories.accounting.stats import AssemblyStats
    from art_otel.trajectories.build import Assembly, SpanGroup, build_trajectories
    from art_otel.trajectories.calls.policy_versions import first_and_last_known, version_of, versions_in
    from art_otel.trajectories.group import TrajectoryGroup
    from art_otel.trajectories.model import (
        AddedMessage,
        Edit,
        PolicyVersions,
        Prompt,
        Reward,
        Status,
        ToolExecution,
        Trajectory,
        Turn,
        Untrained,
    )
    from art_otel.trajectories.rewards.effective import (
        REWARD_NAME,
        aggregate,
        final_reward,
        primary_rewards,
    )
    from art_otel.trajectories.rewards.external import ExternalReward, distinct, external_rewards
    from art_otel.trajectories.rewards.undeliverable import ADVICE, NO_RESPONSE, NO_ROLLOUT, OVER_A_LIMIT, SEVERAL_CALLS
    from art_otel.trajectories.rollouts.marks import declared_id
    from art_otel.trajectories.views.history import (
        History,
        HistoryMessage,
        histories,
        history_of,
        main_history,
        text_only_histories,
    )
    from art_otel.trajectories.views.openai_message import ChatMessage, chat_message, is_text
    from art_otel.trajectories.views.plain_json import trajectory_json
    from art_otel.trajectories.views.rebuild_prompts import RebuiltPrompt, rebuild_prompts
    from art_otel.trajectories.views.rollout_trace import RolloutTrace, message_json, rollout_traces
    from art_otel.trajectories.views.token_history import CompletionSpan, TokenHistory, token_histories

_MODULES = {
    "accounting.completeness": ("EXPLANATIONS", "explain"),
    "accounting.stats": ("AssemblyStats",),
    "accounting.count": ("Verdict",),
    "build": ("Assembly", "SpanGroup", "build_trajectories"),
    "calls.policy_versions": ("first_and_last_known", "version_of", "versions_in"),
    "group": ("TrajectoryGroup",),
    "model": (
        "AddedMessage",
        "Edit",
        "PolicyVersions",
        "Prompt",
        "Reward",
        "Status",
        "ToolExecution",
        "Trajectory",
        "Turn",
        "Untrained",
    ),
    "rewards.effective": ("REWARD_NAME", "aggregate", "final_reward", "primary_rewards"),
    "rewards.external": ("ExternalReward", "distinct", "external_rewards"),
    "rewards.undeliverable": ("ADVICE", "NO_RESPONSE", "NO_ROLLOUT", "OVER_A_LIMIT", "SEVERAL_CALLS"),
    "rollouts.marks": ("declared_id",),
    "views.history": ("History", "HistoryMessage", "histories", "history_of", "main_history", "text_only_histories"),
    "views.openai_message": ("ChatMessage", "chat_message", "is_text"),
    "views.plain_json": ("trajectory_json",),
    "views.rebuild_prompts": ("RebuiltPrompt", "rebuild_prompts"),
    "views.rollout_trace": ("RolloutTrace", "message_json", "rollout_traces"),
    "views.token_history": ("CompletionSpan", "TokenHistory", "token_histories"),
}

__all__ = [
    "ADVICE",
    "EXPLANATIONS",
    "NO_RESPONSE",
    "NO_ROLLOUT",
    "OVER_A_LIMIT",
    "REWARD_NAME",
    "SEVERAL_CALLS",
    "AddedMessage",
    "Assembly",
    "AssemblyStats",
    "ChatMessage",
    "CompletionSpan",
    "Edit",
    "ExternalReward",
    "History",
    "HistoryMessage",
    "PolicyVersions",
    "Prompt",
    "RebuiltPrompt",
    "Reward",
    "RolloutTrace",
    "SpanGroup",
    "Status",
    "TokenHistory",
    "ToolExecution",
    "Trajectory",
    "TrajectoryGroup",
    "Turn",
    "Untrained",
    "Verdict",
    "aggregate",
    "build_trajectories",
    "chat_message",
    "declared_id",
    "distinct",
    "explain",
    "external_rewards",
    "final_reward",
    "first_and_last_known",
    "histories",
    "history_of",
    "is_text",
    "main_history",
    "message_json",
    "primary_rewards",
    "rebuild_prompts",
    "rollout_traces",
    "text_only_histories",
    "token_histories",
    "trajectory_json",
    "version_of",
    "versions_in",
]

__getattr__ = lazy_names(__name__, _MODULES)
