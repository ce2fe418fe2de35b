"""What tests of span pipelines need: spans built by hand, and hypothesis strategies for every record.

Needs hypothesis, which art-otel itself does not depend on.
"""

from importlib.util import find_spec

if find_spec("hypothesis") is None:
    raise ImportError("art_otel.testing needs hypothesis: pip install hypothesis")

from art_otel.testing.records import (
    JSON,
    TEXT,
    choices,
    inference_calls,
    logprobs,
    messages,
    rewards,
    token_ids,
    tool_calls,
    tool_executions,
)
from art_otel.testing.span_builder import SpanBuilder
from art_otel.testing.trajectories import lineages, trajectories

__all__ = [
    "JSON",
    "TEXT",
    "SpanBuilder",
    "choices",
    "inference_calls",
    "lineages",
    "logprobs",
    "messages",
    "rewards",
    "token_ids",
    "tool_calls",
    "tool_executions",
    "trajectories",
]
