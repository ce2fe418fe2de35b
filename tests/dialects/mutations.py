"""Mutations: what happens to recordings on their way, done to the records of real ones.

Each is a function of records and the texts that were said. Invariant: a mutation changes values, and how often and in
which lists messages are written; it knows no attribute names but the prefixes of flattened lists.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from random import Random
from typing import TypeAlias

import msgspec

from art_otel.conventions import parse_call, role_of
from art_otel.spans import LogRecord, Span, Value

Record: TypeAlias = Span | LogRecord

SAMPLED_TYPES = ("function_call", "reasoning", "tool_use", "custom_tool_call")
TOOL_TYPES = ("tool_result", "tool-result", "function_call_output", "tool_call_response", "custom_tool_call_output")
SAMPLED_ROLES = ("assistant", "model", "ai")
ANSWERS = re.compile(r"output|completion|response|choice|assistant", re.IGNORECASE)


def each_text(value: Value, change: Callable[[str], Value]) -> Value:
    """The value with every text in it changed, also in JSON that is a text; keys stay."""
    if isinstance(value, str):
        decoded = decoded_json(value)
        if decoded is None:
            return change(value)
        changed = each_text(decoded, change)
        return value if changed == decoded else json.dumps(changed, ensure_ascii=False)
    if isinstance(value, dict):
        return {name: each_text(inner, change) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [each_text(inner, change) for inner in value]
    return value


@lru_cache(maxsize=512)
def decoded_json(text: str) -> Value:
    """The object, list or text that a JSON text is; None for any other text."""
    if text[:1] not in ("{", "[", '"'):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def rewritten(records: Iterable[Record], change: Callable[[str, Value], Value]) -> list[Record]:
    """The records with every attribute changed by name and value; of those that become None nothing is left."""
    return [_rewritten(record, change) for record in records]


def _rewritten(record: Record, change: Callable[[str, Value], Value]) -> Record:
    attributes = _attributes(record.attributes, change)
    if isinstance(record, LogRecord):
        name = record.event_name or "body"
        return msgspec.structs.replace(record, attributes=attributes, body=change(name, record.body))
    events = tuple(
        msgspec.structs.replace(
            event,
            attributes=_attributes(event.attributes, lambda name, value, at=event.name: change(f"{at} {name}", value)),
        )
        for event in record.events
    )
    return msgspec.structs.replace(record, attributes=attributes, events=events)


def _attributes(attributes, change):
    changed = {name: change(name, value) for name, value in attributes.items()}
    return {name: value for name, value in changed.items() if value is not None or attributes[name] is None}


def with_texts_masked(records: Sequence[Record], texts: set[str], mask: str, *, answers_only: bool) -> list[Record]:
    """Each text that was said is the mask, as recorders write that walk through values."""

    def change(name: str, value: Value) -> Value:
        if answers_only and not ANSWERS.search(name):
            return value
        return each_text(value, lambda text: mask if text in texts else text)

    return rewritten(records, change)


def with_attributes_masked(
    records: Sequence[Record], texts: set[str], mask: str | None, *, only_json: bool = False
) -> list[Record]:
    """Each attribute in which something was said is the mask, or is left out, as collectors and switches do."""

    def change(name: str, value: Value) -> Value:
        if not isinstance(value, str):
            return value
        said = []
        each_text(value, lambda text: said.append(text in texts) or text)
        is_left = only_json and (decoded_json(value) is None or re.search(r"\.\d+\.|content$", name) is not None)
        return mask if any(said) and not is_left else value

    return rewritten(records, change)


def with_words_masked(records: Sequence[Record], word: str, mask: str, sign: dict[str, Value]) -> list[Record]:
    """A word in every text is the mask, and the spans have the sign of the program that wrote it."""
    masked = rewritten(records, lambda _, value: each_text(value, lambda text: text.replace(word, mask)))
    return [
        msgspec.structs.replace(record, attributes={**record.attributes, **sign})
        if isinstance(record, Span)
        else record
        for record in masked
    ]


@lru_cache(maxsize=2048)
def filler(text: str, length: int) -> str:
    """What makes a text about this much longer: other words for each text, with nothing that JSON escapes."""
    random = Random(text)
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(2, 9))) for _ in range(50)]
    more = " ".join(random.choices(words, k=length // 4))
    return f" {more[: length + random.randint(0, length // 3)]}."


def lengthened(records: Sequence[Record], texts: Iterable[str], length: int) -> list[Record]:
    """The records as if longer texts had been said."""
    more = {text: filler(text, length) for text in texts if len(text) > 3 and text[:1] not in "{["}
    if not more:
        return list(records)
    spelled = {form: form + more[text] for text in more for form in (text, json.dumps(text)[1:-1])}
    pattern = re.compile("|".join(re.escape(form) for form in sorted(spelled, key=len, reverse=True)))

    def change(_: str, value: Value) -> Value:
        if isinstance(value, str):
            return pattern.sub(lambda match: spelled[match[0]], value)
        if isinstance(value, dict):
            return {name: change(name, inner) for name, inner in value.items()}
        return [change("", inner) for inner in value] if isinstance(value, (list, tuple)) else value

    return rewritten(records, change)


def cut_at(records: Sequence[Record], cut: Callable[[str], str]) -> list[Record]:
    """Every attribute is cut; bodies of log records are no attributes."""

    def change(value: Value) -> Value:
        if isinstance(value, str):
            return cut(value)
        return [change(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    def attributes(record):
        return {name: change(value) for name, value in record.attributes.items()}

    cut_records: list[Record] = []
    for record in records:
        one = msgspec.structs.replace(record, attributes=attributes(record))
        if isinstance(one, Span):
            events = tuple(msgspec.structs.replace(event, attributes=attributes(event)) for event in one.events)
            one = msgspec.structs.replace(one, events=events)
        cut_records.append(one)
    return cut_records


def doubled(records: Sequence[Record]) -> list[Record]:
    """Every record twice, as a retried export delivers it."""
    return [*records, *records]


def written_twice(records: Sequence[Record]) -> list[Record]:
    """Every call that is below another span and has a response's id is on a second span, as LiteLLM writes them."""
    copies = [
        msgspec.structs.replace(record, span_id=f"{index + 1:016x}")
        for index, record in enumerate(records)
        if isinstance(record, Span) and record.parent_span_id is not None and _has_response_id(record)
    ]
    return [*records, *copies]


def _has_response_id(span: Span) -> bool:
    return role_of(span) == "inference" and parse_call(span).response_id is not None


def without_history(records: Sequence[Record]) -> list[Record]:
    """Prompts that begin with the answers of tools, as where what stands before them is on the server."""
    cut = rewritten(records, lambda _, value: _tail_of_lists(value))
    return [
        msgspec.structs.replace(record, attributes=_tail_of_flattened(record.attributes))
        if isinstance(record, Span)
        else record
        for record in cut
    ]


def _tail_of_lists(value: Value) -> Value:
    """The value with each list of messages in it cut to the answers of tools that follow the last answer."""
    if isinstance(value, str):
        decoded = decoded_json(value)
        changed = None if decoded is None else _tail_of_lists(decoded)
        return value if changed == decoded else json.dumps(changed, ensure_ascii=False)
    if isinstance(value, dict):
        return {name: _tail_of_lists(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        sampled = [index for index, entry in enumerate(value) if _is_sampled(entry)]
        rest = value[sampled[-1] + 1 :] if sampled else []
        if rest and _is_answer_of_tool(rest[0]):
            return list(rest)
        return [_tail_of_lists(inner) for inner in value]
    return value


def _is_sampled(entry: Value) -> bool:
    fields = _message(entry)
    return fields.get("role") in SAMPLED_ROLES or fields.get("type") in SAMPLED_TYPES


def _is_answer_of_tool(entry: Value) -> bool:
    fields = _message(entry)
    parts = [_message(part) for part in (fields, *(fields.get("parts") or fields.get("content") or ())) if part]
    return any(
        part.get("role") == "tool" or part.get("type") in TOOL_TYPES or "functionResponse" in part for part in parts
    )


def _message(entry: Value) -> dict:
    """The fields of a message, which some recorders wrap."""
    if not isinstance(entry, dict):
        return {}
    inner = entry.get("message")
    return inner if isinstance(inner, dict) else entry


FLATTENED_LIST = r"(gen_ai\.prompt|llm\.input_messages)"
FLATTENED = re.compile(rf"{FLATTENED_LIST}\.(\d+)\.(.+)")


def _tail_of_flattened(attributes):
    positions = [
        int(match[2])
        for name, value in attributes.items()
        if (match := FLATTENED.match(name)) and match[3].endswith("role") and value in SAMPLED_ROLES
    ]
    if not positions:
        return attributes
    first = max(positions) + 1
    roles = [
        value
        for name, value in attributes.items()
        if re.fullmatch(rf"{FLATTENED_LIST}\.{first}\.(?:message\.)?role", name)
    ]
    if roles != ["tool"]:
        return attributes
    kept = {}
    for name, value in attributes.items():
        match = FLATTENED.match(name)
        if match is None:
            kept[name] = value
        elif int(match[2]) >= first:
            kept[f"{match[1]}.{int(match[2]) - first}.{match[3]}"] = value
    return kept
