"""Wholeness: what the gaps of a recording mean for its trajectory, and what else is missing of a trajectory.

A gap is a part of a call that was not recorded whole. `conventions.gaps` finds the gaps of one recording,
`inference_calls` those that several recordings of a call show, `conversation_gaps` those that a rollout's calls show
together. `REASONS` has what each kind of gap means:

    gap                                  ids (`verdicts_on`)   text                   the trajectory (`find_incomplete`)
    a text of the prompt was masked      trained               content uncertain      content masked
    30 ids are listed, 32 were counted   ids doubtful          trained                token ids missing
    a mask in the definitions of tools   trained               trained                content masked

Invariant: ids that the server gave are judged by ids. A damaged text never keeps them from being trained.

How to add
- a kind of gap: `calls.GapKind` (and `calls.CONTENT_GAPS`, if another recording of the call can fill the gap), a line
  in `REASONS`, and the code that finds the gap;
- a reason why completions are not trained: `model.TokensUntrained` or `model.TextUntrained`, a line in `REASONS`, and
  a line in `data/cures.py`;
- a reason why a trajectory is incomplete: a constant, a line in `EXPLANATIONS`, and a count in `find_incomplete`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from art_otel import attributes
from art_otel.calls import ON_SERVER, Choice, Gap, GapKind, InferenceCall, Message
from art_otel.conventions import INSTANCE, has_call_attributes, integer, parse_call, request_key, role_of
from art_otel.spans import Quarantined, Resource, Span, SpanKey, SpanTree
from art_otel.trajectories.model import TextUntrained, TokensUntrained
from art_otel.trajectories.rollouts import RolloutSpans, is_reward_span

Concern: TypeAlias = Literal["tokens", "text", "both"]
"""What a gap is about: token ids, text, or both."""


class Cure(NamedTuple):
    """What a reason means, and what a user can do about it."""

    means: str
    helps: str

    def __str__(self) -> str:
        """Both as sentences: `Events the SDK dropped. Set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 ...`."""
        return f"{self.means[:1].upper()}{self.means[1:]}. {self.helps}"


class Consequence(NamedTuple):
    """What a kind of gap means for the trajectory and for the completions that it touches."""

    reason: str | None = None
    """Why the trajectory is incomplete; None if the gap does not make it incomplete."""
    cure: Cure | None = None
    concern: Concern = "text"
    """What the reason is about: text, because most gaps are of text."""
    tokens: TokensUntrained | None = None
    """Why the completion's ids are not trained; None if they are."""
    text: TextUntrained = "content uncertain"
    """Why the completion's text is not trained."""


REASONS: Final[Mapping[GapKind, Consequence]] = {
    "dropped": Consequence(
        "attributes dropped",
        Cure(
            "LLM calls of which the SDK dropped attributes",
            "Set OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=100000 in the app that records.",
        ),
    ),
    "cut": Consequence(
        "content cut",
        Cure(
            "values that a limit on length cut",
            "Unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT in the app, or raise the limit of the backend.",
        ),
    ),
    "masked": Consequence(
        "content masked",
        Cure(
            "texts that a recorder or backend replaced by a mask",
            "Switch the masking of the recorder or backend off for these traces.",
        ),
    ),
    "off": Consequence(
        "no content",
        Cure(
            "LLM calls without a recorded prompt or completion",
            "Switch content capture on in the instrumentor (docs/how-to/capture-content.md). If messages are in log "
            "records, convert those too.",
        ),
    ),
    "not read": Consequence(
        "content not read",
        Cure(
            "LLM calls whose content is in files that their spans only name",
            "Name the folder or URL with the content that spans refer to, with --content of art-otel convert"
            " (docs/how-to/dumps.md).",
        ),
    ),
    "not logged": Consequence(
        "request not logged whole",
        Cure(
            "LLM calls whose log does not hold everything that was sent; calls[].gaps says what",
            "If what the log leaves out does no harm, name the reason in allow_incomplete"
            " (docs/how-to/coding-agents.md).",
        ),
    ),
    "history on the server": Consequence(
        "unknown history",
        Cure(
            "prompts that continue a conversation that only the server has, or that begin in the middle of one",
            "Convert the earlier files too. With the Responses API, record from the first call on, or send"
            " whole prompts.",
        ),
    ),
    "template on the server": Consequence(
        "unknown template",
        Cure(
            "prompts made from a template that only the server has",
            "Send the text itself, not the name of a template on the server.",
        ),
    ),
    "compacted": Consequence(
        "compacted history",
        Cure(
            "prompts that the server compacted: the model saw a summary in place of earlier messages, or not"
            " all of them",
            "Switch the server's context management off for rollouts, or compact in the app, so that the"
            " prompt that is sent is the one that the model reads. Token ids from the server are trained all"
            " the same where the reason is named in allow_incomplete.",
        ),
    ),
    "not understood": Consequence(
        "content not understood",
        Cure(
            "content that does not follow its convention, or in a form that this version does not know",
            "Record with another instrumentor, or report the attributes to us.",
        ),
    ),
    "several prompts": Consequence(
        "several prompts", Cure("requests of Completions with several prompts", "Send one prompt a request.")
    ),
    "lossy recorder": Consequence(
        "lossy recorder",
        Cure(
            "calls whose recorder loses or rewrites content",
            "Record with the instrumentor of the client (docs/spec/recorders.md).",
        ),
    ),
    "more counted than recorded": Consequence(
        "more counted than recorded",
        Cure(
            "calls for which the server counted more tokens than the recorded text can have, so the text is not all "
            "of it",
            "Record with the instrumentor of the client, and from the first call of the conversation on;"
            " calls[].gaps has both numbers (docs/spec/recorders.md).",
        ),
    ),
    "miscounted": Consequence(
        "token ids missing",
        Cure(
            "answers of which the server listed fewer or more tokens than it counted; their text is trained,"
            " their ids are left out",
            "Sample with a server that lists all ids, as vLLM does, or name the reason in allow_incomplete to"
            " train the text.",
        ),
        concern="tokens",
        tokens="ids doubtful",  # and not the text, unless the gap is of the answer: then its text came from these ids
    ),
    "aborted": Consequence(tokens="aborted", text="aborted"),
    "scrubbed": Consequence(tokens="scrubbed", text="scrubbed"),
    "contradicted": Consequence(tokens="contradicting recordings", text="contradicting recordings"),
}
"""The consequence of each kind of gap. A trajectory lists its reasons in this order."""

_ABORTED: Final = frozenset({"abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"})
"""Finish reasons by which servers say that they stopped sampling themselves; the last two are DeepSeek's and GLM's."""

_TOKENS_ORDER: Final[tuple[TokensUntrained, ...]] = get_args(TokensUntrained)
_TEXT_ORDER: Final[tuple[TextUntrained, ...]] = get_args(TextUntrained)
_CONTENT: Final = ("prompt", "answer", "call")


def verdicts_on(call: InferenceCall, choice: Choice) -> tuple[TokensUntrained | None, TextUntrained | None]:
    """Why the ids of a completion must not be trained, and why its text must not; None if they may.

        call = InferenceCall(...)     choices 0 and 1; gap "masked" in field "answer[0]"
        choice 0                      (None, "content uncertain")
        choice 1                      (None, None)

    No other function decides what is recorded well enough to be trained.
    """
    if call.failed:
        return "failed", "failed"
    if choice.finish_reason in _ABORTED:
        return "aborted", "aborted"
    tokens: set[TokensUntrained] = set()
    text: set[TextUntrained] = set()
    for gap in call.gaps:
        consequence = REASONS[gap.kind]
        if gap.kind == "aborted" and (choice.finish_reason is not None or call.stream):
            continue  # another recording of the call has its finish reason, or shows a stream, which is judged below
        is_of_ids = gap.field in ("call", "tokens", "answer") or _is_of(gap, choice)
        if consequence.tokens is not None and is_of_ids:
            tokens.add(consequence.tokens)
        if _touches_text(gap, choice, call):
            text.add(consequence.text)
    # A log may name a prompt that it does not contain: then there is no gap, but also nothing to train on.
    if call.input_messages is None and call.prompt_token_ids is None:
        text.add("content uncertain")
    if call.stream is True and choice.finish_reason is None and call.closed_by_app != "finished":
        tokens.add("stream broke")
        # A gap of this very answer is the better reason: its recorder may have lost the finish reason, too.
        if "content uncertain" not in text or not any(_is_of(gap, choice) for gap in call.gaps):
            text.add("stream broke")
    return min(tokens, key=_TOKENS_ORDER.index, default=None), min(text, key=_TEXT_ORDER.index, default=None)


def _touches_text(gap: Gap, choice: Choice, call: InferenceCall) -> bool:
    """Whether the gap is in the completion, or in the prompt that it was sampled from."""
    if gap.kind in ON_SERVER and call.prompt_token_ids is not None:
        return False  # the ids are the whole prompt, with the part that only the server has
    if gap.kind == "not logged":
        return gap.field == "answer"  # otherwise the log lacks settings, or how the prompt was made, but no text
    return gap.field in (*_CONTENT, "messages") or _is_of(gap, choice)


def _is_of(gap: Gap, choice: Choice) -> bool:
    return gap.field == f"answer[{choice.index}]"


MISSING_ROOT: Final = "missing root"
MISSING_PARENT: Final = "missing parent"
NOT_ENDED: Final = "not ended"
ATTRIBUTES_DROPPED: Final = "rollout attributes dropped"
EVENTS_DROPPED: Final = "events dropped"
OVERWRITTEN_CALL: Final = "call overwritten"
MISSING_CALL: Final = "call missing"
UNREAD_REQUEST: Final = "request unread"
UNRECORDED_ANSWER: Final = "unrecorded answer"
SPANS_MISSING: Final = "spans missing"
NO_CALLS: Final = "no calls"
SPANS_UNASSIGNED: Final = "spans unassigned"
SPAN_QUARANTINED: Final = "span quarantined"
VALUE_QUARANTINED: Final = "value quarantined"
BAD_REWARD: Final = "bad reward"

EXPLANATIONS: Final[Mapping[str, Cure]] = {
    MISSING_ROOT: Cure(
        "the rollout's own span is not in the sources",
        "Convert all files of the rollout together. A process that was killed never ended its rollout:"
        " sample it again.",
    ),
    MISSING_PARENT: Cure(
        "calls, agents, tools or requests, or spans above these, whose parent is not in the sources",
        "Convert the files of all services together, and turn samplers off.",
    ),
    NOT_ENDED: Cure(
        "spans that started and never ended",
        "Read streams to their end, and let the process end its spans before it exits.",
    ),
    **{one.reason: one.cure for one in REASONS.values() if one.reason is not None and one.cure is not None},
    ATTRIBUTES_DROPPED: Cure(
        "rollouts, steps and rewards of which the SDK dropped attributes",
        "Set OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=100000 in the app that records.",
    ),
    EVENTS_DROPPED: Cure("events the SDK dropped", "Set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 in the app that records."),
    OVERWRITTEN_CALL: Cure(
        "calls that LiteLLM's callback wrote onto one span, each over the one before",
        "Record the calls with an instrumentor of their own, not with LiteLLM's callback on our span.",
    ),
    MISSING_CALL: Cure(
        "answers with tool calls that later prompts repeat but no recorded call has: their calls were lost on the way",
        "Raise the exporter's time-out and queue, or record to a spool (docs/how-to/receive.md).",
    ),
    UNREAD_REQUEST: Cure(
        "requests that a gateway passed on unrecorded, because they may have asked for a completion in a"
        " dialect that it does not know",
        "Let the agent ask for /v1/chat/completions, /v1/responses, /v1/messages or Gemini's"
        " :generateContent (docs/how-to/gateway.md). If the request asked for no completion, name the"
        " reason in allow_incomplete.",
    ),
    UNRECORDED_ANSWER: Cure(
        "answers that later prompts repeat but no recorded call has: their calls were lost, or the app wrote the "
        "answers",
        "Raise the exporter's time-out and queue, or record to a spool. If the app wrote the answers"
        " itself, name the reason in allow_incomplete.",
    ),
    SPANS_MISSING: Cure(
        "spans that the rollout counted but the sources do not have",
        "Set OTEL_BSP_MAX_QUEUE_SIZE=65536 in the app, or record to a spool.",
    ),
    NO_CALLS: Cure(
        "rollouts that were ended at a gateway, but of which no call came",
        "Give the agent the rollout's base URL, .../rollout/ID/v1, with the id that you end (docs/how-to/gateway.md).",
    ),
    SPANS_UNASSIGNED: Cure(
        "calls and tools that may belong to this or to another attempt with the same id",
        "Pass the trace on to the service that recorded them (traceparent), or set art.rollout.attempt on its spans.",
    ),
    SPAN_QUARANTINED: Cure(
        "quarantined spans of its traces",
        "The dataset's _report.json names the file, the line and why; mend what wrote it.",
    ),
    VALUE_QUARANTINED: Cure(
        "quarantined values in its spans",
        "The dataset's _report.json names the file, the line and why; mend what wrote it.",
    ),
    BAD_REWARD: Cure(
        "rewards in it that are not a number, or judge something that it does not have",
        "Give finite numbers as rewards, and only to what the rollout has; rewards.undeliverable in _report.json "
        "names the others.",
    ),
}
"""What each reason of an incomplete trajectory counts, and what helps, in words for users."""

_CONCERNS: Final[Mapping[str, Concern]] = {
    one.reason: one.concern for one in REASONS.values() if one.reason is not None
}


def concern_of(reason: str) -> Concern:
    """Whether a reason concerns token ids, text, or both. A reason of another version concerns both."""
    return _CONCERNS.get(reason, "both")


def kinds_of(reason: str) -> frozenset[GapKind]:
    """The kinds of gaps of calls that give a trajectory this reason; none where something else gives it."""
    return frozenset(kind for kind, one in REASONS.items() if one.reason == reason)


_UNKNOWN: Final = Cure(
    "a reason that this version does not know",
    "Look at the trajectory, with the version of art-otel that converted it.",
)


def cure_of_gap(reason: str) -> Cure:
    """What a reason counts, and what helps. Datasets of other versions may have unknown reasons."""
    return EXPLANATIONS.get(reason, _UNKNOWN)


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of lost spans by trace id, and by key if the span id is known. `values`: spans that lost only a value."""

    spans: Mapping[str, int]
    keyed_spans: Mapping[SpanKey, int]
    values: frozenset[SpanKey]

    def of(self, spans: Sequence[Span]) -> tuple[int, int]:
        """Count the spans that the traces of `spans` lost, and those of `spans` that lost a value."""
        if not self.spans and not self.values:
            return 0, 0
        keys = {span.key for span in spans}
        lost = sum(self.spans.get(trace_id, 0) for trace_id in {trace_id for trace_id, _ in keys})
        # A span that is here was lost only in one of its deliveries: another delivery was whole.
        delivered_whole = sum(self.keyed_spans.get(key, 0) for key in keys)
        return lost - delivered_whole, len(keys & self.values)


_NO_LOSSES: Final = Losses(spans={}, keyed_spans={}, values=frozenset())


def find_losses(quarantine: Iterable[Quarantined]) -> Losses:
    """Index the quarantined records by the spans and values that were lost with them."""
    lost: set[tuple[str, str | None, str]] = set()
    values: set[SpanKey] = set()
    for entry in quarantine:
        trace_id, span_id = entry.trace_id, entry.span_id
        if trace_id is None:
            continue
        if not entry.partial:
            lost.add((trace_id, span_id, entry.reason))
        elif span_id is not None:
            values.add((trace_id, span_id))
    if not lost and not values:
        return _NO_LOSSES
    keyed = Counter((trace_id, span_id) for trace_id, span_id, _ in lost if span_id is not None)
    return Losses(spans=Counter(trace_id for trace_id, _, _ in lost), keyed_spans=keyed, values=frozenset(values))


def find_incomplete(
    rollout: RolloutSpans,
    calls: Sequence[InferenceCall],
    call_of: Mapping[SpanKey, str],
    tree: SpanTree,
    losses: Losses,
    *,
    unrecorded: Sequence[Message] = (),
    unassigned: int = 0,
    bad_rewards: int = 0,
) -> dict[str, int]:
    """Count what a rollout misses, by reason in the order of `EXPLANATIONS`. Empty: the trajectory is complete.

    `call_of` has the span id of the call for each inference span. `unrecorded` are answers in prompts that no recorded
    call gave, `unassigned` is the number of calls and tools that may be of this rollout or of another attempt,
    `bad_rewards` that of rewards that are no number or judge something that the rollout does not have. A failed call
    is not counted: the agent made it, so nothing is missing.
    """
    root, spans = rollout.root, rollout.spans

    def says_of_calls(span: Span) -> bool:  # an attribute that the SDK dropped from it may have been the reward or step
        return span.key in rollout.root_keys or attributes.STEP_INDEX in span.attributes or is_reward_span(span)

    losing = [span for span in spans if says_of_calls(span) and span.key not in call_of]
    begun_calls = {} if root is None else calls_counted_on(root)
    span_count = None if root is None else spans_counted_on(root)
    if span_count is not None or begun_calls:
        unrecorded = ()  # SPANS_MISSING counts lost calls exactly; what remains are answers that the app wrote
    lost_spans, lost_values = losses.of(spans)
    counts = {
        MISSING_ROOT: int(root is None),
        MISSING_PARENT: _count_lost_parents(rollout, call_of, tree, says_of_calls) if tree.orphans else 0,
        NOT_ENDED: [span.end_ns for span in spans].count(None),
        **count_gaps(calls),
        ATTRIBUTES_DROPPED: sum(span.dropped_attributes_count > 0 for span in losing),
        EVENTS_DROPPED: sum(span.dropped_events_count for span in losing),
        OVERWRITTEN_CALL: _count_overwritten_calls(spans, calls),
        MISSING_CALL: sum(bool(message.tool_calls) for message in unrecorded),
        UNREAD_REQUEST: sum(
            [_is_unread(span, call_of, tree) for span in spans if attributes.UNREAD_REQUEST in span.attributes]
        ),
        UNRECORDED_ANSWER: sum(not message.tool_calls for message in unrecorded),
        SPANS_MISSING: 0 if root is None else _count_missing_spans(root, spans, span_count, begun_calls),
        NO_CALLS: int(bool(begun_calls) and not any(begun_calls.values()) and not calls),
        SPANS_UNASSIGNED: unassigned,
        SPAN_QUARANTINED: lost_spans,
        VALUE_QUARANTINED: lost_values,
        BAD_REWARD: bad_rewards,
    }
    return {reason: counts[reason] for reason in EXPLANATIONS if counts.get(reason)} if any(counts.values()) else {}


def count_gaps(calls: Iterable[InferenceCall]) -> Counter[str]:
    """How many calls have a gap, by the reason that the gap gives the trajectory."""
    counts: Counter[str] = Counter()
    for call in calls:
        # A call that is marked untrained (a judge's) is not the policy's: its lost content is no loss for training.
        if call.gaps and call.marked_untrained is None:
            counts.update({reason for gap in call.gaps if (reason := REASONS[gap.kind].reason) is not None})
    return counts


def _count_lost_parents(
    rollout: RolloutSpans, call_of: Mapping[SpanKey, str], tree: SpanTree, says_of_calls: Callable[[Span], bool]
) -> int:
    """Count the spans whose missing parent may have been a call, or the agent or step of a call.

    These are spans with a call, agent, tool, step or reward at or below them, and requests (a lost call may have made
    them). Other orphans (database spans, spans inside the process) have nothing to do with calls.
    """
    above: set[SpanKey] = set()
    apps: list[Resource] = []
    for span in rollout.spans:
        if span.key in call_of and span.resource.attributes and span.resource not in apps:
            apps.append(span.resource)
        if span.key in call_of or says_of_calls(span) or role_of(span) != "other":
            key: SpanKey | None = span.key
            while key is not None and key not in above:
                above.add(key)
                key = tree.parents.get(key)
    count = 0
    for span in rollout.spans:
        if span.key in tree.orphans and span.key not in rollout.root_keys:
            # A server span in the process that makes the calls is a request to the app, not to a model server.
            is_inside = span.kind == "internal" or (span.kind == "server" and span.resource in apps)
            may_be_request = not is_inside and not any(name.startswith("db.") for name in span.attributes)
            count += span.key in above or may_be_request
    return count


def _count_overwritten_calls(spans: Iterable[Span], calls: Sequence[InferenceCall]) -> int:
    """Count lost calls: LiteLLM's callback writes each call onto our current span, over the call before.

    A call on our span is lost if no other span records it, by the response id or, without a response id, the prompt.
    """
    written = [parse_call(span) for span in spans if has_call_attributes(span)]
    if not written:
        return 0
    answered = {call.response_id for call in calls if call.response_id is not None}
    asked = {request_key(call) for call in calls}
    asked_without_id = {request_key(call) for call in calls if call.response_id is None}
    return sum(
        call.response_id not in answered and request_key(call) not in (asked_without_id if call.response_id else asked)
        for call in written
    )


def _is_unread(span: Span, call_of: Mapping[SpanKey, str], tree: SpanTree) -> bool:
    """Whether a request that a gateway could not read has no recorded call around it, which would have its content."""
    key: SpanKey | None = span.key
    while key is not None and key not in call_of:
        key = tree.parents.get(key)
    return key is None


def _count_missing_spans(
    root: Span, spans: Iterable[Span], span_count: int | None, begun_calls: Mapping[str, int]
) -> int:
    """How many spans are missing below the rollout's own span, by the counts on that span; 0 without counts."""
    if span_count is None and not begun_calls:
        return 0
    below = [span for span in spans if span is not root]
    missing = sum(
        max(0, began - sum(may_be_instance(span.resource, gateway) for span in below))
        for gateway, began in begun_calls.items()
    )
    if span_count is None:
        return missing
    return missing + max(0, span_count - sum(_is_counted(span, root) for span in below))


def _is_counted(span: Span, root: Span) -> bool:
    """Whether the root's process counted the span: a span of the same process, and not a standalone reward."""
    declared = span.attributes.get(attributes.ROLLOUT_ID)
    if declared is not None and declared != root.attributes.get(attributes.ROLLOUT_ID):
        return False  # its service did not know the rollout and made up an id
    if span.trace_id != root.trace_id and is_reward_span(span) and (span.links or span.parent_span_id is None):
        return False  # a reward outside of every rollout's tree is counted by no rollout
    return may_be_one_process(span.resource, root.resource)


def spans_counted_on(root: Span) -> int | None:
    """How many spans the rollout's own span counted: started or ended ones, whichever are more; None if not counted."""
    started, ended = root.attributes.get(attributes.SPANS_STARTED), root.attributes.get(attributes.SPANS_ENDED)
    if started is None and ended is None:
        return None
    return max((count for count in (integer(started), integer(ended)) if count is not None), default=None)


def calls_counted_on(root: Span) -> dict[str, int]:
    """How many calls each gateway began for the rollout, by the gateway's `service.instance.id`."""
    return {
        name.removeprefix(attributes.CALLS_PREFIX): count
        for name, value in root.attributes.items()
        if name.startswith(attributes.CALLS_PREFIX) and (count := integer(value)) is not None
    }


def may_be_instance(resource: Resource, instance: str) -> bool:
    """Whether a resource may be that of a service instance; True for one without an id, because some stores drop it."""
    return resource.attributes.get(INSTANCE, instance) == instance


def may_be_one_process(one: Resource, other: Resource) -> bool:
    """Whether the attributes that both resources have are equal. Some stores drop attributes, so others don't count."""
    if one is other:
        return True
    return all(other.attributes.get(name, value) == value for name, value in one.attributes.items())
