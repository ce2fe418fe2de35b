"""Re-tokenization by real Hugging Face tokenizers: what stands before a completion is what the server tokenized."""

from collections import Counter

import pytest
import transformers
from msgspec import structs

from art_otel.calls import Logprobs, Message, TokenIds
from art_otel.data.retokenize import histories_without_ids, retokenize, template_message
from art_otel.trajectories import histories
from tests.data import tokenizers
from tests.data.rollouts import answer, assistant, call, chat, looking, rollout, user
from tests.data.test_messages import TOOL

CHATML = tokenizers.bpe(tokenizers.CHATML)
TALK = (user("hello"), assistant("the sunny"), user("is it"), assistant("hello"))


def texts(tokenizer, found) -> list[list[str]]:
    """The completions of each history, as text."""
    return [
        [tokenizer.decode(one.token_ids.tolist()[span.start : span.end]) for span in one.spans]
        for one in found.histories
    ]


def reasons(found) -> Counter:
    return Counter({one.reason: 0 for one in found.skipped}) + Counter(one.reason for one in found.skipped)


def prompt_ids(tokenizer, asked) -> list[int]:
    """What the server does with a request."""
    return list(
        tokenizer.apply_chat_template(
            [template_message(message) for message in asked.input_messages],
            tools=list(asked.tools or ()) or None,
            add_generation_prompt=True,
            return_dict=True,
            **asked.parameters.get("chat_template_kwargs", {}),
        )["input_ids"]
    )


def check_laws(trajectory, tokenizer, found) -> None:
    for history in found.histories:
        ids = history.token_ids.tolist()
        assert len(ids) == len(history.loss_mask)
        assert history.logprobs is None
        assert history.turns == tuple(span.turn for span in history.spans)
        masked = bytearray(len(ids))
        for span in history.spans:
            masked[span.start : span.end] = b"\1" * (span.end - span.start)
            asked = trajectory.calls[trajectory.turns[span.turn].call]
            assert ids[: span.start] == prompt_ids(tokenizer, asked)
        assert history.loss_mask == bytes(masked)
    trained = Counter(span.turn for history in found.histories for span in history.spans)
    skipped_turns = Counter(turn for one in found.skipped if one.reason != "messages unknown" for turn in one.turns)
    wanted = {
        entry.turn for history in histories_without_ids(trajectory) for entry in history.messages or () if entry.trained
    }
    assert trained + skipped_turns == Counter(wanted)


def build(trajectory, tokenizer):
    found = retokenize(trajectory, tokenizer)
    check_laws(trajectory, tokenizer, found)
    return found


def test_a_conversation_is_one_history():
    found = build(rollout(chat(*TALK)), CHATML)
    (one,) = found.histories
    assert CHATML.decode(one.token_ids.tolist()) == (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nthe sunny<|im_end|>\n"
        "<|im_start|>user\nis it<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>"
    )
    assert texts(CHATML, found) == [["the sunny<|im_end|>", "hello<|im_end|>"]]
    assert one.turns == (0, 1)
    assert not found.skipped


def test_the_newline_behind_an_answer_is_not_trained():
    (one,) = build(rollout(chat(*TALK)), CHATML).histories
    ids, (first, _) = one.token_ids.tolist(), one.spans
    assert CHATML.decode(ids[first.end]) == "\n"
    assert one.loss_mask[first.end - 1 : first.end + 1] == b"\1\0"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_cut_answer_has_no_stop_token(reason):
    found = build(rollout(chat(*TALK, finish_reason=reason)), CHATML)
    assert texts(CHATML, found) == [["the sunny", "hello"]]


def test_tool_calls_are_written_once():
    talk = (user("weather?"), looking(), answer("sunny"), assistant("it is"))
    found = build(rollout(chat(*talk, tools=(TOOL,))), CHATML)
    assert (
        texts(CHATML, found)[0][0]
        == '<tool_call>{"name": "look", "arguments": {"city": "Paris"}}</tool_call><|im_end|>'
    )
    (one,) = found.histories
    assert '{"type": "function"' in CHATML.decode(one.token_ids.tolist())


def test_an_empty_answer_is_no_token():
    trajectory = rollout(chat(user("hello"), assistant(""), finish_reason="length"))
    for template in (tokenizers.MARKED, tokenizers.CHATML):
        (one,) = build(trajectory, tokenizers.bpe(template)).histories
        assert one.spans[0].start == one.spans[0].end == len(one.token_ids)


def test_a_token_at_the_end_of_conversations_was_not_sampled():
    tokenizer = tokenizers.bpe(tokenizers.CLOSING, eos="<|endoftext|>")
    found = build(rollout(chat(*TALK)), tokenizer)
    assert texts(tokenizer, found) == [["the sunny<|im_end|>", "hello<|im_end|>"]]


def test_special_tokens_before_the_stop_token_were_sampled():
    """As DeepSeek and Kimi write tool calls."""
    template = tokenizers.CHATML.replace("</tool_call>", "<|call_end|>")
    found = build(rollout(chat(user("a"), looking())), tokenizers.bpe(template))
    assert texts(CHATML, found)[0][0].endswith("<|call_end|><|im_end|>")


def test_what_is_left_out_says_why():
    swallowed = build(rollout(chat(user("a"), assistant("b"))), tokenizers.bpe(tokenizers.SWALLOWING))
    assert reasons(swallowed) == {"prompt rendered otherwise": 1}
    dropped = build(rollout(chat(user("a"), looking())), tokenizers.bpe(tokenizers.MARKED))
    assert reasons(dropped) == {"not rendered whole": 1}
    system = Message(role="system", content="be kind")
    refused = build(rollout(chat(system, user("a"), assistant("b"))), tokenizers.bpe(tokenizers.STRICT))
    assert reasons(refused) == {"rejected by the chat template": 1}
    assert "system messages are not supported" in refused.skipped[0].detail
    image = Message(role="user", content="a", parts='[{"type": "image", "url": "https://x/y.png"}]')
    assert reasons(build(rollout(chat(image, assistant("b"))), CHATML)) == {"not text alone": 1}
    completion = rollout(chat(user("a"), assistant("b"), operation_name="text_completion"))
    assert reasons(build(completion, CHATML)) == {"not a chat": 1}
    continued = rollout(chat(user("a"), assistant("b"), parameters={"continue_final_message": True}))
    assert reasons(build(continued, CHATML)) == {"continues a message": 1}
    unknown = rollout([call(0, None, assistant("a"))])
    assert reasons(build(unknown, CHATML)) == {"messages unknown": 1}


def test_one_that_is_left_out_is_context_of_the_next():
    image = Message(role="user", content="a", parts='[{"type": "image", "url": "https://x/y.png"}]')
    talk = (user("a"), assistant("b"), user("c"), looking("{}"), answer("d"), assistant("e"))
    template = tokenizers.CHATML.replace("message.tool_calls or []", "[]")
    found = build(rollout(chat(*talk)), tokenizers.bpe(template))
    assert texts(CHATML, found) == [["b<|im_end|>", "e<|im_end|>"]]
    assert reasons(found) == {"not rendered whole": 1}
    assert not build(rollout(chat(image, *talk)), CHATML).histories


def test_prompts_are_as_they_were_asked():
    """The client sent the answer back without its reasoning, and a template that writes reasoning shows it."""
    template = tokenizers.CHATML.replace("message.content }}", "(message.reasoning_content or '') + message.content }}")
    tokenizer = tokenizers.bpe(template)
    first, sent = assistant("a", reasoning="think"), assistant("a")
    calls = [call(0, [user("w")], first), call(1, [user("w"), sent, user("x")], assistant("b", reasoning="it"))]
    found = build(rollout(calls), tokenizer)
    assert texts(tokenizer, found) == [["thinka<|im_end|>"], ["itb<|im_end|>"]]


def test_a_token_over_the_border_is_split_as_it_was_sampled():
    """The prompt ends with a newline and the answer begins with two: as a whole the first two are one token."""
    trajectory = rollout(chat(user("hello"), assistant("\n\nthe sunny"), user("more"), assistant("hello")))
    found = build(trajectory, CHATML)
    # The second prompt has the token of two newlines, which the policy never saw before its first answer.
    assert texts(CHATML, found) == [["\n\nthe sunny<|im_end|>"], ["hello<|im_end|>"]]


def test_only_what_has_no_ids_is_tokenized():
    known = call(0, [user("a")], assistant("b"), prompt_token_ids=TokenIds.of([1, 2]))
    sampled = structs.replace(known.choices[0], token_ids=TokenIds.of([3]), logprobs=Logprobs.of([-1.0]))
    known = structs.replace(known, choices=(sampled,))
    trajectory = rollout([known, call(1, [user("a"), assistant("b"), user("c")], assistant("d"))])
    found = build(trajectory, CHATML)
    assert texts(CHATML, found) == [["d<|im_end|>"]]
    both = retokenize(trajectory, CHATML, histories(trajectory))
    assert texts(CHATML, both) == [["b<|im_end|>", "d<|im_end|>"]]


def test_a_tokenizer_in_python_will_do():
    """Slow tokenizers know no characters of a token."""

    class Letters(transformers.PreTrainedTokenizer):
        """One id a character."""

        @property
        def vocab_size(self):
            return 128

        def get_vocab(self):
            return {chr(code): code for code in range(128)}

        def _tokenize(self, text, **_):
            return list(text)

        def _convert_token_to_id(self, token):
            return ord(token)

        def _convert_id_to_token(self, index):
            return chr(index)

        def convert_tokens_to_string(self, tokens):
            return "".join(tokens)

    tokenizer = Letters(eos_token="<|im_end|>")
    tokenizer.chat_template = tokenizers.MARKED
    found = build(rollout(chat(*TALK)), tokenizer)
    assert texts(tokenizer, found) == [["the sunny<|im_end|>", "hello<|im_end|>"]]
