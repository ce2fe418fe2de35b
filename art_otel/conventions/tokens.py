"""Tokens: token ids and logprobs as attributes and in a server's JSON.

Invariant: ids are whole numbers from 0 to 2**31 - 1 and logprobs are finite, one an id; anything else is a ParseError.
As an attribute they are text, `i4:<count>:<base64 of little-endian int32>` and `f4:<count>:<base64 of float32>`,
because backends lose bytes attributes and an int list costs four times as much. docs/spec/attributes.md owns it.
"""

import base64
import binascii
import math
from typing import Final, cast

from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions import values
from art_otel.errors import ParseError
from art_otel.spans import Value

_ID_PREFIX: Final = "token_id:"


def encode_ids(ids: TokenIds) -> str:
    """Token ids as an attribute's text."""
    return f"i4:{len(ids)}:{base64.b64encode(ids.data).decode()}"


def encode_logprobs(logprobs: Logprobs) -> str:
    """Logprobs as an attribute's text."""
    return f"f4:{len(logprobs)}:{base64.b64encode(logprobs.data).decode()}"


def decode_ids(value: Value) -> TokenIds:
    """Token ids from an attribute's text. Raises ParseError when it was cut or is something else."""
    return _checked_ids(TokenIds(_numbers("i4", value)))


def decode_logprobs(value: Value) -> Logprobs:
    """Logprobs from an attribute's text. Raises ParseError when it was cut or is something else."""
    return _checked_logprobs(Logprobs(_numbers("f4", value)))


def parse_ids(value: Value) -> TokenIds:
    """Token ids from a list of whole numbers. Raises ParseError for anything else."""
    numbers = values.items(value)
    if numbers is None or any(type(number) is not int for number in numbers):
        raise ParseError("", "is no list of token ids")
    try:
        return _checked_ids(cast(TokenIds, TokenIds.of(numbers)))
    except OverflowError:
        raise ParseError("", "has a token id that is no int32") from None


def parse_logprobs(value: Value) -> Logprobs:
    """Logprobs from a list of numbers. Raises ParseError for anything else."""
    numbers = values.items(value)
    if numbers is None or any(type(number) not in (int, float) for number in numbers):
        raise ParseError("", "is no list of logprobs")
    try:
        return _checked_logprobs(cast(Logprobs, Logprobs.of(numbers)))
    except OverflowError:
        raise ParseError("", "has a logprob that is no float32") from None


def choice_tokens(choice: dict[str, Value]) -> tuple[Value, Value]:
    """The lists of ids and of logprobs in a choice of OpenAI's JSON, None where there is none.

    Ids are vLLM's `token_ids`, or the tokens themselves when all are `token_id:<n>`
    (vLLM's `return_tokens_as_token_ids`). Logprobs are Chat's `logprobs.content` or Completions' `token_logprobs`.
    """
    logprobs = values.mapping(choice.get("logprobs")) or {}
    content = values.items(logprobs.get("content"))
    if content is not None:
        entries = [values.mapping(entry) or {} for entry in content]
        tokens, found = [entry.get("token") for entry in entries], [entry.get("logprob") for entry in entries]
    else:
        tokens, found = values.items(logprobs.get("tokens")), values.items(logprobs.get("token_logprobs"))
    ids = choice.get("token_ids")
    return (_spelled_out(tokens) if ids is None else ids), found


def _spelled_out(tokens: list[Value] | None) -> list[int] | None:
    """The ids of tokens that are all written `token_id:<n>`."""
    ids: list[int] = []
    for token in tokens or ():
        if not isinstance(token, str) or not token.startswith(_ID_PREFIX):
            return None
        digits = token[len(_ID_PREFIX) :]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
            return None
        ids.append(int(digits))
    return ids or None


def _numbers(kind: str, value: Value) -> bytes:
    fields = value.split(":") if isinstance(value, str) else []
    if len(fields) != 3 or fields[0] != kind:
        raise ParseError("", f"is no text {kind}:<count>:<base64>")
    try:
        data = base64.b64decode(fields[2], validate=True)
    except (binascii.Error, ValueError):
        raise ParseError("", "is no base64") from None
    if len(data) % 4 or str(len(data) // 4) != fields[1]:
        raise ParseError("", f"holds another count of numbers than {fields[1]:.20}")
    return data


def _checked_ids(ids: TokenIds) -> TokenIds:
    if not ids.data[3::4].isascii():  # the highest byte of a little-endian int32 has its sign, as ASCII has none
        raise ParseError("", "has a negative token id")
    return ids


def _checked_logprobs(logprobs: Logprobs) -> Logprobs:
    if not all(map(math.isfinite, logprobs)):
        raise ParseError("", "has a logprob that is not finite")
    return logprobs
