"""Token ids that spell a secret go with it, and all others stay to be trained."""

import json

import pytest

from art_otel.scrubbing import Scrubber
from art_otel.tracing.sdk.span_lines import SpanScrubber
from tests.conversions import convert_files
from tests.tracing.sdk.rewritten import App
from tests.tracing.sdk.test_scrub_spans import GONE, IDS, KEY, call, calls_of, scrubbed

SAMPLED = "Run psql postgresql://postgres:postgres@localhost with .sk-toggleable-content-Box1 { color: red }"


def test_code_that_a_model_reads_and_writes_keeps_its_tokens(tmp_path):
    app = App(tmp_path, SpanScrubber(Scrubber()))
    call(app, SAMPLED, SAMPLED)
    (found,) = calls_of(app)
    assert found.extra == {}
    assert found.choices[0].message.content == SAMPLED
    assert found.choices[0].token_ids.tolist() == found.prompt_token_ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize(("asked", "answered"), [(KEY, "ok"), ("Say it", KEY)])
def test_tokens_that_spell_a_secret_go_with_it(tmp_path, asked, answered):
    app = App(tmp_path, SpanScrubber(Scrubber()))
    body = {"choices": [{"token_ids": [4, 5], "logprobs": {"content": [{"token": "a"}]}}], "prompt_token_ids": [1, 2]}
    call(
        app,
        asked,
        answered,
        **{"output.value": json.dumps(body), "prompt_token_ids": (1, 2), "logprobs.content": "[1]"},
    )
    (kept,) = app.spans
    assert json.loads(kept.attributes["output.value"]) == {
        "choices": [{"token_ids": None, "logprobs": None}],
        "prompt_token_ids": None,
    }
    assert not [name for name in kept.attributes if name.startswith(("art.tokens", "art.logprobs", "prompt_t", "logp"))]
    (found,) = calls_of(app)
    assert found.has_gap("scrubbed")
    assert found.extra == {"art.scrubbed": 1, "art.scrubbed.content": True}
    assert (found.prompt_token_ids, found.choices[0].token_ids) == (None, None)


def test_bodies_that_were_cut_off_go_whole():
    cut = '{"choices": [{"token_ids": [4, 5'
    printed = "[{'token_ids': [4, 5]}]"
    span = scrubbed({"output.value": cut, "llm.openai.choices": printed, "nested": {"logprobs": [1], "deep": (KEY,)}})
    assert span.attributes["output.value"] == cut  # no hit in content, so nothing is left out
    span = scrubbed({"output.value": cut, "llm.openai.choices": printed, "gen_ai.prompt.0.content": KEY})
    assert span.attributes["output.value"] == span.attributes["llm.openai.choices"] == "[scrubbed:tokens]"


def test_ids_of_a_prompt_that_nobody_scanned_are_not_written():
    body = {"prompt_token_ids": [1, 2], "choices": [{"token_ids": [3]}]}
    hidden = {"input.value": "__REDACTED__", "output.value": json.dumps(body), "prompt_token_ids": (1, 2)}
    kept = dict(scrubbed({**hidden, "art.tokens.prompt": IDS}).attributes)
    assert json.loads(kept.pop("output.value")) == {**body, "prompt_token_ids": None}
    assert kept == {"input.value": "__REDACTED__", "art.tokens.prompt": IDS}
    shown = {**hidden, "input.value": '{"messages": []}'}
    assert dict(scrubbed(shown).attributes) == shown
    assert dict(scrubbed(hidden, "mark").attributes) == hidden


def test_tokens_stay_where_no_content_held_a_secret():
    attributes = {"server.url": f"http://h/?key={KEY}", "art.tokens.prompt": IDS, "input.value": '"token_ids"'}
    parameters = json.dumps({"user": KEY, "tools": [{"description": "clean"}]})
    span = scrubbed({**attributes, "art.request.parameters": parameters, "exception.message": KEY})
    assert span.attributes["art.tokens.prompt"] == IDS
    assert span.attributes["art.scrubbed"] == 3
    assert "art.scrubbed.content" not in span.attributes
    with_tool = json.dumps({"tools": [{"description": KEY}]})
    assert scrubbed({"art.request.parameters": with_tool}).attributes["art.scrubbed.content"] is True


def test_the_calls_that_repeat_a_secret_are_left_out_of_training_and_no_others(tmp_path):
    app = App(tmp_path, SpanScrubber(Scrubber()))
    with app.tracer.start_as_current_span("rollout r", attributes={"art.rollout.id": "r", "art.metadata.a": KEY}):
        asked: list[str] = []
        for number, answer in enumerate(["Hello", f"It is {KEY}", "Bye"]):
            asked.append(f"question {number}")
            said = [
                {"role": ("user", "assistant")[at % 2], "parts": [{"type": "text", "content": text}]}
                for at, text in enumerate(asked)
            ]
            given = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(said)}
            with app.tracer.start_as_current_span("chat m", attributes=given) as span:
                sampled = [
                    {"role": "assistant", "parts": [{"type": "text", "content": answer}], "finish_reason": "stop"}
                ]
                span.set_attribute("gen_ai.output.messages", json.dumps(sampled))
            asked.append(answer)
    app.everything()
    (trajectory,), _ = convert_files(tmp_path / "out", app.file)
    assert [turn.tokens_untrained for turn in trajectory.turns] == [None, "scrubbed", "scrubbed"]
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1]
    assert trajectory.metadata == {"a": GONE, "art.scrubbed": 1}
