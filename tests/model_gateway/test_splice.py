"""What a prompt keeps of the turns that were sampled, over a tokenizer of bytes and random merges of them."""

import asyncio
from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from art_otel.model_gateway.exact import DecodedTexts, SampledTurns
from art_otel.model_gateway.splice import Splice, as_ids, splice

START, STOP = 256, 257
WORDS = [b"ab", b"abc", b"\n\n", b"\n\na", "é".encode(), b" \xc3", "😀".encode()[:2], b"<think>", b"</think>", b"b c"]
PIECES = {START: b"<|im_start|>", STOP: b"<|im_end|>", **{258 + at: word for at, word in enumerate(WORDS)}}
SPECIAL = {PIECES[START]: START, PIECES[STOP]: STOP}


def piece(number: int) -> bytes:
    return PIECES.get(number) or bytes([number])


async def decode(ids) -> str:
    return b"".join(piece(number) for number in ids).decode(errors="replace")


def text_of(ids) -> str:
    return asyncio.run(decode(ids))


def tokenize(text: str) -> array:
    """The longest words first, as a template's text is tokenized."""
    data, ids = text.encode(), []
    words = sorted((value, key) for key, value in PIECES.items())
    while data:
        word, number = max(
            ((word, number) for word, number in words if data.startswith(word)), key=lambda one: len(one[0]),
            default=(data[:1], data[0]),
        )  # fmt: skip
        ids.append(number)
        data = data[len(word) :]
    return as_ids(ids)


def render(messages: list[tuple[str, str]]) -> array:
    """The ids that a ChatML template makes of a conversation, with the prompt for an answer."""
    told = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
    return tokenize(f"{told}<|im_start|>assistant\n")


def shown(completion: list[int]) -> list[int]:
    """The ids whose text an agent gets of a completion: none of an unfinished character at its end."""
    kept = completion[:-1] if completion[-1] == STOP else completion
    while text_of(kept).endswith("\ufffd"):
        kept = kept[:-1]
    return kept


def seen(completion: list[int]) -> str:
    return text_of(shown(completion))


def turn_of(spliced: Splice, completion: list[int], reasoning: str = ""):
    return spliced.sampled(completion, is_stopped=completion[-1] == STOP, reasoning=reasoning)


def ask(turns: SampledTurns, messages, **options) -> Splice:
    return asyncio.run(splice(render(messages), turns.of("r"), decode, **options))


sampled = st.lists(st.one_of(st.sampled_from([*range(258, 258 + len(WORDS)), 10, 97, 0xC3, 0x80]), st.integers(0, 255)))
completions = st.builds(lambda ids, end: [*ids, *end] or [97], sampled, st.sampled_from([[], [STOP]]))


@given(st.lists(completions, min_size=1, max_size=5), st.sampled_from(["Go on", "\n\na", "é", ""]))
def test_a_conversation_whose_text_is_unchanged_has_every_id_that_was_sampled(answers, more):
    turns, messages, path = SampledTurns(), [("user", more)], as_ids([])
    for answer in answers:
        spliced = ask(turns, messages)
        assert spliced.outcome in ("spliced", "not_needed"), spliced.reason
        assert spliced.prompt[: len(path)] == path
        assert text_of(spliced.prompt[len(path) :]) == text_of(spliced.tail)
        path = spliced.prompt + as_ids(answer)
        turns.add("r", turn_of(spliced, answer))
        messages += [("assistant", seen(answer)), ("user", more)]


@example([263], "<")
@given(completions, st.text("ab c\n<", max_size=8))
def test_a_text_that_was_changed_is_not_spliced_and_the_reason_says_where(answer, other):
    turns, begin = SampledTurns(), [("user", "Hi")]
    first = ask(turns, begin)
    turns.add("r", turn_of(first, answer))
    messages = [*begin, ("assistant", other), ("user", "More")]
    spliced = ask(turns, messages)
    if other == seen(answer):
        assert spliced.outcome != "differing"
    elif spliced.outcome == "differing":
        assert spliced.prompt == render(messages)
        assert "at character" in spliced.reason
    else:  # an answer that was cut, and goes on as the other text does, is a beginning of it
        sampled_to = len(first.prompt) + len(answer)
        told = first.prompt + as_ids(shown(answer)) + spliced.prompt[sampled_to:]
        assert text_of(render(messages)) in (text_of(told), text_of(spliced.prompt))


def test_a_text_that_was_changed_right_behind_a_turn_is_said_too():
    """What stands between two answers may be so short that all of it is compared together with the second one."""
    turns, rendered = SampledTurns(), tokenize("question")
    for answer in ("yes", "no"):
        spliced = asyncio.run(splice(rendered, turns.of("r"), decode))
        assert spliced.outcome == "not_needed"
        turns.add("r", turn_of(spliced, [*tokenize(answer), STOP]))
        rendered += tokenize(f"{answer}<|im_end|>\n")
    changed = rendered[: -len(tokenize("no<|im_end|>\n"))] + tokenize("nay<|im_end|>\n")
    spliced = asyncio.run(splice(changed, turns.of("r"), decode))
    assert (spliced.outcome, spliced.prompt) == ("differing", changed)
    assert spliced.reason.startswith("text at character 2")


@given(st.lists(completions, min_size=2, max_size=4, unique_by=seen), st.data())
def test_of_parallel_answers_the_one_that_is_continued_is_kept(answers, data):
    turns, begin = SampledTurns(), [("user", "Hi")]
    first = ask(turns, begin)
    for answer in answers:
        turns.add("r", turn_of(first, answer))
    chosen = data.draw(st.sampled_from([answer for answer in answers if answer[-1] == STOP] or [answers[0]]))
    spliced = ask(turns, [*begin, ("assistant", seen(chosen)), ("user", "More")])
    if chosen[-1] == STOP:
        path = first.prompt + as_ids(chosen)
        assert spliced.prompt[: len(path)] == path


def test_the_same_prompt_again_and_another_conversation_need_nothing():
    turns, begin = SampledTurns(), [("user", "Hi")]
    turns.add("r", turn_of(ask(turns, begin), [97, STOP]))
    assert ask(turns, begin).outcome == "not_needed"
    assert ask(turns, [("user", "Other"), ("assistant", "b"), ("user", "Hi")]).outcome == "not_needed"
    assert ask(turns, [*begin, ("user", "And?")]).outcome == "not_needed"


def test_compaction_begins_anew_and_an_earlier_turn_is_found_behind_it():
    turns, begin = SampledTurns(), [("user", "Hi")]
    broken = [97, 98, 99, STOP]  # the template's token is `abc`
    turns.add("r", turn_of(ask(turns, begin), broken))
    compacted = [("user", "Summary: abc")]
    assert ask(turns, compacted).outcome == "not_needed"
    turns.add("r", turn_of(ask(turns, compacted), broken))
    for conversation in (begin, compacted):
        spliced = ask(turns, [*conversation, ("assistant", "abc"), ("user", "More")])
        assert spliced.outcome == "spliced"
        assert spliced.prompt[: len(render(conversation)) + len(broken)] == render(conversation) + as_ids(broken)


def test_reasoning_that_a_template_removes_is_kept_only_where_it_is_asked_for():
    turns, begin = SampledTurns(), [("user", "Hi")]
    answer = [*tokenize("<think>\nwhy\n</think>\n\n"), 97, 98, 99, STOP]
    turns.add("r", turn_of(ask(turns, begin), answer, reasoning="\nwhy\n"))
    messages = [*begin, ("assistant", "abc"), ("user", "More")]
    removed = ask(turns, messages)
    assert removed.outcome == "differing"
    assert removed.reason.startswith("reasoning removed")
    assert removed.prompt == render(messages)
    kept = ask(turns, messages, keep_reasoning=True)
    assert kept.outcome == "spliced"
    assert kept.is_reasoning_kept
    assert kept.prompt[: len(render(begin)) + len(answer)] == render(begin) + as_ids(answer)
    turns.add("r", turn_of(kept, [98, STOP]))
    again = ask(turns, [*messages, ("assistant", "b"), ("user", "More")], keep_reasoning=True)
    assert again.is_reasoning_kept
    assert again.prompt[: len(kept.prompt) + 2] == kept.prompt + as_ids([98, STOP])


def test_what_a_turn_became_is_asked_once():
    turns, begin = SampledTurns(), [("user", "Hi")]
    turns.add("r", turn_of(ask(turns, begin), [97, 98, 99, STOP]))
    messages = [*begin, ("assistant", "abc"), ("user", "More")]
    assert ask(turns, messages).outcome == "spliced"

    async def never(ids) -> str:
        raise AssertionError(ids)

    assert asyncio.run(splice(render(messages), turns.of("r"), never)).outcome == "spliced"


def test_turns_that_differ_in_every_prompt_are_decoded_once():
    """As those of a template that removes reasoning: a prompt asks for its latest turn, not for all before."""
    turns, texts, asked = SampledTurns(), DecodedTexts(max_size=100_000), []

    async def remembered(ids) -> str:
        return await texts.of("m", ids, counted)

    async def counted(ids) -> str:
        asked[-1] += 1
        return await decode(ids)

    messages = [("user", "Hi")]
    for turn in range(30):
        asked.append(0)
        spliced = asyncio.run(splice(render(messages), turns.of("r"), remembered))
        assert spliced.outcome == ("differing" if turn else "not_needed")
        turns.add("r", turn_of(spliced, [*tokenize(f"<think>{turn}</think>abc"), STOP], reasoning=str(turn)))
        messages += [("assistant", "abc"), ("user", "More")]
    assert max(asked) <= 2
    forgetful = DecodedTexts(max_size=10)
    assert asyncio.run(forgetful.of("m", [97] * 20, decode)) == "a" * 20
    assert asyncio.run(forgetful.of("m", [98], decode)) == "b"


def test_memory_is_bounded_by_ids():
    turns, begin = SampledTurns(max_ids=60 + 3 * 250), [("user", "Hi")]
    for rollout in ("r", "s", "t", "u"):
        turns.add(rollout, turn_of(ask(turns, begin), [97, STOP]))
    assert not turns.of("r")
    assert turns.of("u")
