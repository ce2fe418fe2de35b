"""Tokens: token ids and logprobs, as attributes and where each server's JSON has them.

Invariant: ids are whole numbers from 0 to 2**31 - 1, and there is one logprob an id; anything else is a ParseError. A
logprob that is no number (null, NaN, an infinity, or what servers write for one) is NaN. As an attribute they are text,
`i4:<count>:<base64 of little-endian int32>` and `f4:<count>:<base64 of float32>`, because backends lose bytes
attributes and an int list costs four times as much (docs/spec/attributes.md). In JSON (docs/spec/recorders.md has the
table of servers) lists are found as the server sent them, each None where there is none; of several places the most
exact wins: a list of ids of the choice, ids in its logprobs, tokens spelled as ids.
"""

import base64
import math
import struct
from collections.abc import Sequence
from types import NoneType
from typing import Final, cast

import msgspec

from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions import values
from art_otel.conventions.prefix_cache import PrefixCache
from art_otel.errors import ParseError
from art_otel.sampling import LogprobsMode
from art_otel.spans import Value

_GROUP: Final = 4
_GROUP_BYTES: Final = 3
"""Base64 writes three bytes as four characters."""

_IDS: Final[PrefixCache[str, bytes]] = PrefixCache(str.startswith)
"""Whole groups of base64 and the bytes they decode to: a prompt's ids mostly continue those of an earlier prompt."""


def encode_ids(ids: TokenIds) -> str:
    """Write token ids as an attribute's text."""
    return _packed_text("i4", ids.data)


def encode_logprobs(logprobs: Logprobs) -> str:
    """Write logprobs as an attribute's text."""
    return _packed_text("f4", logprobs.data)


def decode_ids(value: Value) -> TokenIds:
    """Read token ids from an attribute's text. Raises ParseError when it was cut or is something else."""
    data = _unpack("i4", value)
    _check_signs(data)
    return TokenIds(data)


def decode_prompt_ids(value: Value) -> TokenIds:
    """Read token ids as `decode_ids` does, decoding only what follows the ids of an earlier prompt."""
    start = value.find(":", 3) + 1 if isinstance(value, str) else 0
    earlier = _IDS.find(value, start) if start and value.startswith("i4:") else None
    if earlier is None:
        length = 0
        data = _unpack("i4", value)
        _check_signs(data)
    else:
        length = earlier.length
        groups = length // _GROUP * _GROUP_BYTES
        data = b"".join((memoryview(earlier.value)[:groups], _from_base64(value[start + length :])))
        _check_count(data, value[3 : start - 1])
        _check_signs(data, groups - groups % 4)
    whole = len(value) - start - _GROUP  # the last group may be padded, so no longer text has it
    if whole > length:
        _IDS.keep(value, data, start=start, end=start + whole, earlier=earlier)
    return TokenIds(data)


def decode_logprobs(value: Value) -> Logprobs:
    """Read logprobs from an attribute's text. Raises ParseError when it was cut or is something else."""
    return Logprobs(_with_unknown(_unpack("f4", value)))


def parse_ids(value: Value) -> TokenIds:
    """Pack a list of whole numbers as token ids. Raises ParseError for anything else."""
    return TokenIds(_packed_ids(value))


def parse_logprobs(value: Value) -> Logprobs:
    """Pack a list of numbers as logprobs. Raises ParseError for anything else."""
    return Logprobs(_packed_logprobs(value))


def write_ids(value: Value) -> str | None:
    """Write a list of whole numbers as an attribute's text; None for anything else."""
    try:
        return None if value is None else _packed_text("i4", _packed_ids(value))
    except ParseError:
        return None


def write_logprobs(value: Value) -> str | None:
    """Write a list of numbers as an attribute's text; None for anything else."""
    try:
        return None if value is None else _packed_text("f4", _packed_logprobs(value))
    except ParseError:
        return None


def _packed_text(kind: str, data: bytes) -> str:
    return f"{kind}:{len(data) // 4}:{base64.b64encode(data).decode()}"


def _packed_ids(value: Value) -> bytes:
    try:
        ids = msgspec.convert(values.items(value), list[int])  # several times as fast as to ask each for its type
    except msgspec.ValidationError:
        raise ParseError("", "is no list of token ids") from None
    try:
        data = struct.pack(f"<{len(ids)}i", *ids)
    except struct.error:
        raise ParseError("", "has a token id that is no int32") from None
    _check_signs(data)
    return data


def _packed_logprobs(value: Value) -> bytes:
    logprobs = values.items(value)
    if logprobs is None or not set(map(type, logprobs)) <= {int, float, NoneType}:
        raise ParseError("", "is no list of logprobs")
    numbers = [math.nan if logprob is None else logprob for logprob in logprobs] if None in logprobs else logprobs
    try:
        data = struct.pack(f"<{len(numbers)}f", *numbers)
    except (OverflowError, struct.error):
        raise ParseError("", "has a logprob that is no float32") from None
    return _with_unknown(data)


def _unpack(kind: str, value: Value) -> bytes:
    """Decode the bytes of a packed text. Raises ParseError for any other value."""
    parts = value.split(":", 2) if isinstance(value, str) else ()
    if len(parts) != 3 or parts[0] != kind:
        raise ParseError("", f"is no text {kind}:<count>:<base64>")
    data = _from_base64(parts[2])
    _check_count(data, parts[1])
    return data


def _from_base64(text: str) -> bytes:
    try:
        return msgspec.convert(text, bytes)  # several times as fast as base64, and as strict
    except msgspec.ValidationError:
        raise ParseError("", "is no base64") from None


def _check_count(data: bytes, count: str) -> None:
    """Raises ParseError unless these are as many numbers as the text says."""
    if len(data) % 4 or str(len(data) // 4) != count:
        raise ParseError("", f"does not hold {count:.20} numbers")


def _check_signs(data: bytes, start: int = 0) -> None:
    """Raises ParseError when an id from byte `start` on is negative."""
    if not data[start + 3 :: 4].isascii():  # the highest byte of a little-endian int32 has its sign, as ASCII has none
        raise ParseError("", "has a negative token id")


_NO_LOGPROB: Final = -9999.0
"""What vLLM writes for minus infinity, which is no JSON. SGLang writes the smallest float32, so less is none either."""

_ORDINARY: Final = bytes(byte for byte in range(0xC6) if byte != 0x7F)
"""The highest bytes of float32 numbers above -8192.0; NaN, the infinities and what is near them have others."""


def _with_unknown(data: bytes) -> bytes:
    """The logprobs with NaN in the place of what is none."""
    if not data[3::4].translate(None, _ORDINARY):
        return data
    logprobs = [number if _NO_LOGPROB < number < math.inf else math.nan for number in Logprobs(data)]
    return struct.pack(f"<{len(logprobs)}f", *logprobs)


RESPONSE_MESSAGES: Final = ("input_messages", "output_messages")
"""Where vLLM's Responses have token ids, if they are asked for with `enable_response_messages`."""

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


def logprobs_mode(body: dict[str, Value], choices: Sequence[dict[str, Value]]) -> LogprobsMode | None:
    """Which distribution the logprobs of an answer are of, by fields that only one kind of server gives.

    None for other servers. vLLM gives others where it was started so, and then does not say it.
    """
    fields = set[str]().union(*choices)
    extensions = fields
    if "provider_specific_fields" in fields:  # of a proxy
        extensions = fields.union(*(values.mapping(choice.get("provider_specific_fields")) or {} for choice in choices))
    logprobs, first = _first_logprob(choices)
    if "timings" in body or "id" in first:  # llama.cpp
        return "raw"
    if "sglext" in body or not fields.isdisjoint(_SGLANG):
        return "tempered"
    if SAMPLING in logprobs or "sampling_logprob" in first:  # Fireworks
        return "processed"
    return "raw" if not extensions.isdisjoint(_VLLM) or _spells_ids(logprobs, first) else None


_SGLANG: Final = ("matched_stop", "meta_info", "response_token_ids")
_VLLM: Final = ("stop_reason", "token_ids")
"""Fields of choices. SGLang's Completions have `token_ids`, too."""


def _first_logprob(choices: Sequence[dict[str, Value]]) -> tuple[dict[str, Value], dict[str, Value]]:
    """The logprobs of the first choice that has some, and of these Chat's first entry; empty where there are none."""
    for choice in choices:
        logprobs = values.mapping(choice.get("logprobs"))
        if logprobs:
            content = values.items(logprobs.get("content"))
            return logprobs, (values.mapping(content[0]) or {}) if content else {}
    return {}, {}


def has_sampling_logprobs(choice: dict[str, Value]) -> bool:
    """Whether a choice has logprobs of what was sampled from beside those of the policy, as Fireworks does."""
    logprobs, first = _first_logprob((choice,))
    return SAMPLING in logprobs or "sampling_logprob" in first


def _spells_ids(logprobs: dict[str, Value], first: dict[str, Value]) -> bool:
    """Whether tokens are spelled as ids, which vLLM does where it is asked to."""
    token = first.get("token")
    if token is None and (tokens := values.items(logprobs.get("tokens"))):
        token = tokens[0]
    return isinstance(token, str) and token.startswith(_ID_PREFIX)


SAMPLING: Final = "sampling_logprobs"
"""Where a stream's pieces of such logprobs are joined."""


def may_lose_ids(choice: dict[str, Value]) -> bool:
    """Whether the ids of a choice stand where llama.cpp has them, which lists no token that ends inside a character."""
    _, first = _first_logprob((choice,))
    return "id" in first


def prompt_ids(body: dict[str, Value], choices: Sequence[dict[str, Value]]) -> Value:
    """Find the ids of the prompt: of the response, of SGLang's extension, or of all choices, if all are equal."""
    holders = [body, *choices]
    for choice in choices:
        if "raw_output" in choice:
            holders.append(values.mapping(choice["raw_output"]) or {})  # noqa: PERF401 # few have one, and this runs in the app
    id_lists = [ids for holder in holders if (ids := holder.get("prompt_token_ids")) is not None]
    if "sglext" in body and (ids := _extension(body).get("input_ids")) is not None:
        id_lists.append(ids)
    return id_lists[0] if id_lists and id_lists.count(id_lists[0]) == len(id_lists) else None


def choices_with_ids(body: dict[str, Value]) -> Value:
    """The choices of a body, each with its ids of the lists beside them, Agent Lightning's or SGLang's extension's."""
    ids = body.get("response_token_ids")
    if ids is None and "sglext" in body:
        ids = _extension(body).get("output_ids")
    if ids is None:
        return body["choices"]
    id_lists, choices = values.items(ids), values.items(body["choices"])
    if not choices or not id_lists or len(choices) != len(id_lists):
        return body["choices"]
    entries = [values.mapping(choice) or {} for choice in choices]
    return [{"token_ids": choice_ids, **choice} for choice, choice_ids in zip(entries, id_lists, strict=True)]


def _extension(body: dict[str, Value]) -> dict[str, Value]:
    return values.mapping(body.get("sglext")) or {}


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
        return values.items(logprobs.get(SAMPLING, logprobs.get("token_logprobs")))
    entries = _objects(content)
    sampled = _each(entries, "sampling_logprob") if entries and "sampling_logprob" in entries[0] else None
    return [entry.get("logprob") for entry in entries] if sampled is None else sampled


def _ids_in(logprobs: dict[str, Value]) -> Value:
    """The ids in Chat's `content` or in the lists of Completions (Together has `token_ids` there)."""
    content = values.items(logprobs.get("content"))
    if content is None:
        ids = _whole_numbers(values.items(logprobs.get("token_ids")))
        return ids_in_tokens(values.items(logprobs.get("tokens"))) if ids is None else ids
    entries = _objects(content)
    first = entries[0] if entries else {}
    name = next((name for name in _OF_LOGPROB if isinstance(first.get(name), int)), None)
    return ids_in_tokens([entry.get("token") for entry in entries]) if name is None else _each(entries, name)


def _objects(entries: list[Value]) -> list[dict[str, Value]]:
    """The entries as objects. A long answer has thousands, so their types are asked for at once."""
    if set(map(type, entries)) <= {dict}:
        return cast(list[dict[str, Value]], entries)
    return [values.mapping(entry) or {} for entry in entries]


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


def ids_in_tokens(tokens: list[Value] | None) -> list[int] | None:
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
