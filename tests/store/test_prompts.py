"""Prompts are rebuilt from turns, and only from turns that are a forest."""

import pytest

from art_otel.calls import Message, TokenIds
from art_otel.store import Prompt, rebuild_prompts
from art_otel.trajectories import Edit, Turn

ASK = Message(role="user", content="ask")
SAY = Message(role="assistant", content="say")
SHORT = Message(role="assistant", content="s")
MORE = Message(role="user", content="more")


def ids(*numbers: int) -> TokenIds:
    return TokenIds.of(numbers)


def test_a_path_is_the_prompt_and_what_was_sampled():
    turns = [
        Turn(call=0, choice=0, messages=(ASK,), context_token_ids=ids(1), message=SAY, token_ids=ids(2, 3)),
        Turn(call=0, choice=1, messages=(ASK,), context_token_ids=ids(1), message=SHORT, token_ids=None),
        Turn(
            call=1,
            choice=None,
            parent=0,
            messages=(MORE,),
            context_token_ids=ids(4),
            edits=(Edit(index=1, message=SHORT),),
        ),
        Turn(call=2, choice=None, parent=1, messages=(MORE,), context_token_ids=ids(9)),
    ]
    assert rebuild_prompts(turns) == {
        0: Prompt((ASK,), ids(1)),
        1: Prompt((ASK, SHORT, MORE), ids(1, 2, 3, 4)),
        2: Prompt((ASK, SHORT, MORE), ids(9)),  # its parent's ids are unknown, so these are the whole
    }


def test_unknown_stays_unknown():
    turns = [
        Turn(call=0, choice=0, message=SAY),
        Turn(call=1, choice=None, parent=0, messages=(ASK,)),
        Turn(call=2, choice=None, parent=1, messages=None),
        Turn(call=3, choice=None, parent=1, messages=(MORE,)),
    ]
    messages = [prompt.messages for prompt in rebuild_prompts(turns).values()]
    assert messages == [None, (ASK,), None, (ASK, MORE)]


@pytest.mark.parametrize(
    "turn",
    [
        Turn(call=1, choice=0, parent=1, messages=()),
        Turn(call=1, choice=0, parent=-1, messages=()),
        Turn(call=1, choice=0, parent=0, messages=(), edits=(Edit(index=2, message=ASK),)),
    ],
)
def test_turns_that_are_no_forest_are_refused(turn):
    with pytest.raises(ValueError, match=r"of 2|does not stand before"):
        rebuild_prompts([Turn(call=0, choice=0, messages=(ASK,), message=SAY), turn])
