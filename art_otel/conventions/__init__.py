"""Conventions: a span and its log records -> InferenceCall. The only room with foreign attribute names.

Invariant: each module knows one attribute convention, all give the same records, and nothing here raises for what a
recording contains.
"""

from art_otel.conventions.call import parse_call
from art_otel.conventions.capture import capture_switch
from art_otel.conventions.claims import is_foreign
from art_otel.conventions.contradictions import answers_agree, contradict, prompts_agree
from art_otel.conventions.failure import ERROR_TYPE, failure_of, is_cancellation
from art_otel.conventions.genai_messages import tells_completion
from art_otel.conventions.own import env_state_of, extra_of
from art_otel.conventions.recordings import (
    asked_of,
    content_of,
    merge_calls,
    model_of,
    same_answer,
    same_call,
    same_model,
    same_tool_calls,
)
from art_otel.conventions.rewards import (
    EVALUATION,
    BadReward,
    GivenReward,
    evaluation_attributes,
    rewards_of,
    rewards_of_log,
)
from art_otel.conventions.roles import AGENT_NAME, Role, agent_name, holds_call, may_be_call, may_tell_role, role_of
from art_otel.conventions.unanswered import is_method, only_asks
from art_otel.conventions.values import integer, number

__all__ = [
    "AGENT_NAME",
    "ERROR_TYPE",
    "EVALUATION",
    "BadReward",
    "GivenReward",
    "Role",
    "agent_name",
    "answers_agree",
    "asked_of",
    "capture_switch",
    "content_of",
    "contradict",
    "env_state_of",
    "evaluation_attributes",
    "extra_of",
    "failure_of",
    "holds_call",
    "integer",
    "is_cancellation",
    "is_foreign",
    "is_method",
    "may_be_call",
    "may_tell_role",
    "merge_calls",
    "model_of",
    "number",
    "only_asks",
    "parse_call",
    "prompts_agree",
    "rewards_of",
    "rewards_of_log",
    "role_of",
    "same_answer",
    "same_call",
    "same_model",
    "same_tool_calls",
    "tells_completion",
]
