"""Tool results: how frameworks that record what a tool gave as a value send it to the model.

Sources: pydantic-ai (`messages.py`, `models/*.py`: `model_response_str`, `model_response_object`, `content_items`), and
the AI SDK (`packages/otel/src/gen-ai-format-messages.ts`, the prompt converters of its providers), recorded beside the
model's server. Invariant: a list that a tool gave is no list of content parts, whatever its entries look like.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from art_otel.conventions.attributes import values
from art_otel.conventions.bodies.message import ResultWriter, sent_result
from art_otel.spans import Span, Value

_ERROR_DETAILS: Final = frozenset({"type", "loc", "msg"})
"""What pydantic says of an argument that is not valid."""

_TELLS_ERRORS: Final = ("anthropic", "bedrock")
"""Providers whose API has a field for a failed tool, so that its answer is sent as it is."""

_SENDS_ENTRIES: Final = (1, 69)
"""The first version of pydantic-ai that sends the entries of a list apart to these providers."""


def result_writer(span: Span) -> ResultWriter:
    """How results of tools are written in the messages of a span."""
    writers = _FRAMEWORKS.get(span.scope.name)
    return sent_result if writers is None else writers(span)


def compact_result(result: Value) -> Value:
    """Write a result as JSON without spaces, as the AI SDK and pydantic-ai do."""
    return result if isinstance(result, str) else msgspec.json.encode(values.json_safe(result)).decode()


def _pydantic_ai(span: Span) -> ResultWriter:
    provider = values.text(span.attributes.get("gen_ai.provider.name", span.attributes.get("gen_ai.system"))) or ""
    if "google" in provider or "gemini" in provider or provider.startswith("gcp."):
        return _gemini_result
    if not provider.endswith(_TELLS_ERRORS):
        return _result_or_error
    is_list_sent_whole = _version(span) < _SENDS_ENTRIES
    return compact_result if is_list_sent_whole else _entries


def _result_or_error(result: Value) -> Value:
    """Write a result; what is wrong with a call's arguments is sent as an error."""
    return compact_result({"error": result} if _is_error(result) else result)


def _gemini_result(result: Value) -> Value:
    """Write a result as the object that Gemini's API asks for."""
    if _is_error(result):
        return sent_result({"error": result})
    return sent_result(result if isinstance(result, dict) else {"return_value": result})


def _entries(result: Value) -> Value:
    """Write each entry of a list as a text of its own."""
    entries = values.items(result)
    if entries is None or _is_error(result):
        return compact_result(result)
    return [entry if isinstance(entry, str) else compact_result(entry) for entry in entries]


def _version(span: Span) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", span.scope.version or ""))) or _SENDS_ENTRIES


def _is_error(result: Value) -> bool:
    entries = values.items(result)
    return bool(entries) and all((values.mapping(entry) or {}).keys() >= _ERROR_DETAILS for entry in entries or ())


def _ai_sdk(_: Span) -> ResultWriter:
    return compact_result


_FRAMEWORKS: Final[dict[str, Callable[[Span], ResultWriter]]] = {"pydantic-ai": _pydantic_ai, "ai": _ai_sdk}
