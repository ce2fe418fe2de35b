"""OpenInference (Phoenix): https://github.com/Arize-ai/openinference/tree/main/spec.

Invariant: `input.value` and `output.value` of an LLM span hold the request and response bodies as they were, so they
are exact. The flattened `llm.*` attributes repeat them with losses (choice 0's finish reason only, no ids) and are
read for messages only where the bodies could not be.
"""

from typing import Final

import msgspec

from art_otel.calls import Choice, Message, Usage
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.attributes.unflatten import unflatten
from art_otel.conventions.bodies import messages
from art_otel.conventions.bodies.finish import finish_reason
from art_otel.conventions.bodies.message import is_blank
from art_otel.conventions.bodies.messages import join_assistant_messages
from art_otel.conventions.bodies.openai_body import read_parameters, read_request, read_response, read_tools
from art_otel.conventions.bodies.tools import parse_tool
from art_otel.conventions.facts import CallFacts, merge_facts
from art_otel.conventions.recording import Recording
from art_otel.errors import ParseError
from art_otel.spans import Value

RAW: Final = "openinference"
FLATTENED: Final = "openinference.flattened"

INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
_INPUT_TYPE: Final = "input.mime_type"
_OUTPUT_TYPE: Final = "output.mime_type"
_JSON: Final = "application/json"
AGENT_NAME: Final = "agent.name"
SPAN_KIND: Final = "openinference.span.kind"
RESPONSES_SPAN: Final = "Response"

_PARAMETERS: Final = "llm.invocation_parameters"
_INPUT: Final = "llm.input_messages"
_OUTPUT: Final = "llm.output_messages"


def may_have_bodies(names: AttributeNames) -> bool:
    """Whether a span with these attributes may have anything that `read_raw` reads."""
    return INPUT_VALUE in names or OUTPUT_VALUE in names


def may_be_flattened(names: AttributeNames) -> bool:
    """Whether a span with these attributes may have anything that `read_flattened` reads."""
    return bool(names.starting("llm."))


def read_raw(recording: Recording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the request and response bodies; None when the values are none."""
    reader = recording.reader()
    request = reader.body(INPUT_VALUE, may_be_text=not _is_json(reader, _INPUT_TYPE))
    response = values.mapping(reader.structured(OUTPUT_VALUE, may_be_text=not _is_json(reader, _OUTPUT_TYPE)))
    request_facts = None if request is None else read_request(reader, INPUT_VALUE, request)
    response_facts = None if response is None else read_response(reader, OUTPUT_VALUE, response)
    if request_facts is None and response_facts is None and not reader.cut:
        return None
    facts = merge_facts(request_facts or CallFacts(), response_facts or CallFacts())
    return msgspec.structs.replace(facts, conventions=(RAW,), cut=reader.cut)


def read_flattened(recording: Recording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the `llm.*` attributes; None when there are none."""
    reader = recording.reader()
    parameters = values.mapping(reader.structured(_PARAMETERS)) or {}
    responses = recording.span.name == RESPONSES_SPAN
    facts = CallFacts(
        response_id=_langchain_response_id(reader) if trusted_facts.response_id is None else None,
        previous_response_id=values.text(parameters.get("previous_response_id")),
        provider=reader.text("llm.system", "llm.provider"),
        request_model=values.text(parameters.get("model")),
        response_model=reader.text("llm.model_name"),
        parameters=read_parameters(reader, _PARAMETERS, parameters),
        tools=_tools(reader) or read_tools(reader, _PARAMETERS, parameters),
        input_messages=_messages(reader, _INPUT, responses=responses) if trusted_facts.input_messages is None else None,
        choices=_choices(reader, responses=responses) if trusted_facts.choices is None else None,
        usage=_usage(reader),
        stream=values.flag(parameters.get("stream")),
        cut=reader.cut,
    )
    return None if facts == CallFacts() else msgspec.structs.replace(facts, conventions=(FLATTENED,), cut=reader.cut)


def _langchain_response_id(reader: AttributeReader) -> str | None:
    """Find the response id in `output.value` when it is an LLMResult of LangChain, not the body of an API.

    The result of several prompts has no single response.
    """
    body = reader.text(OUTPUT_VALUE)
    if body is None or '"generations"' not in body:
        return None
    result = values.mapping(reader.structured(OUTPUT_VALUE, may_be_text=not _is_json(reader, _OUTPUT_TYPE))) or {}
    prompts = values.items(result.get("generations")) or ()
    if len(prompts) != 1:
        return None
    sampled = [_object_in(_object_in(entry, "message"), "kwargs") for entry in values.items(prompts[0]) or ()]
    holders = (_object_in(result, "llm_output"), *(_object_in(message, "response_metadata") for message in sampled))
    return next(filter(None, (values.text(holder.get("id")) for holder in holders)), None)


def _is_json(reader: AttributeReader, mime_type: str) -> bool:
    """Whether a value is declared to be JSON: text may begin as JSON does. The type itself may be cut off."""
    return _JSON.startswith(reader.text(mime_type) or "?")


def _messages(reader: AttributeReader, prefix: str, *, responses: bool) -> tuple[Message, ...] | None:
    entries = unflatten(reader, prefix)
    if entries is None:
        return None
    try:
        parsed = messages.parse([_openai_message(_object_in(entry, "message")) for entry in entries])
    except ParseError:
        reader.mark_invalid(prefix)
        return None
    if any(map(is_blank, parsed)):
        return None
    return join_assistant_messages(parsed) if responses else parsed


def _choices(reader: AttributeReader, *, responses: bool) -> tuple[Choice, ...] | None:
    sampled = _messages(reader, _OUTPUT, responses=responses)
    if sampled is None:
        return None
    reasons = [finish_reason(reader.text("llm.finish_reason"))]
    return tuple(
        Choice(index=index, message=message, finish_reason=reasons[index] if index < len(reasons) else None)
        for index, message in enumerate(sampled)
    )


def _openai_message(message: dict[str, Value]) -> dict[str, Value]:
    """Write a flattened message in the shape of OpenAI's."""
    contents = [_part(_object_in(entry, "message_content")) for entry in values.items(message.get("contents")) or ()]
    tool_calls = [_object_in(entry, "tool_call") for entry in values.items(message.get("tool_calls")) or ()]
    function_name = message.get("function_call_name")
    return {
        **{name: message[name] for name in ("role", "name", "content", "tool_call_id") if name in message},
        **({"content": contents} if contents else {}),
        **({"tool_calls": tool_calls} if tool_calls else {}),
        **(
            {"function_call": {"name": function_name, "arguments": message.get("function_call_arguments_json")}}
            if function_name
            else {}
        ),
    }


def _part(part: dict[str, Value]) -> dict[str, Value]:
    """Write a flattened content part so that `image.image.url` becomes `image.url`."""
    image = _object_in(part.get("image"), "image")
    return {**part, "image": image} if image else part


def _object_in(entry: Value, name: str) -> dict[str, Value]:
    return values.mapping((values.mapping(entry) or {}).get(name)) or {}


def _tools(reader: AttributeReader) -> tuple[Value, ...] | None:
    """Read the tools of `llm.tools.<n>.tool.json_schema`."""
    entries = unflatten(reader, "llm.tools")
    if entries is None:
        return None
    try:
        return tuple(parse_tool(_object_in(entry, "tool").get("json_schema")) for entry in entries)
    except ParseError:
        reader.mark_invalid("llm.tools")
        return None


def _usage(reader: AttributeReader) -> Usage | None:
    usage = Usage(
        input_tokens=reader.integer("llm.token_count.prompt"),
        output_tokens=reader.integer("llm.token_count.completion"),
        total_tokens=reader.integer("llm.token_count.total"),
        cached_tokens=reader.integer("llm.token_count.prompt_details.cache_read"),
        reasoning_tokens=reader.integer("llm.token_count.completion_details.reasoning"),
    )
    return None if usage == Usage() else usage
