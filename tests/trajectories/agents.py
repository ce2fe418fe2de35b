"""Generated agents: calls as real agents make them, with everything that happens to a history on its way.

Conversations branch (sub-agents with one system prompt, parallel calls, retries, n > 1, compaction). Clients send back
what was sampled in other words: null content for absent, arguments written anew, reasoning dropped (the same message),
or shortened (another one). Servers tokenize the history as it was, or anew, or give no ids, or only some. Calls fail,
streams break, prompts are not recorded. Ids and words are few, so that paths that differ often look alike.
"""

import json

import msgspec
from hypothesis import strategies as st

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds, ToolCall
from tests.gaps import CONTRADICTED, SCRUBBED
from tests.trajectories.calls import asked

WORDS = st.sampled_from(["a", "b", "sunny", ""])
FEW_IDS = st.lists(st.integers(0, 2), max_size=3)
SYSTEM = Message(role="system", content="be brief")


@st.composite
def sampled_messages(draw) -> Message:
    city = draw(st.sampled_from(["Paris", "Tokyo"]))
    call = ToolCall(id="c", name="look", arguments=json.dumps({"city": city, "n": 1}))
    content = draw(st.none() | WORDS)
    calls = (call,) if draw(st.integers(0, 3)) == 0 else ()
    return Message(role="assistant", content=content, tool_calls=calls, reasoning=draw(st.none() | WORDS))


def given_messages():
    return st.lists(st.builds(Message, role=st.sampled_from(["user", "tool"]), content=WORDS), max_size=2)


@st.composite
def sent_back(draw, message: Message) -> Message:
    """The message as it comes back in a later prompt: the same, but perhaps in other words."""
    changes = {}
    if draw(st.booleans()):
        changes["reasoning"] = None
    if not message.content and draw(st.booleans()):
        changes["content"] = draw(st.sampled_from([None, ""]))
    if message.tool_calls and draw(st.booleans()):
        changes["tool_calls"] = tuple(
            msgspec.structs.replace(call, arguments=json.dumps(json.loads(call.arguments), indent=1), exact=False)
            for call in message.tool_calls
        )
    return msgspec.structs.replace(message, **changes)


@st.composite
def choices(draw) -> list[Choice]:
    counts = draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3]))
    result = []
    for index in range(counts):
        ids = draw(st.none() | FEW_IDS) if draw(st.integers(0, 3)) == 0 else draw(FEW_IDS)
        logprobs = None if ids is None or draw(st.integers(0, 4)) == 0 else Logprobs.of([-1.0] * len(ids))
        result.append(
            Choice(
                index=index,
                message=draw(sampled_messages()),
                finish_reason=draw(st.sampled_from(["stop", "stop", None])),
                token_ids=None if ids is None else TokenIds.of(ids),
                logprobs=logprobs,
            )
        )
    return result


@st.composite
def agent_calls(draw) -> list[InferenceCall]:
    """Between one and ten calls by start. Each continues an earlier sample, retries a prompt, or starts anew."""
    calls: list[InferenceCall] = []
    truth: list[tuple[list[Message], list[int]]] = []  # what each call was asked, recorded or not
    for number in range(draw(st.integers(1, 10))):
        messages, ids = draw(_prompt(calls, truth))
        truth.append((messages, ids))
        sampled = draw(choices())
        failed = not sampled or draw(st.integers(0, 9)) == 0
        calls.append(
            asked(
                number + 1,
                messages,
                ids if draw(st.integers(0, 7)) else None,
                sampled,
                error_type="Timeout" if failed else None,
                stream=draw(st.sampled_from([None, True, False])),
                agent=draw(st.sampled_from([None, "x"])),
                response_id=f"r{number}",
                gaps=tuple(gap for gap in (SCRUBBED, CONTRADICTED) if draw(st.integers(0, 9)) == 0),
            )
        )
        if draw(st.integers(0, 9)) == 0:
            calls[-1] = msgspec.structs.replace(calls[-1], input_messages=None)
    return calls


@st.composite
def _prompt(draw, calls, truth) -> tuple[list[Message], list[int]]:
    way = draw(st.sampled_from(["continue", "continue", "continue", "drift", "rewrite", "compact", "retry", "start"]))
    earlier = [(number, choice) for number, call in enumerate(calls) for choice in call.choices or ()]
    if way == "retry" and truth:
        return draw(st.sampled_from(truth))
    if way == "start" or not earlier:
        return [SYSTEM, *draw(given_messages())], draw(FEW_IDS)
    number, choice = draw(st.sampled_from(earlier[-4:]))
    before, ids = truth[number]
    messages = [draw(sent_back(message)) for message in (*before, choice.message)]
    ids = [*ids, *(choice.token_ids or ())]
    if way == "rewrite":
        messages[-1] = Message(role="assistant", content="shortened")
    if way == "compact":
        messages, ids = messages[1:], ids[1:]
    if way == "drift" and ids:
        at = draw(st.integers(0, len(ids) - 1))
        ids = [*ids[:at], 7, *ids[at + 1 :]]
    return [*messages, *draw(given_messages())], [*ids, *draw(FEW_IDS)]
