"""OpenInference (Phoenix): https://github.com/Arize-ai/openinference/tree/main/spec.

Invariant: `input.value` and `output.value` of an LLM span hold the request and response bodies as they were, so they
are exact. The flattened `llm.*` attributes repeat them with losses (choice 0's finish reason only, no ids, no parts
that are no text) and are read for messages only where the bodies could not be.

What is no body of an API: LangChain's own serialization, which is a dialect of its own; DSPy's list of outputs (texts,
or objects with a text) and AutoGen's CreateResult (`autogen_core/models/_types.py`), whose `thought` is the text beside
tool calls, and reasoning beside a text; the list of the OpenAI Agents SDK. Contents that google-genai's instrumentor
(0.1.8) wrote as Python prints them are not read; the flattened prompt stands for them.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from art_otel.calls import Choice, Message, ToolSet, Usage
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording, unflatten
from art_otel.conventions.bodies import api_bodies
from art_otel.conventions.bodies.messages import join_assistant_messages, messages_of, tool_call
from art_otel.conventions.bodies.openai_body import (
    parse_tools,
    read_parameters,
    read_request,
    read_tools,
    with_extra_body,
)
from art_otel.conventions.bodies.recorded_values import read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.dialects.openinference_flattened import (
    as_sent,
    lacks_thoughts_only,
    object_in,
    read_flattened_messages,
)
from art_otel.conventions.facts import UNKNOWN_MESSAGE, CallFacts, merge_facts, recorded_facts
from art_otel.conventions.vocabulary import finish_reason
from art_otel.errors import ParseError
from art_otel.spans import Value

RAW: Final = "openinference"
FLATTENED: Final = "openinference.flattened"

INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
BODIES: Final = (INPUT_VALUE, OUTPUT_VALUE)
_MIME_TYPES: Final = {INPUT_VALUE: "input.mime_type", OUTPUT_VALUE: "output.mime_type"}
_JSON: Final = "application/json"
AGENT_NAME: Final = "agent.name"
SPAN_KIND: Final = "openinference.span.kind"
_AGENTS_SDK: Final = "openinference.instrumentation.openai_agents"
_STREAM_SPANS: Final = frozenset({"GenerateContentStream", "AsyncGenerateContentStream"})
"""The names of spans of google-genai's streams, which nothing else of a span tells from whole answers."""

_RESPONSES_SPANS: Final = frozenset({"response", "responses", "aresponses"})
"""The names of spans of the Responses API, in lower case; the last two are LiteLLM's."""

_PARAMETERS: Final = "llm.invocation_parameters"
_METADATA: Final = "metadata"
_PREVIOUS_INTERACTION: Final = "previous_interaction_id"
_INPUT: Final = "llm.input_messages"
_OUTPUT: Final = "llm.output_messages"
_TOOL_CALL: Final = "0.message.tool_calls.0.tool_call.function.name"


def read_raw(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the request and response bodies; None when the values are none."""
    reader = recording.reader()
    read_call = _agents_sdk_call if recording.span.scope.name == _AGENTS_SDK else _client_call
    return recorded_facts(RAW, reader, *read_call(reader))


def _client_call(reader: AttributeReader) -> tuple[CallFacts | None, CallFacts | None]:
    """Read the body of a client's request, and that of its response or what a framework made of it."""
    request = None
    if not _is_text(reader, INPUT_VALUE):
        request = reader.body(INPUT_VALUE, may_be_text=not _is_json(reader, INPUT_VALUE))
    output = _output(reader)
    response = values.mapping(output)
    response_facts = None if response is None else api_bodies.read_response(reader, OUTPUT_VALUE, response)
    return (
        None if request is None else _asked(reader, request),
        read_result(output) if response_facts is None else response_facts,
    )


def _output(reader: AttributeReader) -> Value:
    """Decode the output, unless it is declared to be text; what nothing declares to be JSON is no list of texts."""
    if _is_text(reader, OUTPUT_VALUE):
        return None
    is_json = _is_json(reader, OUTPUT_VALUE)
    output = reader.structured(OUTPUT_VALUE, may_be_text=not is_json)
    return output if is_json or values.mapping(output) is not None else None


def _agents_sdk_call(reader: AttributeReader) -> tuple[CallFacts | None, CallFacts | None]:
    """Read a call of the OpenAI Agents SDK: the list of its messages or items, and a response or a list of answers.

    Of the Responses API the instructions are in the response; of Chat Completions they are the first message.
    """
    items = reader.structured(INPUT_VALUE, may_be_text=not _is_json(reader, INPUT_VALUE))
    output = reader.structured(OUTPUT_VALUE, may_be_text=not _is_json(reader, OUTPUT_VALUE))
    response = values.mapping(output) or {}
    asked = None
    if values.items(items):
        name = "input" if response.get("object") == "response" else "messages"
        asked = read_request(reader, INPUT_VALUE, {name: items, "instructions": response.get("instructions")})
    return asked, None if output is None else read_output(reader, OUTPUT_VALUE, output)


def _asked(reader: AttributeReader, request: dict[str, Value]) -> CallFacts | None:
    if is_printed(request):
        if joins_parts(request):
            reader.gap("lossy recorder", f"{INPUT_VALUE}: printed parts", field="prompt")
        return None
    return api_bodies.read_request(reader, INPUT_VALUE, request)


def read_flattened(recording: SpanRecording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the `llm.*` attributes; None when there are none."""
    reader, span = recording.reader(), recording.span
    parameters = with_extra_body(values.mapping(reader.structured(_PARAMETERS)) or {})
    responses = span.name.lower() in _RESPONSES_SPANS
    tells_more = _tells_more(reader, trusted_facts)
    if (
        trusted_facts.choices is not None
        and tells_more[1]
        and not any(choice.finish_reason == "tool_calls" for choice in trusted_facts.choices)
    ):
        reader.gap("lossy recorder", f"{_OUTPUT}: more tool calls than {OUTPUT_VALUE}", field="answer")
    prompt = _messages(reader, span.scope.name, _INPUT, responses=responses) if tells_more[0] else None
    prompt = as_sent(span.scope.name, reader, prompt)
    facts = CallFacts(
        previous_response_id=values.text(parameters.get("previous_response_id")) or _previous_interaction(reader),
        provider=reader.text("llm.system", "llm.provider"),
        request_model=values.text(parameters.get("model")),
        response_model=reader.text("llm.model_name"),
        parameters=read_parameters(reader, _PARAMETERS, parameters),
        tools=_tools(reader) or read_tools(reader, _PARAMETERS, parameters),
        input_messages=prompt,
        choices=_choices(reader, span.scope.name, responses=responses) if tells_more[1] else None,
        usage=_usage(reader),
        stream=True if span.name in _STREAM_SPANS else values.flag(parameters.get("stream")),
        gaps=reader.gaps,
    )
    if facts == CallFacts():
        return None
    return msgspec.structs.replace(facts, conventions=(FLATTENED,), gaps=reader.gaps)


def _previous_interaction(reader: AttributeReader) -> str | None:
    """The earlier interaction that one of Gemini's continues."""
    recorded = reader.text(_METADATA)
    if recorded is None or _PREVIOUS_INTERACTION not in recorded:
        return None
    return values.text((values.mapping(values.json_value(recorded)) or {}).get(_PREVIOUS_INTERACTION))


def _tells_more(reader: AttributeReader, trusted: CallFacts) -> tuple[bool, bool]:
    """Whether the flattened prompt, and the flattened completions, tell what the bodies do not.

    Some instrumentors (Strands') write bodies of their own without the tool calls.
    """
    prompt, choices = trusted.input_messages, trusted.choices
    return (
        prompt is None or _has_more_tool_calls(reader, _INPUT, prompt),
        choices is None or _has_more_tool_calls(reader, _OUTPUT, [choice.message for choice in choices]),
    )


def _has_more_tool_calls(reader: AttributeReader, prefix: str, trusted: Sequence[Message]) -> bool:
    family = f"{prefix}.{_TOOL_CALL}"
    return family in reader.families and reader.names.count(family) > sum(len(one.tool_calls) for one in trusted)


def _is_text(reader: AttributeReader, name: str) -> bool:
    """Whether a value is declared to be text: then it is what was said, also if it is JSON."""
    return reader.text(_MIME_TYPES[name]) == "text/plain"


def _is_json(reader: AttributeReader, name: str) -> bool:
    """Whether a value is declared to be JSON: text may begin as JSON does. The type itself may be cut off."""
    return _JSON.startswith(reader.text(_MIME_TYPES[name]) or "?")


def _messages(reader: AttributeReader, scope: str, prefix: str, *, responses: bool) -> tuple[Message, ...] | None:
    losses = AttributeReader(reader.attributes, reader.names)
    parsed = read_flattened_messages(losses, scope, prefix)
    is_excused = any(gap.kind == "lossy recorder" for gap in losses.gaps) and lacks_thoughts_only(scope, reader, prefix)
    reader.add_gaps(losses, but=("lossy recorder",) if is_excused else ())
    return join_assistant_messages(parsed) if responses and parsed is not None else parsed


def _choices(reader: AttributeReader, scope: str, *, responses: bool) -> tuple[Choice, ...] | None:
    sampled = _messages(reader, scope, _OUTPUT, responses=responses)
    if sampled is None:
        return None
    reasons = [finish_reason(reader.text("llm.finish_reason"))]
    return tuple(
        Choice(index=index, message=message, finish_reason=reasons[index] if index < len(reasons) else None)
        for index, message in enumerate(sampled)
    )


def _tools(reader: AttributeReader) -> ToolSet | None:
    """Read the tools of `llm.tools.<n>.tool.json_schema`."""
    entries = unflatten(reader, "llm.tools")
    schemas = None if entries is None else [object_in(entry, "tool").get("json_schema") for entry in entries]
    return reader.parsed("llm.tools", parse_tools, schemas)


def _usage(reader: AttributeReader) -> Usage | None:
    usage = Usage(
        input_tokens=reader.integer("llm.token_count.prompt"),
        output_tokens=reader.integer("llm.token_count.completion"),
        total_tokens=reader.integer("llm.token_count.total"),
        cached_tokens=reader.integer("llm.token_count.prompt_details.cache_read"),
        reasoning_tokens=reader.integer("llm.token_count.completion_details.reasoning"),
    )
    return None if usage == Usage() else usage


_CREATE_RESULT: Final = frozenset({"finish_reason", "content", "usage", "cached"})


def read_result(value: Value) -> CallFacts | None:
    """Read the choices of a framework's result; None for anything else."""
    fields = values.mapping(value)
    if fields is not None:
        return CallFacts(choices=(_created(fields),)) if fields.keys() >= _CREATE_RESULT else None
    outputs = values.items(value)
    if not outputs or not all(isinstance(output, str) or _has_text(values.mapping(output) or {}) for output in outputs):
        return None
    try:
        return CallFacts(choices=tuple(_dspy_output(index, output) for index, output in enumerate(outputs)))
    except ParseError:
        return None


def _has_text(output: dict[str, Value]) -> bool:
    """Whether an output is DSPy's: a body of an API names its object, and may have a `text` that is none."""
    return "text" in output and "object" not in output


def _created(result: dict[str, Value]) -> Choice:
    calls, thought = values.items(result["content"]), values.text(result.get("thought"))
    if calls is None:
        message = Message(role="assistant", content=values.text(result["content"]), reasoning=thought)
    else:
        asked = [tool_call(fields) for call in calls if (fields := values.mapping(call))]
        message = Message(role="assistant", content=thought, tool_calls=tuple(asked))
    return Choice(index=0, message=message, finish_reason=finish_reason(result["finish_reason"]))


def _dspy_output(index: int, output: Value) -> Choice:
    """Read an output of DSPy. Raises ParseError for one whose text or tool calls are none."""
    fields = values.mapping(output) or {"text": output}
    message = {**fields, "content": fields.get("text"), "role": "assistant"}
    return Choice(index=index, message=messages_of(message)[-1])


_PRINTED: Final = re.compile(r"parts=\[.*\] role='\w+'", re.DOTALL)
_JOINED: Final = re.compile(r"\b(?:text|function_response)=")
"""Parts of which the flattened message has one text."""


def is_printed(request: dict[str, Value]) -> bool:
    """Whether the contents of a request are what Python prints of them."""
    contents = values.items(request.get("contents"))
    return bool(contents) and all(
        isinstance(content, str) and _PRINTED.fullmatch(content) for content in contents or ()
    )


def joins_parts(request: dict[str, Value]) -> bool:
    """Whether a printed content has several parts of which the flattened message is one text."""
    return any(len(_JOINED.findall(str(content))) > 1 for content in values.items(request["contents"]) or ())


LANGCHAIN: Final = "openinference.langchain"

_FINISH_REASON: Final = "llm.finish_reason"
_LANGCHAIN_MESSAGE: Final = '"lc":'
_LANGCHAIN_RESULT: Final = '"generations":'


def read_langchain(recording: SpanRecording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the messages and the result; None where they are not LangChain's."""
    reader = recording.reader()
    prompt = _langchain_body(reader, INPUT_VALUE, _LANGCHAIN_MESSAGE) if trusted_facts.input_messages is None else None
    result = _langchain_body(reader, OUTPUT_VALUE, _LANGCHAIN_RESULT) if trusted_facts.choices is None else None
    asked = None if prompt is None else read_input(reader, INPUT_VALUE, {"messages": prompt.get("messages")})
    answered = None if result is None else read_output(reader, OUTPUT_VALUE, result)
    if asked is None and answered is None:
        return None
    prompt_facts = CallFacts() if asked is None else CallFacts(input_messages=asked.input_messages)
    facts = merge_facts(prompt_facts, answered or CallFacts())
    reason = finish_reason(reader.text(_FINISH_REASON))
    if reason is not None and facts.choices is not None:
        finished = CallFacts(choices=(Choice(index=0, message=UNKNOWN_MESSAGE, finish_reason=reason),))
        facts = merge_facts(facts, finished)
    return msgspec.structs.replace(facts, conventions=(LANGCHAIN,), gaps=reader.gaps)


def _langchain_body(reader: AttributeReader, name: str, mark: str) -> dict[str, Value] | None:
    """Decode a body that has a mark of LangChain's; the decoding costs more than to look for it."""
    recorded = reader.text(name)
    return values.mapping(reader.structured(name)) if recorded is not None and mark in recorded else None


LANGCHAIN_DIALECT: Final = Dialect(
    convention=LANGCHAIN, known="parsed attributes", read=read_langchain, shown_by=BODIES
)
