"""Span context: what a span says about its rollout, and what the spans around it and its log records say about it.

Invariant: what a span says is read from the span alone, so that everybody who sees it gives the same answer. A setting
of a rollout comes from its own span, else from that one's resource (an app may set the split or group once for the
whole process); what is not said is None. Whatever that span carries that no convention knows is kept as metadata,
unchanged.

`Ancestry` knows the nearest agent, step, mark and call above each span, and reads each span once, however many calls
and rollouts of the tree are below it. `correlate_logs` finds the span of each log record: the span that it names. A
completion that names a span which is no LLM call belongs to the call below that span that was running: OpenLLMetry
writes the completion of a stream when its own span is not current. So do the bodies of an exchange, the later of which
may be written when its call has just ended.
"""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import msgspec

from art_otel import attributes
from art_otel.conventions import (
    INSTANCE,
    AgentContent,
    RecordedMessage,
    Role,
    agent_content,
    agent_conversation,
    agent_name,
    begins_exchange,
    exchange_of,
    failure_of,
    integer,
    is_cancellation,
    is_completion_event,
    is_convention_attribute,
    json_value,
    number,
    recorded_messages,
)
from art_otel.spans import LogRecord, Resource, Span, SpanKey, SpanTree, Value
from art_otel.spans.tree import IntervalIndex
from art_otel.trajectories.model import Status

_ROOT_ATTRIBUTES: Final = frozenset({attributes.ROLLOUT_NAME, attributes.SPANS_STARTED, attributes.SPANS_ENDED})
"""Attributes that only a rollout's own span has."""


def declared_id(span: Span) -> str | None:
    """The rollout id by which a span says where it belongs; a reward span says with it whom its rewards are for."""
    value = span.attributes.get(attributes.ROLLOUT_ID)
    return None if value is None or value == "" or is_reward_span(span) else str(value)


def joined_id(span: Span, rollout_attributes: Sequence[str]) -> str | None:
    """The value by which a span's trace is joined with others to a rollout: of the first such attribute that it has.

    A value of the resource stands for all spans of a process.
    """
    value = span.attributes.get(attributes.ROLLOUT_JOINED_ID)
    if isinstance(value, str) and value:
        return value
    for name in rollout_attributes:
        value = _setting(span, name)
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


UNTRAINED: Final = "untrained"
"""The label where a mark does not say what the calls are for."""


def untrained_mark(span: Span) -> str | None:
    """What the span, else its resource, says that the calls below are for, if the policy does not learn from them."""
    value = _setting(span, attributes.UNTRAINED)
    if isinstance(value, str) and value.lower() not in ("", "true", "false"):  # some stores make a boolean a text
        return value
    return UNTRAINED if str(value).lower() == "true" else None


def spans_counted_on(root: Span) -> int | None:
    """How many spans a rollout has by its own span, the larger of both counts; None where it has none."""
    values = (root.attributes.get(name) for name in (attributes.SPANS_STARTED, attributes.SPANS_ENDED))
    return max((count for count in map(integer, values) if count is not None), default=None)


def calls_counted_on(root: Span) -> dict[str, int]:
    """How many calls gateways began, by the instances of these, as far as a rollout's own span says it."""
    counts = {
        name.removeprefix(attributes.CALLS_PREFIX): integer(value)
        for name, value in root.attributes.items()
        if name.startswith(attributes.CALLS_PREFIX)
    }
    return {instance: count for instance, count in counts.items() if count is not None}


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


class RolloutAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a Trajectory that its own span decides."""

    name: str | None = None
    group_id: str | None = None
    gathering: str | None = None
    attempt: int | None = None
    split: str | None = None
    training_step: int | None = None
    policy_version: str | None = None
    status: Status = "unfinished"
    error: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    metrics: Mapping[str, float] = {}
    metadata: Mapping[str, Value] = {}
    logs: tuple[str, ...] = ()
    added_messages: tuple[RecordedMessage, ...] = ()


def read_rollout_attributes(root: Span | None) -> RolloutAttributes:
    """Read the rollout's own span; without it nothing is known and the rollout counts as unfinished."""
    if root is None:
        return RolloutAttributes()
    status, error = _outcome(root)
    return RolloutAttributes(
        name=_text(root, attributes.ROLLOUT_NAME) or root.name.removeprefix(attributes.ROLLOUT_SPAN_PREFIX),
        group_id=_text(root, attributes.GROUP_ID),
        gathering=_text(root, attributes.GATHERING_ID),
        attempt=attempt_of(root),
        split=_text(root, attributes.SPLIT),
        training_step=integer(_setting(root, attributes.TRAINING_STEP)),
        policy_version=_text(root, attributes.POLICY_VERSION),
        status=status,
        error=error,
        started_at=root.start_ns,
        ended_at=root.end_ns,
        metrics=_metrics(root),
        metadata=_metadata(root),
        logs=_logs(root),
        added_messages=tuple(recorded_messages(root)) if root.events else (),
    )


def attempt_of(root: Span) -> int | None:
    """The number of the attempt under one id."""
    return integer(_setting(root, attributes.ROLLOUT_ATTEMPT))


def _setting(root: Span, name: str) -> Value:
    """The attribute of the span, else of its resource."""
    value = root.attributes.get(name)
    return root.resource.attributes.get(name) if value is None else value


def _text(root: Span, name: str) -> str | None:
    value = _setting(root, name)
    return None if value is None or value == "" else str(value)


def _outcome(root: Span) -> tuple[Status, str | None]:
    """The status, and for one that is not ok the error's message, else its type."""
    if root.end_ns is None:
        return "unfinished", None
    error_type, message = failure_of(root)
    if root.status == "ok" or (error_type is None and message is None):  # an end as ok corrects an earlier error
        return "ok", None
    cancelled = error_type is not None and is_cancellation(error_type)
    return "cancelled" if cancelled else "error", message or error_type


def _metrics(root: Span) -> dict[str, float]:
    names = sorted([name for name in root.attributes if name.startswith(attributes.METRIC_PREFIX)])
    metrics = {name.removeprefix(attributes.METRIC_PREFIX): number(root.attributes[name]) for name in names}
    return {name: value for name, value in metrics.items() if value is not None}


def _metadata(root: Span) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for name in sorted(root.attributes, key=_metadata_first):
        value = root.attributes[name]
        if value is None or _is_read_elsewhere(name, value):
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


def _metadata_first(name: str) -> tuple[bool, str]:
    """What was given as metadata goes before an attribute of that name."""
    return not name.startswith((attributes.METADATA_JSON_PREFIX, attributes.METADATA_PREFIX)), name


def _is_read_elsewhere(name: str, value: Value) -> bool:
    """Whether the attribute is read elsewhere. A metric or count that is no number is not, so it stays visible."""
    if name in _NOT_METADATA:
        return True
    if name.startswith(attributes.METRIC_PREFIX):
        return number(value) is not None
    if name in _WHOLE_NUMBERS:
        return integer(value) is not None
    return name.startswith(_NOT_METADATA_PREFIXES) or is_convention_attribute(name)


def _logs(root: Span) -> tuple[str, ...]:
    events = [event for event in root.events if event.name == attributes.LOG_EVENT]
    events.sort(key=lambda event: event.time_ns)
    return tuple(str(event.attributes.get(attributes.LOG_MESSAGE, "")) for event in events)


class AncestorContext(NamedTuple):
    """The nearest agent's name, content and conversation, the nearest step and call, from a span upward.

    `untrained` is the nearest mark that the policy does not learn from the calls, also of a rollout further out.
    `call` and `call_depth`, the number of calls, are reset at a rollout's root, because no request encloses a rollout.
    `boundary_depth` counts all tools and agents.
    """

    agent: str | None = None
    step: Span | None = None
    call: SpanKey | None = None
    call_depth: int = 0
    boundary_depth: int = 0
    content: AgentContent | None = None
    conversation: str | None = None
    untrained: str | None = None


_NO_CONTEXT: Final = AncestorContext()


class Ancestry:
    """The ancestor contexts of a tree. `rollouts` are the rollouts' own spans."""

    def __init__(self, tree: SpanTree, roles: Mapping[SpanKey, Role], rollouts: Collection[SpanKey]) -> None:
        self._tree = tree
        self._roles = roles
        self._rollouts = rollouts
        self._contexts: Mapping[SpanKey, AncestorContext] = tree.inherit(self._extend)

    def context_including(self, key: SpanKey) -> AncestorContext:
        """The context of a span's children: by the span and its ancestors."""
        return self._contexts[key]

    def context_above(self, key: SpanKey) -> AncestorContext:
        """The context of a span: by its ancestors alone."""
        parent = self._tree.parents.get(key)
        return _NO_CONTEXT if parent is None else self._contexts[parent]

    def _extend(self, key: SpanKey, above: AncestorContext | None) -> AncestorContext:
        span, role = self._tree.spans[key], self._roles[key]
        agent, step, call, call_depth, boundary_depth, content, conversation, untrained = above or _NO_CONTEXT
        if role == "inference":
            call, call_depth = key, call_depth + 1
        elif key in self._rollouts:
            call, call_depth = None, 0
        if attributes.STEP_INDEX in span.attributes:
            step = span
        if role == "tool":  # whose calls are not the agent's
            content = None
        if role == "agent":
            content, conversation = agent_content(span), agent_conversation(span)
        return AncestorContext(
            agent_name(span) or agent,
            step,
            call,
            call_depth,
            boundary_depth + (role in ("tool", "agent")),
            content,
            conversation,
            untrained_mark(span) or untrained,
        )


class CorrelatedLogs(msgspec.Struct, frozen=True, kw_only=True):
    """The log records of each span, and the `others`, whose span is not here. `duplicate` counts equal ones."""

    of_spans: Mapping[SpanKey, list[LogRecord]] = {}
    others: Sequence[LogRecord] = ()
    duplicate: int = 0

    @property
    def joined(self) -> int:
        """How many records reached a span."""
        return sum(map(len, self.of_spans.values()))


def correlate_logs(logs: Iterable[LogRecord], tree: SpanTree, roles: Mapping[SpanKey, Role]) -> CorrelatedLogs:
    """Find the span of each log record."""
    unique: dict[bytes, LogRecord] = {}
    duplicate = 0
    for log in logs:
        encoded = msgspec.msgpack.encode(log, order="deterministic")
        duplicate += encoded in unique
        unique[encoded] = log
    if not unique:
        return CorrelatedLogs()
    of_spans: dict[SpanKey, list[LogRecord]] = defaultdict(list)
    others: list[LogRecord] = []
    calls_below: dict[SpanKey, IntervalIndex[SpanKey]] = {}
    calls_asking: dict[str, set[SpanKey]] = {}
    for _, log in sorted(unique.items(), key=lambda item: (item[1].time_ns, item[0])):
        key = log.key
        if key not in tree.spans:
            others.append(log)
            continue
        exchange = exchange_of(log)
        if roles[key] != "inference" and (exchange is not None or is_completion_event(log)):
            if key not in calls_below:
                calls_below[key] = _calls_below(key, tree, roles)
            running = calls_below[key].only_at(log.time_ns) or key
            if exchange is None:
                key = running
            elif begins_exchange(log):
                key = running
                asking = calls_asking.get(exchange, ())
                calls_asking[exchange] = {key, *(call for call in asking if _runs_at(tree, call, log.time_ns))}
            else:
                asking = calls_asking.pop(exchange, {running})
                key = next(iter(asking)) if len(asking) == 1 else key
        of_spans[key].append(log)
    return CorrelatedLogs(of_spans=dict(of_spans), others=others, duplicate=duplicate)


def _runs_at(tree: SpanTree, key: SpanKey, time_ns: int) -> bool:
    end_ns = tree.spans[key].end_ns
    return end_ns is None or end_ns >= time_ns


def _calls_below(key: SpanKey, tree: SpanTree, roles: Mapping[SpanKey, Role]) -> IntervalIndex[SpanKey]:
    children = (tree.spans[child] for child in tree.children.get(key, ()) if roles[child] == "inference")
    return IntervalIndex((span.start_ns, span.end_ns, span.key) for span in children)
