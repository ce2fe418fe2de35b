"""A call of which content was redacted says so."""

from tests.conventions.builders import genai

SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "mail [redacted:email]"}]}]


def test_a_call_whose_content_was_redacted_is_scrubbed():
    found = genai(output_messages=SAID, attributes={"art.redacted": 1, "art.redacted.content": True})
    assert found.scrubbed
    assert found.extra == {"art.redacted": 1, "art.redacted.content": True}


def test_a_call_of_which_something_else_was_redacted_is_not():
    found = genai(output_messages=SAID, attributes={"art.redacted": 1})
    assert not found.scrubbed
    assert found.extra == {"art.redacted": 1}
    assert not genai(output_messages=SAID).scrubbed
