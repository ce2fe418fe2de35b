"""Duplicate groups: the recordings of a rollout, grouped by call, and the test whether two of them are of two calls.

Invariant: the recordings of a group are by different instrumentors and do not contradict each other (`contradicts`).
Two texts contradict only if both were recorded completely:

    "the sky is"  (cut)      "the sky is blue"        may be one call
    ""                       "the sky is blue"        may be one call
    "the sky is"             "the sky is blue"        two calls

These differences are no contradiction, because recorders cause them: lost reasoning, thinking, names and images, a
refusal or structured output written as text, the spelling of JSON arguments, instructions that a framework left out.
"""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, ToolCall, Usage, canonical_arguments
from art_otel.conventions import (
    is_same_but_for_thinking,
    is_structured_output,
    merge_calls,
    recorder_of,
    without_thinking,
)
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.surroundings import AncestorContext


class CallRecording(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One inference span and its place among the recordings of its rollout.

    `start` and `end` are in nanoseconds, with clock skew between machines corrected. `outer` is the nearest recording
    that encloses this one, `depth` the number of enclosing recordings, `boundary_depth` that of tools and agents.
    """

    span: Span
    call: InferenceCall
    start: int
    end: int | None
    outer: "CallRecording | None" = None
    depth: int = 0
    boundary_depth: int = 0

    @property
    def recorder(self) -> tuple[str, str]:
        """The instrumentor and its integration, e.g. LiteLLM's callback."""
        return recorder_of(self.span)


def read_recordings(
    calls: Mapping[SpanKey, InferenceCall], tree: SpanTree, above: Mapping[SpanKey, AncestorContext]
) -> list[CallRecording]:
    """The recordings of one rollout, the outer ones first and each level in the order of their start."""
    recordings: dict[SpanKey, CallRecording] = {}
    for key in sorted(calls, key=lambda key: (above[key].call_depth, tree.starts[key], key)):
        span, start, outer = tree.spans[key], tree.starts[key], above[key].call
        while outer is not None and outer not in calls:  # a call of another rollout
            outer = above[outer].call
        enclosing = None if outer is None else recordings[outer]
        recordings[key] = CallRecording(
            span=span,
            call=calls[key],
            start=start,
            end=None if span.end_ns is None else start + span.end_ns - span.start_ns,
            outer=enclosing,
            depth=0 if enclosing is None else enclosing.depth + 1,
            boundary_depth=above[key].boundary_depth,
        )
    return list(recordings.values())


class DuplicateGroup(msgspec.Struct, kw_only=True, eq=False):
    """The recordings of one call, the outermost first."""

    recordings: list[CallRecording]
    recorders: set[tuple[str, str]]
    """Who made the recordings: no instrumentor may be in a group twice."""
    wrappers: list[CallRecording] = []
    """Spans that tell something of the call but are no recording of its own request (`DuplicateGroups.attach`)."""
    merged: InferenceCall | None = None
    """The merged call; None until `call` is read, because merging after every `add` would be quadratic."""

    @property
    def outermost(self) -> CallRecording:
        """The recording whose span and times are the call's."""
        return self.recordings[0]

    @property
    def call(self) -> InferenceCall:
        """The call that the recordings and wrappers describe together."""
        if self.merged is None:
            self.merged = merge_calls([one.call for one in (*self.recordings, *self.wrappers)])
        return self.merged

    @property
    def spans(self) -> list[Span]:
        """The spans of the recordings and of the wrappers."""
        return [recording.span for recording in (*self.recordings, *self.wrappers)]

    def add(self, recordings: Iterable[CallRecording], wrappers: Iterable[CallRecording]) -> None:
        """Add recordings that are inside the present ones, and wrappers."""
        for recording in recordings:
            self.recordings.append(recording)
            self.recorders.add(recording.recorder)
        self.wrappers.extend(wrappers)
        self.merged = None


_Item = TypeVar("_Item")


def grouped(items: Iterable[_Item], key_of: Callable[[_Item], Hashable | None]) -> list[list[_Item]]:
    """Group items by key. Items without a key, or with a key that no other item has, are left out."""
    groups: dict[Hashable, list[_Item]] = {}
    for item in items:
        key = key_of(item)
        if key is not None:
            groups.setdefault(key, []).append(item)
    return [group for group in groups.values() if len(group) > 1]


class DuplicateGroups:
    """The groups of one rollout. At first each recording is a group; rules join them."""

    def __init__(self, recordings: Sequence[CallRecording], tree: SpanTree) -> None:
        self._tree = tree
        self._recordings = recordings
        self._group_of = {
            one.span.key: DuplicateGroup(recordings=[one], recorders={one.recorder}, merged=one.call)
            for one in recordings
        }
        self._contents: dict[SpanKey, Hashable | None] = {}
        self._wrappers: dict[SpanKey, CallRecording | None] = {}
        """For each wrapper's key, an enclosing recording: the nearest one, or one further out (path compression)."""

    def __iter__(self) -> Iterator[DuplicateGroup]:
        """Each group once, the outer ones first."""
        return iter(dict.fromkeys(self._group_of.values()))

    @property
    def recordings(self) -> list[CallRecording]:
        """All recordings but wrappers, the outer ones first and each level in the order of their start."""
        return [one for one in self._recordings if one.span.key not in self._wrappers]

    def of(self, recording: CallRecording) -> DuplicateGroup:
        """Return the group that a recording is in now."""
        return self._group_of[recording.span.key]

    def enclosing(self, recording: CallRecording) -> CallRecording | None:
        """The nearest recording around this one that is no wrapper."""
        outer = recording.outer
        passed: list[SpanKey] = []
        while outer is not None and outer.span.key in self._wrappers:
            passed.append(outer.span.key)
            outer = self._wrappers[outer.span.key]
        for key in passed:  # path compression, so that many nested wrappers cost no quadratic time
            self._wrappers[key] = outer
        return outer

    def content_of(self, group: DuplicateGroup) -> Hashable | None:
        """The `content_key` of the group's first recording that has one; None if none has, or the call never ended."""
        if group.outermost.end is None:
            return None
        for recording in group.recordings:
            key = recording.span.key
            if key not in self._contents:
                self._contents[key] = content_key(recording.call)
            if self._contents[key] is not None:
                return self._contents[key]
        return None

    def is_below_parent(self, outer: DuplicateGroup, inner: DuplicateGroup) -> bool:
        """Whether the outer group is below the parent of the inner group; True if the inner group has no parent."""
        parent = self._tree.parents.get(inner.outermost.span.key)
        return parent is None or self._tree.is_below(outer.outermost.span.key, parent)

    def nearest_ancestors(self, group: DuplicateGroup, limit: int) -> list[SpanKey]:
        """The keys of the spans above a group, the nearest first and no more than `limit`."""
        return [span.key for span in islice(self._tree.ancestors(group.outermost.span), limit)]

    def parent_of(self, group: DuplicateGroup) -> SpanKey | None:
        """The key of the span above a group."""
        return self._tree.parents.get(group.outermost.span.key)

    def join(self, outer: DuplicateGroup, inner: DuplicateGroup) -> bool:
        """Merge two groups unless they share a recorder or contradict each other; return whether they were merged."""
        if not outer.recorders.isdisjoint(inner.recorders) or contradicts(outer.call, inner.call):
            return False
        if complement(outer.call, inner.call):  # a prompt and an answer have nothing to compare but the response id
            pairs = ((one.call, other.call) for one in outer.recordings for other in inner.recordings)
            if not any(has_same_id(one, other) and complement(one, other) for one, other in pairs):
                return False
        outer.add(inner.recordings, inner.wrappers)
        self._group_of.update((span.key, outer) for span in inner.spans)
        return True

    def attach(self, wrapper: CallRecording, group: DuplicateGroup) -> None:
        """Add a span to a call as a wrapper, without the tests of `join`."""
        self._wrappers[wrapper.span.key] = wrapper.outer
        attached = self.of(wrapper)
        group.add((), (wrapper, *attached.wrappers))
        self._group_of.update((span.key, group) for span in attached.spans)


_INSTRUCTIONS: Final = ("system", "developer")
_PARTIAL: Final = ("cut", "not understood")
_ITEM_IDS: Final = ("fc_", "ctc_")  # how ids of the Responses API's output items begin: function and custom tool calls


def contradicts(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether two recordings are of two calls: something that both recorded completely differs."""
    if ids_differ(one, other):
        return True
    # A router may rename the model, so with one response id the model is no evidence.
    if not has_same_id(one, other) and models_differ(one, other):
        return True
    if one.has_gap("scrubbed", "masked") or other.has_gap("scrubbed", "masked"):
        return False  # a mask stands for any text
    # Frameworks record a prompt before they format it for the API, so beside equal answers it may differ.
    return answers_differ(one, other) or (prompts_differ(one, other) and not have_same_answer(one, other))


def may_be_one(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether two recordings may be of one call: they do not contradict each other and can be compared.

    A prompt alone and an answer alone can be compared only by the response id.
    """
    return not contradicts(one, other) and (has_same_id(one, other) or not complement(one, other))


def complement(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether one recording has only the prompt and the other only the answer."""
    first, second = (bool(one.input_messages), bool(one.choices)), (bool(other.input_messages), bool(other.choices))
    return {first, second} == {(True, False), (False, True)}


def has_same_id(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether both have the same response id."""
    return one.response_id is not None and one.response_id == other.response_id


def ids_differ(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether both have a response id, and the ids differ."""
    return one.response_id is not None and other.response_id is not None and one.response_id != other.response_id


def models_differ(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether both name a model, and the names differ in more than a prefix: `openai/gpt-5` is `gpt-5`."""
    model, other_model = _model(one), _model(other)
    return model is not None and other_model is not None and model != other_model


def usage_differs(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether both report token usage and the counts differ."""
    first, second = one.usage or Usage(), other.usage or Usage()
    if first.cached_tokens or second.cached_tokens:
        return False  # some frameworks count cached tokens as input, others do not
    counts = ((first.input_tokens, second.input_tokens), (first.output_tokens, second.output_tokens))
    # Frameworks write 0 for an unknown count.
    return any(count and other_count and count != other_count for count, other_count in counts)


def prompts_differ(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether both have a prompt, and the prompts differ in more than what recorders lose or rewrite."""
    ids, other_ids = one.prompt_token_ids, other.prompt_token_ids
    if ids is not None and other_ids is not None and ids != other_ids:
        return True
    messages, other_messages = one.input_messages, other.input_messages
    if not messages or not other_messages or messages == other_messages:
        return False
    if one.has_gap("dropped") or other.has_gap("dropped"):
        return False  # any message may be among the dropped attributes
    same = _may_be_cuts_of_one if one.has_gap(*_PARTIAL) or other.has_gap(*_PARTIAL) else _are_same_messages
    if same(messages, other_messages) or same(_with_joined_users(messages), _with_joined_users(other_messages)):
        return False
    # Some frameworks record no instructions: where only one prompt has them, the rest is compared.
    bare, other_bare = _without_instructions(messages), _without_instructions(other_messages)
    is_one_without = (len(bare) == len(messages)) != (len(other_bare) == len(other_messages))
    return not is_one_without or not same(bare, other_bare)


def answers_differ(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether both have an answer, and the answers differ in more than what recorders lose or rewrite."""
    choices, other_choices = one.choices or (), other.choices or ()
    if choices == other_choices:
        return False
    # Some recorders keep one of several choices, so a count of one is no evidence.
    if len(choices) != len(other_choices) and min(len(choices), len(other_choices)) > 1:
        return not _may_be_cut(one) and not _may_be_cut(other)
    by_index = {choice.index: choice for choice in other_choices}
    return any(
        choice.index in by_index and not _is_same_choice(choice, one, by_index[choice.index], other)
        for choice in choices
    )


def have_same_answer(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether both have the same number of choices, and at least one has text or tool calls that are equal."""
    choices, other_choices = one.choices or (), other.choices or ()
    if len(choices) != len(other_choices) or answers_differ(one, other):
        return False
    return any(map(_have_same_content, choices, other_choices))


def have_same_choices(one: InferenceCall, others: Sequence[InferenceCall]) -> bool:
    """Whether each of `others` has exactly one choice, not empty, and together these are the choices of `one`."""
    of_others = [choice for other in others for choice in other.choices or ()]
    if not all(_says(choice.message) for choice in of_others) or any(len(other.choices or ()) != 1 for other in others):
        return False
    return _contents(one.choices or ()) == _contents(of_others)


def content_key(call: InferenceCall) -> Hashable | None:
    """A key that calls with equal prompts and answers share, without thinking; None if prompt or answer is unknown."""
    asked = tuple(map(_text, call.input_messages or ()))
    if not any(asked) or (call.choices is None and not call.failed):
        return None
    answers = [(choice.index, without_thinking(_text(choice.message)), choice.message) for choice in call.choices or ()]
    return asked, tuple((index, text, _tools(message)) for index, text, message in answers)


def _contents(choices: Sequence[Choice]) -> Counter[Hashable]:
    return Counter((_text(choice.message), _tools(choice.message)) for choice in choices)


def _model(call: InferenceCall) -> str | None:
    model = call.request_model or call.response_model
    return None if model is None else model.rpartition("/")[2]


def _may_be_cut(call: InferenceCall) -> bool:
    """Whether parts of the recording may be missing."""
    return call.has_gap("dropped", *_PARTIAL) or call.failed


def _is_same_choice(choice: Choice, call: InferenceCall, other: Choice, other_call: InferenceCall) -> bool:
    is_partial, is_other_partial = _is_partial(choice, call), _is_partial(other, other_call)
    is_whole = not is_partial and not is_other_partial
    if is_whole and choice.token_ids is not None and other.token_ids is not None:
        return choice.token_ids == other.token_ids
    message, other_message = choice.message, other.message
    text, other_text = _text(message), _text(other_message)
    if not _is_same_text(text, other_text, is_partial=is_partial, is_other_partial=is_other_partial):
        return False
    if not is_whole or not _says(message) or not _says(other_message):
        return True
    if message.tool_calls and other_message.tool_calls:
        return _are_same_tool_calls(message.tool_calls, other_message.tool_calls)
    return bool(text and other_text) or is_structured_output(message, other_message)


def _is_partial(choice: Choice, call: InferenceCall) -> bool:
    """Whether the choice may have been longer than it was recorded."""
    return _may_be_cut(call) or (call.stream is True and choice.finish_reason is None)


def _have_same_content(choice: Choice, other: Choice) -> bool:
    text, tools = _text(choice.message), choice.message.tool_calls
    if text and is_same_but_for_thinking(text, _text(other.message)):
        return True
    if tools and other.message.tool_calls:
        return _are_same_tool_calls(tools, other.message.tool_calls)
    return is_structured_output(choice.message, other.message)


def _without_instructions(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role not in _INSTRUCTIONS]


def _with_joined_users(messages: Sequence[Message]) -> list[Message]:
    """Join neighboring user messages, as LangChain does before it sends a prompt to Anthropic."""
    joined: list[Message] = []
    for message in messages:
        if joined and message.role == "user" == joined[-1].role:
            text = f"{joined[-1].content or ''}{message.content or ''}"
            joined[-1] = msgspec.structs.replace(joined[-1], content=text)
        else:
            joined.append(message)
    return joined


def _are_same_messages(messages: Sequence[Message], other: Sequence[Message]) -> bool:
    return len(messages) == len(other) and all(
        a is b
        or (
            _is_same_text(_text(a), _text(b))
            and (not a.tool_calls or not b.tool_calls or _are_same_tool_calls(a.tool_calls, b.tool_calls))
        )
        for a, b in zip(messages, other, strict=True)
    )


def _may_be_cuts_of_one(messages: Sequence[Message], other: Sequence[Message]) -> bool:
    pairs = zip(messages, other, strict=False)
    return all(_is_same_text(_text(a), _text(b), is_partial=True, is_other_partial=True) for a, b in pairs)


def _is_same_text(text: str, other: str, *, is_partial: bool = False, is_other_partial: bool = False) -> bool:
    """Whether the texts are equal but for thinking, one is empty, or one is partial and the other begins with it."""
    if not text or not other or is_same_but_for_thinking(text, other):
        return True
    return (is_partial and other.startswith(text)) or (is_other_partial and text.startswith(other))


def _are_same_tool_calls(calls: Sequence[ToolCall], others: Sequence[ToolCall]) -> bool:
    """Whether two lists of tool calls are equal in all that both recorders wrote."""
    if len(calls) != len(others):
        return False
    for call, other in zip(calls, others, strict=True):
        # OpenLLMetry writes the id of the Responses API's output item in place of the tool call's id.
        is_of_item = any(str(one.id).startswith(_ITEM_IDS) for one in (call, other))
        if call.name != other.name or (call.id and other.id and call.id != other.id and not is_of_item):
            return False
        if call.arguments == other.arguments:
            continue
        try:
            if json.loads(call.arguments or "{}") != json.loads(other.arguments or "{}"):
                return False
        except (ValueError, RecursionError):  # a recorder that parses arguments cannot write those that are no JSON
            if call.exact and other.exact:
                return False
    return True


def _text(message: Message) -> str:
    """The text of the message, or its refusal: some recorders write a refusal as text."""
    return (message.content or message.refusal or "").strip()


def _tools(message: Message) -> tuple[tuple[str, str], ...]:
    return tuple((call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)


def _says(message: Message) -> bool:
    return bool(_text(message) or message.tool_calls)
