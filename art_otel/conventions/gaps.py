"""Gaps: what of a call's content is not, or may not be, what was sent and sampled, although it could be read.

`calls.GapKind` lists the kinds of gaps, `trajectories.wholeness.REASONS` says what follows from each. Invariant: a
dialect that does not say how it knows its content gives a gap; every other gap needs a sign in the recording: a count
of dropped attributes, a mark of its recorder, a mask (`masks`), a length that is a limit (`value_limits`), a part of an
unknown type, or a recorder that is known to lose or rewrite just this (`recorder_losses`).
What the conversation itself shows is `trajectories.wholeness`' subject.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Gap, GapKind, Message
from art_otel.conventions import values
from art_otel.conventions.attribute_names import NameFamilies
from art_otel.conventions.attributes import SpanRecording
from art_otel.conventions.bodies.parts import is_compaction
from art_otel.conventions.bodies.parts import is_known as is_known_part
from art_otel.conventions.dialects import art
from art_otel.conventions.facts import CallFacts, choices_without_ids, with_gap
from art_otel.conventions.masks import find_masked, is_hash, is_plain, mask_of, signs_of
from art_otel.conventions.prefix_cache import PrefixCache
from art_otel.conventions.recorder_losses import find_losses
from art_otel.conventions.references import find_unread, refers_to_content
from art_otel.conventions.value_limits import cut_values
from art_otel.conventions.vocabulary import COMPACTION, REFUSAL, UNKNOWN_ROLE, calls_with_objects

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

_ASKING: Final = ("system", "developer", "user")
"""Roles of messages that nobody sends without content. Tools may return nothing."""

_FILTERED: Final = frozenset({"content_filter", REFUSAL})
"""The finish reasons of answers that a server may not show."""

_JOINED: Final = re.compile(r"(stop|length|tool_calls|function_call|content_filter)+")
"""Finish reasons of several choices of a stream, which LangChain joins to one: `stoplength`."""

_TRUNCATING: Final = "truncate_prompt_tokens"

_WHOLE: Final = frozenset({None, "stop", "tool_calls"})

_LAST_CHARACTERS: Final = frozenset(mark[-1] for mark in (*_MARKS, _REPLACED))


def find_gaps(recording: SpanRecording, facts: CallFacts, reasons: Sequence[str | None] = ()) -> tuple[Gap, ...]:
    """The gaps of a call, each once: those of its dialects and what its span and its messages show.

    `reasons` are the finish reasons of the choices that an attribute of the span has.
    """
    span, logs, families = recording.span, recording.logs, recording.families
    of_dialects = [gap for gap in facts.gaps if gap.kind != "aborted" or not facts.stream]  # such a stream broke
    gaps = [*of_dialects, *_of_messages(recording, facts)]
    finished = (*reasons, *(choice.finish_reason for choice in facts.choices or ()))
    if COMPACTION in finished:
        gaps.append(Gap(kind="compacted", field="prompt", evidence=f"finish reason {COMPACTION}"))
    if not _FILTERED.isdisjoint(finished):
        gaps += _filtered(facts, reasons)
    if not _WHOLE.issuperset(finished):
        gaps += _of_endings(facts, reasons)
    if cut := cut_values(recording):
        gaps += [Gap(kind="cut", field=value.field, evidence=value.evidence) for value in cut]
    if "unknown" in (facts.prompt_known, facts.answer_known):
        gaps.append(Gap(kind="not understood", field="call", evidence=f"no source: {', '.join(facts.conventions)}"))
    if dropped := sum([log.dropped_attributes_count for log in logs], span.dropped_attributes_count):
        gaps.append(Gap(kind="dropped", field=_field_of_dropped(facts), evidence=f"{dropped} attributes"))
    if families.memo(_truncation_flags) or span.events or logs:
        gaps += _flags(recording)
    if logs or families.memo(refers_to_content):
        gaps += find_unread(recording, facts)
    gaps += find_losses(span, families, facts)
    gaps += _of_parameters(facts)
    if families.memo(art.has_extras) or logs:
        gaps += art.read_gaps(recording)
    return tuple(dict.fromkeys(gaps)) if gaps else ()


def _of_messages(recording: SpanRecording, facts: CallFacts) -> list[Gap]:
    """The gaps that messages show, and those of masks and hashes, which the rest of the call confirms."""
    gaps: list[Gap] = []
    judged = _judge_prompt(facts.input_messages) if facts.input_messages else _NOTHING_JUDGED
    has_hash = judged.has_hash
    if judged.signs:
        gaps += [Gap(kind=kind, field="prompt", evidence=sign) for kind, sign in judged.signs]
    for choice in facts.choices or ():
        judged = _judge((choice.message,), _NOTHING_JUDGED)
        has_hash = has_hash or judged.has_hash
        if judged.signs:
            # A server that compacts while it answers samples the answer from another prompt than was sent.
            fields = {"compacted": "prompt"}
            gaps += [
                Gap(kind=kind, field=fields.get(kind, f"answer[{choice.index}]"), evidence=sign)
                for kind, sign in judged.signs
            ]
    is_masked = has_hash or "masked" in [gap.kind for gap in (*facts.gaps, *gaps)]
    return [*gaps, *_masked(recording, facts)] if is_masked or signs_of(recording) else gaps


def _filtered(facts: CallFacts, reasons: Sequence[str | None]) -> Iterator[Gap]:
    """The answers that a server does not show: the recording has nothing of them, which is not what was sampled."""
    for choice in facts.choices or ():
        reason = choice.finish_reason or (reasons[choice.index] if choice.index < len(reasons) else None)
        if reason in _FILTERED and choice.message.says_nothing and not choice.token_ids:
            yield Gap(kind="off", field=f"answer[{choice.index}]", evidence=f"finish reason {reason}, no text")


def _of_endings(facts: CallFacts, reasons: Sequence[str | None]) -> Iterator[Gap]:
    """The answers that their finish reasons show to be several, or to have ended within a tool call.

    Arguments that were cut are no JSON: who recorded a value of them closed it. Some APIs answer with the value.
    """
    has_text = facts.stream or not calls_with_objects(facts.provider, facts.request_model)
    for choice in facts.choices or ():
        reason = choice.finish_reason or (reasons[choice.index] if choice.index < len(reasons) else None) or ""
        joined = _JOINED.fullmatch(reason)
        evidence = None
        last = choice.message.tool_calls[-1:]
        if reason == "length" and has_text and any(not call.exact and call.arguments for call in last):
            evidence = f"finish reason {reason}, and the arguments of a tool call were parsed"
        elif joined is not None and joined[1] != reason:
            is_one = reason == joined[1] * (len(reason) // len(joined[1]))  # as some servers repeat it in a stream
            if not is_one or (values.integer(facts.parameters.get("n")) or 1) > 1:
                evidence = f"finish reason {reason}"
        if evidence is not None:
            yield Gap(kind="lossy recorder", field=f"answer[{choice.index}]", evidence=evidence)


def _masked(recording: SpanRecording, facts: CallFacts) -> list[Gap]:
    """Find the masked messages of a call, if a message of it is a mask or a hash, or its span shows a mask."""
    prompt, choices = facts.input_messages or (), facts.choices or ()
    answers = [choice.message for choice in choices]
    return [
        Gap(
            kind="masked",
            field="prompt" if one.where == "prompt" else f"answer[{choices[one.index].index}]",
            evidence=one.evidence,
        )
        for one in find_masked(recording, prompt, answers)
    ]


def _of_parameters(facts: CallFacts) -> Iterator[Gap]:
    """What the request asked for, and the recording does not have or cannot show.

    More choices than were recorded: Traceloop's JavaScript writes the first one only. A prompt of which vLLM may leave
    out what is too much (-1: what the model's context does not hold), and no count shows that it was short enough.
    """
    if "n" in facts.parameters:
        asked = values.integer(facts.parameters["n"])
        if asked is not None and facts.choices and len(facts.choices) < asked and facts.answer_known != "verbatim body":
            missing = f"answer[{len(facts.choices)}]"  # those that were recorded are as they were sampled
            yield Gap(kind="lossy recorder", field=missing, evidence=f"{len(facts.choices)} of {asked} choices")
    if _TRUNCATING in facts.parameters:
        allowed = values.integer(facts.parameters[_TRUNCATING])
        counted = None if facts.usage is None else facts.usage.input_tokens
        if allowed is None or counted is None or counted >= allowed:
            yield Gap(kind="compacted", field="prompt", evidence=f"{_TRUNCATING} {facts.parameters[_TRUNCATING]}")


def with_several_prompts(facts: CallFacts) -> CallFacts:
    """Add the gap of a request of Completions that had several prompts, so that its choices share none.

    They were recorded, or there are more choices than it asked of one prompt.
    """
    if facts.input_messages is not None or facts.prompt_token_ids is not None:
        return facts
    prompts, choices = values.items(facts.parameters.get("prompt")) or (), facts.choices or ()
    asked = values.integer(facts.parameters.get("n")) or 1
    if len(prompts) <= 1 and len(choices) <= asked:
        return facts
    evidence = f"{len(prompts)} prompts" if len(prompts) > 1 else f"{len(choices)} choices, {asked} of each prompt"
    return with_gap(facts, "several prompts", evidence, field="prompt")


def without_miscounted_ids(facts: CallFacts) -> CallFacts:
    """Leave out token ids that are not as many as the server counted; the gap says so.

    `facts` are those of one dialect: its count is the server's own, where another recorder may have estimated one.
    llama.cpp lists no token that ends inside a character. Where choices are missing, fewer ids are no sign; where the
    model reasoned, more are none: some servers do not count that.
    """
    counted = None if facts.usage is None else facts.usage.output_tokens
    ids = [choice.token_ids for choice in facts.choices or () if choice.token_ids is not None]
    if counted is None or not ids or values.flag(facts.parameters.get("echo")):
        return facts
    listed = sum(map(len, ids))
    messages = [choice.message for choice in facts.choices or ()]
    if listed > counted:
        is_explained = any(message.reasoning is not None for message in messages)
    else:
        is_explained = listed == counted or not _has_all_choices(facts, len(ids))
    if is_explained:
        return facts
    is_text_known = not any(message.is_unknown for message in messages)
    return with_gap(
        without_ids(facts),
        "miscounted",
        f"{listed} token ids of {counted} tokens",
        field="tokens" if is_text_known else "answer",
    )


def without_ids(facts: CallFacts) -> CallFacts:
    """Leave out the ids of the answers, and what is said of each token."""
    return msgspec.structs.replace(facts, choices=choices_without_ids(facts.choices)) if facts.choices else facts


def _has_all_choices(facts: CallFacts, count: int) -> bool:
    """Whether the server counted no other tokens than those of so many choices."""
    prompts = values.items(facts.parameters.get("prompt"))
    asked = (values.integer(facts.parameters.get("n")) or 1) * len(prompts or (None,))
    sampled = values.integer(facts.parameters.get("best_of")) or 1
    return count == len(facts.choices or ()) and count >= max(asked, sampled)


def _field_of_dropped(facts: CallFacts) -> str:
    """The field that dropped attributes may be of: none of the content where one attribute has it whole."""
    in_pieces = (None, "flattened attributes", "unknown")
    return "call" if facts.prompt_known in in_pieces or facts.answer_known in in_pieces else "parameters"


def _flags(recording: SpanRecording) -> Iterator[Gap]:
    """What a span or its events say by a flag `….truncated`."""
    span, logs = recording.span, recording.logs
    names = recording.names.of(recording.families.memo(_truncation_flags))
    flagged = [(span.attributes, name) for name in names]
    carriers: list[Attributes] = [*(event.attributes for event in span.events), *(log.attributes for log in logs)]
    flagged += [(attributes, name) for attributes in carriers for name in attributes if "truncated" in name]
    for attributes, name in flagged:
        if _FLAG.fullmatch(name) and (values.flag(attributes[name]) or values.integer(attributes[name])):
            yield Gap(kind="cut", field="call", evidence=name)


def _truncation_flags(families: NameFamilies) -> tuple[str, ...]:
    return tuple(name for name in families.starting("") if _FLAG.fullmatch(name))


class _Judged(NamedTuple):
    """The signs of gaps in a prompt, and whether one of its messages is a hash."""

    signs: tuple[_Sign, ...]
    has_hash: bool


_NOTHING_JUDGED: Final = _Judged((), has_hash=False)

_PROMPTS: Final[PrefixCache[tuple[Message, ...], _Judged]] = PrefixCache(
    lambda prompt, piece, position: prompt[position : position + len(piece)] == piece
)
"""What the prompts judged last showed."""

_FEW: Final = 4
"""So many messages are judged sooner than they are looked up."""


def _judge_prompt(prompt: tuple[Message, ...]) -> _Judged:
    """Judge a prompt; the messages of a long one that were judged before are not judged again."""
    if len(prompt) <= _FEW:
        return _judge(prompt, _NOTHING_JUDGED)
    earlier = _PROMPTS.find(prompt)
    if earlier is None:
        judged = _judge(prompt, _NOTHING_JUDGED)
    elif earlier.length == len(prompt):
        return earlier.value
    else:
        judged = _judge(prompt[earlier.length :], earlier.value)
    _PROMPTS.keep(prompt, judged, earlier=earlier)
    return judged


def _judge(messages: Iterable[Message], judged: _Judged) -> _Judged:
    """Add to what was judged the signs of gaps in further messages, most of which have nothing to judge."""
    for message in messages:
        text = message.content
        if text is None or text[-1:] in _LAST_CHARACTERS or message.role == UNKNOWN_ROLE or not is_plain(message):
            judged = _Judged(judged.signs + _signs_of(message), judged.has_hash or is_hash(message))
    return judged


def _signs_of(message: Message) -> tuple[_Sign, ...]:
    text = message.content
    signs: list[_Sign] = []
    if (mask := mask_of(message)) is not None:
        signs.append(("masked", mask.evidence))
    if message.role in _ASKING and message.is_unknown:
        signs.append(("off", f"a message of role {message.role} without content"))
    if message.role == UNKNOWN_ROLE:
        signs.append(("not understood", f"a message of role {UNKNOWN_ROLE}"))
    if message.parts is not None:
        signs.extend(_signs_of_parts(message.parts))
    if text is not None and (text == _REPLACED or (message.role in ("assistant", "system") and text.endswith(_MARKS))):
        signs.append(("cut", text[-40:]))
    return tuple(signs)


@lru_cache(maxsize=256)
def _signs_of_parts(json_text: str) -> tuple[_Sign, ...]:
    signs: list[_Sign] = []
    parts: list[dict[str, Value]] = msgspec.json.decode(json_text)
    for part in parts:
        kind = f"parts of type {part.get('type')}"
        if is_compaction(part):
            signs.append(("compacted", kind))
        elif not is_known_part(part):
            signs.append(("not understood", kind))
    return tuple(dict.fromkeys(signs))
