"""A call in whose content a secret was found says so."""

from tests.conventions.builders import genai

SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "mail [scrubbed:email]"}]}]


def test_a_call_whose_content_held_a_secret_is_scrubbed():
    found = genai(output_messages=SAID, attributes={"art.scrubbed": 1, "art.scrubbed.content": True})
    assert found.has_gap("scrubbed")
    assert found.extra == {"art.scrubbed": 1, "art.scrubbed.content": True}


def test_a_call_with_a_secret_elsewhere_is_not():
    found = genai(output_messages=SAID, attributes={"art.scrubbed": 1})
    assert not found.has_gap("scrubbed")
    assert found.extra == {"art.scrubbed": 1}
    assert not genai(output_messages=SAID).gaps
