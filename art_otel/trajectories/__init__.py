"""Trajectories: spans of one rollout become turns, rewards and a verdict on completeness."""

from typing import TYPE_CHECKING

from art_otel.lazy_names import lazy_names

if TYPE_CHECKING:
    from art_otel.trajectories.account import Account
    from art_otel.trajectories.assembly import Assembly, SpanGroup, build_trajectories
    from art_otel.trajectories.completeness import EXPLANATIONS, explain
    from art_otel.trajectories.history import History, HistoryMessage, histories
    from art_otel.trajectories.kinship import Kinship, judged_by
    from art_otel.trajectories.plain import trajectory_json
    from art_otel.trajectories.rollout_trace import RolloutTrace, message_json, rollout_traces
    from art_otel.trajectories.token_drift import Drift, MessageDrift
    from art_otel.trajectories.token_forest import TokenHistories, token_histories
    from art_otel.trajectories.token_history import CompletionSpan, TokenHistory
    from art_otel.trajectories.trajectory import (
        Edit,
        PolicyVersions,
        Reward,
        Status,
        Trajectory,
        TrajectoryGroup,
        Turn,
    )

__all__ = [
    "EXPLANATIONS",
    "Account",
    "Assembly",
    "CompletionSpan",
    "Drift",
    "Edit",
    "History",
    "HistoryMessage",
    "Kinship",
    "MessageDrift",
    "PolicyVersions",
    "Reward",
    "RolloutTrace",
    "SpanGroup",
    "Status",
    "TokenHistories",
    "TokenHistory",
    "Trajectory",
    "TrajectoryGroup",
    "Turn",
    "build_trajectories",
    "explain",
    "histories",
    "judged_by",
    "message_json",
    "rollout_traces",
    "token_histories",
    "trajectory_json",
]

__getattr__ = lazy_names(
    __name__,
    {
        "account": ("Account",),
        "assembly": ("Assembly", "SpanGroup", "build_trajectories"),
        "completeness": ("EXPLANATIONS", "explain"),
        "history": ("History", "HistoryMessage", "histories"),
        "kinship": ("Kinship", "judged_by"),
        "plain": ("trajectory_json",),
        "rollout_trace": ("RolloutTrace", "message_json", "rollout_traces"),
        "token_drift": ("Drift", "MessageDrift"),
        "token_forest": ("TokenHistories", "token_histories"),
        "token_history": ("CompletionSpan", "TokenHistory"),
        "trajectory": ("Edit", "PolicyVersions", "Reward", "Status", "Trajectory", "TrajectoryGroup", "Turn"),
    },
)
