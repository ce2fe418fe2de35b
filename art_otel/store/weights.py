"""Weights: about how many bytes a row takes in memory as Arrow columns.

Invariant: a row's weight depends on that row alone, and no text in it weighs less than it is long: batches, runs and
row groups end by the weight of their rows, which is all that bounds them.
"""

from collections.abc import Iterable

from art_otel.calls import Message
from art_otel.store.rows import Row
from art_otel.store.stored_calls import StoredCall
from art_otel.store.stored_turns import StoredTurn


def weigh(row: Row) -> int:
    """About how many bytes the row takes in memory as Arrow columns."""
    policy = row.policy_version
    texts = (row.metrics, row.metadata, row.nested_metadata, row.tools, row.error)
    ids = (row.rollout_id, row.trace_id, row.parent_rollout_id, row.group_id)
    names = (row.name, row.split, policy and policy.first, policy and policy.last)
    shared = (*(row.logs or ()), *row.toolsets, *(row.objects or ()))
    weight = 512 + _length((*texts, *ids, *names, *shared))
    for reward in row.rewards:
        weight += 128 + _length(
            (reward.name, reward.label, reward.explanation, reward.comparison, reward.target, reward.source)
        )
    for message in row.messages or ():
        weight += 64 + _length((message.role, message.content, message.tool_calls, message.tool_call_id))
    for call in row.calls:
        weight += _of_call(call)
    for turn in row.turns:
        weight += _of_turn(turn)
    return weight


def _of_call(call: StoredCall) -> int:
    ids = (call.trace_id, call.span_id, call.response_id, call.previous_response_id)
    own = (call.operation_name, call.parameters, call.error, call.error_type)
    said = (call.agent, call.policy_version, call.provider, call.request_model, call.response_model)
    return 256 + _length((*ids, *own, *said, *call.cut, *call.conventions))


def _of_turn(turn: StoredTurn) -> int:
    weight = 128
    for packed in (turn.context_token_ids, turn.token_ids, turn.logprobs):
        if packed is not None:
            weight += len(packed.data)
    for message in turn.messages or ():
        weight += _of_message(message)
    for edit in turn.edits or ():
        weight += _of_message(edit.message)
    weight += len(turn.finish_reason or "") + len(turn.untrained or "")
    return weight if turn.message is None else weight + _of_message(turn.message)


def _of_message(message: Message) -> int:
    weight = 64 + len(message.role) + len(message.content or "")
    if message.name or message.reasoning or message.refusal or message.parts or message.tool_call_id:
        weight += _length((message.name, message.reasoning, message.refusal, message.parts, message.tool_call_id))
    for call in message.tool_calls:
        weight += 64 + _length((call.id, call.name, call.arguments))
    return weight


def _length(texts: Iterable[str | None]) -> int:
    return sum(map(len, filter(None, texts)))
