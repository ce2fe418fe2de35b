"""Content names: which attributes have content of a model's prompt or answer, and which have its tokens.

    gen_ai.input.messages, my_app.prompt        content: scanned for secrets
    art.tokens.prompt                           tokens: dropped if the text beside them has a secret, or is missing
    http.url                                    neither

Invariant: every attribute from which `art_otel.conventions` reads messages, tools or tokens is content; an unknown
attribute is content if its name says so. Numbers and booleans are never content. Tokens are written only if the text
that they spell was scanned and has no secret, because tokens can be decoded to the secret.
"""

import json
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain
from typing import Final, cast

from art_otel import attributes
from art_otel.conventions.dialects import CONTENT_ATTRIBUTES
from art_otel.scrubbing import ContentNames, NameReading, Scrubber, replacement
from art_otel.spans import Attributes, Value

MESSAGE_LISTS: Final = frozenset({"gen_ai.content.prompt", "gen_ai.content.completion"})
"""Events that have only content."""

_CONTENT: Final = (
    attributes.RESPONSE_CHOICES,
    attributes.REQUEST_MESSAGES,
    attributes.REQUEST_BODY,
    attributes.RESPONSE_BODY,
    attributes.ROLLOUT_ARGUMENTS,
    attributes.ROLLOUT_RESULT,
    "art.tokens",
    "art.logprobs",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.description",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.prompt",
    "gen_ai.completion",
    "gen_ai.event.content",
    "gen_ai.evaluation.explanation",
    "gen_ai.request.structured_output_schema",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompts",
    "llm.completions",
    "llm.choices",
    "llm.tools",
    "llm.request.functions",
    "llm.function_call",
    "llm.prompt_template",
    "input.value",
    "output.value",
    "tool.parameters",
    "tool.json_schema",
    "tool.description",
    "embedding.embeddings",
    "embedding.text",
    "retrieval.documents",
    "reranker",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "agentops.entity.input",
    "agentops.entity.output",
    "agentops.task.output",
    *CONTENT_ATTRIBUTES,
    "ai.prompt",
    "ai.response.text",
    "ai.response.object",
    "ai.response.reasoning",
    "ai.response.toolCalls",
    "ai.toolCall.args",
    "ai.toolCall.result",
    "mlflow.spanInputs",
    "mlflow.spanOutputs",
    "all_messages_events",
    "pydantic_ai.all_messages",
    "model_request_parameters",
    "exception.message",
    "exception.stacktrace",
)
"""Names, each also as the beginning of longer ones: `llm.tools` stands for `llm.tools.0.tool.json_schema`."""

_WORDS: Final = frozenset(
    {"arguments", "audio", "body", "completion", "completions", "content", "contents", "function_call", "input"}
    | {"inputs", "message", "messages", "output", "outputs", "parts", "prompt", "prompts", "reasoning_content"}
    | {"refusal", "tool_calls"}
)
"""Segments of an attribute's name that mark content in unknown conventions."""

_SPOKEN: Final = ("gen_ai.", "llm.", "art.", "input.value", "output.value")
"""Prefixes of attributes that models read and write, or that the app gives to art-otel. A field named `secret` or
`password` in them may be a word of a game or an agent's task, so a name alone makes no value secret there."""

_MESSAGE_EVENT: Final = "gen_ai."
"""The prefix of events that are messages."""
_TOKENS: Final = ("art.tokens.", attributes.COMPLETION_LOGPROBS_PREFIX)
"""Attributes with packed tokens only, which have no text to scan."""
_LEFT_ALONE: Final = (attributes.ROLLOUT_ID, *_TOKENS)
"""Attributes that are never scrubbed: spans are brought together by the rollout's id, and packed tokens are numbers."""
_ERROR: Final = "exception."
PARAMETERS: Final = frozenset({attributes.REQUEST_PARAMETERS, "llm.invocation_parameters"})
_TOOLS: Final = ("tools", "functions")
_READ_BY_MODEL: Final = (
    *_TOOLS,
    *("messages", "input", "instructions", "prompt", "system"),
    *("contents", "systemInstruction", "system_instruction"),
)
"""The fields of a request's body that the model reads."""

_STRUCTURE: Final = frozenset({"gen_ai.output.type", "input.mime_type", "output.mime_type"})
_OURS: Final = "art."
_MAX_DEPTH: Final = 24
"""As in a span's line."""


@lru_cache(maxsize=4096)
def names_content(name: str) -> bool:
    """Whether an attribute of this name holds content."""
    if name in _STRUCTURE:
        return False
    if any(name == prefix or name.startswith(f"{prefix}.") for prefix in _CONTENT):
        return True
    return not name.startswith(_OURS) and not _WORDS.isdisjoint(name.split("."))


def is_text(value: Value, depth: int = _MAX_DEPTH) -> bool:
    """Whether a value is a text, contains one, or is nested too deeply to tell."""
    if isinstance(value, (str, bytes)) or depth == 0:
        return True
    if isinstance(value, Mapping):
        return any(is_text(inner, depth - 1) for inner in cast(Mapping[str, Value], value).values())
    return isinstance(value, (list, tuple)) and any(is_text(inner, depth - 1) for inner in cast(list[Value], value))


_PROMPT_KEYS: Final = frozenset({"prompt_token_ids", "prompt_logprobs"})
_PROMPT_KEY: Final = re.compile("_(?<=prompt_)(?:token_ids|logprobs)")
"""Either of the two keys. The pattern begins with a single character, which `re` finds much faster than a text."""


class _AllNames:
    """The rules of scrubbing for the attributes of all conventions."""

    prompt_ids: re.Pattern[str] = _PROMPT_KEY

    def reading(self, name: str) -> NameReading:
        if name.startswith(_LEFT_ALONE):
            return "not"
        return "spoken" if name.startswith(_SPOKEN) else "named"

    def is_message(self, event: str) -> bool:
        return event.startswith(_MESSAGE_EVENT)

    def is_content(self, name: str, value: Value, scrubber: Scrubber) -> bool:
        """Whether an attribute is content. Errors only quote content; tools in request parameters are in the prompt."""
        if name in PARAMETERS:
            return scrubber.holds_secret(_fields(value, _TOOLS))
        if name == attributes.REQUEST_BODY:
            return scrubber.holds_secret(_fields(value, _READ_BY_MODEL))
        return names_content(name) and not name.startswith(_ERROR)

    def without_tokens(self, attributes: Attributes, *, in_content: bool) -> Attributes:
        if in_content:
            return without_tokens(attributes)
        return without_prompt_ids(attributes) if spells_unread_prompt(attributes) else attributes


def _fields(parameters: Value, names: Sequence[str]) -> str:
    """Some fields of a request as text."""
    try:
        fields: Value = json.loads(parameters) if isinstance(parameters, str) else parameters
    except (ValueError, RecursionError):
        return str(parameters)
    named = cast(dict[str, Value], fields) if isinstance(fields, dict) else {}
    return json.dumps([named.get(name) for name in names], default=str)


CONTENT_NAMES: Final[ContentNames] = _AllNames()
"""The rules that RecordScrubber uses for spans and log records."""


_KEYS: Final = _PROMPT_KEYS | {
    *("logprobs", "response_token_ids", "token_ids", "tokens"),
    *("completion_token_ids", "completion_logprobs"),  # Fireworks', in `raw_output`
    *("input_ids", "output_ids", "input_token_logprobs", "output_token_logprobs"),  # SGLang's
}

_PROMPTS: Final = frozenset({"messages", "prompt", "prompts", "input", "inputs", "input_messages"})
_ANSWERS: Final = frozenset({"output", "outputs", "output_messages", "completion", "completions"})
"""Segments of the names of attributes with prompts; and of those that have only answers."""
_GIVEN_IDS: Final = re.compile(r'"prompt"\s*:\s*\[[\s\[]*[0-9]')
"""A prompt of Completions that consists of token ids, in the body of a request."""
_HIDDEN: Final = "__REDACTED__"
"""The text that OpenInference's instrumentors write in place of hidden content."""


def without_tokens(attributes: Attributes, keys: AbstractSet[str] = _KEYS) -> dict[str, Value]:
    """The attributes without tokens, also without tokens inside of response bodies."""
    return {
        name: _without(value, keys | {"prompt"} if name == _REQUEST and _has_given_ids(value) else keys)
        for name, value in attributes.items()
        if not name.startswith(_TOKENS) and (keys.isdisjoint(name.split(".")) or isinstance(value, (bool, int, float)))
    }


_REQUEST: Final = attributes.REQUEST_BODY


def _has_given_ids(body: Value) -> bool:
    return isinstance(body, str) and _GIVEN_IDS.search(body) is not None


def spells_unread_prompt(attributes: Attributes) -> bool:
    """Whether there are token ids of a prompt without the prompt's text beside them, so that it was not scanned.

    Our own packed ids do not count: they are only written after the prompt was scanned.
    """
    if _REQUEST in attributes:
        return False
    texts = chain(attributes, (value for value in attributes.values() if isinstance(value, str)))
    return any(map(_PROMPT_KEY.search, texts)) and not any(_shows_prompt(*entry) for entry in attributes.items())


def without_prompt_ids(attributes: Attributes) -> dict[str, Value]:
    """The attributes without token ids of a prompt, except our own packed ones."""
    packed = {name: value for name, value in attributes.items() if name.startswith(_TOKENS)}
    return {**without_tokens(attributes, _PROMPT_KEYS), **packed}


def _shows_prompt(name: str, value: Value) -> bool:
    segments = name.split(".")
    return (
        not isinstance(value, (bool, int, float))
        and value != _HIDDEN
        and not name.startswith(_TOKENS)
        and not _PROMPTS.isdisjoint(segments)
        and _ANSWERS.isdisjoint(segments)
    )


def _without(value: Value, keys: AbstractSet[str]) -> Value:
    if not isinstance(value, str):
        return _stripped(value, keys)
    if not value.lstrip().startswith(("{", "[")) or not any(key in value for key in keys):
        return value
    try:
        decoded: Value = json.loads(value)
        stripped = _stripped(decoded, keys)
    except (ValueError, RecursionError):
        return replacement("tokens")  # JSON that was cut, or Python's repr: its tokens cannot be taken out
    return value if stripped == decoded else json.dumps(stripped)


def _stripped(value: Value, keys: AbstractSet[str]) -> Value:
    """The value with None in place of tokens."""
    if isinstance(value, dict):
        named = cast(dict[str, Value], value).items()
        return {name: None if name in keys and _is_list(inner) else _stripped(inner, keys) for name, inner in named}
    if isinstance(value, (list, tuple)):
        return type(cast(list[Value], value))(_stripped(inner, keys) for inner in cast(list[Value], value))
    return value


def _is_list(value: Value) -> bool:
    """Whether a value may be tokens: a list or an object. A request's `logprobs` is a flag."""
    return isinstance(value, (list, tuple, dict))
