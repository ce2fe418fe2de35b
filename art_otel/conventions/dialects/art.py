"""art-otel's own attributes on an LLM span, which the exact-capture hook of `art_otel.tracing` writes.

Invariant: these values came from the request and the response of the server, and are exact. docs/spec/attributes.md
owns the table. History events hold messages that an app put behind a completion, as the result of a tool that the
completion called: an event names the response and holds the message as OpenAI's chat format has it, so whoever reads a
dump needs no other record; one that names no response, or holds no message, is left out.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast, get_args

import msgspec

from art_otel import attributes as names
from art_otel.calls import Choice, Gap, Message, StreamClose, TokenIds
from art_otel.conventions import values
from art_otel.conventions.attribute_names import NameFamilies
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.messages import join_assistant_messages, parse, read_messages
from art_otel.conventions.bodies.openai_body import (
    note_server_side,
    read_choices,
    read_parameters,
    read_response,
    read_tools,
    read_usage,
    without_uncounted,
)
from art_otel.conventions.bodies.token_facts import with_facts
from art_otel.conventions.bodies.tokens import decode_ids, decode_logprobs, decode_prompt_ids
from art_otel.conventions.dialects import genai
from art_otel.conventions.dialects.genai import RESPONSE_ID
from art_otel.conventions.facts import UNKNOWN_MESSAGE, CallFacts
from art_otel.errors import ParseError
from art_otel.sampling import LogprobsMode
from art_otel.spans import Span, Value

CONVENTION: Final = "art"
ART_OTEL: Final = "art_otel"
"""The instrumentation scope of our own spans."""

PREFIXES: Final = ("art.tokens.", "art.logprobs.", "art.response.", "art.request.", "art.stream.", names.POLICY_VERSION)

_CHOICE_FIELDS: Final = frozenset({"message", "text", "finish_reason"})
"""Fields that a choice has and no output item; a choice of an empty stream has only the last."""

_FIELDS: Final = {"tools": "tools", "answer": "answer", "parameters": "parameters"}
"""The fields of a call of which a log may not tell all; what else it does not tell is of the prompt."""


class _CompletionAttributes(msgspec.Struct, frozen=True):
    """An attribute `name` with the ids of a choice: its index, and the canonical names of its ids and logprobs."""

    name: str
    index: int | None
    ids: str
    logprobs: str


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read our own attributes."""
    reader = recording.reader()
    attributes = reader.attributes
    request_facts = _request_facts(reader) if names.REQUEST_PARAMETERS in attributes else CallFacts()
    response_end = (
        values.mapping(reader.structured(names.RESPONSE_END)) or {} if names.RESPONSE_END in attributes else {}
    )
    version, version_at_end = attributes.get(names.POLICY_VERSION), attributes.get(names.POLICY_VERSION_END)
    prompt = reader.parsed(names.PROMPT_TOKENS, decode_prompt_ids, attributes.get(names.PROMPT_TOKENS))
    answers = _choices(reader, response_end) if names.RESPONSE_CHOICES in attributes else {}
    choices = _with_tokens(reader, answers, prompt)
    if response_end:
        note_server_side(reader, names.RESPONSE_END, response_end)
    if response_end.get("counts_one_choice"):
        choices = without_uncounted(reader, choices)
    return msgspec.structs.replace(
        request_facts,
        conventions=(CONVENTION,),
        input_messages=_messages(recording, reader) if names.REQUEST_MESSAGES in attributes else None,
        choices=choices,
        prompt_token_ids=prompt,
        usage=read_usage(values.mapping(response_end.get("usage")) or {}) if response_end else None,
        policy_version=None if version is None else str(version),
        closed_by_app=_stream_close(attributes.get(names.CLOSED_BY_APP)),
        policy_version_end=None if version_at_end is None else str(version_at_end),
        gaps=reader.gaps,
    )


def _stream_close(value: Value) -> StreamClose | None:
    return value if value in get_args(StreamClose) else None


def _request_facts(reader: AttributeReader) -> CallFacts:
    """Read `art.request.parameters`: the request body without its messages."""
    request = values.mapping(reader.structured(names.REQUEST_PARAMETERS)) or {}
    return CallFacts(
        previous_response_id=values.text(request.get("previous_response_id")),
        request_model=values.text(request.get("model")),
        parameters=read_parameters(reader, names.REQUEST_PARAMETERS, request),
        tools=read_tools(reader, names.REQUEST_PARAMETERS, request),
        stream=values.flag(request.get("stream")),
        has_instructions="instructions" in request,
    )


def _messages(recording: SpanRecording, reader: AttributeReader) -> tuple[Message, ...] | None:
    """Read `art.request.messages`; of the Responses API these are items, several of which may be one message."""
    messages = read_messages(reader, names.REQUEST_MESSAGES)
    return join_assistant_messages(messages) if messages and genai.is_responses(recording.span) else messages


def span_env_state(span: Span) -> dict[str, Value]:
    """The state of the environment that a call's or step's span carries; JSON values."""
    return read_env_state(AttributeReader(span.attributes))


def span_extra(span: Span) -> dict[str, Value]:
    """What else the application put on a call's or step's span; JSON values."""
    return _named_values(AttributeReader(span.attributes), names.EXTRA)


def has_extras(families: NameFamilies) -> bool:
    """Whether a call has anything for `read_env_state`, `read_extra` and `read_gaps`."""
    return bool(families.starting((names.ENV_STATE, names.EXTRA, names.SCRUBBED, names.MISSING)))


def read_env_state(reader: AttributeReader) -> dict[str, Value]:
    """Read the state of the environment, as `span_env_state` does."""
    return _named_values(reader, names.ENV_STATE)


def read_extra(reader: AttributeReader) -> dict[str, Value]:
    """Read what else the application recorded, how many secrets were found, and whether any in what was said."""
    scrubbed = [name for name in (names.SCRUBBED, names.SCRUBBED_CONTENT) if name in reader.attributes]
    return {**_named_values(reader, names.EXTRA), **{name: reader.json_safe(name) for name in scrubbed}}


def read_gaps(recording: SpanRecording) -> Iterator[Gap]:
    """Read what the recorder says itself: that a secret was found in what was said, or what its log does not tell."""
    carriers = [recording.span.attributes, *(log.attributes for log in recording.logs)]
    if any(attributes.get(names.SCRUBBED_CONTENT) is True for attributes in carriers):
        yield Gap(kind="scrubbed", field="call", evidence=names.SCRUBBED_CONTENT)
    for part in values.strings(recording.span.attributes.get(names.MISSING)):
        yield Gap(kind="not logged", field=_FIELDS.get(part, "prompt"), evidence=part)


_LOGPROBS_MODES: Final = get_args(LogprobsMode)


def read_logprobs_mode(span: Span) -> LogprobsMode | None:
    """Read of which distribution the logprobs of a call are.

    The resource's word counts most: who starts a process knows how its server was started, while what stands on the
    span mostly follows from which server answered.
    """
    for attributes in (span.resource.attributes, span.attributes):
        mode = attributes.get(names.LOGPROBS_MODE)
        if mode in _LOGPROBS_MODES:
            return cast(LogprobsMode, mode)
    return None


def _named_values(reader: AttributeReader, name: str) -> dict[str, Value]:
    """Merge the JSON object in attribute `name` with the attributes `name.<key>`, which win."""
    families = reader.families.starting(name)
    if not families:
        return {}
    prefix = f"{name}."
    names_below = [key for key in reader.names.of(families) if key.startswith(prefix)]
    values_by_key = {key.removeprefix(prefix): reader.json_safe(key) for key in names_below}
    return {**(values.mapping(reader.json_safe(name)) or {}), **values_by_key}


def _choices(reader: AttributeReader, ended: dict[str, Value]) -> dict[int, Choice]:
    """Read `art.response.choices`: choices of a chat response, or output items of a response that `ended` so."""
    name = names.RESPONSE_CHOICES
    entries = values.items(reader.structured(name))
    if entries is None:
        return {}
    try:
        if any(not _CHOICE_FIELDS.isdisjoint(entry) for entry in map(values.mapping, entries) if entry):
            choices = read_choices(reader, name, entries)
        else:
            response = read_response(reader, name, {**ended, "output": entries})
            choices = (response.choices if response else None) or ()
    except ParseError:
        reader.mark_invalid(name)
        return {}
    return {choice.index: choice for choice in choices}


def _with_tokens(
    reader: AttributeReader, choices: dict[int, Choice], prompt: TokenIds | None
) -> tuple[Choice, ...] | None:
    """Add ids and what goes with them to the choices. One that is known by these alone has a message without content.

    `prompt` are the ids of the prompt.
    """
    for sampled in reader.families.memo(_completions):
        index = sampled.index
        if index is None:
            reader.mark_invalid(sampled.name)
            continue
        choice = _choice(reader, sampled, index, choices.get(index))
        choices[index] = with_facts(reader, choice, prompt) if reader.families.memo(_has_facts) else choice
    return tuple([choices[index] for index in sorted(choices)]) or None


def _has_facts(families: NameFamilies) -> bool:
    return bool(
        families.starting((names.WEIGHT_VERSIONS_PREFIX, names.ROUTED_EXPERTS_PREFIX, names.SAMPLING_MASK_PREFIX))
    )


def _completions(families: NameFamilies) -> tuple[_CompletionAttributes, ...]:
    return tuple(map(_completion, families.starting(names.COMPLETION_TOKENS_PREFIX)))


def _completion(name: str) -> _CompletionAttributes:
    index = values.integer(name.removeprefix(names.COMPLETION_TOKENS_PREFIX))
    return _CompletionAttributes(
        name=name,
        index=None if index is None or index < 0 else index,
        ids=f"{names.COMPLETION_TOKENS_PREFIX}{index}",  # the index may be written otherwise in `name`
        logprobs=f"{names.COMPLETION_LOGPROBS_PREFIX}{index}",
    )


def _choice(reader: AttributeReader, sampled: _CompletionAttributes, index: int, answer: Choice | None) -> Choice:
    ids = reader.parsed(sampled.ids, decode_ids, reader.attributes.get(sampled.ids))
    logprobs = reader.parsed(sampled.logprobs, decode_logprobs, reader.attributes.get(sampled.logprobs))
    if ids is not None and logprobs is not None and len(ids.data) != len(logprobs.data):
        reader.mark_invalid(sampled.logprobs)
        logprobs = None
    return Choice(
        index=index,
        message=UNKNOWN_MESSAGE if answer is None else answer.message,
        finish_reason=None if answer is None else answer.finish_reason,
        token_ids=ids,
        logprobs=logprobs,
    )


class RecordedMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that was put behind `choice` of the response `completion_id`."""

    completion_id: str
    choice: int
    message: Message


def history_messages(message: Mapping[str, Any]) -> tuple[Message, ...]:
    """What a message of OpenAI's chat format says. Raises ParseError for what is no message."""
    return parse([dict(message)])


def history_attributes(completion_id: str, choice: int, message: Mapping[str, Any]) -> dict[str, str | int]:
    """The attributes of an event for a message. Raises TypeError or ValueError for what is no JSON value."""
    text = json.dumps([message], ensure_ascii=False, allow_nan=False)
    return {RESPONSE_ID: completion_id, names.HISTORY_CHOICE: choice, names.REQUEST_MESSAGES: text}


def recorded_messages(span: Span) -> Iterator[RecordedMessage]:
    """The messages that a rollout's own span has, in the order in which they were put."""
    events = [event for event in span.events if event.name == names.HISTORY_EVENT]
    for event in sorted(events, key=lambda event: event.time_ns):
        reader = AttributeReader(event.attributes)
        completion_id = reader.text(RESPONSE_ID)
        choice = values.integer(event.attributes.get(names.HISTORY_CHOICE, 0))
        if completion_id is None or choice is None:
            continue
        for message in read_messages(reader, names.REQUEST_MESSAGES) or ():
            yield RecordedMessage(completion_id=completion_id, choice=choice, message=message)
