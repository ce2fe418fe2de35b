"""Prompts that the server put together: whole or unknown, and bounded, as each of a chain holds those before it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Choice, InferenceCall, Message
from art_otel.spans import Span
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, build_trajectories, in_order, inference_calls
from art_otel.trajectories.inference_calls import MAX_CONTINUED_MESSAGES, continue_responses
from art_otel.trajectories.lineage import build_lineage
from art_otel.trajectories.trees import last_turn
from tests.data.rollouts import call as asked
from tests.data.rollouts import user


def call(number: int, earlier: int | None, prompt: list[Message] | None, answer: str | None = "yes", **fields):
    said = [] if answer is None else [Message(role="assistant", content=answer)]
    before = None if earlier is None else f"r{earlier}"
    return asked(
        number, prompt, *said, finish_reason=None, response_id=f"r{number}", previous_response_id=before, **fields
    )


def test_a_prompt_that_has_its_history_stays_as_it_was_recorded():
    """Frameworks record the whole conversation, and send what is new behind the id of what was before."""
    first = call(0, None, [user("q")])
    whole = [user("q"), Message(role="assistant", content="yes"), user("more")]
    assert [len(one.input_messages or ()) for one in continue_responses([first, call(1, 0, whole)], 99)] == [1, 3]
    as_sent = call(1, 0, whole, prompt_known="verbatim body")
    assert [len(one.input_messages or ()) for one in continue_responses([first, as_sent], 99)] == [1, 5]


def chain(count: int, *, instructions: bool = False, text: str = "q", **fields) -> list[InferenceCall]:
    """Each continues the one before it, behind instructions of its own where it has any."""
    own = [[Message(role="system", content=f"be {number}")] if instructions else [] for number in range(count)]
    return [call(n, n - 1 if n else None, [*own[n], user(text)], **fields) for n in range(count)]


def lengths(calls) -> list[int | None]:
    resumed = continue_responses(calls, MAX_CONTINUED_MESSAGES)
    found = [None if one.input_messages is None else len(one.input_messages) for one in resumed]
    assert [one.has_gap("history on the server") for one in resumed] == [length is None for length in found]
    return found


@st.composite
def conversations(draw) -> list[InferenceCall]:
    """Calls that continue earlier ones, later ones and none, some without a prompt or answer."""
    calls: list[InferenceCall] = []
    for number in range(draw(st.integers(1, 10))):
        own = [Message(role="system", content=draw(st.sampled_from("ab")))] if draw(st.booleans()) else []
        prompt = draw(st.sampled_from([None, own, [*own, user("q")], [*own, user("q"), user("more")]]))
        made = call(number, draw(st.none() | st.integers(0, 10)), prompt, draw(st.sampled_from(["yes", None])))
        calls.append(msgspec.structs.replace(made, response_id=draw(st.sampled_from([made.response_id, "r0", None]))))
    return calls


def put_together(calls: list[InferenceCall]) -> list[InferenceCall]:
    """What the server saw, without a bound."""
    answered: dict[str | None, InferenceCall] = {}
    found = []
    for one in calls:
        if one.previous_response_id is not None:
            before, own, prompt = answered.get(one.previous_response_id), one.input_messages, None
            if before is not None and before.input_messages is not None and before.choices and own is not None:
                history = [message for message in before.input_messages if message.role != "system"]
                new = [message for message in own if message.role != "system"]
                prompt = (*own[: len(own) - len(new)], *history, before.choices[0].message, *new)
            one = msgspec.structs.replace(one, input_messages=prompt)  # noqa: PLW2901 # same call
        if one.response_id is not None:
            answered[one.response_id] = one
        found.append(one)
    return found


def without_gaps(calls) -> list[InferenceCall]:
    return [msgspec.structs.replace(one, gaps=()) for one in calls]


@given(conversations())
def test_a_prompt_is_what_the_server_put_together(calls):
    assert without_gaps(continue_responses(calls, MAX_CONTINUED_MESSAGES)) == put_together(calls)


@given(conversations(), st.integers(0, 30))
def test_within_a_limit_a_prompt_is_the_same_or_unknown(calls, limit):
    resumed = continue_responses(calls, limit)
    continuing = [one for one in resumed if one.previous_response_id is not None]
    assert all(one.has_gap("history on the server") == (one.input_messages is None) for one in continuing)
    assert sum(len(one.input_messages or ()) for one in continuing) <= limit
    for one, whole in zip(without_gaps(resumed), put_together(calls), strict=True):
        assert one == whole or (one.input_messages is None and one.previous_response_id is not None)


def test_chains_of_thousands_of_calls_are_whole_and_longer_ones_bounded():
    assert lengths(chain(4_000)) == list(range(1, 8_000, 2))
    found = lengths(chain(12_000))
    known = 12_000 - found.count(None)
    assert found == [*range(1, 2 * known, 2), *[None] * (12_000 - known)]
    assert 0.99 * MAX_CONTINUED_MESSAGES < sum(range(1, 2 * known, 2)) <= MAX_CONTINUED_MESSAGES


def responses(count: int, root: Span, builder: SpanBuilder) -> list[Span]:
    sampled = [Choice(index=0, message=Message(role="assistant", content="yes"), finish_reason="stop")]
    made: list[Span] = []
    for _ in range(count):
        earlier = {"previous_response_id": made[-1].attributes["gen_ai.response.id"]} if made else {}
        known = {"art.request.parameters": msgspec.json.encode({"model": "m", **earlier}).decode()}
        made.append(builder.chat(root, [user("q")], sampled, attributes=known))
    return made


def test_a_rollout_has_a_limit_of_its_own_and_says_what_is_unknown(monkeypatch):
    monkeypatch.setattr(inference_calls, "MAX_CONTINUED_MESSAGES", 3 + 5)
    builder = SpanBuilder()
    outer = builder.rollout("a")
    inner = msgspec.structs.replace(builder.rollout("b"), parent_span_id=outer.span_id)
    spans = [outer, inner, *responses(4, outer, builder), *responses(3, inner, builder)]
    first, second = build_trajectories(SpanGroup(spans=spans)).trajectories
    assert [len(one.input_messages or ()) for one in (*first.calls, *second.calls)] == [1, 3, 5, 0, 1, 3, 5]
    assert (first.incomplete_reasons, second.incomplete_reasons) == ({"unknown history": 1}, {})
    assert [call.prompt_node is None for call in first.calls] == [False, False, False, True]


def thinking(number: int, thought: str) -> Message:
    return Message(role="assistant", content=f"a{number}", reasoning=thought if number % 2 else None)


def test_a_call_goes_on_with_the_response_that_it_names():
    calls: list[InferenceCall] = []
    for number in range(12):
        for chat in (0, 1):  # both say the same and think otherwise at times
            at, before = 2 * number + chat, 2 * (number - 1) + chat if number else None
            made = call(at, before, [user(f"q{number}")])
            said = Choice(index=0, message=thinking(number, f"of {chat}"))
            calls.append(msgspec.structs.replace(made, choices=(said,)))
    resumed = continue_responses(calls, MAX_CONTINUED_MESSAGES)
    lineage = build_lineage(resumed)
    assert [last_turn(call.prompt_node) for call in lineage.calls] == [None, None, *range(22)]
    assert not any(node.restates for node in in_order(call.prompt_node for call in lineage.calls))
