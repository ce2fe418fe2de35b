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
    logprobs = values.mapping(choice.get("logprobs")) or {}
    ids, numbers = _ids_of(choice), _numbers_in(logprobs)
    if ids is None:
        ids = _ids_in(logprobs)
    if ids is None and "meta_info" in choice:
        ids, of_meta_info = _in_meta_info(values.mapping(choice["meta_info"]) or {})
        numbers = of_meta_info if numbers is None else numbers
    return ids, numbers


def prompt_ids(body: dict[str, Value], choices: Sequence[dict[str, Value]]) -> Value:
    """Find the ids of the prompt: of the response, of SGLang's extension, or of all choices, if all are equal."""
    raw_outputs = (values.mapping(choice.get("raw_output")) for choice in choices if "raw_output" in choice)
    holders = [body, *choices, *(raw for raw in raw_outputs if raw)]
    id_lists = [ids for holder in holders if (ids := holder.get("prompt_token_ids")) is not None]
    if (ids := _extension(body).get("input_ids")) is not None:
        id_lists.append(ids)
    return id_lists[0] if id_lists and all(ids == id_lists[0] for ids in id_lists) else None


def choices_with_ids(body: dict[str, Value]) -> Value:
    """The choices of a body, each with its ids of the lists beside them, Agent Lightning's or SGLang's extension's."""
    ids = body.get("response_token_ids")
    id_lists = values.items(_extension(body).get("output_ids") if ids is None else ids)
    choices = values.items(body["choices"])
    if not choices or not id_lists or len(choices) != len(id_lists):
        return body["choices"]
    entries = [values.mapping(choice) or {} for choice in choices]
    return [{"token_ids": choice_ids, **choice} for choice, choice_ids in zip(entries, id_lists, strict=True)]


def _extension(body: dict[str, Value]) -> dict[str, Value]:
    return values.mapping(body.get("sglext")) or {} if "sglext" in body else {}


def _ids_of(choice: dict[str, Value]) -> Value:
    """Find the token ids in the choice itself, else in the objects that hold a server's extensions."""
    ids = _first(choice, _OF_CHOICE)
    for name in ("provider_specific_fields", "raw_output"):
        if ids is None and name in choice:
            ids = _first(values.mapping(choice[name]) or {}, _BESIDE_CHOICE)
    return ids


def _numbers_in(logprobs: dict[str, Value]) -> list[Value] | None:
    """The numbers in Chat's `content` or in the lists of Completions."""
    content = values.items(logprobs.get("content"))
    if content is None:
        return values.items(logprobs.get("token_logprobs"))
    entries = [values.mapping(entry) or {} for entry in content]
    sampled = _each(entries, "sampling_logprob") if entries and "sampling_logprob" in entries[0] else None
    return [entry.get("logprob") for entry in entries] if sampled is None else sampled


def _ids_in(logprobs: dict[str, Value]) -> Value:
    """The ids in Chat's `content` or in the lists of Completions (Together has `token_ids` there)."""
    content = values.items(logprobs.get("content"))
    if content is None:
        ids = _whole_numbers(values.items(logprobs.get("token_ids")))
        return _ids_in_tokens(values.items(logprobs.get("tokens"))) if ids is None else ids
    entries = [values.mapping(entry) or {} for entry in content]
    first = entries[0] if entries else {}
    name = next((name for name in _OF_LOGPROB if isinstance(first.get(name), int)), None)
    return _ids_in_tokens([entry.get("token") for entry in entries]) if name is None else _each(entries, name)


def _in_meta_info(meta_info: dict[str, Value]) -> tuple[Value, Value]:
    """The ids and logprobs in SGLang's `output_token_logprobs`, a list of logprob, id and text."""
    entries = values.items(meta_info.get("output_token_logprobs"))
    triples = [values.items(entry) or [] for entry in entries or ()]
    if not triples or any(len(triple) < 2 for triple in triples):
        return None, None
    return [triple[1] for triple in triples], [triple[0] for triple in triples]


def _first(fields: dict[str, Value], names: Sequence[str]) -> Value:
    for name in names:
        if fields.get(name) is not None:
            return fields[name]
    return None


def _each(entries: Sequence[dict[str, Value]], name: str) -> list[Value] | None:
    """Return a field of all entries; None if one entry lacks it."""
    fields = [entry.get(name) for entry in entries]
    return None if None in fields else fields


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
