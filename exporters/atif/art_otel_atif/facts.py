"""Facts: what we know and ATIF has no field for, by the names of our records.

Invariant: every field of a trajectory or call is here or in a field of ATIF; what is unknown or empty is left out.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, TypeAlias, cast

from art_otel.calls import Gap, InferenceCall
from art_otel.exporting import unrewarded
from art_otel.trajectories import Reward, ToolExecution, Trajectory

JsonObject: TypeAlias = dict[str, Any]

_MESSAGES: Final = frozenset({"input_messages", "choices", "prompt_token_ids"})
_IN_STEPS: Final = _MESSAGES | {"tools", "usage"}
_IN_DOCUMENT: Final = frozenset({"calls", "prompts", "turns", "tools", "tool_calls", "metrics", "rewards", "result"})
_EMPTY: Final[tuple[object, ...]] = (None, (), {})
_DEFAULTS: Final[Mapping[str, object]] = {
    "revision": 0,
}


def trajectory_facts(trajectory: Trajectory) -> JsonObject:
    """Of the document: who, when, how it went and every reward. Times are ns since the epoch.

    A final reward that is no usable number is unknown here; `rewards` tell what was given.
    """
    facts = _known({field.name: getattr(trajectory, field.name) for field in fields(Trajectory)}, _IN_DOCUMENT)
    if unrewarded(trajectory):
        facts.pop("reward", None)
    answered = {turn.call for turn in trajectory.turns}
    silent = [call for position, call in enumerate(trajectory.calls) if position not in answered]
    lists = {
        "rewards": [_known(_fields(reward)) for reward in trajectory.rewards],
        "tool_calls": [_known(_fields(execution)) for execution in trajectory.tool_calls],
        "calls_without_completion": [_call(call, _MESSAGES) for call in silent],
    }
    return {**facts, "complete": trajectory.complete, **{name: value for name, value in lists.items() if value}}


def call_facts(call: InferenceCall) -> JsonObject:
    """Of a sampled step: the call but for its messages, tokens, tools and usage."""
    return _call(call, _IN_STEPS)


def _call(call: InferenceCall, skip: frozenset[str]) -> JsonObject:
    facts = _known(_fields(call), skip)
    return {**facts, "gaps": [_fields(gap) for gap in call.gaps]} if call.gaps else facts


def _fields(record: Gap | InferenceCall | Reward | ToolExecution) -> JsonObject:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _known(values: JsonObject, skip: frozenset[str] = frozenset()) -> JsonObject:
    return {
        name: dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in skip and value not in _EMPTY and not (name in _DEFAULTS and value == _DEFAULTS[name])
    }
