"""A prompt that only a server has, or that a server made shorter, is joined to what is recorded of it, or doubted."""

import json
from pathlib import Path

import msgspec
import pytest

from art_otel.calls import Choice, InferenceCall, Message
from art_otel.conventions import merge_calls, role_of
from tests.conventions.builders import genai, openinference, span
from tests.conversions import convert_files
from tests.data.rollouts import assistant, user
from tests.gaps import kinds

RECORDED = Path(__file__).parent / "hidden_histories"
COMPACTED, HISTORY, LOSSY, NOTHING = "compacted history", "unknown history", "lossy recorder", "no content"
EXPECTED: dict[str, tuple[set[str], list[tuple[str, ...]]]] = {
    "anthropic_genai_compaction": ({COMPACTED}, []),
    "anthropic_logfire_compaction": ({COMPACTED}, []),
    "anthropic_oi_edits_stream": ({COMPACTED}, [("a very long history", "aha", "go on", "answer 1", "and now?")]),
    "anthropic_sdk_compaction_stream": ({COMPACTED}, []),
    "anthropic_traceloop_compaction": ({COMPACTED}, []),
    "anthropic_traceloop_paused": ({COMPACTED, NOTHING}, []),
    "gemini_genai_cached": ({HISTORY}, []),
    "gemini_genai_interactions": (
        set(),
        [
            ("Be kind.", "My name is Ada. Say hello."),
            ("My name is Ada. Say hello.", "answer 1", "What is my name?"),
        ],
    ),
    "gemini_genai_interactions_background": (set(), [("Say hello.",)]),
    "gemini_genai_interactions_tools": (set(), [("Weather?",), ("Weather?", "look", "sun")]),
    "gemini_oi_cached": ({HISTORY}, []),
    "gemini_oi_interactions": ({HISTORY}, [("Be kind.", "My name is Ada. Say hello.")]),
    "gemini_oi_interactions_background": ({NOTHING}, []),
    "nemo_relay_full": ({LOSSY}, []),
    "nemo_relay_gen_ai": ({LOSSY}, []),
    "nemo_relay_openinference": ({LOSSY, NOTHING}, []),
    "openai_genai_background": (set(), [("My name is Ada.",)]),
    "openai_genai_compact": ({COMPACTED}, []),
    "openai_genai_compaction": ({COMPACTED}, []),
    "openai_genai_conversation": ({HISTORY}, []),
    "openai_logfire_background": (set(), [("My name is Ada.",)]),
    "openai_logfire_compact": ({NOTHING}, [("a long history", "and now?")]),
    "openai_logfire_compaction_stream": ({COMPACTED}, []),
    "openai_oi_background": (set(), [("My name is Ada.",)]),
    "openai_oi_compact": ({COMPACTED}, []),
    "openai_oi_compaction_stream": ({COMPACTED}, []),
    "openai_oi_conversation": ({HISTORY}, []),
    "openai_oi_previous": (
        set(),
        [("Be kind.", "My name is Ada."), ("My name is Ada.", "answer 1", "What is my name?")],
    ),
    "openai_traceloop_background": ({NOTHING}, []),
    "openai_traceloop_compaction": ({COMPACTED}, []),
}
"""Why the rollout is incomplete, and the prompts behind which an answer may be trained."""


def said(message: Message) -> str:
    return message.content or ", ".join(tool.name for tool in message.tool_calls)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_recorders_write_of_it(tmp_path, name):
    (trajectory,), _ = convert_files(tmp_path / "out", RECORDED / f"{name}.jsonl")
    reasons, prompts = EXPECTED[name]
    assert set(trajectory.incomplete_reasons) == reasons
    trained = [trajectory.calls[turn.call] for turn in trajectory.turns if turn.text_untrained is None]
    assert [tuple(map(said, one.input_messages or ())) for one in trained] == prompts


def test_every_recording_is_judged():
    assert {path.stem for path in RECORDED.glob("*.jsonl")} == EXPECTED.keys()


def test_answers_that_were_fetched_are_their_calls_own(tmp_path):
    for name in ("openai_genai_background", "openai_oi_background", "openai_logfire_background"):
        (trajectory,), _ = convert_files(tmp_path / name, RECORDED / f"{name}.jsonl")
        (turn,) = trajectory.turns
        assert (turn.message.content, trajectory.calls[0].choices[0].finish_reason) == ("answer 1", "stop")


@pytest.mark.parametrize("name", ["gen_ai.request.previous_response.id", "gen_ai.request.previous_response_id"])
def test_an_earlier_response_is_named(name):
    found = genai(ASKED, SAID, {name: "resp_0", "gen_ai.conversation.id": "conv_1", "gen_ai.response.id": "resp_1"})
    assert (found.previous_response_id, found.parameters, kinds(found)) == ("resp_0", {}, ())


# What is said of a prompt.

ASKED = [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "a"}], "finish_reason": "stop"}]


def part(kind: str, **fields: object) -> dict:
    return {"role": "assistant", "parts": [{"type": kind, **fields}]}


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction", "anthropic_compaction"])
@pytest.mark.parametrize("content", [{}, {"content": "Ada."}, {"encrypted_content": "gA=="}], ids=str)
def test_a_compaction_in_a_prompt_or_an_answer_is_of_the_prompt(kind, content):
    asked = genai([part(kind, **content), *ASKED], SAID)
    answered = genai(ASKED, [{**SAID[0], "parts": [*part(kind, **content)["parts"], *SAID[0]["parts"]]}])
    for one in (asked, answered):
        assert [(gap.kind, gap.field) for gap in one.gaps] == [("compacted", "prompt")]


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.conversation.compacted": True},
        {"gen_ai.response.finish_reasons": ["compaction"]},
        {"anthropic.message.stop_reason": "compaction"},
        {"gen_ai.request.truncate_prompt_tokens": 8, "gen_ai.usage.input_tokens": 8},
        {"gen_ai.request.truncate_prompt_tokens": -1, "gen_ai.usage.input_tokens": 8},
        {"art.response.end": json.dumps({"context_management": {"applied_edits": [{"type": "clear_thinking"}]}})},
        {"art.response.end": json.dumps({"input_transformations": [{"type": "thinking_dropped"}]})},
        {"art.response.end": json.dumps({"truncated": True})},
    ],
    ids=str,
)
def test_a_span_may_say_that_a_server_left_something_out(attributes):
    assert kinds(genai(ASKED, SAID, attributes)) == ("compacted",)


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.conversation.compacted": False},
        {"gen_ai.conversation.id": "thread 7"},
        {"gen_ai.request.truncate_prompt_tokens": 8, "gen_ai.usage.input_tokens": 7},
        {"art.request.parameters": json.dumps({"model": "m", "context_management": {"edits": [{"type": "x"}]}})},
        {"art.response.end": json.dumps({"context_management": {"applied_edits": []}})},
        {"art.response.end": json.dumps({"input_transformations": [{"type": "thinking_mismatch_allowed"}]})},
        {"art.response.end": json.dumps({"input_transformations": [{"type": "reasoning", "action": "removed"}]})},
    ],
    ids=str,
)
def test_what_may_have_been_left_out_and_was_not_is_whole(attributes):
    assert kinds(genai(ASKED, SAID, attributes)) == ()


def test_bodies_say_it_too():
    request = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}
    edited = {**answer, "context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919"}]}}
    assert [kinds(openinference(request, one)) for one in (answer, edited)] == [(), ("compacted",)]
    cached = {"model": "m", "contents": [{"role": "user", "parts": [{"text": "q"}]}], "cachedContent": "c/1"}
    answered = {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}, "finishReason": "STOP"}]}
    assert kinds(openinference(cached, answered)) == ("history on the server",)
    queued = {"id": "resp_1", "object": "response", "status": "queued", "output": []}
    assert kinds(openinference({"model": "m", "input": "q"}, queued)) == ("off",)


def test_a_compacted_history_is_of_users_and_no_answer():
    output = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "compaction", "id": "c", "encrypted_content": "gA=="},
    ]
    found = openinference({"model": "m", "input": "q"}, {"id": "r", "object": "response.compaction", "output": output})
    assert [choice.message.content for choice in found.choices] == [None]
    assert kinds(found) == ("compacted",)


# Operations of v0.1.0.


@pytest.mark.parametrize(
    ("operation", "role"),
    [
        ("interactions.create", "inference"),
        ("generate_live_content", "inference"),
        ("realtime_inference", "inference"),
        ("fetch_response", "retrieval"),
        *((name, "other") for name in ("invoke_workflow", "create_agent", "plan", "retrieval", "search_memory")),
    ],
)
def test_operations_have_their_roles(operation, role):
    attributes = {"gen_ai.operation.name": operation, "gen_ai.request.model": "m", "gen_ai.response.id": "r"}
    assert role_of(span(attributes, name=f"{operation} m")) == role


def test_a_live_session_has_what_was_said_before_on_its_server():
    found = genai(ASKED, SAID, {"gen_ai.operation.name": "generate_live_content"})
    assert kinds(found) == ("history on the server",)


def test_an_interaction_that_nobody_fetched_has_no_answer(tmp_path):
    lines = (RECORDED / "gemini_genai_interactions_background.jsonl").read_text().splitlines()
    (tmp_path / "a.jsonl").write_text("\n".join(line for line in lines if "fetch_response" not in line))
    (trajectory,), _ = convert_files(tmp_path / "out", tmp_path / "a.jsonl")
    assert trajectory.incomplete_reasons == {LOSSY: 1}
    assert [turn.text_untrained for turn in trajectory.turns] == ["content uncertain"]


# Several recordings of one call.


def recording(*texts: str, gap: dict | None = None) -> InferenceCall:
    asked = [{"role": "user", "parts": [{"type": "text", "content": text}]} for text in texts]
    return genai(asked, SAID, {"gen_ai.response.id": "resp_1", **(gap or {})})


@pytest.mark.parametrize(
    ("gap", "kind"),
    [
        ({"art.request.parameters": json.dumps({"conversation": "conv_1"})}, "history on the server"),
        ({"gen_ai.conversation.compacted": True}, "compacted"),
    ],
)
def test_another_recording_of_the_same_prompt_does_not_show_what_the_server_has(gap, kind):
    for recordings in ([recording("q", gap=gap), recording("q")], [recording("q"), recording("q", gap=gap)]):
        assert kinds(merge_calls(recordings)) == (kind,)


def test_a_recording_of_the_whole_history_does():
    gap = {"art.request.parameters": json.dumps({"conversation": "conv_1"})}
    whole = msgspec.structs.replace(
        recording("before", "q"),
        choices=(Choice(index=0, message=assistant("a")),),
        input_messages=(user("before"), assistant("b"), user("q")),
    )
    tail = recording("q", gap=gap)
    assert kinds(merge_calls([tail, whole])) == ()
