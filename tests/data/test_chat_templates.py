"""Re-tokenization by chat templates of many kinds: each prompt is what the template makes of the request."""

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

import art_otel
from art_otel.calls import Message
from art_otel.data.retokenize import ChatTemplate, retokenize
from art_otel.errors import UsageError
from tests.data import tokenizers
from tests.data.rollouts import agent_rollouts, answer, assistant, chat, looking, rollout, user
from tests.data.test_retokenize import CHATML, TALK, build, check_laws, texts


@pytest.mark.parametrize("make", [tokenizers.bpe, tokenizers.metaspace])
def test_generation_markers_change_nothing(make):
    marked, plain = make(tokenizers.MARKED), make(tokenizers.CHATML)
    trajectory = rollout(chat(*TALK))
    assert build(trajectory, marked) == build(trajectory, plain)


def test_dropped_thinking_starts_a_new_history():
    tokenizer = tokenizers.bpe(tokenizers.THINKING)
    talk = (user("hello"), assistant("a", reasoning="think"), user("more"), assistant("b", reasoning="it is"))
    found = build(rollout(chat(*talk)), tokenizer)
    assert texts(tokenizer, found) == [
        ["<think>\nthink\n</think>\n\na<|im_end|>"],
        ["<think>\nit is\n</think>\n\nb<|im_end|>"],
    ]
    assert "assistant\na<|im_end|>" in tokenizer.decode(found.histories[1].token_ids.tolist())


def test_variables_of_the_request_are_the_templates():
    tokenizer = tokenizers.bpe(tokenizers.THINKING)
    parameters = {"chat_template_kwargs": {"enable_thinking": False}}
    found = build(rollout(chat(user("hello"), assistant("a"), parameters=parameters)), tokenizer)
    assert texts(tokenizer, found) == [["a<|im_end|>"]]


@pytest.mark.parametrize(
    "variables", [{"chat_template": "x", "tokenize": True, "return_dict": True}, "no object", None]
)
def test_a_recording_does_not_choose_the_template(variables):
    parameters = {"chat_template_kwargs": variables}
    found = retokenize(rollout(chat(user("hello"), assistant("a"), parameters=parameters)), CHATML)
    assert texts(CHATML, found) == [["a<|im_end|>"]]


def test_a_template_without_stop_tokens():
    template = "{% for message in messages %}{{ message.role + ':\n' + message.content + '\n\n' }}{% endfor %}"
    prompt = "{% if add_generation_prompt %}{{ 'assistant:\n' }}{% endif %}"
    tokenizer = tokenizers.bpe(template + prompt)
    assert texts(tokenizer, build(rollout(chat(*TALK)), tokenizer)) == [["the sunny", "hello"]]


def test_a_template_without_an_end_of_a_turn_shows_it_in_the_next_message():
    tokenizer = tokenizers.bpe(tokenizers.OPEN, eos="<|endoftext|>")
    talk = (user("weather?"), looking(), answer("sunny"), assistant("it is"), user("sure?"), assistant("the sunny"))
    found = build(rollout(chat(*talk)), tokenizer)
    assert texts(tokenizer, found) == [
        [
            "\n<think></think>\n<tool_call>look</tool_call><|observation|>",
            "\n<think></think>\nit is<|user|>",
            "\n<think></think>\nthe sunny",
        ]
    ]
    assert [span.is_end_known for span in found.histories[0].spans] == [True, True, False]
    cut = build(rollout(chat(*talk, finish_reason="length")), tokenizer)
    assert [text.endswith("|>") for text in texts(tokenizer, cut)[0]] == [False] * 3
    assert all(span.is_end_known for span in cut.histories[0].spans)


def test_what_ends_a_turn_is_shown_where_its_thinking_is_dropped():
    tokenizer = tokenizers.bpe(tokenizers.OPEN, eos="<|endoftext|>")
    talk = (user("hello"), assistant("a", reasoning="hm"), user("more"), assistant("b", reasoning="it is"))
    batches = art_otel.batches(rollout(chat(*talk), reward=1.0), tokenizer=tokenizer, advantage=None)
    trained = [
        tokenizer.decode(row[batch.loss_mask[at]]) for batch in batches for at, row in enumerate(batch.input_ids)
    ]
    assert trained == ["\n<think>hm</think>\na<|user|>", "\n<think>it is</think>\nb"]
    assert (batches.report.retokenized, batches.report.without_stop_token) == (2, 1)


def test_a_template_that_refuses_a_greeting():
    template = tokenizers.STRICT.replace("== 'system'", "!= 'system'")
    talk = (Message(role="system", content="be kind"), user("a"), assistant("b"))
    assert texts(CHATML, build(rollout(chat(*talk)), tokenizers.bpe(template))) == [["b<|im_end|>"]]


def test_a_tokenizer_without_a_template_is_refused():
    with pytest.raises(UsageError, match=r"set tokenizer\.chat_template"):
        retokenize(rollout([]), tokenizers.bpe(None))


TEMPLATES = {name: getattr(tokenizers, name) for name in ("CHATML", "MARKED", "THINKING", "CLOSING", "OPEN", "STRICT")}
ALL = {
    f"{make.__name__} {name}": make(template)
    for name, template in TEMPLATES.items()
    for make in (tokenizers.bpe, tokenizers.metaspace)
}
ALL["words"] = tokenizers.words(tokenizers.CHATML, ["user assistant system tool hello look city n Paris Tokyo name"])


@for_all(agent_rollouts(), st.sampled_from(sorted(ALL)))
def test_every_prompt_is_the_servers(rollouts, name):
    tokenizer = ALL[name]
    template = ChatTemplate(tokenizer)
    for trajectory in rollouts:
        check_laws(trajectory, tokenizer, retokenize(trajectory, template))
