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
from art_otel.conventions.bodies.parts import is_known
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.recorders.lossy import lossy_doubts
from art_otel.conventions.recording import Recording
from art_otel.spans import Value

_FLAG: Final = re.compile(r"(?:.*[._])?truncated(?:_(?:messages|parts|content|input|output|prompt|completion|count))?")
"""Names of attributes by which recorders say that they cut content: `anthropic.content.truncated`, …."""

_MARKS: Final = ("[truncated]", "[TRUNCATED]", "<truncated>", "(truncated)")
"""How a cut text ends. Tools write it too, so it shows nothing at the end of what they or users said."""

_REPLACED: Final = "<truncated due to size exceeding limit>"
"""What Langfuse writes in place of content."""


def find_doubts(recording: Recording, facts: CallFacts) -> tuple[str, ...]:
    """The doubts about a call, each once: those of its dialects and what the whole call shows."""
    span = recording.span
    doubts = dict.fromkeys(facts.doubts)
    flags = recording.names.memo(_truncation_flags)
    if flags and _is_set(span.attributes, flags):
        doubts[CONTENT_TRUNCATED] = None
    for event in (*span.events, *recording.logs) if span.events or recording.logs else ():
        if _is_set(event.attributes, [name for name in event.attributes if _FLAG.fullmatch(name)]):
            doubts[CONTENT_TRUNCATED] = None
    doubts |= dict.fromkeys(_PROMPTS.doubts(facts.input_messages or ()))
    doubts |= dict.fromkeys(_of_messages([choice.message for choice in facts.choices or ()]))
    return (*doubts, *(doubt for doubt in lossy_doubts(span.scope.name, facts) if doubt not in doubts))


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
        """The doubts about a prompt."""
        known: tuple[Message, ...] = ()
        doubts: tuple[str, ...] = ()
        for earlier, its_doubts in self._last:
            if len(known) < len(earlier) <= len(prompt) and prompt[: len(earlier)] == earlier:
                known, doubts = earlier, its_doubts
        doubts += tuple(_of_messages(prompt[len(known) :]))
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = ((prompt, doubts), *self._last[: _REMEMBERED - 1])
        return doubts


_REMEMBERED: Final = 4
_PROMPTS: Final = _JudgedPrompts()


def _of_messages(messages: Iterable[Message]) -> list[str]:
    doubts: list[str] = []
    for message in messages:
        if message.parts is not None and not _are_known(message.parts):
            doubts.append(UNKNOWN_PARTS)
        text = message.content
        if (
            text is not None and text.endswith(_MARKS) and message.role in ("assistant", "system")
        ) or text == _REPLACED:
            doubts.append(CONTENT_TRUNCATED)
    return doubts


@lru_cache(maxsize=256)
def _are_known(json_text: str) -> bool:
    parts: list[dict[str, Value]] = msgspec.json.decode(json_text)
    return all(map(is_known, parts))
