"""Token facts: what RL needs of a completion beside its ids and logprobs, as attributes and where servers have it.

Invariant: what is kept fits the completion's ids. `weight_versions` lie in order within them, `sampling_mask` has an
entry a token, `routed_experts` a row a token that was sent through the model; anything else is a ParseError, which
costs that fact alone. docs/spec/attributes.md has the texts.

Source of the servers' fields: vLLM 0.32 (`entrypoints/scale_out/token_in_token_out/protocol.py` has all three on a
choice, `entrypoints/openai/*/protocol.py` has `routed_experts`).
"""

import ast
import base64
import json
import struct
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Final, TypeVar

import msgspec

from art_otel import attributes as names
from art_otel.calls import Choice, RoutedExperts, TokenIds, WeightVersion
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies.tokens import decode_ids, encode_ids, parse_ids
from art_otel.errors import ParseError
from art_otel.spans import Value

FACTS: Final = ("weight_versions", "routed_experts", "sampling_mask")
"""The fields of a choice, of a server's and of ours."""

UNNAMED: Final = "default"
"""What vLLM and SGLang call the weights that they began with, until a trainer names others."""

_Fact = TypeVar("_Fact")


def fact_attributes(index: int, choice: Mapping[str, Value]) -> dict[str, str]:
    """Return the facts that a server's choice has as attributes of the call; what is no such fact is left out.

    So are versions where nobody told the server any.
    """
    attributes: dict[str, str] = {}
    versions = _parsed(parse_weight_versions, choice.get("weight_versions"))
    if versions is not None and any(span.version != UNNAMED for span in versions):
        attributes[f"{names.WEIGHT_VERSIONS_PREFIX}{index}"] = encode_weight_versions(versions)
    if (experts := _parsed(parse_routed_experts, choice.get("routed_experts"))) is not None:
        attributes[f"{names.ROUTED_EXPERTS_PREFIX}{index}"] = encode_routed_experts(experts)
    if (mask := _parsed(parse_sampling_mask, choice.get("sampling_mask"))) is not None:
        attributes[f"{names.SAMPLING_MASK_PREFIX}{index}"] = encode_sampling_mask(mask)
    return attributes


def with_facts(reader: AttributeReader, choice: Choice, prompt: TokenIds | None) -> Choice:
    """Add the facts that our own attributes have of a choice. Those that do not fit its ids are unknown, with a gap."""
    index, ids = choice.index, choice.token_ids
    versions = _read(reader, f"{names.WEIGHT_VERSIONS_PREFIX}{index}", decode_weight_versions)
    experts = _read(reader, f"{names.ROUTED_EXPERTS_PREFIX}{index}", decode_routed_experts)
    mask = _read(reader, f"{names.SAMPLING_MASK_PREFIX}{index}", decode_sampling_mask)
    if versions is None and experts is None and mask is None:
        return choice
    count = -1 if ids is None else len(ids)
    if versions is not None and not fits_versions(versions, count):
        reader.mark_invalid(f"{names.WEIGHT_VERSIONS_PREFIX}{index}")
        versions = None
    if experts is not None and not fits_experts(experts, count, None if prompt is None else len(prompt)):
        reader.mark_invalid(f"{names.ROUTED_EXPERTS_PREFIX}{index}")
        experts = None
    if mask is not None and len(mask) != count:
        reader.mark_invalid(f"{names.SAMPLING_MASK_PREFIX}{index}")
        mask = None
    return msgspec.structs.replace(choice, weight_versions=versions, routed_experts=experts, sampling_mask=mask)


def fits_versions(versions: tuple[WeightVersion, ...], count: int) -> bool:
    """Whether spans of versions lie within so many tokens."""
    return not versions or versions[-1].end <= count


def fits_experts(experts: RoutedExperts, count: int, prompt: int | None) -> bool:
    """Whether there is a row for each token of a completion but its last, and none for more than came before that."""
    return count >= 0 and len(experts) >= count - 1 and (prompt is None or len(experts) <= max(0, prompt + count - 1))


def parse_weight_versions(value: Value) -> tuple[WeightVersion, ...]:
    """Read a list of objects with `version`, `start` and `end`. Raises ParseError for anything else."""
    versions: list[WeightVersion] = []
    end = 0
    for entry in values.items(value) or [None]:
        fields = values.mapping(entry) or {}
        version = values.text(fields.get("version"))
        start, before = values.integer(fields.get("start")), end
        end = values.integer(fields.get("end")) or 0
        if version is None or start is None or not before <= start < end:
            raise ParseError("", "is not a list of weight versions in the order of their tokens")
        versions.append(WeightVersion(version=version, start=start, end=end))
    return tuple(versions)


def encode_weight_versions(versions: tuple[WeightVersion, ...]) -> str:
    """Write weight versions as an attribute's text."""
    return msgspec.json.encode(versions).decode()


def decode_weight_versions(value: Value) -> tuple[WeightVersion, ...]:
    """Read weight versions from an attribute's text. Raises ParseError."""
    try:
        return parse_weight_versions(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        raise ParseError("", "is no JSON") from None


def parse_sampling_mask(value: Value) -> tuple[TokenIds, ...]:
    """Read a list of lists of ids, one list a token. Raises ParseError for anything else."""
    entries = values.items(value)
    if entries is None:
        raise ParseError("", "is no list of lists of token ids")
    return tuple(map(parse_ids, entries))


def encode_sampling_mask(mask: tuple[TokenIds, ...]) -> str:
    """Write a sampling mask as an attribute's text: how many ids each token could be, a space, and all of those ids."""
    counts = TokenIds(struct.pack(f"<{len(mask)}i", *map(len, mask)))
    return f"{encode_ids(counts)} {encode_ids(TokenIds(b''.join([ids.data for ids in mask])))}"


def decode_sampling_mask(value: Value) -> tuple[TokenIds, ...]:
    """Read a sampling mask from an attribute's text. Raises ParseError."""
    texts = value.split(" ") if isinstance(value, str) else []
    if len(texts) != 2:
        raise ParseError("", "is not a text of counts and ids")
    counts, ids = map(decode_ids, texts)
    ends = list(accumulate(counts, initial=0))
    if ends[-1] != len(ids):
        raise ParseError("", f"holds {len(ids)} ids, of {ends[-1]}")
    return tuple([ids[start:end] for start, end in pairwise(ends)])


_NPY: Final = b"\x93NUMPY"
_NPY_VERSIONS: Final = {1: "<8xH", 2: "<8xI", 3: "<8xI"}
_NPY_WIDTHS: Final = {"|u1": 1, "|i1": 1, "<u2": 2, "<i2": 2, "<i4": 4, "<u4": 4, "<i8": 8}
_MAX_HEADER: Final = 1000


def parse_routed_experts(value: Value) -> RoutedExperts:
    """Read the base64 of a `.npy` of shape (tokens, layers, experts). Raises ParseError for anything else."""
    data = _from_base64(value)
    if not data.startswith(_NPY) or len(data) <= len(_NPY) or data[6] not in _NPY_VERSIONS:
        raise ParseError("", "is no .npy")
    layout = struct.Struct(_NPY_VERSIONS[data[6]])
    try:
        start = layout.size + min(layout.unpack_from(data)[0], _MAX_HEADER)
        header = ast.literal_eval(data[layout.size : start].decode("latin-1"))
        (tokens, layers, experts), width = header["shape"], _NPY_WIDTHS[header["descr"]]
        rows = data[start:]
        if header["fortran_order"] or len(rows) != tokens * layers * experts * width:
            raise ParseError("", "is no array of tokens, layers and experts in C's order")
        return _narrowed(rows, layers, experts, width)
    except (ValueError, SyntaxError, KeyError, TypeError, struct.error, RecursionError):
        raise ParseError("", "is no array of tokens, layers and experts") from None


def _narrowed(rows: bytes, layers: int, experts: int, width: int) -> RoutedExperts:
    """The rows in as few bytes a number as they need. Raises ParseError for a number beyond two."""
    used = next((bytes_used for bytes_used in (1, 2) if _is_zero(rows, width, bytes_used)), None)
    if used is None or (width == 1 and used != 1):
        raise ParseError("", "has an expert with a number that does not fit into 2 bytes")
    if used != width:
        narrow = bytearray(len(rows) // width * used)
        for byte in range(used):
            narrow[byte::used] = rows[byte::width]
        rows = bytes(narrow)
    return RoutedExperts(data=rows, layers=layers, experts=experts, width=used)


def _is_zero(rows: bytes, width: int, used: int) -> bool:
    """Whether all bytes of the numbers from byte `used` on are 0."""
    return all(not any(rows[byte::width]) for byte in range(used, width))


def encode_routed_experts(experts: RoutedExperts) -> str:
    """Write routed experts as an attribute's text."""
    shape = f"{len(experts)}x{experts.layers}x{experts.experts}"
    return f"u{experts.width}:{shape}:{base64.b64encode(experts.data).decode()}"


def decode_routed_experts(value: Value) -> RoutedExperts:
    """Read routed experts from an attribute's text. Raises ParseError when it was cut or is something else."""
    parts = value.split(":", 2) if isinstance(value, str) else []
    shape = parts[1].split("x") if len(parts) == 3 and parts[0] in ("u1", "u2") else []
    if len(shape) != 3 or not all(number.isascii() and number.isdigit() and len(number) < 10 for number in shape):
        raise ParseError("", "is no text u1:<tokens>x<layers>x<experts>:<base64>")
    tokens, layers, experts = map(int, shape)
    try:
        routed = RoutedExperts(data=_from_base64(parts[2]), layers=layers, experts=experts, width=int(parts[0][1]))
    except ValueError as error:
        raise ParseError("", str(error)) from None
    if len(routed) != tokens:
        raise ParseError("", f"holds {len(routed)} rows, of {tokens}")
    return routed


def _from_base64(value: Value) -> bytes:
    try:
        return msgspec.convert(value, bytes)
    except msgspec.ValidationError:
        raise ParseError("", "is no base64") from None


def _read(reader: AttributeReader, name: str, decode: Callable[[Value], _Fact]) -> _Fact | None:
    return reader.parsed(name, decode, reader.attributes.get(name))


def _parsed(parse: Callable[[Value], _Fact], value: Value) -> _Fact | None:
    try:
        return None if value is None else parse(value)
    except ParseError:
        return None
