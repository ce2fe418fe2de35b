"""Server tokens: where each server's JSON has the token ids and logprobs of a completion.

docs/spec/tokens.md has the table of servers. Invariant: lists are found as the server sent them, each None where
there is none; `tokens.parse_ids` and `parse_logprobs` check them. Of several places the most exact wins: a list of ids
of the choice, the ids in its logprobs, tokens that are spelled as ids.
"""

from collections.abc import Sequence
from typing import Final

from art_otel.conventions.attributes import values
from art_otel.spans import Value

_ID_PREFIX: Final = "token_id:"
_OF_CHOICE: Final = ("token_ids", "response_token_ids")
"""vLLM's, and SGLang's for chat."""
_BESIDE_CHOICE: Final = (*_OF_CHOICE, "completion_token_ids")
"""In LiteLLM's `provider_specific_fields` and in Fireworks' `raw_output`."""
_OF_LOGPROB: Final = ("token_id", "id")
"""Fireworks' and llama.cpp's."""


def choice_tokens(choice: dict[str, Value]) -> tuple[Value, Value]:
    """Find the lists of ids and of logprobs in a choice of OpenAI's JSON; each is None where there is none."""
    ids, numbers = _in_logprobs(values.mapping(choice.get("logprobs")) or {})
    found = _first(choice, _OF_CHOICE)
    if found is None:
        beside = [values.mapping(choice.get(name)) or {} for name in ("provider_specific_fields", "raw_output")]
        found = next((one for fields in beside if (one := _first(fields, _BESIDE_CHOICE))), None)
    if found is None and ids is None and "meta_info" in choice:
        ids, of_meta_info = _in_meta_info(values.mapping(choice["meta_info"]) or {})
        numbers = of_meta_info if numbers is None else numbers
    return (ids if found is None else found), numbers


def prompt_ids(body: dict[str, Value], choices: Sequence[dict[str, Value]]) -> Value:
    """Find the ids of the prompt: of the response, of SGLang's extension, or of all choices, if all are equal."""
    raw_outputs = (values.mapping(choice.get("raw_output")) for choice in choices if "raw_output" in choice)
    holders = [body, *choices, *(raw for raw in raw_outputs if raw)]
    found = [ids for holder in holders if (ids := holder.get("prompt_token_ids")) is not None]
    if (ids := _extension(body).get("input_ids")) is not None:
        found.append(ids)
    return found[0] if found and all(ids == found[0] for ids in found) else None


def completion_ids(body: dict[str, Value]) -> Value:
    """Find the lists of ids, one a choice, beside the choices, of Agent Lightning or of SGLang's extension."""
    ids = body.get("response_token_ids")
    return _extension(body).get("output_ids") if ids is None else ids


def _extension(body: dict[str, Value]) -> dict[str, Value]:
    return values.mapping(body.get("sglext")) or {} if "sglext" in body else {}


def _in_logprobs(logprobs: dict[str, Value]) -> tuple[Value, Value]:
    """The ids and numbers in Chat's `content` or in the lists of Completions (Together has `token_ids` there)."""
    content = values.items(logprobs.get("content"))
    if content is None:
        tokens = values.items(logprobs.get("tokens"))
        ids = _whole_numbers(values.items(logprobs.get("token_ids")))
        return (_ids_in_tokens(tokens) if ids is None else ids), values.items(logprobs.get("token_logprobs"))
    entries = [values.mapping(entry) or {} for entry in content]
    first = entries[0] if entries else {}
    name = next((name for name in _OF_LOGPROB if isinstance(first.get(name), int)), None)
    ids = _ids_in_tokens([entry.get("token") for entry in entries]) if name is None else _each(entries, name)
    sampled = _each(entries, "sampling_logprob") if "sampling_logprob" in first else None
    return ids, [entry.get("logprob") for entry in entries] if sampled is None else sampled


def _in_meta_info(meta_info: dict[str, Value]) -> tuple[Value, Value]:
    """The ids and logprobs in SGLang's `output_token_logprobs`, a list of logprob, id and text."""
    entries = values.items(meta_info.get("output_token_logprobs"))
    triples = [values.items(entry) or [] for entry in entries or ()]
    if not triples or any(len(triple) < 2 for triple in triples):
        return None, None
    return [triple[1] for triple in triples], [triple[0] for triple in triples]


def _first(fields: dict[str, Value], names: Sequence[str]) -> Value:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _each(entries: Sequence[dict[str, Value]], name: str) -> list[Value] | None:
    """A field of all entries; None if one has none."""
    found = [entry.get(name) for entry in entries]
    return None if None in found else found


def _whole_numbers(numbers: list[Value] | None) -> list[Value] | None:
    """Numbers that Together writes as floats."""
    if numbers is None:
        return None
    return [int(number) if isinstance(number, float) and number.is_integer() else number for number in numbers]


def _ids_in_tokens(tokens: list[Value] | None) -> list[int] | None:
    """Read the ids of tokens that are all written `token_id:<n>`."""
    ids: list[int] = []
    for token in tokens or ():
        if not isinstance(token, str) or not token.startswith(_ID_PREFIX):
            return None
        digits = token[len(_ID_PREFIX) :]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
            return None
        ids.append(int(digits))
    return ids or None
