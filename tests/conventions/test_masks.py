"""What a writer put in the place of content is masked, and what only mentions a mask is not."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Message, ToolCall
from art_otel.conventions.attribute_names import AttributeNames
from art_otel.conventions.attributes import SpanRecording
from art_otel.conventions.masks import (
    COLLECTOR_REDACTION,
    HASH,
    MASKS,
    NO_SIGNS,
    find_masked,
    mask_in,
    mask_of,
    signs_of,
)
from tests.conventions.builders import call, genai, log, span

FURTHER = {
    "LiteLLM": ['{"text": "redacted-by-litellm"}'],
    "Langfuse": ['"<fully masked due to failed mask function>"'],
    "Langfuse, mask functions of its docs": ["[REDACTED_PERSON_1]"],
    "LangSmith, anonymizers of its docs": ["<ssn>"],
    "Logfire": ['[Scrubbed due to "it\'s"]'],
    "Braintrust": ["ERROR: Failed to mask field 'output' - Error"],
    "Datadog LLM Observability": ["[This value has been dropped because this span's size exceeds the 5MB size limit.]"],
    COLLECTOR_REDACTION: ["****\n" * 80 + "****", " ****\n"],
    "Presidio": ["<US_SSN>"],
    "Google Cloud Sensitive Data Protection": ["[US_SOCIAL_SECURITY_NUMBER]", "[STREET_ADDRESS]"],
    "Amazon Bedrock Guardrails": ["{CREDIT_DEBIT_CARD_NUMBER}", "{US_SOCIAL_SECURITY_NUMBER}"],
    "a mask function of the app's own": [
        "<masked>",
        "[REDACTED: PII]",
        "__MASKED__",
        "(redacted)",
        "[content redacted]",
    ],
}
WHOLE = [(mask.writer, text) for mask in MASKS for text in (*mask.examples, *FURTHER.get(mask.writer, ()))]
SAID = (
    "LiteLLM writes redacted-by-litellm when turn_off_message_logging is set.",
    "The value is `__REDACTED__`.",
    "Use **bold** or ****.",
    "*****",
    "Dear <PERSON>, write to <EMAIL_ADDRESS>.",
    "<NO_ANSWER>",
    "<TASK_DONE>",
    "[CITY]",
    "[NAME]",
    "{PERSON_NAME}",
    "(the name was redacted by the court)",
    "- masked",
    "**Redacted** is what they wrote.",
    "[redacted] said so",
    "Redacted",
    '{"password": "****"}',
    '{"pattern": "redacted-by-litellm"}',
    "",
)


def recorded(attributes=None, **fields):
    one = span(attributes or {}, **fields)
    return SpanRecording(one, (), AttributeNames(one.attributes))


def masked(prompt=(), answers=(), attributes=None):
    found = find_masked(recorded(attributes), prompt, answers)
    return {(one.where, one.index): one.mask.writer for one in found}


def said(text, role="assistant"):
    return Message(role=role, content=text)


def test_every_row_has_examples_and_a_source():
    assert set(FURTHER) <= {mask.writer for mask in MASKS}
    assert all(mask.source and mask.examples for mask in (*MASKS, HASH))


@pytest.mark.parametrize(("writer", "text"), WHOLE)
def test_a_text_that_is_a_mask_is_masked(writer, text):
    mask = mask_in(text)
    assert mask is not None
    assert mask.writer == writer
    assert masked(answers=[said(text)]) == {("answer", 0): writer}


@pytest.mark.parametrize("text", SAID)
def test_an_answer_that_mentions_a_mask_is_not_masked(text):
    assert mask_in(text) is None
    assert masked([said(text, "user")], [said(text)]) == {}


@given(st.text(min_size=1), st.sampled_from([text for _, text in WHOLE]), st.text(min_size=1))
def test_no_mask_inside_of_a_text_counts_without_a_sign(before, mask, after):
    text = f"x{before}{mask}{after}x"
    assert mask_in(text) is None


@pytest.mark.parametrize(
    "message",
    [
        Message(role="assistant", content="Hello", reasoning="redacted-by-litellm"),
        Message(role="assistant", refusal="__REDACTED__"),
        Message(role="assistant", tool_calls=(ToolCall(id="1", name="f", arguments="[redacted]"),)),
        Message(
            role="user",
            content="What is it?",
            parts=json.dumps([{"type": "text", "text": "What is it?"}, {"type": "image", "url": "__REDACTED__"}]),
        ),
    ],
)
def test_every_text_of_a_message_is_judged(message):
    assert mask_of(message) is not None


def test_arguments_that_quote_a_mask_are_sampled():
    asked = Message(role="assistant", tool_calls=(ToolCall(id="1", name="grep", arguments='{"q": "__REDACTED__"}'),))
    assert mask_of(asked) is None


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"redaction.masked.count": 1}, "Your card is ****."),
        ({"redaction.masked.keys": "gen_ai.prompt.0.content,user.id", "redaction.masked.count": 2}, "is **** or"),
        ({"redaction.masked.count": 1}, f"Your card is {hashlib.md5(b'4111').hexdigest()}."),
        ({"user.email": "****"}, "Your card is ****."),
        ({"gen_ai.usage.input_tokens": "****"}, "Your card is ****."),
        ({"enduser.id": "<PERSON>"}, "I wrote to <EMAIL_ADDRESS>."),
        ({"url.full": "https://a/?q=[Filtered]"}, "the [Filtered] one"),
    ],
)
def test_a_mask_inside_of_a_text_counts_where_the_span_shows_its_writer(attributes, text):
    assert masked([said("Hello", "user")], [said(text)], attributes).keys() == {("answer", 0)}


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"redaction.masked.count": 0},
        {"redaction.masked.keys": "user.email,gen_ai.usage.input_tokens", "redaction.masked.count": 2},
        {"user.email": "ann@example.org", "enduser.id": hashlib.sha256(b"ann").hexdigest()},
        {"gen_ai.prompt.0.content": "<PERSON>: <EMAIL_ADDRESS> ****"},
    ],
)
def test_nothing_else_is_a_sign(attributes):
    texts = ["Your card is ****.", "I wrote to <EMAIL_ADDRESS>.", hashlib.sha1(b"1").hexdigest()]
    assert masked([], [said(text) for text in texts], attributes) == {}


def test_events_and_log_records_show_signs_too():
    one = span({}, events=())
    assert signs_of(
        SpanRecording(one, (log("e", attributes={"redaction.body.masked.count": 1}),), AttributeNames({}))
    ) == {COLLECTOR_REDACTION}
    assert signs_of(SpanRecording(one, (), AttributeNames({}))) == NO_SIGNS


def test_where_one_message_is_a_mask_the_others_that_contain_it_are_masked():
    prompt = [said("[REDACTED]", "user"), said("I am <PERSON>", "user")]
    assert masked(prompt, [said("Your card is [REDACTED].")]).keys() == {("prompt", 0), ("answer", 0)}


@pytest.mark.parametrize("name", ["sha1", "sha256", "sha512", "md5"])
def test_hashes_count_in_the_place_of_messages_of_several_roles(name):
    texts = [hashlib.new(name, role.encode()).hexdigest() for role in ("system", "user", "assistant")]
    prompt, answer = [said(texts[0], "system"), said(texts[1], "user")], said(texts[2])
    assert masked(prompt, [answer]).keys() == {("prompt", 0), ("prompt", 1), ("answer", 0)}
    assert masked([said(texts[1], "user")], [said("Hello")]).keys() == {("prompt", 0)}
    assert masked([said("Hash it", "system"), said("Hello", "user")], [answer]) == {}
    assert masked([said("Reverse it", "system"), said(texts[1], "user")], [said("Hello")]) == {}
    assert masked([said("Sums?", "user"), said(texts[0], "tool"), said(texts[1], "tool")], [answer]) == {}


def test_white_space_around_a_mask_is_nothing():
    assert all(mask_in(f"\n {text}\n") is not None for _, text in WHOLE if len(text) < 100)


def gaps_of(one):
    return [(gap.kind, gap.field) for gap in one.gaps]


def test_a_call_says_which_of_its_messages_are_masked():
    flattened = {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "redacted-by-litellm",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "redacted-by-litellm",
    }
    assert gaps_of(call(flattened)) == [("masked", "prompt"), ("masked", "answer[0]")]
    asked, answer = text_message("user", "Card?"), text_message("assistant", "It is ****.")
    assert gaps_of(genai([asked], [answer])) == []
    assert gaps_of(genai([asked], [answer], {"redaction.masked.count": 1})) == [("masked", "answer[0]")]


def text_message(role, text):
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def test_a_prompt_that_goes_on_stays_masked():
    """What was judged of an earlier prompt is not judged again."""
    prompt = [text_message("user", "[REDACTED]"), text_message("assistant", "a"), text_message("user", "b")]
    for length in (1, 3):
        assert gaps_of(genai(prompt[:length], [text_message("assistant", "a")])) == [("masked", "prompt")]
