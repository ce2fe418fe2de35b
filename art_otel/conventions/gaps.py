"""Gaps: find content of one recorded call that may differ from what was really sent and sampled.

`calls.GapKind` lists the kinds of gaps, `trajectories.wholeness.REASONS` has their consequences. Gaps that only several
calls together show are found in `trajectories.conversation_gaps`.

Invariant: every gap needs a sign in the recording: a count of dropped attributes, a mark of the recorder, a mask
(`masks`), a length that is a limit (`value_limits`), a part of unknown type, or a recorder that is known to lose just
this (`recorder_losses`). The only exception: a dialect that does not state how it knows its content gives a gap.
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
"""Endings of cut texts. Tools write them, too, so they count only at the end of assistant and system messages."""

_REPLACED: Final = "<truncated due to size exceeding limit>"
"""The text that Langfuse writes in place of too long content."""

_ASKING: Final = ("system", "developer", "user")
"""Roles whose messages always have content when they are sent. A tool's result may be empty."""

_FILTERED: Final = frozenset({"content_filter", REFUSAL})
"""The finish reasons of answers that a server may not show."""

_JOINED: Final = re.compile(r"(stop|length|tool_calls|function_call|content_filter)+")
"""Finish reasons that LangChain joins to one for several choices of a stream: `stoplength`."""

_TRUNCATING: Final = "truncate_prompt_tokens"

_WHOLE: Final = frozenset({None, "stop", "tool_calls"})

_LAST_CHARACTERS: Final = frozenset(mark[-1] for mark in (*_MARKS, _REPLACED))


def find_gaps(recording: SpanRecording, facts: CallFacts, reasons: Sequence[str | None] = ()) -> tuple[Gap, ...]:
    """Find the gaps of a call, each once: those of its dialects, its span and its messages.

    `reasons` are the finish reasons of the choices, from an attribute of the span.
    """
    span, logs, families = recording.span, recording.logs, recording.families
    # An aborted stream has no finish reason, so it gets the verdict `stream broke` anyway.
    of_dialects = [gap for gap in facts.gaps if gap.kind != "aborted" or not facts.stream]
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
    """The gaps of single messages, and those of masks and hashes, which need signs in the rest of the call."""
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
    # `find_masked` reads all texts again, so it needs a first sign.
    is_masked = has_hash or "masked" in [gap.kind for gap in (*facts.gaps, *gaps)]
    return [*gaps, *_masked(recording, facts)] if is_masked or signs_of(recording) else gaps


def _filtered(facts: CallFacts, reasons: Sequence[str | None]) -> Iterator[Gap]:
    """Gaps of answers that the server's content filter withheld: the sampled text is in no recording."""
    for choice in facts.choices or ():
        reason = choice.finish_reason or (reasons[choice.index] if choice.index < len(reasons) else None)
        if reason in _FILTERED and choice.message.says_nothing and not choice.token_ids:
            yield Gap(kind="off", field=f"answer[{choice.index}]", evidence=f"finish reason {reason}, no text")


def _of_endings(facts: CallFacts, reasons: Sequence[str | None]) -> Iterator[Gap]:
    """Gaps of answers whose finish reason shows several joined choices, or a cut inside of a tool call.

    Cut arguments are no JSON, so a recorder that wrote them as an object has closed them. Some APIs answer with objects
    themselves (`calls_with_objects`); then there is no gap.
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
            is_one = reason == joined[1] * (len(reason) // len(joined[1]))  # some servers repeat it in a stream
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
    """Gaps that the request's parameters show.

    - `n` is larger than the number of recorded choices: Traceloop's JavaScript writes only the first one.
    - `truncate_prompt_tokens` lets vLLM cut the prompt (-1: to the model's context), unless a count shows that it fits.
    """
    if "n" in facts.parameters:
        asked = values.integer(facts.parameters["n"])
        if asked is not None and facts.choices and len(facts.choices) < asked and facts.answer_known != "verbatim body":
            missing = f"answer[{len(facts.choices)}]"  # a choice that is not there: the recorded ones are whole
            yield Gap(kind="lossy recorder", field=missing, evidence=f"{len(facts.choices)} of {asked} choices")
    if _TRUNCATING in facts.parameters:
        allowed = values.integer(facts.parameters[_TRUNCATING])
        counted = None if facts.usage is None else facts.usage.input_tokens
        if allowed is None or counted is None or counted >= allowed:
            yield Gap(kind="compacted", field="prompt", evidence=f"{_TRUNCATING} {facts.parameters[_TRUNCATING]}")


def with_several_prompts(facts: CallFacts) -> CallFacts:
    """Add a gap to a request of Completions with several prompts, because its choices have no common prompt.

    The prompts were recorded, or there are more choices than the request asked for one prompt.
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
    """Leave out token ids if their number differs from the server's count, and add a gap.

    llama.cpp, for example, lists no token that ends inside a character. `facts` must be of one dialect, whose count is
    the server's own: another recorder may have estimated it.
    """
    counted = None if facts.usage is None else facts.usage.output_tokens
    ids = [choice.token_ids for choice in facts.choices or () if choice.token_ids is not None]
    if counted is None or not ids or values.flag(facts.parameters.get("echo")):
        return facts
    listed = sum(map(len, ids))
    messages = [choice.message for choice in facts.choices or ()]
    # Reasoning, which some servers do not count, explains more ids; choices that were not recorded explain fewer.
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
    """Leave out the ids of the answers, and the facts of their tokens."""
    return msgspec.structs.replace(facts, choices=choices_without_ids(facts.choices)) if facts.choices else facts


def _has_all_choices(facts: CallFacts, count: int) -> bool:
    """Whether the server's count is of these `count` choices only: none is missing, and `best_of` discarded none."""
    prompts = values.items(facts.parameters.get("prompt"))
    asked = (values.integer(facts.parameters.get("n")) or 1) * len(prompts or (None,))
    sampled = values.integer(facts.parameters.get("best_of")) or 1
    return count == len(facts.choices or ()) and count >= max(asked, sampled)


def _field_of_dropped(facts: CallFacts) -> str:
    """The field that dropped attributes may belong to: only parameters, if one attribute has all of the content."""
    in_pieces = (None, "flattened attributes", "unknown")
    return "call" if facts.prompt_known in in_pieces or facts.answer_known in in_pieces else "parameters"


def _flags(recording: SpanRecording) -> Iterator[Gap]:
    """Gaps of flags named `….truncated` on a span, its events and its log records."""
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
"""The results for the latest prompts: each prompt of a conversation repeats the one before."""

_FEW: Final = 4
"""So many messages are judged faster than they are looked up in the cache."""


def _judge_prompt(prompt: tuple[Message, ...]) -> _Judged:
    """Judge a prompt. Messages of a long prompt that were judged before are not judged again."""
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
    """Judge further messages, and add their signs of gaps to the earlier ones."""
    for message in messages:  # the test below is cheap, because nearly all messages have no sign
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
