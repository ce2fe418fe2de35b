"""Gaps: what of a call's content is not, or may not be, what was sent and sampled, although it could be read.

A gap is the reason for which its trajectory is incomplete and its completions are not trained; `calls.Gap` lists the
kinds. Invariant: a dialect that does not say how it knows its content gives a gap; every other gap needs a sign in the
recording: a count of dropped attributes, a mark of its recorder, a mask (`masks`), a length that is a limit
(`value_limits`), a part of an unknown type, or a recorder that is known to lose or rewrite just this (`lossy`).
What the conversation itself shows is `trajectories.wholeness`' subject.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from art_otel.calls import Gap, GapKind, Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.bodies.parts import is_known as is_known_part
from art_otel.conventions.dialects import art
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.masks import find_masked, is_hash, mask_of, signs_of
from art_otel.conventions.recorders.lossy import find_losses
from art_otel.conventions.recording import Recording
from art_otel.conventions.value_limits import cut_values

if TYPE_CHECKING:
    from art_otel.spans import Attributes, Value

_Sign: TypeAlias = tuple[GapKind, str]
"""The kind and the evidence of a gap in a message."""

_FLAG: Final = re.compile(r"(?:.*[._])?truncated(?:_(?:messages|parts|content|input|output|prompt|completion|count))?")
"""Names of attributes by which recorders say that they cut content: `anthropic.content.truncated`, …."""

_MARKS: Final = ("[truncated]", "[TRUNCATED]", "<truncated>", "(truncated)")
"""How a cut text ends. Tools write it too, so it shows nothing at the end of what they or users said."""

_REPLACED: Final = "<truncated due to size exceeding limit>"
"""What Langfuse writes in place of content."""

_LAST_CHARACTERS: Final = frozenset(mark[-1] for mark in (*_MARKS, _REPLACED))


def find_gaps(recording: Recording, facts: CallFacts) -> tuple[Gap, ...]:
    """The gaps of a call, each once: those of its dialects and what its span and its messages show."""
    span, gaps = recording.span, [*facts.gaps]
    prompt_signs = _PROMPTS.signs(facts.input_messages) if facts.input_messages else ()
    gaps += [Gap(kind=kind, field="prompt", evidence=sign) for kind, sign in prompt_signs]
    for choice in facts.choices or ():
        if signs := _signs_of((choice.message,)):
            gaps += [Gap(kind=kind, field=f"answer[{choice.index}]", evidence=sign) for kind, sign in signs]
    gaps += _masked(recording, facts, is_shown=any(gap.kind == "masked" for gap in gaps))
    gaps += [Gap(kind="cut", field=value.field, evidence=value.evidence) for value in cut_values(recording)]
    if "unknown" in (facts.prompt_known, facts.answer_known):
        gaps.append(Gap(kind="not understood", field="call", evidence=f"no source: {', '.join(facts.conventions)}"))
    if dropped := span.dropped_attributes_count + sum([log.dropped_attributes_count for log in recording.logs]):
        gaps.append(Gap(kind="dropped", field=_field_of_dropped(facts), evidence=f"{dropped} attributes"))
    gaps += _flags(recording)
    gaps += find_losses(span.scope, recording.names, facts)
    if recording.names.memo(art.has_extras) or recording.logs:
        gaps += art.read_gaps(recording)
    return tuple(dict.fromkeys(gaps)) if gaps else ()


def _masked(recording: Recording, facts: CallFacts, *, is_shown: bool) -> list[Gap]:
    """What is masked of a call of which one message is a mask, or a hash, or whose span shows a mask."""
    prompt, choices = facts.input_messages or (), facts.choices or ()
    answers = [choice.message for choice in choices]
    if not is_shown and not signs_of(recording) and not any(map(is_hash, (*prompt, *answers))):
        return []  # as of nearly all calls
    return [
        Gap(
            kind="masked",
            field="prompt" if one.where == "prompt" else f"answer[{choices[one.index].index}]",
            evidence=one.evidence,
        )
        for one in find_masked(recording, prompt, answers)
    ]


def _field_of_dropped(facts: CallFacts) -> str:
    """The field that dropped attributes may be of: none of the content where one attribute has it whole."""
    in_pieces = (None, "flattened attributes", "unknown")
    return "call" if facts.prompt_known in in_pieces or facts.answer_known in in_pieces else "parameters"


def _flags(recording: Recording) -> Iterator[Gap]:
    """What a span or its events say by a flag `….truncated`."""
    span, logs = recording.span, recording.logs
    flagged = [(span.attributes, name) for name in recording.names.memo(_truncation_flags)]
    carriers: list[Attributes] = [*(event.attributes for event in span.events), *(log.attributes for log in logs)]
    flagged += [(attributes, name) for attributes in carriers for name in attributes if "truncated" in name]
    for attributes, name in flagged:
        if _FLAG.fullmatch(name) and (values.flag(attributes[name]) or values.integer(attributes[name])):
            yield Gap(kind="cut", field="call", evidence=name)


def _truncation_flags(names: AttributeNames) -> tuple[str, ...]:
    return tuple(name for name in names.starting("") if _FLAG.fullmatch(name))


class _JudgedPrompts:
    """The prompts judged last with their signs: of one that begins with one of them only the rest is judged."""

    def __init__(self) -> None:
        self._last: tuple[tuple[tuple[Message, ...], tuple[_Sign, ...]], ...] = ()

    def signs(self, prompt: tuple[Message, ...]) -> tuple[_Sign, ...]:
        """Return the signs in a prompt that has messages; those checked before are not checked again."""
        checked_count = 0
        signs: tuple[_Sign, ...] = ()
        for earlier, its_signs in self._last:
            count = len(earlier)
            if count <= len(prompt) and prompt[count - 1] is earlier[-1] and prompt[:count] == earlier:
                checked_count, signs = count, its_signs
                break
        if checked_count < len(prompt):
            signs += _signs_of(prompt[checked_count:])
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = ((prompt, signs), *self._last[: _REMEMBERED - 1])
        return signs


_REMEMBERED: Final = 4
_PROMPTS: Final = _JudgedPrompts()


def _signs_of(messages: Iterable[Message]) -> tuple[_Sign, ...]:
    """The signs of gaps in messages, most of which have nothing to judge."""
    signs: tuple[_Sign, ...] = ()
    for message in messages:
        if (mask := mask_of(message)) is not None:
            signs = (*signs, ("masked", mask.evidence))
        if message.parts is not None or ((text := message.content) is not None and text[-1:] in _LAST_CHARACTERS):
            signs += _signs_of_one(message)
    return signs


def _signs_of_one(message: Message) -> tuple[_Sign, ...]:
    text = message.content
    unknown = () if message.parts is None else _unknown_types(message.parts)
    is_cut = text is not None and (
        text == _REPLACED or (message.role in ("assistant", "system") and text.endswith(_MARKS))
    )
    signs: list[_Sign] = [("not understood", f"parts of type {kind}") for kind in unknown]
    if is_cut:
        signs.append(("cut", (text or "")[-40:]))
    return tuple(signs)


@lru_cache(maxsize=256)
def _unknown_types(json_text: str) -> tuple[str, ...]:
    parts: list[dict[str, Value]] = msgspec.json.decode(json_text)
    return tuple(dict.fromkeys(str(part.get("type")) for part in parts if not is_known_part(part)))
