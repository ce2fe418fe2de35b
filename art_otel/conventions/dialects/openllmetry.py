"""OpenLLMetry before JSON messages (Traceloop, up to 0.47 or so; such dumps are common).

https://github.com/traceloop/openllmetry: `gen_ai.prompt.<n>.{role,content,tool_calls.<m>.{id,name,arguments}}` and
`gen_ai.completion.<n>.*`, before that `llm.prompts.<n>.*` and `llm.completions.<n>.*`. Invariant: tool-call arguments
are text here, so they are exact. Empty content is not written and neither is content that could not be, so a message
of which only the role is left is unknown.

Content parts are their JSON here, and a text may be JSON as well. An answer is the text that was sampled, unless its
instrumentor is known to write parts: `[{"type": "text", "text": "hello"}]` is an answer of OpenAI's and parts of
Bedrock's.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

import msgspec

from art_otel.calls import Choice, Message, ToolSet
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording, numbered, unflatten
from art_otel.conventions.bodies.messages import (
    MAY_BE_PARTS,
    SPOKEN_TYPES,
    are_of_langchain,
    messages_of,
    tool_call,
    unwrapped,
    with_empty_results,
)
from art_otel.conventions.bodies.openai_body import parse_tools
from art_otel.conventions.dialects import genai
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.vocabulary import UNKNOWN_ROLE, finish_reason, operation
from art_otel.errors import ParseError
from art_otel.spans import Scope, Value

CONVENTION: Final = "openllmetry"
REQUEST_TYPE: Final = "llm.request.type"

_PROMPTS: Final = ("gen_ai.prompt", "llm.prompts")
_COMPLETIONS: Final = ("gen_ai.completion", "llm.completions")
_FUNCTIONS: Final = ("llm.request.functions", genai.FUNCTIONS.removesuffix("."))
PREFIXES: Final = ("llm.", *(f"{prefix}." for prefix in (*_PROMPTS, *_COMPLETIONS, *_FUNCTIONS)))
_PARAMETERS: Final = {
    "llm.temperature": "temperature",
    "llm.top_p": "top_p",
    "llm.top_k": "top_k",
    "llm.frequency_penalty": "frequency_penalty",
    "llm.presence_penalty": "presence_penalty",
    "llm.chat.stop_sequences": "stop",
    "llm.user": "user",
    "llm.request.reasoning_effort": "reasoning_effort",
}

_IS_STREAMING: Final = "llm.is_streaming"
_NOT_NUMBERS: Final = ("stop", "user", "reasoning_effort")

_THINKING: Final = "thinking"
"""The role of a completion that is Anthropic's thinking before the next one."""
_ANTHROPIC: Final = "opentelemetry.instrumentation.anthropic"
_LITELLM: Final = "litellm"
_LANGCHAIN: Final = "opentelemetry.instrumentation.langchain"
_PRINTS_NO_CONTENT: Final = (0, 48)
"""The first version of LangChain's instrumentor that writes no content as JSON."""
_PARTS_IN_ANSWERS: Final = frozenset(
    {
        "@traceloop/instrumentation-anthropic",
        "opentelemetry.instrumentation.bedrock",
        _LANGCHAIN,
        "opentelemetry.instrumentation.mistralai",
    }
)
"""The instrumentors that write an answer as the JSON of its parts."""
_PARTS_OF_ASSISTANTS: Final = _PARTS_IN_ANSWERS | {_ANTHROPIC}
"""The instrumentors whose clients send parts of any type back as an assistant's message."""


def read(recording: SpanRecording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the flattened attributes; None when there are none."""
    reader = recording.reader()
    dropped = recording.span.dropped_attributes_count > 0
    parameters = {
        word: reader.json_safe(name) if word in _NOT_NUMBERS else values.number(reader.attributes[name])
        for name, word in _PARAMETERS.items()
        if reader.attributes.get(name) is not None
    }
    completions = _entries(reader, _COMPLETIONS)
    scope = recording.span.scope.name
    if completions and scope == _LANGCHAIN:
        completions = [_without_printed_nothing(entry, recording.span.scope) for entry in completions]
    if scope == _LITELLM and len([entry for entry in completions or () if entry.keys() > {"function_call"}]) > 1:
        reader.gap("lossy recorder", "tool calls of several choices", field="answer")  # it numbers those of each alike
    if completions and scope == _ANTHROPIC:
        completions = _of_blocks(completions)
        if completions[0]["tool_calls"] and reader.flag(_IS_STREAMING):
            reader.gap(
                "lossy recorder", "a stream with tool calls", field="answer"
            )  # each tool call of a stream overwrites the one before
    facts = CallFacts(
        parameters={word: value for word, value in parameters.items() if value is not None},
        tools=_tools(reader),
        input_messages=_input_messages(reader, scope, len(completions or ()), dropped=dropped),
        choices=_choices(reader, scope, completions, trusted_facts.choices or (), dropped=dropped),
    )
    if facts == CallFacts() and not reader.gaps:
        return None
    request_type = reader.text(REQUEST_TYPE)
    return msgspec.structs.replace(
        facts,
        conventions=(CONVENTION,),
        gaps=reader.gaps,
        operation_name=None if request_type is None else operation(request_type),
    )


def _entries(reader: AttributeReader, prefixes: Sequence[str]) -> list[dict[str, Value]] | None:
    for prefix in prefixes:
        entries = unflatten(reader, prefix)
        if entries is not None:
            return [values.mapping(entry) or {} for entry in entries]
    return None


def _input_messages(
    reader: AttributeReader, scope: str, completions: int, *, dropped: bool
) -> tuple[Message, ...] | None:
    """Parse the prompt; None when one message cannot be read, or when only the role of one is left.

    An entry without a role is the user's, unless attributes were dropped.
    """
    entries = _entries(reader, _PROMPTS)
    if entries is None or not _is_whole(entries, completions):
        return None
    role = None if dropped else "user"
    try:
        messages = tuple(chain.from_iterable(messages_of(_sent(reader, scope, entry), role=role) for entry in entries))
    except ParseError:
        reader.mark_invalid(_PROMPTS[0])
        return None
    if not dropped:
        messages = with_empty_results(messages)
    return None if any(message.is_unknown for message in messages) else messages


def _is_whole(prompts: Sequence[dict[str, Value]], completions: int) -> bool:
    """Whether a prompt of Completions is known: of several prompts or ids only the first was written, under `user`."""
    texts = [entry["user"] for entry in prompts if "user" in entry]
    return not texts or (completions < 2 and all(isinstance(prompt, str) for prompt in texts))


def _choices(
    reader: AttributeReader,
    scope: str,
    entries: list[dict[str, Value]] | None,
    trusted_choices: Sequence[Choice],
    *,
    dropped: bool,
) -> tuple[Choice, ...] | None:
    """Parse the choices. Role, content and tool calls are written in this order, so tool calls alone may be a rest.

    They are unknown when only the role of one is left, unless a more trusted dialect has its tokens.
    """
    if entries is None:
        return None
    try:
        if "function_call" in chain(*entries) and all(entry.keys() == {"function_call"} for entry in entries[1:]):
            return _tool_call_choice(entries, trusted_choices) if len(trusted_choices) < 2 else None
        unwrap = unwrapped if scope in _PARTS_IN_ANSWERS else _as_it_is
        choices = [
            Choice(
                index=index,
                message=messages_of(
                    _message(reader, entry, unwrap), role=None if dropped and "content" not in entry else "assistant"
                )[-1],
                finish_reason=finish_reason(entry.get("finish_reason")),
            )
            for index, entry in enumerate(entries)
        ]
    except ParseError:
        reader.mark_invalid(_COMPLETIONS[0])
        return None
    blank = [choice.index for choice in choices if choice.message.is_unknown]
    with_tokens = [choice.index for choice in trusted_choices if choice.token_ids is not None] if blank else ()
    return tuple(choices) if set(blank).issubset(with_tokens) else None


def _tool_call_choice(entries: Sequence[dict[str, Value]], trusted_choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Parse a single choice of which LiteLLM wrote each tool call as if it was a completion.

    Older versions wrote its text into the first one, newer ones elsewhere.
    """
    calls = tuple(tool_call({"function": entry["function_call"]}) for entry in entries if "function_call" in entry)
    text = values.text(entries[0].get("content"))
    if text is None and trusted_choices:
        text = trusted_choices[0].message.content
    message = Message(role="assistant", content=text, tool_calls=calls)
    return (Choice(index=0, message=message, finish_reason=finish_reason(entries[0].get("finish_reason"))),)


def _without_printed_nothing(entry: dict[str, Value], scope: Scope) -> dict[str, Value]:
    """Leave out what LangChain's instrumentor wrote of an answer without text before 0.48: its content as JSON."""
    is_nothing = entry.get("content") in ('""', "[]") and ("tool_calls" in entry or entry.get("role") == UNKNOWN_ROLE)
    if not is_nothing or values.version_numbers(scope.version) >= _PRINTS_NO_CONTENT:
        return entry
    return entry | {"content": ""}


def _of_blocks(entries: Sequence[dict[str, Value]]) -> list[dict[str, Value]]:
    """Join the completions that the Anthropic instrumentor wrote for the blocks of one: it has no others."""
    thoughts = [entry.get("content") for entry in entries if entry.get("role") == _THINKING]
    others = [entry for entry in entries if entry.get("role") != _THINKING]
    texts = [text for entry in others if isinstance(text := entry.get("content"), str)]
    calls = [call for entry in others for _, call in numbered(entry.get("tool_calls"))]
    reason = next((entry["finish_reason"] for entry in entries if "finish_reason" in entry), None)
    joined: dict[str, Value] = {"role": "assistant", "finish_reason": reason, "tool_calls": calls}
    return [
        {
            **joined,
            **({"content": "".join(texts)} if texts else {}),
            **({"reasoning": "\n".join(str(thought) for thought in thoughts if thought)} if thoughts else {}),
        }
    ]


def _sent(reader: AttributeReader, scope: str, entry: dict[str, Value]) -> dict[str, Value]:
    """Write a flattened message of a prompt in the shape of OpenAI's."""
    role = entry.get("role")
    message = _message(
        reader, entry, _text_parts if role == "assistant" and scope not in _PARTS_OF_ASSISTANTS else unwrapped
    )
    if (
        role in ("tool", "function")
        and isinstance(entry.get("content"), str)
        and message["content"] != entry["content"]
        and not are_of_langchain(message["content"])
    ):
        reader.gap("lossy recorder", MAY_BE_PARTS, field="prompt")
    return message


def _message(reader: AttributeReader, entry: dict[str, Value], unwrap: Callable[[str], Value]) -> dict[str, Value]:
    """Write a flattened message in the shape of OpenAI's; the prompt of Completions is under `user`.

    `unwrap` decodes a content that is the JSON of parts.
    """
    content = entry.get("content", entry.get("user"))
    calls = entry.get("tool_calls")
    if isinstance(calls, dict):
        reader.gap("lossy recorder", "a list of tool calls with holes")
        entry = {**entry, "tool_calls": [call for _, call in numbered(calls)]}
    return {**entry, "content": unwrap(content) if isinstance(content, str) else content}


def _as_it_is(content: str) -> Value:
    return content


def _text_parts(content: str) -> Value:
    """Decode the JSON of parts of the types that an assistant may have said; any other text is what was sampled."""
    parts = unwrapped(content)
    types = {values.text((values.mapping(part) or {}).get("type")) for part in values.items(parts) or ()}
    return parts if types <= SPOKEN_TYPES else content


def _tools(reader: AttributeReader) -> ToolSet | None:
    entries = _entries(reader, _FUNCTIONS)
    functions = None if entries is None else [_function(entry) for entry in entries]
    return reader.parsed(_FUNCTIONS[0], parse_tools, functions)


def _function(entry: dict[str, Value]) -> dict[str, Value]:
    """Decode the parameters of a function, which are JSON text."""
    return {**entry, "parameters": AttributeReader(entry).structured("parameters")}
