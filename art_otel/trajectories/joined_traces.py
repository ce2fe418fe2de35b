"""Joined traces: traces that share the value of an attribute are one rollout, whose id is the value.

Proxies and chat applications write a trace a request, and what they have in common is an attribute: `session.id`,
`gen_ai.conversation.id`. `rollout_attributes` names such attributes; a live app that was given them has written the
value as `art.rollout.joined_id`.

Invariant: a rollout that somebody meant stays what it is: its own span is named `rollout …`, or is not there. Ids that
the recording process made up, for a trace or for itself, do not count where a value does. Without a call it is no
rollout.

    trace 1   POST /chat                           in a: the only value of its trace
              └─ chat gpt    session.id = a        in a
    trace 2   batch                                in none: its trace has several values
              ├─ agent       session.id = a        in a
              │  └─ chat gpt                       in a, as its nearest ancestor that has a value
              ├─ agent       session.id = b        in b
              └─ chat gpt                          in a rollout of its trace
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from art_otel.attributes import ROLLOUT_JOINED_ID
from art_otel.conventions import ERROR_TYPE, Role
from art_otel.spans import Span, SpanKey, SpanTree, Value
from art_otel.trajectories.span_context import is_marked_root, is_provisional, is_rollout_span, joined_id


class JoinedTraces(NamedTuple):
    """The rollout ids that spans declare, as far as they count, and those of the spans of joined traces.

    `aliases` are other names of joined rollouts: of traces that are whole in one, and ids that were made up for it.
    """

    declared: Mapping[SpanKey, str]
    joined: Mapping[SpanKey, str]
    aliases: Mapping[str, str] = {}


def join_traces(
    tree: SpanTree, roles: Mapping[SpanKey, Role], ids: Mapping[SpanKey, str], rollout_attributes: Sequence[str]
) -> JoinedTraces:
    """Find the rollouts of joined traces; `ids` are those that spans declare."""
    values = {
        key: value for key, span in tree.spans.items() if (value := joined_id(span, rollout_attributes)) is not None
    }
    if not values:
        return JoinedTraces(ids, {})
    of_traces: dict[str, set[str]] = {}
    for (trace_id, _), value in values.items():
        of_traces.setdefault(trace_id, set()).add(value)
    declared = _meant(tree, ids, of_traces)

    def derive(key: SpanKey, above: _Place | None) -> _Place:
        if key in declared:
            return _Place(None, is_known=True)
        if key in values:
            return _Place(values[key], is_known=True)
        if above is not None and above.is_known:
            return above
        of_trace = of_traces.get(key[0], ())
        if len(of_trace) == 1:
            return _Place(next(iter(of_trace)), is_known=True)
        is_lone_call = bool(of_trace) and roles[key] == "inference"
        return _Place(key[0] if is_lone_call else None, is_known=is_lone_call)

    joined = {key: place.rollout_id for key, place in tree.inherit(derive).items() if place.rollout_id is not None}
    with_calls = {rollout_id for key, rollout_id in joined.items() if roles[key] == "inference"}
    joined = {key: rollout_id for key, rollout_id in joined.items() if rollout_id in with_calls}
    named: dict[str, set[str]] = {}
    for key, rollout_id in joined.items():
        for name in {key[0], ids.get(key, key[0])}:
            named.setdefault(name, set()).add(rollout_id)
    aliases = {name: next(iter(rollout_ids)) for name, rollout_ids in named.items() if len(rollout_ids) == 1}
    return JoinedTraces(declared, joined, aliases)


def _meant(tree: SpanTree, ids: Mapping[SpanKey, str], joined: Collection[str]) -> dict[SpanKey, str]:
    """The ids without those that were made up for spans of joined traces, nor their own span where nothing is left.

    An id is made up where its own span is not named as rollouts are, or where the process that made it up says so.
    """
    marked = {ids[key] for key in ids if is_marked_root(tree.spans[key]) or is_provisional(tree.spans[key])}
    own = {key for key in ids if is_rollout_span(tree.spans[key])}
    made_up = marked - {ids[key] for key in own}
    kept = {
        key: one
        for key, one in ids.items()
        if key[0] not in joined or not (one in made_up or ROLLOUT_JOINED_ID in tree.spans[key].attributes)
    }
    given_up = {one for key, one in ids.items() if key not in kept}
    still_used = {one for key, one in kept.items() if key not in own}
    return {key: one for key, one in kept.items() if one not in given_up or one in still_used}


class _Place(NamedTuple):
    """The rollout of a span, None for a declared or an unknown one. Where it `is_known`, the spans below are in it."""

    rollout_id: str | None
    is_known: bool


def joined_root(tops: Sequence[Span]) -> Span:
    """Make a span that stands for the topmost ones of joined traces, in their order: it ends as the last one does."""
    first, last = tops[0], tops[-1]
    together: dict[str, Value] = {}
    for span in reversed(tops):
        together |= span.attributes
    together.pop(ERROR_TYPE, None)
    if ERROR_TYPE in last.attributes:
        together[ERROR_TYPE] = last.attributes[ERROR_TYPE]
    ends = [span.end_ns for span in tops]
    return msgspec.structs.replace(
        first,
        end_ns=None if None in ends else max(end for end in ends if end is not None),
        attributes=together,
        events=tuple(event for span in tops for event in span.events if span is last or event.name != "exception"),
        status=last.status,
        status_message=last.status_message,
    )
