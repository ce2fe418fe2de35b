"""Rollout span: what a span says about its rollout, and what a rollout's own span says of it.

A setting comes from the span, else from its resource, because an app may set split or group once for the whole process.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, TypedDict

from art_otel import attributes
from art_otel.conventions import (
    INSTANCE,
    failure_of,
    integer,
    is_cancellation,
    is_convention_attribute,
    json_value,
    number,
)
from art_otel.spans import Resource, Span, Value
from art_otel.trajectories.model import Status

_ROOT_ATTRIBUTES: Final = frozenset({attributes.ROLLOUT_NAME, attributes.SPANS_STARTED, attributes.SPANS_ENDED})
"""Attributes that only a rollout's own span has."""


def declared_id(span: Span) -> str | None:
    """The rollout id by which a span says where it belongs; a reward span says with it whom its rewards are for."""
    value = span.attributes.get(attributes.ROLLOUT_ID)
    return None if value is None or value == "" or is_reward_span(span) else str(value)


_UUID: Final = re.compile("[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)


def plain_id(rollout_id: str) -> str:
    """The id, a UUID without its dashes: backends show some ids with them that traces have without."""
    return rollout_id.replace("-", "").lower() if _UUID.fullmatch(rollout_id) else rollout_id


def joined_id(span: Span, rollout_attributes: Sequence[str]) -> str | None:
    """The value by which a span's trace is joined with others to a rollout: of the first such attribute that it has.

    A value of the resource stands for all spans of a process.
    """
    value = span.attributes.get(attributes.ROLLOUT_JOINED_ID)
    if isinstance(value, str) and value:
        return value
    for name in rollout_attributes:
        value = setting(span, name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return str(value)
    return None


def is_provisional(span: Span) -> bool:
    """Whether the span is a root whose id its process made up, not knowing what its parent belongs to."""
    value = span.attributes.get(attributes.ROLLOUT_PROVISIONAL)
    return value is not None and str(value).lower() == "true"  # some stores make it a text


def is_rollout_span(span: Span) -> bool:
    """Whether a span is named as rollouts are, so that somebody meant it as one."""
    return f"{span.name} ".startswith(attributes.ROLLOUT_SPAN_PREFIX)


def is_marked_root(span: Span) -> bool:
    """Whether a span that carries a rollout id is the rollout's own, whatever its ancestors are."""
    return is_rollout_span(span) or not _ROOT_ATTRIBUTES.isdisjoint(span.attributes)


def is_named_rollout(span: Span, rollout_spans: Sequence[str]) -> bool:
    """Whether the span's name matches one of the globs that name rollouts."""
    return any(fnmatchcase(span.name, glob) for glob in rollout_spans)


def is_reward_span(span: Span) -> bool:
    """Whether the span was made to give a reward to what it links to."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX)


def spans_counted_on(root: Span) -> int | None:
    """How many spans a rollout has by its own span, the larger of both counts; None where it has none."""
    started, ended = root.attributes.get(attributes.SPANS_STARTED), root.attributes.get(attributes.SPANS_ENDED)
    if started is None and ended is None:
        return None
    return max((count for count in (integer(started), integer(ended)) if count is not None), default=None)


def calls_counted_on(root: Span) -> dict[str, int]:
    """How many calls gateways began, by the instances of these, as far as a rollout's own span says it."""
    return {
        name.removeprefix(attributes.CALLS_PREFIX): count
        for name, value in root.attributes.items()
        if name.startswith(attributes.CALLS_PREFIX) and (count := integer(value)) is not None
    }


def may_be_instance(resource: Resource, instance: str) -> bool:
    """Whether a resource may be that of the service instance: some stores keep none."""
    return resource.attributes.get(INSTANCE, instance) == instance


def may_be_one_process(one: Resource, other: Resource) -> bool:
    """Whether no attribute that both resources have differs: some stores keep none, or only some."""
    if one is other:
        return True
    return all(other.attributes.get(name, value) == value for name, value in one.attributes.items())


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
"""What the rollout's function was called with and returned, as metadata of these names if the app has none of them."""

_WHOLE_NUMBERS: Final = frozenset({attributes.ROLLOUT_ATTEMPT, attributes.TRAINING_STEP})


class RolloutFields(TypedDict, total=False):
    """The fields of a Trajectory that only its own span decides."""

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


def rollout_fields(root: Span | None) -> RolloutFields:
    """Read the rollout's own span; without it nothing is known, and the rollout counts as unfinished."""
    if root is None:
        return {"status": "unfinished"}
    status: Status = "unfinished"
    error = None
    if root.end_ns is not None:
        error_type, message = failure_of(root)
        # An end as ok corrects an earlier error.
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
        "name": text_setting(root, attributes.ROLLOUT_NAME) or root.name.removeprefix(attributes.ROLLOUT_SPAN_PREFIX),
        "group_id": text_setting(root, attributes.GROUP_ID),
        "gathering": text_setting(root, attributes.GATHERING_ID),
        "attempt": attempt_of(root),
        "split": text_setting(root, attributes.SPLIT),
        "training_step": integer(setting(root, attributes.TRAINING_STEP)),
        "status": status,
        "error": error,
        "started_at": root.start_ns,
        "ended_at": root.end_ns,
        "metrics": metrics,
        "logs": tuple([str(event.attributes.get(attributes.LOG_MESSAGE, "")) for event in logs]),
    }


def attempt_of(root: Span) -> int | None:
    """The number of the attempt under one id."""
    return integer(setting(root, attributes.ROLLOUT_ATTEMPT))


def setting(span: Span, name: str) -> Value:
    """The attribute of the span, else of its resource."""
    value = span.attributes.get(name)
    return span.resource.attributes.get(name) if value is None else value


def text_setting(span: Span, name: str) -> str | None:
    """The attribute as a text; None for an empty one."""
    value = setting(span, name)
    return None if value is None or value == "" else str(value)


def read_metadata(root: Span) -> dict[str, Value]:
    """Everything on a rollout's own span that no convention knows and no other field has, by name."""

    def is_read_elsewhere(name: str, value: Value) -> bool:
        if name.startswith(attributes.METRIC_PREFIX):
            return number(value) is not None  # one that is no number stays visible here
        if name in _WHOLE_NUMBERS:
            return integer(value) is not None
        return name in _NOT_METADATA or name.startswith(_NOT_METADATA_PREFIXES) or is_convention_attribute(name)

    def is_other(name: str) -> tuple[bool, str]:  # what was given as metadata goes before an attribute of that name
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
