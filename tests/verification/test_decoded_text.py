"""Whether ids say what messages say: marks of templates are no difference, other words are."""

import json

import pytest

from art_otel.calls import Message, ToolCall
from art_otel.verification.decoded_text import compare_decoded
from tests.data.tokenizers import CHATML, bpe
from tests.verification.rollouts import rollout_of

TOKENIZER = bpe(CHATML)
UMBRELLA = ToolCall(id="c1", name="umbrella", arguments='{"city": "Köln", "why": "it says \\"rain\\""}')
CALLED = '<tool_call>\n{"name": "umbrella", "arguments": {"why": "it says \\"rain\\"", "city": "Köln"}}\n</tool_call>'

SAME = [
    (Message(role="assistant", content="It rains."), "It rains.<|im_end|>"),
    (Message(role="assistant", content="It rains."), "  It rains.\n<|im_end|>\n"),
    (Message(role="assistant", content="5\nuser"), "5\n<|im_start|>user"),
    (Message(role="assistant", content=""), "<|im_end|>"),
    (Message(role="assistant", content="B", reasoning="A"), "<think>\nA\n</think>\n\nB<|im_end|>"),
    (Message(role="assistant", content=None, tool_calls=(UMBRELLA,)), f"{CALLED}<|im_end|>"),
    (Message(role="assistant", content="Look.", tool_calls=(UMBRELLA,)), f"Look.\n{CALLED}<|im_end|>"),
    (Message(role="assistant", content=json.dumps({"a": 1})), '{"a": 1}<|im_end|>'),
]
OTHER = [
    ("content", Message(role="assistant", content="It rains."), "The sun shines.<|im_end|>"),
    ("reasoning", Message(role="assistant", content="B", reasoning="A long thought"), "<think>\nC\n</think>B"),
    ("tool calls", Message(role="assistant", tool_calls=(UMBRELLA,)), CALLED.replace("Köln", "Bonn")),
    ("more than recorded", Message(role="assistant", content="It"), "It rains, and tomorrow it will snow.<|im_end|>"),
]


@pytest.mark.parametrize(("message", "text"), SAME)
def test_the_marks_of_a_template_are_no_difference(message, text):
    result = compare_decoded([rollout_of(message, TOKENIZER(text)["input_ids"])], TOKENIZER)
    assert (result.completions, result.equal, result.meaning) == (1, 1, None)


@pytest.mark.parametrize(("field", "message", "text"), OTHER)
def test_other_words_are_found(field, message, text):
    result = compare_decoded([rollout_of(message, TOKENIZER(text)["input_ids"])], TOKENIZER)
    assert (result.equal, result.differences) == (0, {field: 1})
    assert result.examples[0].decoded == TOKENIZER.decode(TOKENIZER(text)["input_ids"])[:200]


def test_another_tokenizer_is_named():
    message, text = SAME[0]
    shifted = [token + 3 for token in TOKENIZER(text)["input_ids"]]
    result = compare_decoded([rollout_of(message, shifted)] * 3, TOKENIZER)
    assert "not the server's tokenizer" in result.meaning
