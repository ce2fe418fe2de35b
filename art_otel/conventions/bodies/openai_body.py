"""OpenAI body: the JSON bodies of a request to an OpenAI-compatible API and of its response, and definitions of tools.

Invariant: a body is exact: tool-call arguments are the sampled text, token ids and logprobs those of the server. Chat
Completions, Completions and Responses are told apart by their fields; Anthropic's messages are read too. A body of
another shape gives no facts. A function is `{"type": "function", "function": {"name", "description", "parameters",
"strict"}}`, without what is null, whether recorded nested (Chat Completions), flat (Responses, GenAI), with
`input_schema` (Anthropic), `parameters_json_schema` (Gemini) or as Bedrock's `toolSpec`; other tools stay as they were.
The definitions of a request are a `ToolSet` by their text, which is normalized once, however many requests have it.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from art_otel.calls import Choice, Logprobs, Message, TokenIds, ToolSet, Usage, tool_set
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies import messages
from art_otel.conventions.bodies.messages import Draft, join_assistant_messages, messages_of, name_in, with_instructions
from art_otel.conventions.bodies.tokens import (
    choice_tokens,
    choices_with_ids,
    logprobs_mode,
    parse_ids,
    parse_logprobs,
    prompt_ids,
)
from art_otel.conventions.facts import CallFacts, choices_without_ids
from art_otel.conventions.vocabulary import TEXT_COMPLETION, finish_reason, response_finish_reason
from art_otel.errors import ParseError
from art_otel.sampling import LogprobsMode
from art_otel.spans import Value

_NO_PARAMETERS: Final = frozenset(
    {"model", "messages", "input", "instructions", "prompt", "system", "tools", "functions", "stream"}
    | {"previous_response_id"}
)

MAX_CHOICES: Final = 1 << 16
"""Far more than any server samples for one request; each becomes a turn, which takes many times its bytes."""


_RUNNING: Final = ("queued", "in_progress")
"""The statuses of a response that is answered in the background, and can be fetched later."""


def read_request(reader: AttributeReader, name: str, body: dict[str, Value]) -> CallFacts | None:
    """Read the request body that attribute `name` holds; None when it asks for no completion."""
    body = with_extra_body(body)
    prompt, prompts = _prompt(body.get("prompt"))
    messages = _input_messages(body) if prompt is None else prompt
    model = values.text(body.get("model"))
    if messages is None and model is None and "prompt" not in body:
        return None
    parameters = read_parameters(reader, name, body)
    if prompts is not None:
        parameters["prompt"] = reader.make_safe(name, prompts)
    # A request names its model: what does not is a piece of one (LiteLLM's messages), which says nothing of tools.
    has_no_tools = messages is not None and model is not None and not _names_tools(body)
    is_text = "prompt" in body and values.mapping(body["prompt"]) is None
    return CallFacts(
        operation_name=TEXT_COMPLETION if is_text else None if messages is None else "chat",
        previous_response_id=values.text(body.get("previous_response_id")),
        request_model=model,
        parameters=parameters,
        tools=() if has_no_tools else read_tools(reader, name, body),
        input_messages=messages,
        prompt_token_ids=given_ids(body.get("prompt")),
        stream=values.flag(body.get("stream")),
        has_instructions=bool(system_messages(body.get("instructions"))) if "input" in body else None,
    )


_EXTRA_BODY: Final = "extra_body"


def with_extra_body(arguments: dict[str, Value]) -> dict[str, Value]:
    """The body that openai's client makes of its arguments: the fields of `extra_body` are fields of the body."""
    extra = values.mapping(arguments.get(_EXTRA_BODY))
    if extra is None:
        return arguments
    return {**{name: value for name, value in arguments.items() if name != _EXTRA_BODY}, **extra}


def read_parameters(reader: AttributeReader, name: str, body: dict[str, Value]) -> dict[str, Value]:
    """Read the parameters of a request body under their own names, without those that are null."""
    note_server_side(reader, name, body)
    parameters = {key: reader.make_safe(name, value) for key, value in body.items() if key not in _NO_PARAMETERS}
    return {key: value for key, value in parameters.items() if value is not None}


def note_server_side(reader: AttributeReader, name: str, body: dict[str, Value]) -> None:
    """Record what the server made of the prompt, or has of it alone, as a request or a response says."""
    if body.get("conversation") is not None:
        reader.gap("history on the server", f"{name}: conversation", field="prompt")
    if values.mapping(body.get("prompt")) is not None:
        reader.gap("template on the server", f"{name}: prompt", field="prompt")
    if body.get("cached_content") is not None:
        reader.gap("history on the server", f"{name}: cached_content", field="prompt")
    if body.get("truncation") == "auto":
        reader.gap("cut", f"{name}: truncation auto", field="prompt")
    if values.flag(body.get("truncated")):  # llama.cpp, whose context moved on
        reader.gap("compacted", f"{name}: truncated", field="prompt")
    for edit in (*_applied_edits(body), *_dropped(body)):
        reader.gap("compacted", f"{name}: {edit}", field="prompt")


def _applied_edits(body: dict[str, Value]) -> list[str]:
    """What Anthropic's context management left out of a prompt, such as `clear_tool_uses_20250919`."""
    edits = values.items((values.mapping(body.get("context_management")) or {}).get("applied_edits"))
    return [str((values.mapping(edit) or {}).get("type")) for edit in edits or ()]


def _dropped(body: dict[str, Value]) -> list[str]:
    """What Anthropic says that it did not show the model, such as `thinking_dropped`."""
    changes = map(values.mapping, values.items(body.get("input_transformations")) or ())
    kinds = dict.fromkeys(str((change or {}).get("type")) for change in changes)
    return [kind for kind in kinds if kind.endswith("_dropped")]  # OpenAI's are of reasoning, as templates drop it


def read_tools(reader: AttributeReader, name: str, body: dict[str, Value]) -> ToolSet | None:
    """Read the tools of a request body, also of the older `functions`; None when it names none."""
    if not _names_tools(body):
        return None
    return reader.parsed(name, parse_tools, body.get("tools") if body.get("tools") is not None else body["functions"])


def _names_tools(body: dict[str, Value]) -> bool:
    return body.get("tools") is not None or body.get("functions") is not None


def read_response(reader: AttributeReader, name: str, body: dict[str, Value]) -> CallFacts | None:
    """Read the response body that attribute `name` holds; None when it has no completion."""
    try:
        choices = _choices(reader, name, body)
    except ParseError:
        reader.mark_invalid(name)
        choices = None
    else:
        if choices is None:
            return None
    note_server_side(reader, name, body)
    if counts_one_choice(body):
        choices = without_uncounted(reader, choices)
    return CallFacts(
        operation_name=TEXT_COMPLETION if body.get("object") == TEXT_COMPLETION else None,
        response_id=values.text(body.get("id")),
        previous_response_id=values.text(body.get("previous_response_id")),
        response_model=values.text(body.get("model")),
        choices=choices,
        prompt_token_ids=_server_prompt_ids(reader, name, body),
        usage=read_usage(values.mapping(body.get("usage")) or {}),
        logprobs_mode=_logprobs_mode(body, choices),
    )


def _logprobs_mode(body: dict[str, Value], choices: tuple[Choice, ...] | None) -> LogprobsMode | None:
    """Which distribution the logprobs of a body are of; None where it has none."""
    if all(choice.logprobs is None for choice in choices or ()):
        return None
    entries = values.items(choices_with_ids(body)) if "choices" in body else None
    return logprobs_mode(body, [values.mapping(entry) or {} for entry in entries or ()])


def read_choices(reader: AttributeReader, name: str, value: Value) -> tuple[Choice, ...]:
    """Read the choices of Chat Completions or Completions. Raises ParseError when it is no list of choices."""
    entries = values.items(value) or [None]
    if len(entries) > MAX_CHOICES:
        raise ParseError("", f"has more than {MAX_CHOICES} choices")
    numbered = [(position, values.mapping(entry)) for position, entry in enumerate(entries)]
    with_content = [(position, fields) for position, fields in numbered if fields is None or _has_content(fields)]
    choices = [_choice(reader, name, position, fields) for position, fields in with_content or numbered[:1]]
    if len({choice.index for choice in choices}) < len(choices):
        choices = [msgspec.structs.replace(choice, index=position) for position, choice in enumerate(choices)]
    return tuple(sorted(choices, key=lambda choice: choice.index))


def _has_content(choice: dict[str, Value]) -> bool:
    """Whether a choice has anything but its index."""
    return any(value is not None for name, value in choice.items() if name != "index")


def read_usage(usage: dict[str, Value]) -> Usage | None:
    """Read the token counts of a response body."""
    prompt = values.mapping(usage.get("prompt_tokens_details") or usage.get("input_tokens_details")) or {}
    completion = values.mapping(usage.get("completion_tokens_details") or usage.get("output_tokens_details")) or {}
    counts = AttributeReader(usage)
    counted = Usage(
        input_tokens=_input_tokens(counts),
        output_tokens=counts.integer("completion_tokens", "output_tokens"),
        total_tokens=counts.integer("total_tokens"),
        cached_tokens=values.integer(prompt.get("cached_tokens", usage.get("cache_read_input_tokens"))),
        reasoning_tokens=values.integer(completion.get("reasoning_tokens")),
    )
    return None if counted == Usage() else counted


def counts_one_choice(body: dict[str, Value]) -> bool:
    """Whether a response has several choices and counts the tokens of the first alone, as llama.cpp does."""
    return "timings" in body and len(values.items(body.get("choices")) or ()) > 1


def without_uncounted(reader: AttributeReader, choices: tuple[Choice, ...] | None) -> tuple[Choice, ...] | None:
    """Leave out the ids of choices of which one was counted; the gap says so."""
    if choices is None or not any(choice.token_ids for choice in choices):
        return choices
    reader.gap("miscounted", f"the tokens of one choice of {len(choices)}", field="tokens")
    return choices_without_ids(choices)


def _input_tokens(usage: AttributeReader) -> int | None:
    """All tokens of the prompt: Anthropic counts those read from and written to its cache beside the others."""
    count = usage.integer("prompt_tokens", "input_tokens")
    cached = [usage.integer(name) for name in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    is_beside = "prompt_tokens" not in usage.attributes and count is not None
    return count + sum(filter(None, cached)) if is_beside and count is not None else count


def _input_messages(body: dict[str, Value]) -> tuple[Message, ...] | None:
    items = body.get("input")
    if isinstance(items, str):
        input_messages: tuple[Message, ...] | None = (Message(role="user", content=items),)
    elif items is not None:
        item_messages = _message_list(items)
        input_messages = None if item_messages is None else join_assistant_messages(item_messages)
    else:
        input_messages = _message_list(body.get("messages"))
    return with_instructions(system_messages(body.get("instructions") or body.get("system")), input_messages)


def _message_list(value: Value) -> tuple[Message, ...] | None:
    """Parse the messages; None for a list in a framework's own shape (LangChain writes a list of lists)."""
    try:
        return messages.from_json(bytes(value).decode()) if isinstance(value, msgspec.Raw) else messages.parse(value)
    except ParseError:
        return None


def system_messages(instructions: Value) -> tuple[Message, ...]:
    """Make a system message of the instructions beside the messages; no message if they have no content."""
    draft = Draft()
    try:
        draft.add_recorded(instructions)
        message = draft.message(role="system")
    except ParseError:
        return ()
    return (message,) if message.content or message.parts else ()


def _prompt(prompt: Value) -> tuple[tuple[Message, ...] | None, Value]:
    """Read the prompt of Completions as messages, and the prompts themselves when one request has several.

    None of several prompts precedes all choices, so then the messages are unknown.
    """
    if isinstance(prompt, str):
        return (Message(role="user", content=prompt),), None
    prompts = values.items(prompt) or []
    if len(prompts) == 1 and isinstance(prompts[0], str):
        return (Message(role="user", content=prompts[0]),), None
    are_several = len(prompts) > 1 and all(isinstance(entry, (str, list)) for entry in prompts)
    return None, prompts if are_several else None


def given_ids(prompt: Value) -> TokenIds | None:
    """Read the prompt of Completions that is token ids."""
    prompts = values.items(prompt) or []
    try:
        return parse_ids(prompts[0] if len(prompts) == 1 and values.items(prompts[0]) else prompts) if prompts else None
    except ParseError:
        return None


def _choices(reader: AttributeReader, name: str, body: dict[str, Value]) -> tuple[Choice, ...] | None:
    if "choices" in body:
        return read_choices(reader, name, choices_with_ids(body))
    if (items := values.items(body.get("output"))) is not None:
        output = join_assistant_messages(tuple(message for item in items for message in messages_of(item)))
        if not output and body.get("status") in _RUNNING:
            reader.gap("off", f"{name}: status {body['status']}", field="answer")
        # A response of `/responses/compact` has the user's messages, too, before the compaction of the others.
        sampled = [message for message in output if message.role == "assistant"]
        reason = response_finish_reason(body, tool_calls=any(message.tool_calls for message in sampled))
        return tuple(Choice(index=0, message=message, finish_reason=reason) for message in sampled[:1])
    if body.get("role") == "assistant" and "content" in body:
        reason = finish_reason(body.get("stop_reason"))
        return tuple(Choice(index=0, message=message, finish_reason=reason) for message in messages_of(body)[-1:])
    return None


def _choice(reader: AttributeReader, name: str, position: int, fields: dict[str, Value] | None) -> Choice:
    if fields is None:
        raise ParseError("", "is no list of choices")
    message = fields.get("message")
    message = {"content": fields.get("text")} if message is None else message
    sampled = messages_of(message, role="assistant")[-1]
    if sampled.is_unknown and "content" in (values.mapping(message) or {}) and message is fields.get("message"):
        sampled = msgspec.structs.replace(sampled, content="")  # the server says `null`: nothing was sampled
    recorded_index = values.integer(fields.get("index"))
    index = position if recorded_index is None or recorded_index < 0 else recorded_index
    if fields.get("finish_reason", "absent") is None and "index" in fields and not sampled.is_unknown:
        # These APIs give every whole answer a reason, and every choice an index; tracers that build such a body of what
        # a framework knows (MLflow of LangChain) may give neither. The joined chunks of a stream may have no reason:
        # `find_gaps` knows.
        reader.gap("aborted", f"{name}: finish_reason null", field=f"answer[{index}]")
    ids, logprobs = read_tokens(reader, name, *choice_tokens(fields))
    return Choice(
        index=index,
        message=sampled,
        finish_reason=finish_reason(fields.get("finish_reason")),
        token_ids=ids,
        logprobs=logprobs,
    )


def read_tokens(
    reader: AttributeReader, name: str, ids: Value, logprobs: Value
) -> tuple[TokenIds | None, Logprobs | None]:
    """Parse the ids and logprobs of a choice; where they are invalid they are unknown, and attribute `name` is cut."""
    known_ids = known_logprobs = None
    try:
        known_ids = None if ids is None else parse_ids(ids)
        known_logprobs = None if logprobs is None else parse_logprobs(logprobs)
    except ParseError:
        reader.mark_invalid(name)
    if known_ids is not None and known_logprobs is not None and len(known_ids) != len(known_logprobs):
        reader.mark_invalid(name)
        known_logprobs = None
    return known_ids, known_logprobs


def _server_prompt_ids(reader: AttributeReader, name: str, body: dict[str, Value]) -> TokenIds | None:
    """Read the ids of the prompt that the server wrote."""
    choice_list = values.items(body.get("choices")) or ()
    recorded_ids = prompt_ids(body, [fields for entry in choice_list if (fields := values.mapping(entry))])
    ids, _ = read_tokens(reader, name, recorded_ids, None)
    return ids


def parse_tools(value: Value) -> ToolSet:
    """Parse the tool definitions of a list or its JSON text. Raises ParseError when it is no list of objects."""
    try:
        text = _cached_text(value if isinstance(value, str) else msgspec.json.encode(value))
    except (ValueError, TypeError, OverflowError, RecursionError):  # what no JSON can be
        text = _normalized(value)
    return tool_set(text)


@lru_cache(maxsize=64)
def _cached_text(json_text: str | bytes) -> str:
    """The tools of a text: most calls repeat them, and normalizing costs ten times as much as finding them here."""
    return _normalized(values.decode(json_text if isinstance(json_text, str) else json_text.decode())[0])


def _normalized(value: Value) -> str:
    definitions = values.items(value)
    if definitions is None:
        raise ParseError("", "is no list of tool definitions")
    parsed = [parse_tool(tool) for definition in definitions for tool in _functions_of(definition)]
    return msgspec.json.encode(parsed).decode()


def _functions_of(definition: Value) -> Iterator[Value]:
    """The functions of a namespace of the Responses API, by the names that models read; any other definition itself."""
    namespace = values.mapping(definition) or {}
    functions = values.items(namespace.get("tools")) if namespace.get("type") == "namespace" else None
    if functions is None:
        yield definition
        return
    for function in map(values.mapping, functions):
        if function is not None:
            yield {**function, "name": name_in(namespace, function)}


def parse_tool(value: Value) -> dict[str, Value]:
    """Parse one tool definition or its JSON text. Raises ParseError when it is no object."""
    if isinstance(value, str):
        value, _ = values.decode(value)
    definition = values.mapping(values.json_safe(value))
    if definition is None:
        raise ParseError("", "is no tool definition")
    definition = values.mapping(definition.get("toolSpec")) or definition
    kind = definition.get("type")
    if kind not in (None, "function") and "input_schema" not in definition:
        return definition
    function = values.mapping(definition.get("function")) or definition
    if "name" not in function:
        raise ParseError("", "is a function without a name")
    fields = {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": _schema(function),
        "strict": function.get("strict"),
    }
    return {"type": "function", "function": {name: field for name, field in fields.items() if field is not None}}


def _schema(function: dict[str, Value]) -> Value:
    """The JSON schema of a function's parameters."""
    if "inputSchema" in function:
        return (values.mapping(function["inputSchema"]) or {}).get("json", function["inputSchema"])
    names = ("parameters", "input_schema", "parameters_json_schema", "parametersJsonSchema")
    return next((function[name] for name in names if function.get(name) is not None), None)
