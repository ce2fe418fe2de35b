"""Metrics: token ids, logprobs and usage of a step, and their sums.

Invariant: the usage of a call of several choices stands at one of them, so that sums over steps are right. What is
unknown is left out.

Source: `harbor.models.trajectories.metrics` and `final_metrics` of Harbor 0.25.0.
"""

import math
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from art_otel.calls import InferenceCall, Usage
from art_otel.exporting import ExportStats
from art_otel.trajectories import Turn
from art_otel_atif.config import TrajectoriesConfig

JsonObject: TypeAlias = dict[str, Any]

NO_LOGPROBS: Final = "logprobs that are infinite or of another number than the token ids left out"

_NO_USAGE: Final = Usage()


def step_metrics(
    turn: Turn, call: InferenceCall, config: TrajectoriesConfig, stats: ExportStats, *, with_usage: bool
) -> JsonObject | None:
    """Return the metrics of a sampled turn, None if all of them are unknown."""
    usage = (call.usage if with_usage else None) or _NO_USAGE
    prompt = call.prompt_token_ids if config.prompt_token_ids else None
    metrics = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "prompt_token_ids": None if prompt is None else prompt.tolist(),
        "completion_token_ids": None if turn.token_ids is None else turn.token_ids.tolist(),
        "logprobs": _logprobs(turn, stats),
        "extra": without_none({"total_tokens": usage.total_tokens, "reasoning_tokens": usage.reasoning_tokens}) or None,
    }
    return without_none(metrics) or None


def final_metrics(calls: Iterable[InferenceCall], steps: int) -> JsonObject:
    """Return the sums over the calls of a history, each only if every call reports the count."""
    usages = [call.usage or _NO_USAGE for call in calls]
    return without_none(
        {
            "total_prompt_tokens": _sum(usage.input_tokens for usage in usages),
            "total_completion_tokens": _sum(usage.output_tokens for usage in usages),
            "total_cached_tokens": _sum(usage.cached_tokens for usage in usages),
            "total_steps": steps,
        }
    )


def without_none(fields: JsonObject) -> JsonObject:
    """Return the fields whose value is not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _sum(values: Iterable[int | None]) -> int | None:
    counts = list(values)
    reported = [count for count in counts if count is not None]
    return sum(reported) if reported and len(reported) == len(counts) else None


def _logprobs(turn: Turn, stats: ExportStats) -> list[float] | None:
    if turn.logprobs is None:
        return None
    logprobs = turn.logprobs.tolist()
    if (turn.token_ids is not None and len(turn.token_ids) != len(logprobs)) or not all(map(math.isfinite, logprobs)):
        stats.changed[NO_LOGPROBS] += 1
        return None
    return logprobs
