"""Trajectory fields: the fields of a trajectory that are about the rollout as a whole, and where they come from.

rollout's own span     name, group, split, status, times, metrics, logs, metadata
calls                  policy versions, tool definitions
both                   messages that the app added after completions
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypedDict

import msgspec

from art_otel import attributes
from art_otel.calls import CallRecord, ToolSet
from art_otel.conventions import (
    failure_of,
    integer,
    is_cancellation,
    is_convention_attribute,
    json_value,
    number,
    recorded_messages,
)
from art_otel.spans import Span, Value
from art_otel.trajectories.lineage import turns_by_completion
from art_otel.trajectories.model import AddedMessage, Call, PolicyVersions, Status

_PROMPT: Final = attributes.PROMPT.removeprefix(f"{attributes.EXTRA}.")
_OUTCOMES: Final = ("not_needed", "spliced", "differing", "passed_through")
"""What a gateway did with a prompt of exact token ids; the metadata counts each outcome."""


_NOT_METADATA: Final = frozenset(
    {
        attributes.ROLLOUT_ID,
        attributes.ROLLOUT_NAME,
        attributes.ROLLOUT_JOINED_ID,
        attributes.ROLLOUT_TRACE_ID,
        attributes.ROLLOUT_EDITION,
        attributes.SPANS_STARTED,
        attributes.SPANS_ENDED,
        attributes.ROLLOUT_PROVISIONAL,
        attributes.ROLLOUT_ARGUMENTS,
        attributes.ROLLOUT_RESULT,
        attributes.GROUP_ID,
        attributes.GATHERING_ID,
        attributes.SPLIT,
        attributes.POLICY_VERSION,
        attributes.REWARD,
        attributes.STEP_INDEX,
        attributes.UNTRAINED,
        attributes.PROMPT_TOKENS,
        attributes.REQUEST_MESSAGES,
        attributes.REQUEST_PARAMETERS,
        attributes.RESPONSE_CHOICES,
        attributes.RESPONSE_END,
        attributes.REWARD_CHOICE,
        attributes.REWARD_TOKEN_START,
        attributes.REWARD_TOKEN_END,
    }
)
_NOT_METADATA_PREFIXES: Final = (
    attributes.CALLS_PREFIX,
    attributes.COMPLETION_TOKENS_PREFIX,
    attributes.COMPLETION_LOGPROBS_PREFIX,
)
_CAPTURED: Final = {attributes.ROLLOUT_ARGUMENTS: "args", attributes.ROLLOUT_RESULT: "result"}
"""Arguments and result of the rollout's function become metadata of these names, unless the app has such metadata."""

_WHOLE_NUMBERS: Final = frozenset({attributes.ROLLOUT_ATTEMPT, attributes.TRAINING_STEP})


class TrajectoryFields(TypedDict, total=False):
    """The fields of a Trajectory that are about the rollout as a whole."""

    name: str
    group_id: str | None
    gathering: str | None
    attempt: int | None
    split: str | None
    training_step: int | None
    status: Status
    error: str | None
    started_at: int
    ended_at: int | None
    metrics: Mapping[str, float]
    logs: tuple[str, ...]
    policy_version: PolicyVersions | None
    metadata: Mapping[str, Value]
    tools: tuple[Value, ...]
    added_messages: tuple[AddedMessage, ...]


def trajectory_fields(root: Span | None, calls: Sequence[Call]) -> TrajectoryFields:
    """Read the fields from a rollout's own span and its calls. Without its own span the rollout is unfinished."""
    of_both: TrajectoryFields = {
        "policy_version": _first_and_last_version(calls, version_of_rollout(root)),
        "metadata": _metadata(root, calls),
        "tools": _tool_definitions(calls),
        "added_messages": _added_messages(root, calls),
    }
    if root is None:
        return {**of_both, "status": "unfinished"}
    status: Status = "unfinished"
    error = None
    if root.end_ns is not None:
        error_type, message = failure_of(root)
        # A status of ok is set by the app on purpose, so an exception recorded before it was handled.
        if root.status == "ok" or (error_type is None and message is None):
            status = "ok"
        else:
            status = "cancelled" if error_type is not None and is_cancellation(error_type) else "error"
            error = message or error_type
    metrics = {
        name.removeprefix(attributes.METRIC_PREFIX): value
        for name in sorted(root.attributes)
        if name.startswith(attributes.METRIC_PREFIX) and (value := number(root.attributes[name])) is not None
    }
    logs = sorted(
        [event for event in root.events if event.name == attributes.LOG_EVENT], key=lambda event: event.time_ns
    )
    return {
        **of_both,
        "name": _text_setting(root, attributes.ROLLOUT_NAME) or root.name.removeprefix(attributes.ROLLOUT_SPAN_PREFIX),
        "group_id": _text_setting(root, attributes.GROUP_ID),
        "gathering": _text_setting(root, attributes.GATHERING_ID),
        "attempt": integer(root.setting(attributes.ROLLOUT_ATTEMPT)),
        "split": _text_setting(root, attributes.SPLIT),
        "training_step": integer(root.setting(attributes.TRAINING_STEP)),
        "status": status,
        "error": error,
        "started_at": root.start_ns,
        "ended_at": root.end_ns,
        "metrics": metrics,
        "logs": tuple([str(event.attributes.get(attributes.LOG_MESSAGE, "")) for event in logs]),
    }


def version_of_rollout(root: Span | None) -> str | None:
    """The policy version on the rollout's own span, or None."""
    return None if root is None else _text_setting(root, attributes.POLICY_VERSION)


def _text_setting(span: Span, name: str) -> str | None:
    """An attribute of the span, else of its resource, as text; None if it is missing or empty."""
    value = span.setting(name)
    return None if value is None or value == "" else str(value)


def read_metadata(root: Span) -> dict[str, Value]:
    """The attributes of a rollout's own span that no convention defines and no other field has, by name."""

    def is_read_elsewhere(name: str, value: Value) -> bool:
        if name.startswith(attributes.METRIC_PREFIX):
            return number(value) is not None  # a metric that is no number would be lost, so it stays in the metadata
        if name in _WHOLE_NUMBERS:
            return integer(value) is not None
        return name in _NOT_METADATA or name.startswith(_NOT_METADATA_PREFIXES) or is_convention_attribute(name)

    def is_other(name: str) -> tuple[bool, str]:  # metadata comes first: it wins over an attribute of the same name
        return not name.startswith((attributes.METADATA_JSON_PREFIX, attributes.METADATA_PREFIX)), name

    metadata: dict[str, Value] = {}
    for name in sorted(root.attributes, key=is_other):
        value = root.attributes[name]
        if value is None or is_read_elsewhere(name, value):
            continue
        if name.startswith(attributes.METADATA_JSON_PREFIX):
            metadata[name.removeprefix(attributes.METADATA_JSON_PREFIX)] = json_value(value)  # also over a scalar
        else:
            kept = b64encode(value).decode() if isinstance(value, bytes) else value
            metadata.setdefault(name.removeprefix(attributes.METADATA_PREFIX), kept)
    for name, key in _CAPTURED.items():
        if name in root.attributes:
            metadata.setdefault(key, json_value(root.attributes[name]))
    return {name: metadata[name] for name in sorted(metadata)}


def _metadata(root: Span | None, calls: Sequence[Call]) -> Mapping[str, Value]:
    """The metadata of the rollout's own span, and the counts of a gateway's outcomes, e.g. "prompts_spliced"."""
    metadata = {} if root is None else read_metadata(root)
    outcomes = Counter(f"prompts_{outcome}" for call in calls if (outcome := call.extra.get(_PROMPT)) in _OUTCOMES)
    return dict(sorted({**outcomes, **metadata}.items())) if outcomes else metadata


def _added_messages(root: Span | None, calls: Sequence[Call]) -> tuple[AddedMessage, ...]:
    """The messages that the app added after completions of these calls."""
    if root is None or not root.events:
        return ()
    added = tuple(recorded_messages(root))
    turns = turns_by_completion(calls) if added else {}
    of_turns = ((turns.get((one.completion_id, one.choice)), one.message) for one in added)
    return tuple(AddedMessage(turn=turn, message=message) for turn, message in of_turns if turn is not None)


def _first_and_last_version(calls: Sequence[Call], of_rollout: str | None) -> PolicyVersions | None:
    """The versions of the first and the last call with a version; the rollout's own version if no call has one."""
    versions: list[str | None] = []
    for call in calls:
        spans = [span.version for turn in call.choices or () for span in turn.weight_versions or ()]
        versions += (call.policy_version, *spans, call.policy_version_end)
    known = [version for version in versions if version is not None] or ([] if of_rollout is None else [of_rollout])
    return PolicyVersions(first=known[0], last=known[-1]) if known else None


def _tool_definitions(calls: Iterable[CallRecord]) -> tuple[Value, ...]:
    """Every tool definition of any call, in the order of first use."""
    texts: dict[str, None] = {}
    last: Sequence[Value] | None = None
    for call in calls:
        if call.tools is not None and call.tools is not last:
            last = call.tools
            texts[last.json if isinstance(last, ToolSet) else msgspec.json.encode(last).decode()] = None
    if not texts:
        return ()
    united = _united(tuple(texts))
    return last if isinstance(last, ToolSet) and last.json == united else ToolSet(united)


@lru_cache(maxsize=64)
def _united(texts: tuple[str, ...]) -> str:
    """The definitions of these tool sets as JSON, each once."""
    once: dict[bytes, Value] = {}
    for definition in (definition for text in texts for definition in ToolSet(text)):
        once.setdefault(msgspec.json.encode(definition, order="deterministic"), definition)
    return msgspec.json.encode([*once.values()]).decode()
