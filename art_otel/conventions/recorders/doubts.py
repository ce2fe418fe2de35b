"""Doubts: what shows that a call's content is not what was sent and sampled, although it could be read.

A doubt is the reason for which its trajectory is incomplete; its turns are not trained (`content doubtful`). Invariant:
a doubt needs a sign in the recording itself: a mark of its recorder, a hole in a list, a part of an unknown type, or
a recorder that is known to lose or rewrite just this (`lossy`).
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from art_otel.calls import CONTENT_TRUNCATED, UNKNOWN_PARTS, Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.bodies.parts import is_known as is_known_part
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.recorders.lossy import lossy_doubts
from art_otel.conventions.recording import Recording
from art_otel.spans import Event, LogRecord, Value

_FLAG: Final = re.compile(r"(?:.*[._])?truncated(?:_(?:messages|parts|content|input|output|prompt|completion|count))?")
"""Names of attributes by which recorders say that they cut content: `anthropic.content.truncated`, …."""

_MARKS: Final = ("[truncated]", "[TRUNCATED]", "<truncated>", "(truncated)")
"""How a cut text ends. Tools write it too, so it shows nothing at the end of what they or users said."""

_REPLACED: Final = "<truncated due to size exceeding limit>"
"""What Langfuse writes in place of content."""

_LAST_CHARACTERS: Final = frozenset(mark[-1] for mark in (*_MARKS, _REPLACED))


def find_doubts(recording: Recording, facts: CallFacts) -> tuple[str, ...]:
    """The doubts about a call, each once: those of its dialects and what the whole call shows."""
    span, doubts = recording.span, facts.doubts
    if facts.input_messages:
        doubts += _PROMPTS.doubts(facts.input_messages)
    if facts.choices:
        doubts += _of_messages([choice.message for choice in facts.choices])
    flags = recording.names.memo(_truncation_flags)
    if (flags and _is_set(span.attributes, flags)) or (
        (span.events or recording.logs) and _say_truncated((*span.events, *recording.logs))
    ):
        doubts += (CONTENT_TRUNCATED,)
    doubts += lossy_doubts(span.scope, recording.names, facts)
    return tuple(dict.fromkeys(doubts)) if doubts else ()


def _say_truncated(events: Iterable[Event | LogRecord]) -> bool:
    flags = [(event, name) for event in events for name in event.attributes if "truncated" in name]
    return any(_FLAG.fullmatch(name) and _is_set(event.attributes, (name,)) for event, name in flags)


def _truncation_flags(names: AttributeNames) -> tuple[str, ...]:
    return tuple(name for name in names.starting("") if _FLAG.fullmatch(name))


def _is_set(attributes: Mapping[str, Value], names: Iterable[str]) -> bool:
    """Whether one of the attributes says yes, or a number that is not 0."""
    return any(values.flag(attributes[name]) or values.integer(attributes[name]) for name in names)


class _JudgedPrompts:
    """The prompts judged last with their doubts: of one that begins with one of them only the rest is judged."""

    def __init__(self) -> None:
        self._last: tuple[tuple[tuple[Message, ...], tuple[str, ...]], ...] = ()

    def doubts(self, prompt: tuple[Message, ...]) -> tuple[str, ...]:
        """Return the doubts about a prompt that has messages; those checked before are not checked again."""
        checked_count = 0
        doubts: tuple[str, ...] = ()
        for earlier, its_doubts in self._last:
            count = len(earlier)
            if count <= len(prompt) and prompt[count - 1] is earlier[-1] and prompt[:count] == earlier:
                checked_count, doubts = count, its_doubts
                break
        if checked_count < len(prompt):
            doubts += _of_messages(prompt[checked_count:])
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = ((prompt, doubts), *self._last[: _REMEMBERED - 1])
        return doubts


_REMEMBERED: Final = 4
_PROMPTS: Final = _JudgedPrompts()


def _of_messages(messages: Iterable[Message]) -> tuple[str, ...]:
    """The doubts about messages, most of which have nothing to judge."""
    doubts: tuple[str, ...] = ()
    for message in messages:
        if message.parts is not None or ((text := message.content) is not None and text[-1:] in _LAST_CHARACTERS):
            doubts += _of_message(message)
    return doubts


def _of_message(message: Message) -> tuple[str, ...]:
    text = message.content
    is_known = message.parts is None or _are_known(message.parts)
    is_cut = text is not None and (
        text == _REPLACED or (message.role in ("assistant", "system") and text.endswith(_MARKS))
    )
    return (() if is_known else (UNKNOWN_PARTS,)) + ((CONTENT_TRUNCATED,) if is_cut else ())


@lru_cache(maxsize=256)
def _are_known(json_text: str) -> bool:
    parts: list[dict[str, Value]] = msgspec.json.decode(json_text)
    return all(map(is_known_part, parts))
