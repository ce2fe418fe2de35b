"""Frameworks: restore what a framework sends to the server from what is recorded in GenAI's messages.

    recorded                                       sent
    tool result {"a": 1} (AI SDK)                  {"a":1}: only Python's JSON has spaces
    tool result ["a", "b"] (pydantic-ai, Gemini)   {"return_value": ["a", "b"]}
    a text with the JSON of blocks (LangChain)     a list of content blocks
    tools on the agent's span (Strands)            tools of each call below it

Sources: pydantic-ai (`messages.py`: `model_response_str`, `model_response_object`, `content_items`; `models/*.py`:
`_map_messages`), the AI SDK (`packages/otel/src/gen-ai-format-messages.ts`, the providers' prompt converters),
OpenLLMetry's LangChain (`opentelemetry-instrumentation-langchain`, `span_utils.py`), Strands before 1.31
(`telemetry/tracer.py`). All rules were checked against requests that a model server received.

Invariant: except for the spaces in JSON, each rule applies to its framework's spans only. A list that a tool returned
is never taken for a list of content parts, whatever its entries look like.
"""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from art_otel.calls import Gap, InferenceCall, Message, ToolSet
from art_otel.conventions import values
from art_otel.conventions.attribute_names import AttributeNames
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies import parts
from art_otel.conventions.bodies.messages import (
    MAY_BE_PARTS,
    ResultWriter,
    are_of_langchain,
    is_content,
    is_part_type,
    messages_of,
    parse,
    sent_result,
    unwrapped,
    with_instructions,
)
from art_otel.conventions.bodies.openai_body import parse_tools
from art_otel.conventions.masks import mask_in, signs_of
from art_otel.conventions.value_limits import cut_values
from art_otel.conventions.vocabulary import is_responses_api_id
from art_otel.errors import ParseError
from art_otel.spans import Span, Value

_PYDANTIC_AI: Final = "pydantic-ai"
_STRANDS: Final = "strands.telemetry.tracer"
_AI_SDK: Final = "gen_ai"
"""The scope of the AI SDK from version 7 on (`ai` before). A Python tracer may have this name, too."""

_LANGUAGE: Final = "telemetry.sdk.language"
_PYTHON: Final = "python"
_ERROR_DETAILS: Final = frozenset({"type", "loc", "msg"})
"""The fields of pydantic's error for an invalid argument."""

_GEMINI: Final = ("google", "gemini", "gcp.")
_BLOCKS: Final = ("anthropic", "bedrock", "aws.bedrock")
"""Providers whose messages are lists of blocks, and whose API has a field for a failed tool."""

_SENDS_ENTRIES: Final = (1, 69)
"""The first version of pydantic-ai that sends each entry of a list as a block of its own to these providers, and an
empty list as "" to others."""

_SAYS_FINISHED: Final = (1, 40)
"""From this version on, pydantic-ai writes a finish reason for every complete answer."""

_SENDS_INSTRUCTIONS_LAST: Final = (1, 33)
"""The first version of pydantic-ai that sends instructions after system prompts."""

_UNKNOWN_TOOL: Final = "Unknown tool name: "
"""The beginning of pydantic-ai's result for a call of a tool that does not exist."""

_RETRY: Final = "pydantic_ai.tool.retry.cause"
_ASKS_AGAIN: Final = "Fix the errors and try again."
"""The end of an older pydantic-ai's request to call a tool again, which is recorded exactly as it is sent."""


def result_writer(span: Span) -> ResultWriter:
    """The function that writes tool results as the span's framework sends them, else as its language does."""
    return _WRITERS.get(span.scope.name, _writer_of_language)(span)


def _writer_of_language(span: Span) -> ResultWriter:
    return sent_result if span.resource.attributes.get(_LANGUAGE, _PYTHON) == _PYTHON else _compact_value


def _compact_value(result: Value) -> Value:
    """Write a result as clients in languages other than Python do: as JSON without spaces, unless it is content."""
    return result if is_content(result) else compact_result(result)


def compact_result(result: Value) -> Value:
    """Write a result as JSON without spaces, as the AI SDK and pydantic-ai do."""
    return result if isinstance(result, str) else msgspec.json.encode(values.json_safe(result)).decode()


def _pydantic_ai_writer(span: Span) -> ResultWriter:
    provider, is_older = _provider(span), _version(span) < _SENDS_ENTRIES
    if provider.startswith(_GEMINI):
        return _gemini_result if is_older else _gemini_result_or_nothing
    if not provider.startswith(_BLOCKS):
        return _result_or_error if is_older else _result_or_nothing
    return compact_result if is_older else _entries


def _result_or_error(result: Value) -> Value:
    """Write a result; pydantic's errors of the arguments are sent as `{"error": …}`."""
    return compact_result({"error": result} if _is_error(result) else result)


def _result_or_nothing(result: Value) -> Value:
    return "" if result == [] else _result_or_error(result)


def _gemini_result_or_nothing(result: Value) -> Value:
    return "{}" if result == [] else _gemini_result(result)


def _gemini_result(result: Value) -> Value:
    """Write a result as an object, because Gemini's API takes no other results."""
    if _is_error(result):
        return sent_result({"error": result})
    return sent_result(result if isinstance(result, dict) else {"return_value": result})


def _entries(result: Value) -> Value:
    """Write each entry of a list as a separate text."""
    entries = values.items(result)
    if entries is None or _is_error(result):
        return compact_result(result)
    return [entry if isinstance(entry, str) else compact_result(entry) for entry in entries]


def _is_error(result: Value) -> bool:
    entries = values.items(result)
    return bool(entries) and all((values.mapping(entry) or {}).keys() >= _ERROR_DETAILS for entry in entries or ())


def _ai_sdk_writer(span: Span) -> ResultWriter:
    if span.resource.attributes.get(_LANGUAGE) == _PYTHON:
        return sent_result
    is_sent_as_parts = _provider(span).startswith(_BLOCKS) or is_responses_api_id(
        values.text(span.attributes.get("gen_ai.response.id"))
    )
    return _ai_sdk_parts if is_sent_as_parts else _ai_sdk_text


def _ai_sdk_text(result: Value) -> Value:
    """Write a result as providers of Chat Completions send it: always as text, content parts as JSON."""
    return compact_result(_ai_sdk_value(result))


def _ai_sdk_parts(result: Value) -> Value:
    """Write a result for providers whose API takes content parts: these stay parts."""
    value = _ai_sdk_value(result)
    is_content = value is not result and values.items(value) is not None
    return value if is_content else compact_result(value)


def _ai_sdk_value(result: Value) -> Value:
    """Unwrap the objects with which the SDK records content parts and a denied execution."""
    fields = values.mapping(result) or {}
    if fields.keys() == {"type", "value"} and fields["type"] == "content":
        return values.items(fields["value"]) or result
    if fields.get("denied") is True and fields.keys() <= {"denied", "reason"}:
        return values.text(fields.get("reason")) or "Tool call execution denied."
    return result


def _blocks(result: Value) -> Value:
    """Write a result of Anthropic's client: content blocks, and "" for no content."""
    return "" if values.items(result) == [] else sent_result(result)


def _strands_result(result: Value) -> Value:
    """Write a result of Strands, a list of blocks: an object as JSON text, an empty list as ""."""
    blocks = values.items(result)
    return sent_result(result) if blocks is None else [_shown(values.mapping(block) or {}) for block in blocks] or ""


def _shown(block: dict[str, Value]) -> Value:
    return {"type": "text", "text": values.spaced_json(block["json"])} if block.keys() == {"json"} else block


_WRITERS: Final[dict[str, Callable[[Span], ResultWriter]]] = {
    _PYDANTIC_AI: _pydantic_ai_writer,
    "ai": _ai_sdk_writer,
    _AI_SDK: _ai_sdk_writer,
    "com.anthropic.sdk.python": lambda _: _blocks,
    _STRANDS: lambda _: _strands_result,
}


class _Instruction(msgspec.Struct):
    content: str


class _OutputTool(msgspec.Struct):
    name: str


class _RequestParameters(msgspec.Struct):
    instruction_parts: list[_Instruction] | None = None
    output_tools: list[_OutputTool] = []


_REQUEST_PARAMETERS: Final = msgspec.json.Decoder(_RequestParameters)


def sent_prompt(
    span: Span, response_id: str | None, instructions: tuple[Message, ...], messages: tuple[Message, ...] | None
) -> tuple[Message, ...] | None:
    """The prompt as the span's framework sends it: instructions first, except with pydantic-ai."""
    if span.scope.name != _PYDANTIC_AI or not messages:
        return with_instructions(instructions, messages)
    parameters = _request_parameters(span)
    output_tools = {tool.name for tool in parameters.output_tools}
    refused = {one.tool_call_id or "" for one in messages if (one.content or "").startswith(_UNKNOWN_TOOL)}
    if output_tools:
        refused |= _retried_outputs(messages, output_tools)
    messages = _with_retries(span, messages, refused)
    if is_responses_api_id(response_id) or messages[: len(instructions)] == instructions:
        return with_instructions(instructions, messages)
    instructions = _apart(span, instructions, [part.content for part in parameters.instruction_parts or ()])
    if _version(span) < _SENDS_INSTRUCTIONS_LAST:
        return with_instructions(instructions, messages)
    count = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    return (*messages[:count], *instructions, *messages[count:])


def _request_parameters(span: Span) -> _RequestParameters:
    try:
        return _REQUEST_PARAMETERS.decode(values.text(span.attributes.get("model_request_parameters")) or "{}")
    except (msgspec.DecodeError, RecursionError):
        return _RequestParameters()


def _apart(span: Span, instructions: tuple[Message, ...], texts: list[str]) -> tuple[Message, ...]:
    """Split instructions that pydantic-ai joined to record them: into messages, or into the parts of one message."""
    if [message.content for message in instructions] != ["\n\n".join(texts).strip()]:
        return instructions
    if _provider(span).startswith((*_BLOCKS, *_GEMINI)):
        return messages_of({"role": "system", "content": [{"type": "text", "text": text} for text in texts]})
    return tuple(Message(role="system", content=text) for text in texts)


_OUTPUT: Final = "gen_ai.output.messages"
_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"


def is_unfinished(span: Span) -> bool:
    """Whether an answer without a token count is a stream of pydantic-ai that the app left, or that never began."""
    is_judged = span.scope.name == _PYDANTIC_AI and _version(span) >= _SAYS_FINISHED
    return is_judged and _OUTPUT in span.attributes and _FINISH_REASONS not in span.attributes


def is_reason_assumed(call: InferenceCall, span: Span) -> bool:
    """Whether pydantic-ai may have made up the finish reason: it writes `stop` if a Chat stream ended without one."""
    if span.scope.name != _PYDANTIC_AI or not call.stream or call.usage is not None:
        return False
    reasons = {choice.finish_reason for choice in call.choices or ()}
    return reasons == {"stop"} and not is_responses_api_id(call.response_id)


def retried_tool_call(span: Span) -> str | None:
    """The id of the tool call that the model had to repeat, by the span of its tool; None for any other span."""
    return values.text(span.attributes.get("gen_ai.tool.call.id")) if _RETRY in span.attributes else None


def with_retried_tools(call: InferenceCall, span: Span, retried: Collection[str]) -> InferenceCall:
    """The recorded call, with the results of `retried` tool calls in the form in which they were sent: as errors."""
    prompt = call.input_messages
    if span.scope.name != _PYDANTIC_AI or prompt is None:
        return call
    sent = _with_retries(span, prompt, retried)
    return call if sent is prompt else msgspec.structs.replace(call, input_messages=sent)


def _retried_outputs(messages: tuple[Message, ...], output_tools: Collection[str]) -> set[str]:
    """The ids of calls of output tools whose output was refused, so that the run continued without a user message."""
    retried: set[str] = set()
    is_answered_by_user = False
    for message in reversed(messages):
        if message.role != "tool":
            is_answered_by_user = message.role == "user"
        if message.role == "assistant":
            retried -= {call.id for call in message.tool_calls if call.name not in output_tools and call.id}
        elif message.role == "tool" and message.tool_call_id is not None and not is_answered_by_user:
            retried.add(message.tool_call_id)
    return retried


def _with_retries(span: Span, messages: tuple[Message, ...], retried: Collection[str]) -> tuple[Message, ...]:
    if not retried or _provider(span).startswith(_BLOCKS):
        return messages  # these APIs have a field for a failed tool, so the text is sent as it is recorded
    write = sent_result if _provider(span).startswith(_GEMINI) else compact_result
    sent = tuple(_refused(one, write) if one.tool_call_id in retried else one for one in messages)
    return messages if sent == messages else sent


@lru_cache(maxsize=256)
def _refused(answer: Message, write: ResultWriter) -> Message:
    """Write the reason for a repeated tool call as an error, as it is sent: it is recorded without the error object."""
    text = answer.content
    if answer.role != "tool" or text is None or text.startswith('{"error":') or text.endswith(_ASKS_AGAIN):
        return answer
    wrapped = values.mapping(values.json_value(text)) or {}
    reason = wrapped["return_value"] if write is sent_result and wrapped.keys() == {"return_value"} else text
    return msgspec.structs.replace(answer, content=str(write({"error": reason})))


def _provider(span: Span) -> str:
    recorded = span.attributes.get("gen_ai.provider.name", span.attributes.get("gen_ai.system"))
    return values.text(recorded) or ""


def _version(span: Span) -> tuple[int, ...]:
    return values.version_numbers(span.scope.version)


_LANGCHAIN: Final = "opentelemetry.instrumentation.langchain"
_GENAI_OPENAI: Final = "opentelemetry.instrumentation.genai.openai"

_BLOCKS_IN_TEXT: Final = ('"{\\"', '"[{\\"')
"""The beginnings of a JSON object, and of a list of objects, that are a text inside of JSON."""

FRAMEWORKS: Final = frozenset({_PYDANTIC_AI, _LANGCHAIN, _GENAI_OPENAI})
"""The scopes whose messages this module rewrites; OTel's own instrumentor of OpenAI writes refusals as texts."""


def may_have_blocks(scope: str, json_text: Value) -> bool:
    """Whether an attribute may have the JSON of content blocks in its texts."""
    return scope == _LANGCHAIN and isinstance(json_text, str) and any(map(json_text.__contains__, _BLOCKS_IN_TEXT))


def rewrite_output(span: Span, entry: Value) -> Value:
    """Write an output message as it was sampled."""
    if span.scope.name == _LANGCHAIN:
        return with_blocks(entry)
    return _with_refusal(entry) if span.scope.name == _GENAI_OPENAI else entry


def _with_refusal(entry: Value) -> Value:
    """A message of an empty text and another text: the second one is the refusal of a stream."""
    fields = values.mapping(entry) or {}
    texts = [values.mapping(part) or {} for part in values.items(fields.get("parts")) or ()]
    if [part.get("type") for part in texts] != ["text", "text"] or texts[0].get("content") != "":
        return entry
    return {**fields, "parts": [{"type": "refusal", "content": texts[1].get("content")}]}


def read_blocks(reader: AttributeReader, name: str) -> tuple[Message, ...] | None:
    """Read the message list in attribute `name`, whose texts may be blocks; None if it cannot be parsed."""
    messages = reader.structured(name)
    entries = values.items(messages)
    try:
        return parse(messages if entries is None else [with_blocks(entry, reader) for entry in entries])
    except ParseError:
        return None


def with_blocks(entry: Value, reader: AttributeReader | None = None) -> Value:
    """Replace each text part, and each tool result, that is the JSON of a content block by this block.

    `reader` gets a gap for a tool result of which it is unclear whether text or parts were sent.
    """
    fields = values.mapping(entry) or {}
    content = values.items(fields.get("parts"))
    return entry if content is None else {**fields, "parts": [_block(part, reader) for part in content]}


def _block(part: Value, reader: AttributeReader | None) -> Value:
    fields = values.mapping(part) or {}
    response = fields.get("response")
    if fields.get("type") == "tool_call_response" and isinstance(response, str):
        content = unwrapped(response)
        if reader is not None and content != response and not are_of_langchain(content):
            reader.gap("lossy recorder", MAY_BE_PARTS, field="prompt")
        return {**fields, "response": content}
    text = fields.get("content")
    if fields.get("type") != "text" or not isinstance(text, str) or not text.startswith('{"'):
        return part
    try:
        decoded, is_whole = values.decode(text)
    except ParseError:
        return part
    block = values.mapping(decoded)
    if block is None or not is_whole or block.get("type") == "text":
        return part
    return block if is_part_type(block.get("type")) or parts.is_known(block) else part


_SYSTEM_PROMPT: Final = "system_prompt"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"


class AgentContent(NamedTuple):
    """Content that a recorder writes once on an agent's span for all calls below it, and its gaps."""

    scope: str
    instructions: Message | None
    tools: ToolSet | None
    gaps: tuple[Gap, ...]


def agent_content(span: Span) -> AgentContent | None:
    """The system prompt (Strands) and the tool definitions on an agent's span; None if it has neither."""
    text = values.text(span.attributes.get(_SYSTEM_PROMPT)) if span.scope.name == _STRANDS else None
    if text is None and TOOL_DEFINITIONS not in span.attributes:
        return None
    recording = SpanRecording(span, (), AttributeNames(span.attributes))
    reader = recording.reader()
    tools = reader.parsed(TOOL_DEFINITIONS, parse_tools, span.attributes.get(TOOL_DEFINITIONS))
    mask = None if text is None else mask_in(text, signs_of(recording))
    gaps = list(reader.gaps) if mask is None else [Gap(kind="masked", field="prompt", evidence=mask.evidence)]
    fields = {_SYSTEM_PROMPT: "prompt", TOOL_DEFINITIONS: "tools"}
    cut = (value for value in cut_values(recording) if value.name in fields)
    gaps += [Gap(kind="cut", field=fields[value.name], evidence=value.evidence) for value in cut]
    instructions = None if text is None else Message(role="system", content=text)
    return AgentContent(span.scope.name, instructions, tools, tuple(gaps))


def with_agent_content(call: InferenceCall, span: Span, content: AgentContent) -> InferenceCall:
    """The recorded call, with the content that its recorder wrote on the agent's span above it."""
    if span.scope.name != content.scope:
        return call
    prompt, instructions = call.input_messages, content.instructions
    if instructions is not None and prompt is not None and all(message.role != "system" for message in prompt):
        gaps = [gap for gap in content.gaps if gap.field == "prompt"]
        call = msgspec.structs.replace(call, input_messages=(instructions, *prompt), gaps=(*call.gaps, *gaps))
    if content.tools is not None and call.tools is None:
        gaps = [gap for gap in content.gaps if gap.field == "tools"]
        call = msgspec.structs.replace(call, tools=content.tools, gaps=(*call.gaps, *gaps))
    return call


_AGENT_FRAMEWORK: Final = "agent_framework"


def agent_conversation(span: Span) -> str | None:
    """The response id that an agent's first call continues: Agent Framework writes it only on the agent's span."""
    if span.scope.name != _AGENT_FRAMEWORK:
        return None
    conversation = values.text(span.attributes.get("gen_ai.conversation.id"))
    return conversation if is_responses_api_id(conversation) else None


def with_agent_conversation(call: InferenceCall, response_id: str) -> InferenceCall:
    """The call with `response_id` as the response that it continues, unless it names one or is this response."""
    is_later = call.previous_response_id is not None or call.response_id == response_id
    if is_later or not is_responses_api_id(call.response_id):
        return call
    return msgspec.structs.replace(call, previous_response_id=response_id)
