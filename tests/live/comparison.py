"""Comparison: what the server was asked and answered against what a trajectory says of it.

Invariant: both sides become the same plain tuples, and arguments are compared as JSON, because two instrumentors parse
them. Nothing else is forgiven.
"""

from collections.abc import Sequence

from art_otel.calls import InferenceCall, Message, canonical_arguments
from art_otel.trajectories import Trajectory
from tests.tracing.server import Exchange

Plain = tuple[str, str | None, tuple, str | None]


def check_calls(trajectories: Sequence[Trajectory], exchanges: Sequence[Exchange], *, tokens: bool = False) -> None:
    """Every chat exchange is exactly one call, with its very prompt and completions, and with its ids if asked."""
    calls = [call for found in trajectories for call in found.calls if call.response_id]
    by_id = {call.response_id: call for call in calls}
    answered = [exchange for exchange in exchanges if exchange.answer is not None]
    assert len(by_id) == len(calls), "a response is in two calls"
    assert set(by_id) == {exchange.answer["id"] for exchange in answered}
    for exchange in answered:
        check_call(by_id[exchange.answer["id"]], exchange, tokens=tokens)


def check_call(call: InferenceCall, exchange: Exchange, *, tokens: bool) -> None:
    """One call against one chat exchange."""
    assert call.input_messages is not None
    assert call.choices is not None
    assert [recorded(message) for message in call.input_messages] == [sent(one) for one in exchange.body["messages"]]
    answered = exchange.answer["choices"]
    assert [choice.index for choice in call.choices] == [choice["index"] for choice in answered]
    for choice, given in zip(call.choices, answered, strict=True):
        assert recorded(choice.message) == sent(given["message"])
        assert choice.finish_reason == given["finish_reason"]
        if tokens:
            assert choice.token_ids is not None
            assert choice.logprobs is not None
            assert choice.token_ids.tolist() == given["token_ids"]
            assert choice.logprobs.tolist() == [entry["logprob"] for entry in given["logprobs"]["content"]]
    if tokens:
        assert call.prompt_token_ids is not None
        assert call.prompt_token_ids.tolist() == exchange.answer["prompt_token_ids"]


def check_trained_once(trajectory: Trajectory) -> None:
    """Law 3, over the turns: every sampled completion is one turn, with the ids the server gave."""
    sampled = sorted(
        tuple(choice.token_ids) for call in trajectory.calls for choice in call.choices or () if choice.token_ids
    )
    trained = sorted(tuple(turn.token_ids) for turn in trajectory.turns if turn.token_ids)
    assert trained == sampled


def recorded(message: Message) -> Plain:
    """A message of a call."""
    calls = tuple((call.id, call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)
    return (message.role, message.content or None, calls, message.tool_call_id)


def sent(message: dict) -> Plain:
    """A message of a request or answer."""
    functions = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    calls = tuple((number, one["name"], canonical_arguments(one["arguments"])) for number, one in functions)
    return (message["role"], message.get("content") or None, calls, message.get("tool_call_id"))
