"""A text that a limit cut is cut, whichever limit and unit; what is whole is not."""

import json
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from art_otel.conventions.attribute_names import AttributeNames
from art_otel.conventions.attributes import SpanRecording
from art_otel.conventions.value_limits import LIMITS, cut_values
from tests.conventions.builders import call, event, span

ALPHABETS = {"ascii": "abc defg, hi", "umlauts": "aäöü ß", "chinese": "你好世界。天气", "emoji": "a 🌧 bc"}
FLATTENED = ("gen_ai.prompt.0.content", "gen_ai.prompt.1.content", "gen_ai.completion.0.content")
CHOSEN = [200, 500, 512, 1000, 1023, 3000, 5000, 8000, 10_000]


def text_of(length, seed=0, alphabet="ascii"):
    random = Random(seed)
    return "".join(random.choices(ALPHABETS[alphabet], k=length))


def cut_bytes(text, limit):
    return text.encode()[:limit].decode(errors="ignore")


def cut_utf16(text, limit):
    return text.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", errors="replace")


def cut_characters(text, limit):
    return text[:limit]


CUTTERS = {"bytes": (cut_bytes,), "characters": (cut_characters, cut_utf16)}
DOCUMENTED = [
    (limit, cutter)
    for limit in LIMITS
    if limit.length is not None and limit.length >= 1024
    for cutter in CUTTERS[limit.unit]
]


def cut(attributes, events=()):
    one = span(attributes, events=events)
    return {found.name for found in cut_values(SpanRecording(one, (), AttributeNames(attributes)))}


def cut_as(limit, cutter, text):
    """A text as a limit of the table leaves it."""
    return cutter(text, limit.length - len(limit.ending)) + limit.ending


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize(("limit", "cutter"), DOCUMENTED)
def test_an_answer_that_ends_at_a_documented_limit_is_cut(limit, cutter, alphabet):
    answer = cut_as(limit, cutter, text_of(3 * limit.length, alphabet=alphabet))
    attributes = {FLATTENED[0]: "Hello", FLATTENED[2]: answer, "gen_ai.request.model": "m"}
    assert cut(attributes) == {FLATTENED[2]}
    assert cut({**attributes, FLATTENED[2]: answer + "xxxx"}) == set()
    assert cut({**attributes, FLATTENED[2]: answer[:-10]}) == set()
    assert cut({**attributes, "exception.stacktrace": "x" * 100_000}) == set()


@pytest.mark.parametrize("limit", [128, 256, 777, 3333, *CHOSEN])
def test_texts_that_end_at_one_length_are_cut_whatever_the_limit(limit):
    texts = [text_of(limit + 100 + seed, seed)[:limit] for seed in range(3)]
    assert cut(dict(zip(FLATTENED, texts, strict=True))) == set(FLATTENED)


@pytest.mark.parametrize("limit", CHOSEN)
def test_a_prompt_and_an_answer_show_a_limit_that_people_choose(limit):
    attributes = {FLATTENED[0]: text_of(limit, 1), FLATTENED[2]: text_of(limit, 2), FLATTENED[1]: "Hi"}
    assert cut(attributes) == {FLATTENED[0], FLATTENED[2]}


@given(st.integers(64, 5000), st.sampled_from(sorted(ALPHABETS)))
def test_json_that_ends_in_the_middle_shows_any_limit(limit, alphabet):
    torn = json.dumps([{"role": "user", "content": text_of(6000, 1, alphabet)}], ensure_ascii=False)[:limit]
    attributes = {"input.value": torn, "llm.output_messages.0.message.content": text_of(limit, 2, alphabet)}
    assert cut(attributes) == set(attributes)


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=6, unique=True), st.sampled_from(sorted(ALPHABETS)))
def test_texts_of_different_lengths_are_whole(lengths, alphabet):
    texts = {f"gen_ai.prompt.{index}.content": text_of(length, index, alphabet) for index, length in enumerate(lengths)}
    longest = max(len(text.encode()) for text in texts.values())
    documented = {limit.length - spare for limit in LIMITS if limit.length is not None for spare in range(4)}
    assume(max(lengths) not in documented and longest not in documented)
    assume(len({len(text.encode()) // 4 for text in texts.values()}) == len(texts))
    assert cut(texts) == set()


def test_what_is_whole_json_is_not_cut():
    whole = json.dumps([{"role": "assistant", "content": "x" * 2005}])
    whole += " " * (2048 - len(whole))
    assert cut({"gen_ai.output.messages": whole}) == set()
    board = "\n".join("." * 8 for _ in range(8))
    boards = {f"gen_ai.prompt.{index}.content": board.replace(".", "x", index) for index in range(20)}
    assert cut({**boards, FLATTENED[2]: "up"}) == set()


def test_equal_texts_show_nothing():
    assert cut({"gen_ai.completion.0.content": "x" * 3000, "output.value": "x" * 3000}) == set()


def test_a_longer_text_anywhere_on_the_span_shows_that_the_length_is_chance():
    answer = text_of(2048)
    assert cut({FLATTENED[2]: answer}, events=[event("e", {"content": "x" * 2049})]) == set()
    assert cut({FLATTENED[2]: answer}, events=[event("e", {"content": "x" * 2047})]) == {FLATTENED[2]}
    assert cut({}, events=[event("e", {"content": answer})]) == {"content"}


def test_what_is_beside_the_content_is_not_named_and_still_shows_the_limit():
    attributes = {"exception.stacktrace": text_of(2048, 1), FLATTENED[2]: text_of(2048, 2)}
    assert cut(attributes) == {FLATTENED[2]}
    assert cut({"exception.stacktrace": text_of(2048, 1), FLATTENED[2]: "Hi"}) == set()


def test_a_cut_text_says_what_of_the_call_it_holds():
    attributes = {FLATTENED[0]: text_of(1000, 1), FLATTENED[2]: text_of(1000, 2)}
    found = cut_values(SpanRecording(span(attributes), (), AttributeNames(attributes)))
    assert [one.field for one in found] == ["prompt", "answer"]
    assert all(one.evidence.startswith(one.name) and "1,000 bytes" in one.evidence for one in found)


def test_every_limit_has_its_source():
    assert all(limit.source and limit.setter for limit in LIMITS)


def test_a_call_says_what_of_it_is_cut():
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt.0.role": "user",
        FLATTENED[0]: text_of(2048, 1),
        "gen_ai.completion.0.role": "assistant",
        FLATTENED[2]: text_of(2048, 2),
    }
    assert [(gap.kind, gap.field) for gap in call(attributes).gaps] == [("cut", "prompt"), ("cut", "answer")]
    assert call({**attributes, FLATTENED[0]: "Hello", FLATTENED[2]: "Hi"}).gaps == ()


@pytest.mark.parametrize("limit", [8191, 8192, 16_384, 32_768, 65_535])
@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("cutter", [cut_bytes, cut_characters])
def test_a_long_text_that_ends_alone_at_a_power_of_two_is_cut(limit, alphabet, cutter):
    answer = cutter(text_of(2 * limit, alphabet=alphabet), limit)
    attributes = {FLATTENED[0]: "Hello", FLATTENED[2]: answer}
    assert cut(attributes) == {FLATTENED[2]}
    assert cut({**attributes, FLATTENED[0]: text_of(limit + 5000)}) == set()


@pytest.mark.parametrize("limit", [1000, 1024, 512])
def test_a_text_that_ends_alone_at_a_smaller_number_is_whole(limit):
    assert cut({FLATTENED[0]: "Hello", FLATTENED[2]: text_of(limit)}) == set()


@pytest.mark.parametrize("limit", [128, 256, 1000, 1024])
def test_sampled_json_that_ends_in_the_middle_at_such_a_number_is_cut(limit):
    torn = json.dumps({"q": text_of(2 * limit)})[:limit]
    arguments, result = "gen_ai.prompt.1.tool_calls.0.arguments", "gen_ai.prompt.1.content"
    assert cut({FLATTENED[0]: "Hello", FLATTENED[2]: torn}) == {FLATTENED[2]}
    assert cut({FLATTENED[0]: "Hello", arguments: torn}) == {arguments}
    assert cut({FLATTENED[0]: "Hello", FLATTENED[2]: torn[:-3]}) == set()
    assert cut({FLATTENED[0]: "Hello", result: torn}) == set()
