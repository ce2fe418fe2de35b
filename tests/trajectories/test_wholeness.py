"""What is trained was whole; else the trajectory says why not."""

import json

import pytest
from msgspec import structs

from art_otel.calls import Choice, Gap, InferenceCall, Message, ToolCall, Usage
from art_otel.conventions import call as parsing
from art_otel.conventions.dialects import DIALECTS
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, Trajectory, build_trajectories
from art_otel.trajectories.conversation_gaps import find_broken_prompts
from art_otel.trajectories.lineage import build_lineage
from tests.conversions import convert_spans
from tests.data.rollouts import assistant, call, user
from tests.dumps import make_span
from tests.gaps import kinds

SYSTEM = Message(role="system", content="Answer in French.")
LOOK = ToolCall(id="c1", name="look", arguments="{}")


def result(of: str | None = "c1") -> Message:
    return Message(role="tool", content="sun", tool_call_id=of)


def called(*tools: ToolCall, content: str | None = None) -> Message:
    return Message(role="assistant", content=content, tool_calls=tools)


def parsed(number: int, prompt: list[Message], answer: Message, **fields) -> InferenceCall:
    """A call whose messages a recorder parsed."""
    return call(number, prompt, answer, prompt_known="parsed attributes", answer_known="parsed attributes", **fields)


# Prompts that cannot have been sent.

WHOLE = {
    "a question": [user("q")],
    "a tool's answer": [SYSTEM, user("q"), called(LOOK), result(), assistant("a"), user("more")],
    "answers in another order": [
        user("q"),
        called(LOOK, structs.replace(LOOK, id="c2")),
        result("c2"),
        result("c1"),
    ],
    "other ids for calls than for answers": [user("q"), called(structs.replace(LOOK, id="fc_1")), result("call_1")],
    "no ids": [user("q"), called(structs.replace(LOOK, id=None)), result(None), user("more")],
    "a function's result": [
        user("q"),
        called(structs.replace(LOOK, id=None)),
        Message(role="function", name="look", content="sun"),
        user("more"),
    ],
    "a few-shot example": [SYSTEM, user("x"), assistant("y"), user("q")],
}
BROKEN = {
    "it begins with a tool's answer": ([result()], "history on the server"),
    "it begins so behind the instructions": ([SYSTEM, result()], "history on the server"),
    "nobody called the tool": ([user("q"), called(LOOK), result(), result("c9")], "history on the server"),
    "a call without a name": ([user("q"), called(structs.replace(LOOK, name="")), result()], "lossy recorder"),
    "a call without an answer": ([user("q"), called(LOOK), user("more")], "lossy recorder"),
    "one of two answers": (
        [user("q"), called(LOOK, structs.replace(LOOK, id="c2")), result(), assistant("a"), user("b")],
        "lossy recorder",
    ),
}


@pytest.mark.parametrize("prompt", WHOLE.values(), ids=list(WHOLE))
def test_a_prompt_that_can_have_been_sent_is_whole(prompt):
    assert list(find_broken_prompts([parsed(0, prompt, assistant("a"))])) == []


@pytest.mark.parametrize(("prompt", "kind"), BROKEN.values(), ids=list(BROKEN))
def test_a_prompt_that_no_server_takes_is_not_trained(prompt, kind):
    lineage = build_lineage([parsed(0, [user("x")], assistant("y")), parsed(1, prompt, assistant("a"))])
    assert [kinds(one) for one in lineage.calls] == [(), (kind,)]
    assert [turn.text_untrained for turn in lineage.turns] == [None, "content uncertain"]


@pytest.mark.parametrize(("prompt", "_"), BROKEN.values(), ids=list(BROKEN))
@pytest.mark.parametrize("fields", [{"prompt_known": "verbatim body"}, {"error_type": "400"}], ids=["body", "refused"])
def test_what_was_sent_verbatim_or_refused_is_what_it_is(prompt, _, fields):
    sent = structs.replace(parsed(0, prompt, assistant("a")), **fields)
    assert list(find_broken_prompts([sent])) == []


@pytest.mark.parametrize(("known", "untrained"), [("parsed attributes", "content uncertain"), ("verbatim body", None)])
def test_an_answer_whose_tool_call_has_no_name_is_not_trained(known, untrained):
    nameless = called(structs.replace(LOOK, name=""))
    (turn,) = build_lineage([call(0, [user("q")], nameless, answer_known=known)]).turns
    assert turn.text_untrained == untrained


def test_a_prompt_that_goes_on_from_a_broken_one_is_broken():
    first, second = [result()], [result(), assistant("a"), user("more")]
    lineage = build_lineage([parsed(0, first, assistant("a")), parsed(1, second, assistant("b"))])
    assert [turn.text_untrained for turn in lineage.turns] == ["content uncertain"] * 2


@pytest.mark.parametrize(
    ("fields", "untrained"),
    [
        ({}, "content uncertain"),
        ({"response_id": "r"}, None),
        ({"usage": Usage(output_tokens=1)}, None),
        ({"answer_known": "verbatim body"}, None),
        ({"stream": True}, "stream broke"),
    ],
)
def test_an_empty_answer_of_which_nothing_else_is_known_is_none(fields, untrained):
    empty = structs.replace(parsed(0, [user("q")], assistant("")), response_id=None, usage=None)
    choices = (Choice(index=0, message=Message(role="assistant", content="")),)
    (turn,) = build_lineage([structs.replace(empty, choices=choices, **fields)]).turns
    assert turn.text_untrained == untrained


@pytest.mark.parametrize(
    ("error", "prompts", "reasons"),
    [
        ("Error code: 400 - {'error': {'message': 'no'}}", 1, ()),
        ("Error code: 400 - {'error': {'message': 'no'}}", 0, ("off",)),
        ("Error code: 408", 1, ("off",)),
        ("Error code: 500 - {'code': 400}", 1, ("off",)),
        ("overloaded", 1, ("off",)),
    ],
)
def test_what_was_asked_of_a_request_that_was_refused_is_missing_nowhere(error, prompts, reasons):
    failed = structs.replace(parsed(0, [], assistant("")), input_messages=None, choices=None, error=error)
    others = [parsed(1, [user("q")], assistant("a"))] * prompts
    assert kinds(build_lineage([failed, *others]).calls[0]) == reasons


def test_what_a_log_does_not_tell_of_the_prompt_may_be_allowed_and_of_the_answer_not():
    gaps = [Gap(kind="not logged", field=field, evidence="a test") for field in ("prompt", "tools", "answer")]
    lineage = build_lineage([structs.replace(call(0, [user(f"{gap}")], assistant("a")), gaps=(gap,)) for gap in gaps])
    assert [turn.text_untrained for turn in lineage.turns] == [None, None, "content uncertain"]


# What is on the server.


def response(number: int, request: dict, text: str, **told) -> dict:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    body = {"id": f"resp_{number}", "object": "response", "model": "m", "output": [message], **told}
    values = {"input.value": json.dumps({"model": "m", **request}), "output.value": json.dumps(body)}
    types = dict.fromkeys(("input.mime_type", "output.mime_type"), "application/json")
    return make_span(number + 1, 1, attributes={"openinference.span.kind": "LLM", **values, **types}, start=number)


def built(tmp_path, *spans) -> Trajectory:
    (trajectory,), _ = convert_spans(
        tmp_path, make_span(1, name="rollout x", attributes={"art.rollout.id": "r"}), *spans
    )
    return trajectory


@pytest.mark.parametrize(
    ("request_fields", "response_fields", "reason"),
    [
        ({"conversation": "conv_1"}, {}, "unknown history"),
        ({}, {"conversation": {"id": "conv_1"}}, "unknown history"),
        ({"prompt": {"id": "pmpt_1", "variables": {"city": "Paris"}}}, {}, "unknown template"),
        ({"truncation": "auto"}, {}, "content cut"),
        ({"previous_response_id": "resp_9"}, {}, "unknown history"),
    ],
)
def test_what_only_the_server_has_is_a_gap(tmp_path, request_fields, response_fields, reason):
    span = response(1, {"input": [{"role": "user", "content": "q"}], **request_fields}, "a", **response_fields)
    trajectory = built(tmp_path, span)
    assert trajectory.incomplete_reasons == {reason: 1}
    assert [turn.text_untrained for turn in trajectory.turns] == ["content uncertain"]
    assert trajectory.calls[0].operation_name == "chat"


@pytest.mark.parametrize("is_item", [True, False], ids=["an input item", "instructions"])
def test_instructions_are_not_carried_over_and_system_items_are(tmp_path, is_item):
    asked = {"input": [{"role": "user", "content": "Hi"}], "instructions": "Be kind."}
    if is_item:
        asked = {"input": [{"role": "system", "content": "Be kind."}, *asked["input"]]}
    goes_on = {"input": "And bye?", "previous_response_id": "resp_1"}
    trajectory = built(tmp_path, response(1, asked, "Bonjour"), response(2, goes_on, "Au revoir"))
    assert trajectory.complete
    roles = [message.role for message in trajectory.calls[1].input_messages]
    assert roles == ["system"] * is_item + ["user", "assistant", "user"]


def test_the_gaps_of_an_earlier_response_are_those_of_what_continues_it(tmp_path):
    masked = response(1, {"input": "q"}, "redacted-by-litellm")
    goes_on = response(2, {"input": "more", "previous_response_id": "resp_1"}, "b")
    trajectory = built(tmp_path, masked, goes_on)
    assert [turn.text_untrained for turn in trajectory.turns] == ["content uncertain"] * 2


@pytest.mark.parametrize(("status", "reasons"), [("404", {}), ("500", {"unknown history": 1})])
def test_a_server_without_the_earlier_response_put_no_prompt_together(tmp_path, status, reasons):
    """As vLLM without a store answers, and the agent sends all again."""
    asked = {"input": [{"role": "user", "content": "more"}], "previous_response_id": "resp_9"}
    values = {"input.value": json.dumps({"model": "m", **asked}), "input.mime_type": "application/json"}
    told = {"openinference.span.kind": "LLM", **values, "error.type": status}
    refused = make_span(2, 1, attributes=told, status={"code": 2, "message": f"Error code: {status}"})
    trajectory = built(tmp_path, refused, response(2, {"input": "q, a, more"}, "b"))
    assert trajectory.incomplete_reasons == reasons
    assert [turn.text_untrained for turn in trajectory.turns] == [None]


# Answers that no recorded call gave.


def rollout(*calls: InferenceCall, **attributes) -> Trajectory:
    builder = SpanBuilder()
    root = builder.rollout("r")
    root = structs.replace(root, attributes={**root.attributes, **attributes})
    spans = [builder.chat(root, list(one.input_messages), list(one.choices)) for one in calls]
    (trajectory,) = build_trajectories(SpanGroup(spans=[root, *spans])).trajectories
    return trajectory


ASKED = [user("q")]
GOES_ON = [*ASKED, assistant("a"), user("more")]
FIRST = call(0, ASKED, assistant("a"))


def test_an_answer_that_another_agent_was_given_behind_its_own_instructions_has_its_call():
    one, two = ([Message(role="system", content=name), user("q")] for name in ("one", "two"))
    first = call(0, one, assistant("a"))
    second = call(1, [*one, assistant("a"), user("r")], assistant("b"))
    handed = call(2, [*two, assistant("a"), user("r"), assistant("b"), user("s")], assistant("c"))
    back = call(3, [*handed.input_messages, assistant("c"), user("t")], assistant("d"))
    returned = [*second.input_messages, assistant("b"), user("s"), assistant("c"), user("t"), assistant("d"), user("u")]
    assert not rollout(first, second, handed, back, call(4, returned, assistant("e"))).incomplete_reasons


@pytest.mark.parametrize(
    ("prompt", "reasons"),
    [
        ([*GOES_ON, called(LOOK), result()], {"call missing": 1}),
        ([*GOES_ON, assistant("b"), user("c")], {"unrecorded answer": 1}),
        (GOES_ON, {}),
        ([*GOES_ON, assistant("A prefill")], {}),
        ([SYSTEM, user("x"), assistant("y"), user("z")], {}),
    ],
    ids=["with tool calls", "a text", "nothing", "a prefill", "few-shot examples"],
)
def test_an_answer_behind_a_recorded_one_that_no_call_gave_is_a_doubt_of_the_rollout(prompt, reasons):
    trajectory = rollout(FIRST, call(1, prompt, assistant("z")))
    assert trajectory.incomplete_reasons == reasons
    assert {turn.text_untrained for turn in trajectory.turns} == {None}


def test_an_answer_that_the_app_changed_has_its_call():
    second = call(1, GOES_ON, assistant("b"))
    third = call(2, [*GOES_ON, assistant("changed"), user("c")], assistant("z"))
    assert rollout(FIRST, second, third).complete


def test_a_rollout_that_counted_its_spans_lost_no_call():
    counted = {"art.rollout.spans.started": 2, "art.rollout.spans.ended": 2}
    prompt = [*GOES_ON, called(LOOK), result()]
    assert rollout(FIRST, call(1, prompt, assistant("z")), **counted).complete


# How content is known.


def test_every_dialect_says_how_it_knows_its_content():
    assert all(dialect.known != "unknown" for dialect in DIALECTS)


def test_content_of_a_dialect_that_does_not_say_how_it_knows_it_is_not_trained(monkeypatch):
    silent = tuple(Dialect(**{**structs.asdict(one), "known": "unknown"}) for one in DIALECTS)
    monkeypatch.setattr(
        parsing, "attribute_dialects", lambda names: [one for one in silent if names.starting(one.shown_by)]
    )
    trajectory = rollout(structs.replace(FIRST, input_messages=(user("never read before"),)))
    assert trajectory.incomplete_reasons == {"content not understood": 1}
    assert [turn.text_untrained for turn in trajectory.turns] == ["content uncertain"]
