"""Recordings of one call: what several instrumentors recorded of one request becomes one call.

Which recordings are one call is not decided here but by `art_otel.trajectories.calls.duplicates`.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

import msgspec

from art_otel.calls import CONTENT_GAPS, Choice, Gap, InferenceCall, Message
from art_otel.conventions.dialects import DIALECTS
from art_otel.conventions.dialects.openinference import RAW
from art_otel.conventions.facts import CallFacts, merge_facts, merge_prompts
from art_otel.conventions.sampled import with_sampled
from art_otel.errors import UsageError

_TRUST: Final = {dialect.convention: rank for rank, dialect in enumerate(DIALECTS)}


def merge_calls(calls: Sequence[InferenceCall]) -> InferenceCall:
    """Several recordings of one call, the outermost first, as one. Raises UsageError when there is none.

    Identity and times are the outermost one's. A gap of one recording does not count where another is whole. The most
    trusted convention's facts win whoever's span they were on, and of equally trusted ones those of the recording that
    knows the response. The prompt is the one that was sent, the
    answer the one that was sampled.
    """
    if not calls:
        raise UsageError("merge_calls needs at least one recording of the call; pass the outermost first")
    if len(calls) == 1:
        return calls[0]
    sampled = _sampled(calls)
    trusted = sorted((with_sampled(call, sampled) for call in calls), key=_distrust)
    facts = reduce(merge_facts, map(_facts, trusted))
    error_type, error = _failure(calls)
    outermost, prompt = calls[0], _sent(calls)
    is_whole = any(_is_whole(call) and request_key(call) == _texts(prompt) for call in calls)
    return msgspec.structs.replace(
        outermost,
        **{
            **msgspec.structs.asdict(facts),
            "input_messages": prompt,
            "gaps": _gaps(calls, facts, is_whole=is_whole),
        },
        error_type=error_type,
        error=error,
        agent=next((call.agent for call in calls if call.agent is not None), None),
        step=next((call.step for call in calls if call.step is not None), None),
        env_state={name: value for call in reversed(calls) for name, value in call.env_state.items()},
        extra={name: value for call in reversed(calls) for name, value in call.extra.items()},
    )


def request_key(call: InferenceCall) -> tuple[str, ...]:
    """A key of what was asked: the texts of the prompt, because recorders lose names, reasoning and images."""
    return _texts(call.input_messages)


def _texts(messages: Sequence[Message] | None) -> tuple[str, ...]:
    return tuple(message.content or "" for message in messages or ())


def _distrust(call: InferenceCall) -> tuple[bool, int, bool]:
    rank = min((_TRUST.get(name, len(_TRUST)) for name in call.conventions), default=len(_TRUST))
    return call.has_gap(*CONTENT_GAPS), rank, call.response_id is None


def _is_whole(call: InferenceCall) -> bool:
    return not call.has_gap(*CONTENT_GAPS) and bool(call.input_messages and call.choices)


def _gaps(calls: Sequence[InferenceCall], facts: CallFacts, *, is_whole: bool) -> tuple[Gap, ...]:
    """The gaps of the merged call: where one recording is whole, only that of a secret or a contradiction is left."""
    gaps = dict.fromkeys(facts.gaps) | {gap: None for call in calls for gap in call.gaps}
    return tuple(gap for gap in gaps if gap.kind not in CONTENT_GAPS or (not is_whole and gap in facts.gaps))


def _facts(call: InferenceCall) -> CallFacts:
    """The facts of the call without its prompt."""
    return CallFacts(**{name: getattr(call, name) for name in CallFacts.__struct_fields__ if name != "input_messages"})


def _sent(calls: Sequence[InferenceCall]) -> tuple[Message, ...] | None:
    """The prompt, as who saw the request wrote it: one that knows the response, with the body, else the innermost."""
    prompts = [call.input_messages for call in _nearest(calls) if call.input_messages is not None]
    return reduce(merge_prompts, prompts) if prompts else None


def _sampled(calls: Sequence[InferenceCall]) -> dict[int, Choice]:
    """The answers, by their index, as who saw the response wrote them."""
    choices = next((call.choices for call in _nearest(calls) if call.choices), ())
    return {choice.index: choice for choice in choices}


def _nearest(calls: Sequence[InferenceCall]) -> list[InferenceCall]:
    """The recordings by how near they are to the server."""
    inside_out = calls[::-1]
    return sorted(inside_out, key=lambda call: (call.response_id is None, RAW not in call.conventions))


def _failure(calls: Sequence[InferenceCall]) -> tuple[str | None, str | None]:
    """The error of the outermost recording that failed, unless a failure further in did not matter.

    The outermost one's failure always counts. One further in was retried or handled when a recording that did not fail
    shows how the completion finished; without that proof it counts (OpenLLMetry calls a dropped stream OK).
    """
    failed = next((call for call in calls if call.failed), None)
    if failed is None:
        return None, None
    if failed is not calls[0] and any(not call.failed and _finished(call) for call in calls):
        return None, None
    return failed.error_type, failed.error


def _finished(call: InferenceCall) -> bool:
    return bool(call.choices) and all(choice.finish_reason is not None for choice in call.choices or ())
