"""What frameworks do to messages between OpenInference's recording and the request.

smolagents (`get_clean_message_list` in its `models.py`) sends its own roles as the model's and joins neighbors of one
role, with a line break since its messages count tokens; AutoGen's OpenAI client (`_message_transform.py`) sends what is
recorded as `developer` as `system`; answers of tools are recorded as the user's by google-genai's instrumentor before
1.0. Invariant: only what these do is done; a prompt that an older smolagents joined is doubted, because its versions
join differently.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Final

import msgspec

from art_otel.calls import Message
from art_otel.conventions.attributes.reader import AttributeReader

_SMOLAGENTS_ROLES: Final = {"tool-call": "assistant", "tool-response": "user"}
_COUNTS_TOKENS: Final = "token_usage="
"""What is printed of each message of smolagents from 1.17 on."""


def as_sent(scope: str, reader: AttributeReader, prompt: tuple[Message, ...] | None) -> tuple[Message, ...] | None:
    """The prompt as the framework of this scope sends it."""
    rewrite = _FRAMEWORKS.get(scope)
    return prompt if prompt is None or rewrite is None else rewrite(reader, prompt)


def _smolagents(reader: AttributeReader, prompt: tuple[Message, ...]) -> tuple[Message, ...]:
    converted = [
        msgspec.structs.replace(one, role=_SMOLAGENTS_ROLES.get(one.role, one.role), tool_calls=()) for one in prompt
    ]
    sent: list[Message] = []
    joins_texts = _COUNTS_TOKENS in (reader.text("input.value") or "")
    for _, group in groupby(converted, key=lambda message: message.role):
        neighbors = list(group)
        has_parts = any(message.parts is not None for message in neighbors)
        if len(neighbors) > 1 and (has_parts or not joins_texts):
            reader.gap("lossy recorder", "joined messages of one role", field="prompt")
        if has_parts:
            sent += neighbors
        else:
            text = "\n".join(message.content or "" for message in neighbors)
            sent.append(msgspec.structs.replace(neighbors[0], content=text))
    return tuple(sent)


def _autogen(_: AttributeReader, prompt: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(
        msgspec.structs.replace(message, role="system") if message.role == "developer" else message
        for message in prompt
    )


def _google_genai(_: AttributeReader, prompt: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(
        message if message.tool_call_id is None else msgspec.structs.replace(message, role="tool") for message in prompt
    )


_FRAMEWORKS: Final[dict[str, Callable[[AttributeReader, tuple[Message, ...]], tuple[Message, ...]]]] = {
    "openinference.instrumentation.smolagents": _smolagents,
    "openinference.instrumentation.autogen_agentchat": _autogen,
    "openinference.instrumentation.google_genai": _google_genai,
}
