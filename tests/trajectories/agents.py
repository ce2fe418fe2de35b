"""Simulated agents: calls as a real agent makes them, with everything that happens to a history on its way.

Conversations branch (sub-agents, parallel calls, retries, n > 1, compaction), and what a client sends back is spelt
differently: null content for absent, arguments re-serialised, reasoning dropped. Ids are consistent unless drifted.
"""

import json

import msgspec
from hypothesis import strategies as st

from art_otel.calls import Choice, InferenceCall, Message, TokenIds, ToolCall
from tests.trajectories.token_calls import asked

WORDS = st.sampled_from(["yes", "no", "sunny", "wait", "ok", ""])


@st.composite
def sampled_message(draw) -> Message:
    city = draw(st.sampled_from(["Paris", "Tokyo"]))
    call = ToolCall(id="c", name="look", arguments=json.dumps({"city": city, "n": 1}))
    content = draw(st.one_of(st.none(), WORDS))
    calls = (call,) if draw(st.booleans()) or not content else ()
    reasoning = draw(st.one_of(st.none(), WORDS))
    return Message(role="assistant", content=content, tool_calls=calls, reasoning=reasoning)


@st.composite
def given_message(draw) -> Message:
    return Message(role=draw(st.sampled_from(["user", "tool", "system"])), content=draw(WORDS))


@st.composite
def respelt(draw, message: Message) -> Message:
    """The message as it comes back in a later prompt."""
    changes = {}
    if draw(st.booleans()):
        changes["reasoning"] = None
    if not message.content and draw(st.booleans()):
        changes["content"] = draw(st.sampled_from([None, ""]))
    if message.tool_calls and draw(st.booleans()):
        compact = [
            msgspec.structs.replace(
                call,
                arguments=json.dumps(json.loads(call.arguments), separators=(",", ":"), sort_keys=True),
                exact=False,
            )
            for call in message.tool_calls
        ]
        changes["tool_calls"] = tuple(compact)
    return msgspec.structs.replace(message, **changes)


@st.composite
def agent_calls(draw, *, with_tokens: bool = False) -> list[InferenceCall]:
    """Between one and a dozen calls. Each continues an earlier sample, retries an earlier prompt, or starts anew."""
    calls: list[InferenceCall] = []
    for number in range(draw(st.integers(1, 12))):
        earlier = [(call, choice) for call in calls for choice in call.choices or ()]
        way = draw(st.sampled_from(["continue", "continue", "continue", "retry", "start"]))
        prompt_ids = None
        if way == "continue" and earlier:
            call, choice = draw(st.sampled_from(earlier))
            history = [draw(respelt(message)) for message in (*call.input_messages, choice.message)]
            prompt = [*history, *draw(st.lists(given_message(), max_size=3))]
            if with_tokens and draw(st.integers(0, 4)):
                prompt_ids = (call.prompt_token_ids or TokenIds()) + (choice.token_ids or TokenIds())
        elif way == "retry" and calls:
            again = draw(st.sampled_from(calls))
            prompt, prompt_ids = list(again.input_messages), again.prompt_token_ids
        else:
            prompt = draw(st.lists(given_message(), max_size=3))
        choices = draw(st.lists(sampled_message(), max_size=3)) if draw(st.booleans()) else [draw(sampled_message())]
        added = TokenIds.of(draw(st.lists(st.integers(0, 3), max_size=4))) if with_tokens else None
        ids = None if added is None else (prompt_ids or TokenIds()) + added
        sampled = [
            Choice(index=index, message=message, token_ids=TokenIds.of([number, index]) if with_tokens else None)
            for index, message in enumerate(choices)
        ]
        calls.append(asked(number + 1, prompt, ids, sampled, error_type=None if choices else "Timeout"))
    return calls
