"""Wholeness: what of a trajectory is not whole, and what follows from that.

`InferenceCall.gaps` says what of a call is not whole: `conventions.gaps` finds what one recording shows,
`inference_calls` what several recordings of a call show, and `conversation_gaps` what the calls show together. Here
stands what follows (`REASONS`):

    gap                                  ids (`verdicts_on`)   text                   the trajectory (`find_incomplete`)
    a text of the prompt was masked      trained               content uncertain      content masked
    30 ids are listed, 32 were counted   ids doubtful          trained                token ids missing
    a mask in the definitions of tools   trained               trained                content masked

Ids are doubted by ids, text by text: no text vetoes ids that the server gave, however it looks. `find_incomplete` adds
what is missing among the spans.

To add a kind of gap: `calls.GapKind` (`calls.CONTENT_GAPS` says which another recording of the call can fill), its line
in `REASONS`, and what finds it. To add a reason why completions are not trained: `model.TokensUntrained` or
`model.TextUntrained`, what leads to it here, and its line in `data/cures.py`. To add a reason of a trajectory: a
constant, its line in `EXPLANATIONS` with what helps, and its count in `find_incomplete`.
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
    """What a reason means or counts, and what to do about it."""

    means: str
    helps: str

    def __str__(self) -> str:
        """Both as sentences."""
        return f"{self.means[:1].upper()}{self.means[1:]}. {self.helps}"


class Consequence(NamedTuple):
    """What a kind of gap means.

    `reason` is the trajectory's reason if any, `cure` its words, and `concern` says what it is about. `tokens` and
    `text` say why the ids and the text of a completion that it touches are not trained, None where they are.
    """

    reason: str | None = None
    cure: Cure | None = None
    concern: Concern = "text"
    tokens: TokensUntrained | None = None
    text: TextUntrained = "content uncertain"


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
        tokens="ids doubtful",  # and the text where the gap is of the answer: only the ids said what that is
    ),
    "aborted": Consequence(tokens="aborted", text="aborted"),
    "scrubbed": Consequence(tokens="scrubbed", text="scrubbed"),
    "contradicted": Consequence(tokens="contradicting recordings", text="contradicting recordings"),
}
"""What follows from each kind of gap, in the order of the trajectory's reasons."""

_ABORTED: Final = frozenset({"abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"})
"""Finish reasons by which servers say that they stopped sampling themselves; the last two are DeepSeek's and GLM's."""

_TOKENS_ORDER: Final[tuple[TokensUntrained, ...]] = get_args(TokensUntrained)
_TEXT_ORDER: Final[tuple[TextUntrained, ...]] = get_args(TextUntrained)
_CONTENT: Final = ("prompt", "answer", "call")


def verdicts_on(call: InferenceCall, choice: Choice) -> tuple[TokensUntrained | None, TextUntrained | None]:
    """Why the ids of a completion must not be trained, and why its text; None where it may. Nothing else decides it."""
    if call.failed:
        return "failed", "failed"
    if choice.finish_reason in _ABORTED:
        return "aborted", "aborted"
    tokens: set[TokensUntrained] = set()
    text: set[TextUntrained] = set()
    for gap in call.gaps:
        consequence = REASONS[gap.kind]
        if gap.kind == "aborted" and (choice.finish_reason is not None or call.stream):
            continue  # another recording of the call knows how it finished, or that it was a stream
        is_of_ids = gap.field in ("call", "tokens", "answer") or _is_of(gap, choice)
        if consequence.tokens is not None and is_of_ids:
            tokens.add(consequence.tokens)
        if _touches_text(gap, choice, call):
            text.add(consequence.text)
    if call.input_messages is None and call.prompt_token_ids is None:  # as where a log leads to what it does not hold
        text.add("content uncertain")
    if call.stream is True and choice.finish_reason is None and call.closed_by_app != "finished":
        tokens.add("stream broke")
        # A gap of this very answer, as that its recorder lost something, is the better reason: its recorder may have
        # lost the finish reason too.
        if "content uncertain" not in text or not any(_is_of(gap, choice) for gap in call.gaps):
            text.add("stream broke")
    return min(tokens, key=_TOKENS_ORDER.index, default=None), min(text, key=_TEXT_ORDER.index, default=None)


def _touches_text(gap: Gap, choice: Choice, call: InferenceCall) -> bool:
    """Whether the gap is one of what the completion was sampled from, or of the completion."""
    if gap.kind in ON_SERVER and call.prompt_token_ids is not None:
        return False  # the ids are what the server made of it
    if gap.kind == "not logged":
        return gap.field == "answer"  # what else a log does not tell is settings, and how the prompt was made
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
"""What each reason counts, in words for people, and what helps against it."""

_CONCERNS: Final[Mapping[str, Concern]] = {
    one.reason: one.concern for one in REASONS.values() if one.reason is not None
}


def concern_of(reason: str) -> Concern:
    """Whether a reason concerns token ids, text, or both; one that this version does not know concerns both."""
    return _CONCERNS.get(reason, "both")


_UNKNOWN: Final = Cure(
    "a reason that this version does not know",
    "Look at the trajectory, with the version of art-otel that converted it.",
)


def cure_of_gap(reason: str) -> Cure:
    """What a reason counts, and what helps; datasets of other versions may have others."""
    return EXPLANATIONS.get(reason, _UNKNOWN)


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Lost spans by trace id, and by key where that is known. `values` are spans that were kept without a value."""

    spans: Mapping[str, int]
    keyed_spans: Mapping[SpanKey, int]
    values: frozenset[SpanKey]

    def of(self, spans: Sequence[Span]) -> tuple[int, int]:
        """Count the spans lost in the traces of these spans, and those of these spans that lost a value."""
        if not self.spans and not self.values:
            return 0, 0
        keys = {span.key for span in spans}
        lost = sum(self.spans.get(trace_id, 0) for trace_id in {trace_id for trace_id, _ in keys})
        delivered_whole = sum(self.keyed_spans.get(key, 0) for key in keys)
        return lost - delivered_whole, len(keys & self.values)


_NO_LOSSES: Final = Losses(spans={}, keyed_spans={}, values=frozenset())


def find_losses(quarantine: Iterable[Quarantined]) -> Losses:
    """Index what was quarantined by what it took."""
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
    """Count what is missing by reason, in the order of EXPLANATIONS. Empty means complete.

    What the agent did, failed calls included, is a fact and nothing that is missing. `call_of` leads from each
    inference span to the span id of its call. `unrecorded` are answers in prompts that no recorded call gave,
    `unassigned` counts calls and tools that may be of this rollout or of another attempt, `bad_rewards` rewards that
    are no number, or that judge what the rollout does not have.
    """
    root, spans = rollout.root, rollout.spans

    def says_of_calls(span: Span) -> bool:  # so that what is dropped from it can be missed
        return span.key in rollout.root_keys or attributes.STEP_INDEX in span.attributes or is_reward_span(span)

    losing = [span for span in spans if says_of_calls(span) and span.key not in call_of]
    begun_calls = {} if root is None else calls_counted_on(root)
    span_count = None if root is None else spans_counted_on(root)
    if span_count is not None or begun_calls:
        unrecorded = ()  # a rollout that counted its spans, and has them all, lost no call: the app wrote these itself
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
    """How many calls have a gap for each reason of a trajectory.

    What a call that is marked untrained (a judge's) was asked and answered is not what the policy saw: what is lost of
    it is missing nowhere.
    """
    counts: Counter[str] = Counter()
    for call in calls:
        if call.gaps and call.marked_untrained is None:
            counts.update({reason for gap in call.gaps if (reason := REASONS[gap.kind].reason) is not None})
    return counts


def _count_lost_parents(
    rollout: RolloutSpans, call_of: Mapping[SpanKey, str], tree: SpanTree, says_of_calls: Callable[[Span], bool]
) -> int:
    """Count the spans whose missing parent may have been a call, or have said of what agent or step a call is.

    A request without its parent may have been that of a lost call, if not one to the process of the calls itself. Any
    other span, with nothing of the rollout below it, shows only that another of these is missing.
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
            is_inside = span.kind == "internal" or (span.kind == "server" and span.resource in apps)
            may_be_request = not is_inside and not any(name.startswith("db.") for name in span.attributes)
            count += span.key in above or may_be_request
    return count


def _count_overwritten_calls(spans: Iterable[Span], calls: Sequence[InferenceCall]) -> int:
    """Count calls that were lost because LiteLLM writes its calls onto our current span and overwrites the one before.

    A call on our span is lost if no other span records it, by the response id or, where that is unknown, the prompt.
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
    """Whether no call around a gateway's span of a request that it could not read tells what was asked."""
    key: SpanKey | None = span.key
    while key is not None and key not in call_of:
        key = tree.parents.get(key)
    return key is None


def _count_missing_spans(
    root: Span, spans: Iterable[Span], span_count: int | None, begun_calls: Mapping[str, int]
) -> int:
    """How many spans of the rollout are missing below its own span, as far as that counted them."""
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
    """Whether the process of the root counted the span: it is of the same process, and not a standalone reward."""
    declared = span.attributes.get(attributes.ROLLOUT_ID)
    if declared is not None and declared != root.attributes.get(attributes.ROLLOUT_ID):
        return False  # of a service whose process did not know the rollout and made up an id
    if span.trace_id != root.trace_id and is_reward_span(span) and (span.links or span.parent_span_id is None):
        return False  # a reward outside every rollout's tree, which no rollout counts
    return may_be_one_process(span.resource, root.resource)


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
