"""Trajectories: the spans of a rollout become turns, rewards and what is missing.

Read `model` first: it says what a trajectory is. `build` then shows how a group of spans becomes trajectories.
"""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.trajectories.accounting import AssemblyStats as AssemblyStats
    from art_otel.trajectories.accounting import IncrementalOutcome as IncrementalOutcome
    from art_otel.trajectories.build import Assembly as Assembly
    from art_otel.trajectories.build import SpanGroup as SpanGroup
    from art_otel.trajectories.build import build_trajectories as build_trajectories
    from art_otel.trajectories.build import join_groups as join_groups
    from art_otel.trajectories.history import CompletionSpan as CompletionSpan
    from art_otel.trajectories.history import History as History
    from art_otel.trajectories.history import HistoryMessage as HistoryMessage
    from art_otel.trajectories.history import TokenHistory as TokenHistory
    from art_otel.trajectories.history import histories as histories
    from art_otel.trajectories.history import history_of as history_of
    from art_otel.trajectories.history import main_history as main_history
    from art_otel.trajectories.history import token_histories as token_histories
    from art_otel.trajectories.json_views import ChatMessage as ChatMessage
    from art_otel.trajectories.json_views import RolloutTrace as RolloutTrace
    from art_otel.trajectories.json_views import chat_message as chat_message
    from art_otel.trajectories.json_views import is_text as is_text
    from art_otel.trajectories.json_views import message_json as message_json
    from art_otel.trajectories.json_views import rollout_traces as rollout_traces
    from art_otel.trajectories.json_views import trajectory_json as trajectory_json
    from art_otel.trajectories.json_views import trajectory_schema as trajectory_schema
    from art_otel.trajectories.later_rewards import GatheredCall as GatheredCall
    from art_otel.trajectories.later_rewards import GatheredRollout as GatheredRollout
    from art_otel.trajectories.later_rewards import find_gathered as find_gathered
    from art_otel.trajectories.later_rewards import note_gathered as note_gathered
    from art_otel.trajectories.later_rewards import note_later_reward as note_later_reward
    from art_otel.trajectories.later_rewards import with_later_rewards as with_later_rewards
    from art_otel.trajectories.lineage import link_calls as link_calls
    from art_otel.trajectories.model import CONTEXT_EXCEEDED as CONTEXT_EXCEEDED
    from art_otel.trajectories.model import FAILED_CALL as FAILED_CALL
    from art_otel.trajectories.model import AddedMessage as AddedMessage
    from art_otel.trajectories.model import Call as Call
    from art_otel.trajectories.model import End as End
    from art_otel.trajectories.model import GroupKey as GroupKey
    from art_otel.trajectories.model import PolicyVersions as PolicyVersions
    from art_otel.trajectories.model import Reward as Reward
    from art_otel.trajectories.model import Status as Status
    from art_otel.trajectories.model import TextUntrained as TextUntrained
    from art_otel.trajectories.model import TokensUntrained as TokensUntrained
    from art_otel.trajectories.model import ToolExecution as ToolExecution
    from art_otel.trajectories.model import Trajectory as Trajectory
    from art_otel.trajectories.model import TrajectoryGroup as TrajectoryGroup
    from art_otel.trajectories.model import Turn as Turn
    from art_otel.trajectories.model import aggregate as aggregate
    from art_otel.trajectories.model import end_of as end_of
    from art_otel.trajectories.model import final_reward as final_reward
    from art_otel.trajectories.model import first_and_last_known as first_and_last_known
    from art_otel.trajectories.model import message_ends as message_ends
    from art_otel.trajectories.model import token_ends as token_ends
    from art_otel.trajectories.model import version_of as version_of
    from art_otel.trajectories.model import versions_in as versions_in
    from art_otel.trajectories.model import with_token_facts as with_token_facts
    from art_otel.trajectories.model import with_turns as with_turns
    from art_otel.trajectories.rewards import ADVICE as ADVICE
    from art_otel.trajectories.rewards import NO_RESPONSE as NO_RESPONSE
    from art_otel.trajectories.rewards import NO_ROLLOUT as NO_ROLLOUT
    from art_otel.trajectories.rewards import NO_SPAN as NO_SPAN
    from art_otel.trajectories.rewards import OVER_A_LIMIT as OVER_A_LIMIT
    from art_otel.trajectories.rewards import SEVERAL_CALLS as SEVERAL_CALLS
    from art_otel.trajectories.rewards import ExternalReward as ExternalReward
    from art_otel.trajectories.rewards import distinct as distinct
    from art_otel.trajectories.rewards import external_rewards as external_rewards
    from art_otel.trajectories.rollouts import declared_id as declared_id
    from art_otel.trajectories.rollouts import joined_id as joined_id
    from art_otel.trajectories.rollouts import plain_id as plain_id
    from art_otel.trajectories.trees import MESSAGE_ROOT as MESSAGE_ROOT
    from art_otel.trajectories.trees import TOKEN_ROOT as TOKEN_ROOT
    from art_otel.trajectories.trees import MessageNode as MessageNode
    from art_otel.trajectories.trees import TokenNode as TokenNode
    from art_otel.trajectories.trees import in_order as in_order
    from art_otel.trajectories.trees import node_at as node_at
    from art_otel.trajectories.trees import numbered as numbered
    from art_otel.trajectories.trees import path_to as path_to
    from art_otel.trajectories.trees import position_of as position_of
    from art_otel.trajectories.wholeness import EXPLANATIONS as EXPLANATIONS
    from art_otel.trajectories.wholeness import Concern as Concern
    from art_otel.trajectories.wholeness import Cure as Cure
    from art_otel.trajectories.wholeness import concern_of as concern_of
    from art_otel.trajectories.wholeness import cure_of_gap as cure_of_gap
