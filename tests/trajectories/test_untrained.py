"""What must not be trained: it stays in the trajectory with its reason, and no view learns it."""

import pytest
from msgspec import structs

from art_otel import histories
from art_otel.calls import Choice, Message, TokenIds, ToolCall
from art_otel.data.retokenize import histories_without_ids
from art_otel.spans import Span
from art_otel.store.rows import art_messages
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, Trajectory, build_trajectories, token_histories

ASKED = [Message(role="user", content="weather?")]
LOOK = ToolCall(id="c1", name="look", arguments='{"city": "Paris"}')
RESULT = Message(role="tool", content="sun", tool_call_id="c1")


def said(content: str | None, *tool_calls: ToolCall, **fields) -> Message:
    return Message(role="assistant", content=content, tool_calls=tool_calls, **fields)


class Chat:
    """The calls of a rollout, one after the other."""

    def __init__(self) -> None:
        self.builder = SpanBuilder()
        self.spans = [self.builder.rollout("r")]

    def ask(
        self,
        prompt: list[Message],
        *answers: Message,
        finish: str | None = "stop",
        ids: TokenIds | None = None,
        without: tuple[str, ...] = (),
        known: dict[str, object] | None = None,
        **fields,
    ) -> Span:
        choices = [
            Choice(index=at, message=message, finish_reason=finish, token_ids=ids) for at, message in enumerate(answers)
        ]
        span = self.builder.chat(self.spans[0], prompt, choices, attributes=known)
        if not answers:
            without = (*without, "gen_ai.output.messages", "gen_ai.response.finish_reasons")
        if finish is None:
            without = (*without, "gen_ai.response.finish_reasons")
        kept = {name: value for name, value in span.attributes.items() if name not in without}
        self.spans.append(structs.replace(span, attributes=kept, **fields))
        return self.spans[-1]

    def fail(self, prompt: list[Message], *answers: Message, **fields) -> Span:
        return self.ask(prompt, *answers, status="error", status_message="bad request", **fields)

    def trajectory(self) -> Trajectory:
        (found,) = build_trajectories(SpanGroup(spans=self.spans)).trajectories
        return found


def check_views(found: Trajectory) -> None:
    """Each message that may be trained is trained once in each view, and no other in any."""
    wanted = {at for at, turn in enumerate(found.turns) if turn.message is not None and turn.text_untrained is None}
    learnt = [entry.turn for one in histories(found) for entry in one.messages or () if entry.trained]
    with_ids = [span.turn for one in token_histories(found) for span in one.spans if span.trained]
    without = [entry.turn for one in histories_without_ids(found) for entry in one.messages or () if entry.trained]
    assert sorted(learnt) == sorted(with_ids + without) == sorted(wanted)
    untrained = {(turn.message.content, bool(turn.message.tool_calls)) for turn in found.turns if turn.text_untrained}
    for entry in art_messages(found) or ():
        assert not (entry.trainable and (entry.content, entry.tool_calls is not None) in untrained)


# A call that failed is a fact; a stream that broke is one, too, and its half answer is not learnt.


def test_a_failed_call_that_has_its_prompt_leaves_nothing_missing():
    chat = Chat()
    chat.fail(ASKED)
    chat.ask(ASKED, said("sun"))
    found = chat.trajectory()
    assert (found.complete, [call.failed for call in found.calls]) == (True, [True, False])
    assert [(turn.call, turn.text_untrained) for turn in found.turns] == [(1, None)]
    check_views(found)


def test_a_failed_call_without_its_prompt_is_a_gap():
    chat = Chat()
    chat.fail(ASKED, without=("gen_ai.input.messages",))
    chat.ask(ASKED, said("sun"))
    assert chat.trajectory().incomplete_reasons == {"no content": 1}


def test_a_failed_call_that_never_ended_is_a_gap():
    chat = Chat()
    chat.fail(ASKED, end_ns=None)
    chat.ask(ASKED, said("sun"))
    assert chat.trajectory().incomplete_reasons == {"not ended": 1}


@pytest.mark.parametrize("ids", [None, TokenIds.of([1, 2])])
def test_the_half_answer_of_a_stream_that_broke_is_not_trained(ids):
    chat = Chat()
    chat.ask(ASKED, said("su"), finish=None, ids=ids, known={"gen_ai.is_streaming": True})
    chat.ask([*ASKED, said("su"), Message(role="user", content="go on")], said("sunny"), ids=ids)
    found = chat.trajectory()
    assert found.complete
    assert [turn.text_untrained for turn in found.turns] == ["stream broke", None]
    assert found.turns[1].parent == 0
    check_views(found)


# The finish reason says tool calls, and there are none.


@pytest.mark.parametrize("content", ["Let me look.", None])
def test_tool_calls_that_only_the_finish_reason_tells_of_were_lost(content):
    chat = Chat()
    chat.ask(ASKED, said(content), finish="tool_calls")
    found = chat.trajectory()
    assert found.incomplete_reasons == {"content not understood": 1}
    assert [turn.text_untrained for turn in found.turns] == ["content uncertain"]
    check_views(found)


def test_of_several_choices_the_one_that_lost_its_tool_calls_is_not_trained():
    chat = Chat()
    chat.ask(ASKED, said("Let me look.", LOOK), said("Let me look."), finish="tool_calls")
    found = chat.trajectory()
    assert [turn.text_untrained for turn in found.turns] == [None, "content uncertain"]
    check_views(found)


def test_a_completion_that_is_known_as_tokens_only_lost_nothing():
    chat = Chat()
    chat.ask(ASKED, said(None), finish="tool_calls", ids=TokenIds.of([1, 2]), without=("gen_ai.output.messages",))
    found = chat.trajectory()
    assert found.complete
    assert all(turn.text_untrained is None for turn in found.turns)


def test_what_was_dropped_and_what_the_conversation_shows_are_both_reasons():
    chat = Chat()
    chat.ask(ASKED, said("Let me look."), finish="tool_calls", dropped_attributes_count=2)
    found = chat.trajectory()
    assert found.incomplete_reasons == {"attributes dropped": 1, "content not understood": 1}
    assert [turn.text_untrained for turn in found.turns] == ["content uncertain"]


# A later prompt repeats an answer with more in it.


def flagged(chat: Chat) -> list[int]:
    """The turns that lost something; each is counted."""
    found = chat.trajectory()
    turns = [at for at, turn in enumerate(found.turns) if turn.text_untrained == "content uncertain"]
    assert found.incomplete_reasons == ({"content not understood": len(turns)} if turns else {})
    check_views(found)
    return turns


def results(answer: Message) -> list[Message]:
    """What a server wants behind the answer: a result of each tool call, or the user's next words."""
    asked = [structs.replace(RESULT, tool_call_id=called.id) for called in answer.tool_calls]
    return asked or [Message(role="user", content="go on")]


@pytest.mark.parametrize(
    ("recorded", "repeated"),
    [
        (said("Looking."), said("Looking.", LOOK)),
        (said(None, LOOK), said("Looking.", LOOK)),
        (said("Looking.", LOOK), said("Looking.", LOOK, ToolCall(id="c2", name="look", arguments='{"city": "Rome"}'))),
        (said(None), said(None, LOOK)),
        (said("Looking."), said("Looking.", structs.replace(LOOK, id=None))),
    ],
    ids=["tool calls lost", "text lost", "one tool call lost", "all lost", "an id lost as well"],
)
def test_an_answer_that_the_next_prompt_repeats_with_more_lost_something(recorded, repeated):
    chat = Chat()
    chat.ask(ASKED, recorded)
    chat.ask([*ASKED, repeated, *results(repeated)], said("sun"))
    assert flagged(chat) == [0]


@pytest.mark.parametrize(
    ("recorded", "repeated"),
    [
        (said("Looking.", LOOK), said("Looking.", LOOK)),
        (said("Looking.", LOOK), said("Looking.", structs.replace(LOOK, arguments='{"city":"Paris"}'))),
        (said("Looking.", structs.replace(LOOK, id=None)), said("Looking.", LOOK)),
        (said(None, LOOK), said("", LOOK)),
        (said("Looking.", LOOK), said(None, LOOK)),
        (said("Looking.", LOOK), said("Looking.")),
        (said("Looking.", LOOK, reasoning="hm"), said("Looking.", LOOK)),
        (said(None, LOOK, reasoning="hm"), said("<think>hm</think>", LOOK)),
        (said("Looking."), said("Looking, that is.", LOOK)),
        (said('<call>look(city="Paris")</call>'), said('<call>look(city="Paris")</call>', LOOK)),
        (said("Looking."), said("Looking. (cut)")),
        (said(None), said("I have nothing to say.")),
    ],
    ids=[
        "the same",
        "arguments spelt otherwise",
        "an id added",
        "an empty text",
        "the text left out",
        "tool calls left out",
        "reasoning left out",
        "reasoning put into the text",
        "another answer",
        "tool calls read out of the text",
        "text added",
        "a text in place of nothing",
    ],
)
def test_what_agents_and_templates_do_to_an_answer_is_no_loss(recorded, repeated):
    chat = Chat()
    chat.ask(ASKED, recorded)
    chat.ask([*ASKED, repeated, *results(repeated)], said("sun"))
    assert flagged(chat) == []


def test_a_retry_that_was_gone_on_with_explains_the_prompt():
    chat = Chat()
    chat.ask(ASKED, said("Looking."))
    chat.ask(ASKED, said("Looking.", structs.replace(LOOK, id=None)))
    chat.ask([*ASKED, said("Looking.", LOOK), RESULT], said("sun"))
    assert flagged(chat) == []


def test_another_choice_that_was_gone_on_with_explains_the_prompt():
    chat = Chat()
    chat.ask(ASKED, said("Looking."), said("Looking.", LOOK))
    chat.ask([*ASKED, said("Looking.", LOOK), RESULT], said("sun"))
    assert flagged(chat) == []


def test_an_agent_with_another_prompt_is_another_conversation():
    chat = Chat()
    chat.ask([Message(role="system", content="plan"), *ASKED], said("Looking."))
    chat.ask([*ASKED, said("Looking.", LOOK), RESULT], said("sun"))
    assert flagged(chat) == []


def test_an_answer_given_after_the_prompt_that_holds_it_is_another_one():
    chat = Chat()
    chat.ask([*ASKED, said("Looking.", LOOK), RESULT], said("sun"))
    chat.ask(ASKED, said("Looking."))
    assert flagged(chat) == []


def test_a_loss_in_the_midst_of_a_conversation_is_found_once():
    chat = Chat()
    more = [*ASKED, said("Looking.", LOOK), RESULT]
    chat.ask(ASKED, said("Looking."))
    for count in range(1, 4):
        chat.ask(more, said(f"sun {count}"))
        more = [*more, said(f"sun {count}"), Message(role="user", content="and then?")]
    assert flagged(chat) == [0]


@pytest.mark.parametrize("wire", ["GenAI", "body"])
def test_an_empty_answer_with_its_tokens_is_a_message_of_its_history(wire):
    """A model that samples its end of sequence first says nothing; that is known."""
    empty = '[{"role": "assistant", "parts": [], "finish_reason": "stop"}]'
    body = '{"choices": [{"index": 0, "message": {"role": "assistant", "content": null}, "finish_reason": "stop"}]}'
    known = {"gen_ai.output.messages": empty} if wire == "GenAI" else {"output.value": body}
    without = () if wire == "GenAI" else ("gen_ai.output.messages",)
    chat = Chat()
    chat.ask(ASKED, said(""), ids=TokenIds.of([2]), known=known, without=without)
    chat.ask([*ASKED, said(""), *ASKED], said("sun"), ids=TokenIds.of([3]))
    found = chat.trajectory()
    check_views(found)
    (history,) = histories(found)
    assert [entry.content for entry in history if entry.trained] == ["", "sun"]
