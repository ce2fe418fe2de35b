"""Tokens: token ids and logprobs as attributes and in a server's JSON.

Invariant: ids are whole numbers from 0 to 2**31 - 1 and logprobs are finite, one an id; anything else is a ParseError.
As an attribute they are text, `i4:<count>:<base64 of little-endian int32>` and `f4:<count>:<base64 of float32>`,
because backends lose bytes attributes and an int list costs four times as much. docs/spec/attributes.md owns it.
"""

import base64
import math
import struct
from typing import Final, cast

import msgspec

from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions.attributes import values
from art_otel.conventions.caches.prefix_cache import PrefixCache
from art_otel.errors import ParseError
from art_otel.spans import Value

_GROUP: Final = 4
_GROUP_BYTES: Final = 3
"""Base64 writes three bytes as four characters."""

_IDS: Final[PrefixCache[str, bytes]] = PrefixCache()
"""Whole groups of base64 and the bytes they decode to: a prompt's ids mostly continue those of an earlier prompt."""


def encode_ids(ids: TokenIds) -> str:
    """Write token ids as an attribute's text."""
    return f"i4:{len(ids)}:{base64.b64encode(ids.data).decode()}"


def encode_logprobs(logprobs: Logprobs) -> str:
    """Write logprobs as an attribute's text."""
    return f"f4:{len(logprobs)}:{base64.b64encode(logprobs.data).decode()}"


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
    return _check_logprobs(Logprobs(_unpack("f4", value)))


def parse_ids(value: Value) -> TokenIds:
    """Pack a list of whole numbers as token ids. Raises ParseError for anything else."""
    try:
        numbers = msgspec.convert(values.items(value), list[int])  # several times as fast as to ask each for its type
        data = struct.pack(f"<{len(numbers)}i", *numbers)
    except msgspec.ValidationError:
        raise ParseError("", "is no list of token ids") from None
    except struct.error:
        raise ParseError("", "has a token id that is no int32") from None
    _check_signs(data)
    return TokenIds(data)


def parse_logprobs(value: Value) -> Logprobs:
    """Pack a list of numbers as logprobs. Raises ParseError for anything else."""
    numbers = values.items(value)
    if numbers is None or not set(map(type, numbers)) <= {int, float}:
        raise ParseError("", "is no list of logprobs")
    try:
        return _check_logprobs(cast(Logprobs, Logprobs.of(numbers)))
    except OverflowError:
        raise ParseError("", "has a logprob that is no float32") from None


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
        raise ParseError("", f"holds another count of numbers than {count:.20}")


def _check_signs(data: bytes, start: int = 0) -> None:
    """Raises ParseError when an id from byte `start` on is negative."""
    if not data[start + 3 :: 4].isascii():  # the highest byte of a little-endian int32 has its sign, as ASCII has none
        raise ParseError("", "has a negative token id")


def _check_logprobs(logprobs: Logprobs) -> Logprobs:
    highest = logprobs.data[3::4]  # bytes: NaN, the infinities and what is near them have all bits set in theirs
    is_high = b"\x7f" in highest or b"\xff" in highest
    if is_high and not math.isfinite(sum(logprobs)):  # of float32 no finite numbers add up to infinity
        raise ParseError("", "has a logprob that is not finite")
    return logprobs
