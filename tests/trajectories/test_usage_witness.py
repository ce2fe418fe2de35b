"""A prompt or an answer of which the server counted more tokens than it can have is not trained, and no other is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import Gap, InferenceCall, Message, Usage
from art_otel.conventions.bodies.tokens import parse_ids
from art_otel.trajectories.lineage import build_lineage
from tests.conversions import convert_files
from tests.data import tokenizers
from tests.data.rollouts import answer, assistant, call, chat, looking, user
from tests.examples import examples

SYSTEM = Message(role="system", content="You are good.")
LONG = "and so on, " * 200
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}
SEARCH = {"type": "web_search"}
IMAGE = '[{"text":"See?","type":"text"},{"type":"image","url":"https://x.test/a.png"}]'
JSON = assistant('{"city": "Paris"}')
RECORDED = Path(__file__).parent / "counted"
KIND = "more counted than recorded"


def counted(
    number: int, prompt: list[Message], said: Message, tokens: int, answered: int = 2, **fields
) -> InferenceCall:
    """A call whose messages a recorder parsed, and what its server counted."""
    known = {"prompt_known": "parsed attributes", "answer_known": "parsed attributes", "request_model": "m", **fields}
    reasoned = known.pop("reasoned", None)
    usage = Usage(
        input_tokens=tokens, output_tokens=answered, reasoning_tokens=reasoned, cached_tokens=known.pop("cached", None)
    )
    return call(number, prompt, said, usage=usage, **known)


def evidence(*calls: InferenceCall) -> list[list[tuple[str, str]]]:
    """The field and the evidence of each gap of the calls."""
    lineage = build_lineage(calls)
    found = [[gap for gap in one.gaps if gap.kind == KIND] for one in lineage.calls]
    assert all(turn.text_untrained == "content uncertain" for turn in lineage.turns if found[turn.call])
    return [[(gap.field, gap.evidence) for gap in gaps] for gaps in found]


# What is caught.

CALLED = looking(content="Let me look.")
LOST = {
    "a history that only the server has": (
        [counted(0, [user("and now?")], assistant("later"), 1843)],
        "prompt",
        "1,843 input tokens, but at most 8 bytes",
    ),
    "a short one, beside the count of the first prompt": (
        [counted(0, [user("Tell me.")], assistant(LONG), 9, 600), counted(1, [user("And?")], assistant("y"), 620)],
        "prompt",
        "620 input tokens, but only 4 bytes that an earlier prompt of 9 tokens did not have",
    ),
    "all but the system prompt and the last message": (
        [
            counted(0, [SYSTEM, user("Tell me.")], assistant(LONG), 13, 600),
            counted(1, [SYSTEM, user("And?")], assistant("y"), 620),
        ],
        "prompt",
        "620 input tokens, but only 4 bytes that an earlier prompt of 13 tokens did not have",
    ),
    "all but the last message, beside the count of a long one": (
        [
            counted(0, [SYSTEM, user(LONG)], assistant("a"), 610),
            counted(1, [SYSTEM, user("And?")], assistant("y"), 620),
        ],
        "prompt",
        "620 input tokens, but only 4 bytes that an earlier prompt of 610 tokens did not have",
    ),
    "the tool calls and results of a prompt": (
        [
            counted(0, [SYSTEM, user("Look.")], CALLED, 57),
            counted(1, [SYSTEM, user("Look."), assistant("Let me look.")], assistant("a"), 149),
        ],
        "prompt",
        "149 input tokens, but only 12 bytes that an earlier prompt of 57 tokens did not have",
    ),
    "the text of a message that came": (
        [
            counted(0, [user("a")], assistant("b"), 8),
            counted(1, [user("a"), assistant("b"), user("")], assistant("c"), 99),
        ],
        "prompt",
        "99 input tokens, but only 1 bytes that an earlier prompt of 8 tokens did not have",
    ),
    "a prompt whose cached tokens are counted apart": (
        [counted(0, [user("and now?")], assistant("later"), 3, cached=1840, request_model="claude-x")],
        "prompt",
        "1,843 input tokens, but at most 8 bytes",
    ),
    "a refusal": ([counted(0, [user("a")], assistant(""), 5, 9)], "answer[0]", "9 output tokens, but at most 0 bytes"),
    "most of an answer": (
        [counted(0, [user("a")], assistant("It"), 5, 300)],
        "answer[0]",
        "300 output tokens, but at most 2 bytes",
    ),
    "most of an answer beside its reasoning": (
        [counted(0, [user("a")], assistant("It"), 5, 900, reasoned=600, request_model="o3")],
        "answer[0]",
        "300 output tokens, but at most 2 bytes",
    ),
}


@pytest.mark.parametrize(("calls", "field", "shown"), LOST.values(), ids=list(LOST))
def test_what_was_counted_and_not_recorded_is_told(calls, field, shown):
    assert evidence(*calls)[-1] == [(field, shown)]
    assert not any(evidence(*calls)[:-1])


def test_choices_are_counted_together():
    one = counted(0, [user("a")], assistant("x" * 100), 5, 200)
    two = structs.replace(one, choices=(*one.choices, structs.replace(one.choices[0], index=1)))
    assert evidence(one) == [[("answer[0]", "200 output tokens, but at most 100 bytes")]]
    assert evidence(two) == [[]]
    more = structs.replace(two, usage=Usage(input_tokens=5, output_tokens=500))
    assert [field for field, _ in evidence(more)[0]] == ["answer"]


def test_ids_are_the_witness_where_they_are_known():
    lost = counted(0, [user("a")], assistant("It"), 2000, 300)
    choice = structs.replace(lost.choices[0], token_ids=parse_ids([*range(300)]))
    exact = structs.replace(lost, prompt_token_ids=parse_ids([*range(2000)]), choices=(choice,))
    assert len(evidence(lost)[0]) == 2
    assert evidence(exact) == [[]]


@pytest.mark.parametrize(
    ("name", "doubted"),
    [("genai_openai_11b0_responses", {1, 2, 4}), ("openai_v2_refusal_stream", {0})],
)
def test_recordings_of_which_more_was_counted(tmp_path, name, doubted):
    recorded = (RECORDED / f"{name}.jsonl").read_text(encoding="utf-8")
    dump = tmp_path / "dump.jsonl"
    dump.write_text(recorded.replace("opentelemetry.util.genai.handler", "a recorder nobody knows"), encoding="utf-8")
    (trajectory,), _ = convert_files(tmp_path / "out", dump)
    assert trajectory.incomplete_reasons == {KIND: len(doubted)}
    assert {at for at, turn in enumerate(trajectory.turns) if turn.text_untrained == "content uncertain"} == doubted


# What may have another reason.

ASKED = [user("a")]
EXPLAINED = {
    "a default system prompt": counted(0, ASKED, assistant("b"), 700),
    "an image": counted(0, [Message(role="user", content="See?", parts=IMAGE)], assistant("b"), 2500),
    "a tool of the server": counted(0, ASKED, assistant("b"), 9000, 400, tools=(TOOL, SEARCH)),
    "what is in a server's cache": counted(0, ASKED, assistant("b"), 9000, cached=8990, request_model="gemini-x"),
    "a search of the server": counted(0, ASKED, assistant("b"), 9000, parameters={"web_search_options": {}}),
    "definitions that the recorder never writes": counted(0, ASKED, looking(), 5000, 40),
    "definitions that are missing": counted(
        0, ASKED, assistant("b"), 5000, gaps=(Gap(kind="not logged", field="tools", evidence="a test"),)
    ),
    "a history that is missing": counted(
        0, ASKED, assistant("b"), 5000, gaps=(Gap(kind="history on the server", field="prompt", evidence="a test"),)
    ),
    "a schema": counted(0, ASKED, JSON, 3000),
    "a schema that is recorded": counted(
        0, ASKED, JSON, 8000, parameters={"response_format": {"type": "json_schema", "json_schema": LONG * 3}}
    ),
    "many tools": counted(0, ASKED, assistant("b"), 4000, tools=(TOOL,) * 20),
    "several choices, each with the prompt": counted(0, ASKED, assistant("b"), 2500, parameters={"n": 3}),
    "hidden reasoning": counted(0, ASKED, assistant("b"), 9, 900, request_model="deepseek-r1"),
    "hidden reasoning that was asked for": counted(
        0, ASKED, assistant("b"), 9, 900, parameters={"reasoning_effort": "high"}
    ),
    "reasoning that is counted": counted(0, ASKED, assistant("b"), 9, 900, reasoned=890),
    "a body that a server's parser made": counted(0, ASKED, assistant(""), 9, 90, answer_known="verbatim body"),
    "a stream that the app left": counted(0, ASKED, assistant("b"), 9, 900, closed_by_app="finished"),
    "the best of several": counted(0, ASKED, assistant("b"), 9, 900, parameters={"best_of": 9}),
    "the end of an empty answer": counted(0, ASKED, assistant(""), 9, 2),
    "the end of an empty answer of Claude": counted(0, ASKED, assistant(""), 9, 3, request_model="claude-x"),
    "an empty answer behind reasoning": counted(0, ASKED, assistant(""), 9, 12, reasoned=11),
}


@pytest.mark.parametrize("one", EXPLAINED.values(), ids=list(EXPLAINED))
def test_what_has_another_reason_is_not_doubted(one):
    assert evidence(one) == [[]]


def later(*prompt: Message, said: Message, tokens: int, **fields) -> InferenceCall:
    return counted(1, [user("a"), assistant("b"), *prompt], said, tokens, **fields)


FIRST = counted(0, [user("a")], assistant("b"), 8)
ANOTHER = {
    "definitions that only the later one has": (
        structs.replace(FIRST, tools=()),
        later(user("c"), said=assistant("d"), tokens=500, tools=(TOOL,)),
    ),
    "default instructions, of the later one alone": (
        counted(0, [SYSTEM, user("a")], assistant("b"), 12),
        counted(1, [user("c")], assistant("d"), 300),
    ),
    "another model": (FIRST, later(user("c"), said=assistant("d"), tokens=200, request_model="other")),
    "other parameters": (FIRST, later(user("c"), said=assistant("d"), tokens=200, parameters={"thinking": {"n": 1}})),
    "a schema of the later one": (FIRST, later(user("c"), said=JSON, tokens=500)),
    "an image": (FIRST, later(Message(role="user", content="c", parts=IMAGE), said=assistant("d"), tokens=900)),
    "reasoning that the prompt repeats": (
        counted(0, [user("a")], assistant("b"), 8, 400, reasoned=390),
        later(user("c"), said=assistant("d"), tokens=420),
    ),
    "a count without what was cached": (
        counted(0, [user(LONG)], assistant("b"), 20),
        counted(1, [user(LONG), assistant("b"), user("c")], assistant("d"), 620),
    ),
    "a count of Claude's, who counts that apart": (
        structs.replace(FIRST, request_model="claude-x"),
        later(user("c"), said=assistant("d"), tokens=200, request_model="claude-x"),
    ),
    "another agent, whose tools nobody wrote and nobody called": (
        counted(0, [SYSTEM, user("a")], assistant("b"), 14),
        counted(1, [Message(role="system", content="You look."), user("Paris?")], assistant("b"), 500),
    ),
    "another agent, whose tools nobody wrote": (
        counted(0, [SYSTEM, user("a")], looking(), 60),
        counted(1, [Message(role="system", content="You look."), user("Paris?")], assistant("b"), 500),
    ),
}


@pytest.mark.parametrize("calls", ANOTHER.values(), ids=list(ANOTHER))
def test_only_prompts_that_are_counted_alike_are_compared(calls):
    assert not any(evidence(*calls))


# No whole text is doubted: a token takes a byte at least, and a template adds little.

TEXTS = st.text(max_size=60) | st.sampled_from(
    ["เป็นมนุษย์", "ሰማይ አይታረስ", "👩‍👩‍👧‍👦", "\x00\x7f\x85", "𠀀𠀁", "f47ac10b-58cc", "ش"]
)


@st.composite
def conversations(draw) -> list[Message]:
    """A conversation with or without tools, of texts in any language."""
    messages = [Message(role="system", content=draw(TEXTS))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 6))):
        messages.append(user(draw(TEXTS)))
        if draw(st.booleans()):
            arguments = json.dumps({"q": draw(TEXTS)}, ensure_ascii=draw(st.booleans()))
            messages += [looking(arguments, id=f"call_{turn}", content=draw(st.none() | TEXTS))]
            messages += [answer(draw(TEXTS), id=f"call_{turn}")]
        messages.append(assistant(draw(TEXTS)))
    return messages


def most(text: str) -> int:
    """The tokens of a text where the tokenizer knows nothing of its language."""
    return len(text.encode())


def few(text: str) -> int:
    """The tokens of a text where it knows each word."""
    return len(text.split()) + 1


def tokens_of(messages: list[Message], tools: tuple, fixed: int, tokens: Callable[[str], int]) -> int:
    """The tokens of messages with a wordy template."""
    texts = [text for one in messages for text in (one.content, *(tool.arguments for tool in one.tool_calls)) if text]
    calls = sum(len(one.tool_calls) for one in messages)
    around = fixed + 12 * len(messages) + 40 * calls + sum(len(json.dumps(tool)) + 80 for tool in tools)
    return around + sum(map(tokens, texts))


@for_all(
    st.lists(conversations(), min_size=1, max_size=3),
    st.integers(0, 500),
    st.sampled_from([None, (), (TOOL,), (TOOL,) * 5]),
    st.sampled_from(
        [
            most,
            few,
            lambda text: most(text) if text.isascii() else few(text),
            lambda text: few(text) if text.isascii() else most(text),
        ]
    ),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_token_a_byte_is_possible(talks, fixed, tools, tokens):
    calls = []
    for talk in talks:
        for one in chat(*talk, tools=tools, request_model="m"):
            said = one.choices[0].message
            usage = Usage(
                input_tokens=tokens_of(list(one.input_messages), tools or (), fixed, tokens),
                output_tokens=2 if said == assistant("") else tokens_of([said], (), 10, tokens),
            )
            calls.append(structs.replace(one, usage=usage, start_ns=len(calls), span_id=f"{len(calls):016x}"))
    assert not any(evidence(*calls))


TEMPLATES = {name: getattr(tokenizers, name) for name in ("CHATML", "THINKING", "MARKED")}


@pytest.mark.parametrize("make", [tokenizers.bpe, tokenizers.metaspace], ids=lambda make: make.__name__)
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_what_a_tokenizer_makes_of_a_request_is_not_doubted(make, template):
    tokenizer = make(template)
    talk = [SYSTEM]
    for number, text in enumerate(["Wetter in Zürich? 🌦", "ሰማይ አይታረስ", "เป็นมนุษย์สุดประเสริฐ", LONG]):
        talk += [
            user(text),
            looking(json.dumps({"city": text}), id=f"c{number}", content=""),
            answer(text, id=f"c{number}"),
            assistant(text),
        ]
    calls = []
    for one in chat(*talk, tools=(TOOL,), request_model="m"):
        shown = [
            {"role": message.role, "content": message.content or ""}
            | (
                {
                    "tool_calls": [
                        {"function": {"name": tool.name, "arguments": tool.arguments}} for tool in message.tool_calls
                    ]
                }
                if message.tool_calls
                else {}
            )
            for message in one.input_messages
        ]
        rendered = tokenizer.apply_chat_template(shown, tools=[TOOL], add_generation_prompt=True, tokenize=False)
        tokens = len(tokenizer(rendered, add_special_tokens=False)["input_ids"])
        calls.append(structs.replace(one, usage=Usage(input_tokens=tokens)))
    assert not any(evidence(*calls))
