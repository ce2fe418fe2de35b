"""OpenTelemetry in, training data out.

Names are loaded when first used, so that importing art_otel costs an app nothing it does not need. Where the variable
ART_OTEL_ENABLED is set, importing it traces the process.
"""

import os
from importlib import import_module

from art_otel.lazy_names import defer_imports
from art_otel.version import __version__ as __version__

if not defer_imports(__name__):
    from art_otel.conversion import convert as convert
    from art_otel.data.batches import batches as batches
    from art_otel.exporting import export as export
    from art_otel.live.new_trajectories import NewTrajectories as NewTrajectories
    from art_otel.model_gateway.in_process import gateway as gateway
    from art_otel.receiver.client import connect as connect
    from art_otel.receiver.receiver import receive as receive
    from art_otel.runlog import RunLog as RunLog
    from art_otel.store import read_trajectories as read_trajectories
    from art_otel.store import write_trajectories as write_trajectories
    from art_otel.tracing.api.context import in_context as in_context
    from art_otel.tracing.api.group_rewards import rank_group as rank_group
    from art_otel.tracing.api.group_rewards import score_group as score_group
    from art_otel.tracing.api.rewards import reward as reward
    from art_otel.tracing.api.rollout import rollout as rollout
    from art_otel.tracing.api.running import get_current_trajectory as get_current_trajectory
    from art_otel.tracing.api.step import Step as Step
    from art_otel.tracing.api.step import step as step
    from art_otel.tracing.api.tool import tool as tool
    from art_otel.tracing.api.untrained import untrained as untrained
    from art_otel.tracing.gathering.gather import gather_trajectory as gather_trajectory
    from art_otel.tracing.gathering.gather_many import gather_trajectories as gather_trajectories
    from art_otel.tracing.gathering.gather_many import gather_trajectory_groups as gather_trajectory_groups
    from art_otel.tracing.setup.configure import configure as configure
    from art_otel.tracing.setup.recording import RolloutSpanProcessor as RolloutSpanProcessor
    from art_otel.trajectories import Trajectory as Trajectory
    from art_otel.trajectories import TrajectoryGroup as TrajectoryGroup
    from art_otel.trajectories import histories as histories
    from art_otel.trajectories import rollout_traces as rollout_traces
    from art_otel.trajectories import token_histories as token_histories
    from art_otel.verification.verify import verify as verify

if os.environ.get("ART_OTEL_ENABLED", "0") != "0":
    import_module("art_otel.tracing.autoload").start()
