"""OpenTelemetry in, training data out.

Names are loaded when first used, so that importing art_otel costs an app nothing it does not need. Where the variable
ART_OTEL_ENABLED is set, importing it traces the process.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

from art_otel.lazy_names import lazy_names
from art_otel.version import __version__

if TYPE_CHECKING:
    from art_otel.conversion import convert
    from art_otel.data.batches import batches
    from art_otel.data.conversations.preferences import preference_batches
    from art_otel.data.conversations.sft import message_batches
    from art_otel.exporting import export
    from art_otel.live.new_trajectories import NewTrajectories
    from art_otel.receiver.client.connect import connect
    from art_otel.receiver.receive import receive
    from art_otel.runlog import RunLog
    from art_otel.store import read_rollout_traces, read_trajectories, write_trajectories
    from art_otel.tracing.api.context import in_context
    from art_otel.tracing.api.rewards.group_rewards import rank_group, score_group
    from art_otel.tracing.api.rewards.rewards import reward
    from art_otel.tracing.api.rollout import rollout
    from art_otel.tracing.api.running.running import get_current_trajectory
    from art_otel.tracing.api.step import Step, step
    from art_otel.tracing.api.tool import tool
    from art_otel.tracing.api.workflows.workflows import (
        AsyncRewardPropagationWorkflow,
        AsyncStepWiseRewardWorkflow,
        RewardPropagationWorkflow,
        StepWiseRewardWorkflow,
    )
    from art_otel.tracing.gathering.gather import gather_trajectory
    from art_otel.tracing.gathering.gather_many import gather_trajectories, gather_trajectory_groups
    from art_otel.tracing.setup.configure import configure
    from art_otel.tracing.setup.span_processor import RolloutSpanProcessor
    from art_otel.trajectories import (
        RolloutTrace,
        Trajectory,
        TrajectoryGroup,
        histories,
        rollout_traces,
        token_histories,
    )

__all__ = [
    "AsyncRewardPropagationWorkflow",
    "AsyncStepWiseRewardWorkflow",
    "NewTrajectories",
    "RewardPropagationWorkflow",
    "RolloutSpanProcessor",
    "RolloutTrace",
    "RunLog",
    "Step",
    "StepWiseRewardWorkflow",
    "Trajectory",
    "TrajectoryGroup",
    "__version__",
    "batches",
    "configure",
    "connect",
    "convert",
    "export",
    "gather_trajectories",
    "gather_trajectory",
    "gather_trajectory_groups",
    "get_current_trajectory",
    "histories",
    "in_context",
    "message_batches",
    "preference_batches",
    "rank_group",
    "read_rollout_traces",
    "read_trajectories",
    "receive",
    "reward",
    "rollout",
    "rollout_traces",
    "score_group",
    "step",
    "token_histories",
    "tool",
    "write_trajectories",
]

__getattr__ = lazy_names(
    __name__,
    {
        "data.conversations.sft": ("message_batches",),
        "data.batches": ("batches",),
        "data.conversations.preferences": ("preference_batches",),
        "conversion": ("convert",),
        "exporting": ("export",),
        "live.new_trajectories": ("NewTrajectories",),
        "receiver.client.connect": ("connect",),
        "receiver.receive": ("receive",),
        "runlog": ("RunLog",),
        "store": ("read_rollout_traces", "read_trajectories", "write_trajectories"),
        "tracing.api.context": ("in_context",),
        "tracing.gathering.gather": ("gather_trajectory",),
        "tracing.gathering.gather_many": ("gather_trajectories", "gather_trajectory_groups"),
        "tracing.api.rewards.group_rewards": ("rank_group", "score_group"),
        "tracing.api.rewards.rewards": ("reward",),
        "tracing.api.rollout": ("rollout",),
        "tracing.api.running.running": ("get_current_trajectory",),
        "tracing.setup.configure": ("configure",),
        "tracing.setup.span_processor": ("RolloutSpanProcessor",),
        "tracing.api.step": ("Step", "step"),
        "tracing.api.tool": ("tool",),
        "tracing.api.workflows.workflows": (
            "AsyncRewardPropagationWorkflow",
            "AsyncStepWiseRewardWorkflow",
            "RewardPropagationWorkflow",
            "StepWiseRewardWorkflow",
        ),
        "trajectories": (
            "RolloutTrace",
            "Trajectory",
            "TrajectoryGroup",
            "histories",
            "rollout_traces",
            "token_histories",
        ),
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)


if os.environ.get("ART_OTEL_ENABLED", "0") != "0":
    import_module("art_otel.tracing.autoload").start()
