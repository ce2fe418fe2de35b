"""Agent Lightning: the tokens that its tracer adds to spans of AgentOps, OpenLLMetry and LiteLLM.

https://github.com/microsoft/agent-lightning (0.1 to 0.3, `agentlightning/instrumentation`): `prompt_token_ids` and
`response_token_ids`, lists of ids, and `logprobs.content`, JSON text of what OpenAI calls so. Invariant: they
came from the server's response and are exact. They are of the first choice; of further ones nobody kept the tokens.
"""

from typing import Final

import msgspec

from art_otel.calls import Choice, Logprobs, TokenIds
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.openai_body import read_tokens
from art_otel.conventions.bodies.tokens import choice_tokens
from art_otel.conventions.facts import UNKNOWN_MESSAGE, CallFacts
from art_otel.spans import Value

CONVENTION: Final = "agentlightning"

PROMPT_IDS: Final = "prompt_token_ids"
RESPONSE_IDS: Final = "response_token_ids"
LOGPROBS: Final = "logprobs.content"
ATTRIBUTES: Final = (PROMPT_IDS, RESPONSE_IDS, LOGPROBS)

_FIRST: Final = Choice(index=0, message=UNKNOWN_MESSAGE)


def read(recording: SpanRecording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the tokens that no more trusted dialect has; None when there are none."""
    reader = recording.reader()
    prompt = _ids(reader, PROMPT_IDS) if trusted_facts.prompt_token_ids is None else None
    first = next((choice for choice in trusted_facts.choices or () if choice.index == 0), _FIRST)
    ids = _sampled_ids(reader) if first.token_ids is None else first.token_ids
    logprobs = _logprobs(reader, ids) if first.logprobs is None else first.logprobs
    is_new = ids is not first.token_ids or logprobs is not first.logprobs
    if prompt is None and not is_new and not reader.gaps:
        return None
    return CallFacts(
        conventions=(CONVENTION,),
        prompt_token_ids=prompt,
        choices=(msgspec.structs.replace(_FIRST, token_ids=ids, logprobs=logprobs),) if is_new else None,
        gaps=reader.gaps,
    )


def _sampled_ids(reader: AttributeReader) -> TokenIds | None:
    """Read the ids of the completion, also from logprobs whose tokens are written as ids."""
    if RESPONSE_IDS in reader.attributes:
        return _ids(reader, RESPONSE_IDS)
    spelled_out, _ = _content(reader)
    ids, _ = read_tokens(reader, LOGPROBS, spelled_out, None)
    return ids


def _logprobs(reader: AttributeReader, ids: TokenIds | None) -> Logprobs | None:
    _, values_of_tokens = _content(reader)
    _, logprobs = read_tokens(reader, LOGPROBS, None, values_of_tokens)
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        reader.mark_invalid(LOGPROBS)
        return None
    return logprobs


def _content(reader: AttributeReader) -> tuple[Value, Value]:
    return choice_tokens({"logprobs": {"content": reader.structured(LOGPROBS)}})


def _ids(reader: AttributeReader, name: str) -> TokenIds | None:
    """Read the ids of an attribute: a list, its JSON text, or a list that holds one. An empty list is unknown."""
    value = reader.structured(name)
    entries = values.items(value)
    if value is None or entries == []:
        return None
    nested = values.items(entries[0]) if entries else None
    ids, _ = read_tokens(reader, name, value if nested is None else nested, None)
    return ids
