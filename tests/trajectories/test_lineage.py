"""Laws 3 and 4 of generated agents: the links are those of their definition, and each completion is trained once."""

import pickle
from collections import Counter
from dataclasses import replace
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import Choice, InferenceCall, Message, TokenIds
from art_otel.data.retokenize import histories_without_ids
from art_otel.errors import UsageError
from art_otel.testing import trajectories
from art_otel.trajectories import (
    Trajectory,
    histories,
    main_history,
    message_ends,
    token_ends,
    token_histories,
)
from art_otel.trajectories.history import delegated_turns
from art_otel.trajectories.lineage import build_lineage, recorded_call
from art_otel.trajectories.trees import in_order, last_turn
from tests.trajectories.agents import agent_calls
from tests.trajectories.calls import asked, choice, trajectory_of


def identities(messages) -> list[tuple[object, ...]]:
    return [message.identity for message in messages]


def message_path(trajectory: Trajectory, turn: int) -> list[tuple[object, ...]] | None:
    asked = trajectory.calls[trajectory.turns[turn].call].input_messages
    return None if asked is None else identities((*asked, trajectory.turns[turn].message))


def token_path(trajectory: Trajectory, turn: int) -> list[int] | None:
    ids = trajectory.calls[trajectory.turns[turn].call].prompt_token_ids
    sampled = trajectory.turns[turn].token_ids
    return None if ids is None or sampled is None else [*ids, *sampled]


def lacks_messages(trajectory: Trajectory, turn: int) -> bool:
    """Whether nobody recorded a turn's prompt, or of its completion anything but tokens."""
    message = trajectory.turns[turn].message
    texts = (message.content, message.reasoning, message.refusal, message.parts)
    is_bare = all(text is None for text in texts) and not message.tool_calls
    return message_path(trajectory, turn) is None or (is_bare and bool(trajectory.turns[turn].token_ids))


def first_turn(trajectory: Trajectory, call: int) -> int:
    return sum(len(one.choices or ()) for one in trajectory.calls[:call])


@given(agent_calls())
def test_every_completion_is_one_turn_of_its_call(calls):
    trajectory = trajectory_of(calls)
    assert sorted(call.span_id for call in trajectory.calls) == sorted(call.span_id for call in calls)
    expected = [(at, choice) for at, call in enumerate(trajectory.calls) for choice in range(len(call.choices or ()))]
    assert [(turn.call, turn.choice) for turn in trajectory.turns] == expected
    for turn in trajectory.turns:
        assert trajectory.calls[turn.call].choices[turn.choice] is turn


@given(agent_calls())
def test_the_parent_is_the_longest_message_path(calls):
    trajectory = trajectory_of(calls)
    paths = [message_path(trajectory, turn) for turn in range(len(trajectory.turns))]
    for call in trajectory.calls:
        asked, parent = identities(call.input_messages or ()), last_turn(call.prompt_node)
        fitting = [path for path in paths if path is not None and asked[: len(path)] == path]
        longest = max(map(len, fitting), default=0)
        assert longest == (0 if parent is None else len(paths[parent]))
        if parent is not None:
            assert paths[parent] in fitting


def test_of_equal_answers_a_prompt_continues_the_latest_before_it():
    q, a, go, b = (
        Message(role=role, content=text) for role, text in zip(["user", "assistant"] * 2, "qagb", strict=True)
    )
    prompts = [((q,), a), ((q,), a), ((q, a, go), b), ((q,), a)]
    found = trajectory_of(
        [asked(at, prompt, None, [Choice(index=0, message=said)]) for at, (prompt, said) in enumerate(prompts)]
    )
    (continuing,) = [turn for turn in found.turns if turn.message.content == "b"]
    assert found.calls[found.turns[continuing.parent].call].start_ns == 1


@given(agent_calls())
def test_the_token_parent_is_the_longest_token_path_of_an_earlier_call(calls):
    trajectory = trajectory_of(calls)
    for at, call in enumerate(trajectory.calls):
        parent = last_turn(call.prompt_node)
        before = range(first_turn(trajectory, at))
        ids = None if call.prompt_token_ids is None else call.prompt_token_ids.tolist()
        fitting: dict[int, int] = {}
        for turn in before if ids is not None else ():
            path = token_path(trajectory, turn)
            shows_something = trajectory.turns[turn].token_ids or turn == parent
            if path is not None and shows_something and ids[: len(path)] == path:
                fitting[turn] = len(path)
        longest = max(fitting.values(), default=0)
        best = [turn for turn, length in fitting.items() if length == longest]
        token_parent = last_turn(call.prompt_token_node)
        assert (token_parent is None) == (not best)
        if token_parent is not None:  # of equal paths any
            assert token_path(trajectory, token_parent) == token_path(trajectory, best[0])
            assert token_parent == parent or parent not in best


@given(agent_calls(), st.randoms(use_true_random=False))
def test_calls_stand_in_causal_order_under_any_clock(calls, chance):
    shuffled = calls.copy()
    chance.shuffle(shuffled)
    trajectory = trajectory_of(shuffled)
    for at, call in enumerate(trajectory.calls):
        for link in (last_turn(call.prompt_node), last_turn(call.prompt_token_node)):
            assert link is None or trajectory.turns[link].call < at


@given(agent_calls())
def test_calls_keep_the_order_of_their_start_unless_a_prompt_says_otherwise(calls):
    trajectory = trajectory_of(calls)
    starts = [call.start_ns for call in trajectory.calls]
    for at, call in enumerate(trajectory.calls):
        parent = last_turn(call.prompt_node)
        waited_for = -1 if parent is None else trajectory.turns[parent].call
        assert all(starts[other] < starts[at] for other in range(waited_for + 1, at))


@given(agent_calls())
def test_the_paths_to_the_ends_of_a_prompt_are_the_prompt(calls):
    recorded, linked, _ = build_lineage(calls)
    assert list(map(recorded_call, linked)) == list(recorded)


@given(agent_calls())
def test_only_untrained_decides_what_is_trained_and_each_view_trains_it_once(calls):
    trajectory = trajectory_of(calls)
    turns = trajectory.turns
    wanted = {at for at, turn in enumerate(turns) if turn.text_untrained is None}
    known: set[int] = set()
    for at, turn in enumerate(turns):
        if not lacks_messages(trajectory, at) and (turn.parent is None or turn.parent in known):
            known.add(at)
    messages = [entry for history in histories(trajectory) for entry in history.messages or ()]
    assert Counter(entry.turn for entry in messages if entry.trained) == Counter(wanted & known)
    assert {at for history in histories(trajectory) for at in history.turns} == {*range(len(turns))}
    spans = [span for history in token_histories(trajectory) for span in history.spans if span.trained]
    with_ids = {at for at in wanted if token_path(trajectory, at) is not None}
    assert Counter(span.turn for span in spans) == Counter(with_ids)
    texts = [entry for history in histories_without_ids(trajectory) for entry in history.messages or ()]
    assert Counter(entry.turn for entry in texts if entry.trained) == Counter((wanted - with_ids) & known)


def test_a_turn_is_trained_where_nobody_recorded_the_text_of_what_continues_it():
    user, said = Message(role="user", content="hi"), Message(role="assistant", content="hello")
    later = [asked(number, (user, said, user), None, [choice(None, [number])]) for number in (2, 3)]
    trajectory = trajectory_of([asked(1, (user,), None, [choice("hello", None)]), *later])
    found = histories(trajectory)
    assert [(one.turns, one.messages is None) for one in found] == [((0,), False), ((0, 1), True), ((0, 2), True)]
    assert [entry.trained for entry in found[0]] == [False, True]


@given(agent_calls())
def test_untrained_names_its_reason(calls):
    trajectory = trajectory_of(calls)
    for turn in trajectory.turns:
        call = trajectory.calls[turn.call]
        reasons = [
            ("failed", call.failed),
            ("content uncertain", any(gap.field == f"answer[{call.choices[turn.choice].index}]" for gap in call.gaps)),
            ("stream broke", call.stream is True and turn.finish_reason is None),
            ("scrubbed", call.has_gap("scrubbed")),
            ("content uncertain", any(gap.field == "prompt" for gap in call.gaps)),
            ("contradicting recordings", call.has_gap("contradicted")),
        ]
        assert turn.text_untrained == next((reason for reason, holds in reasons if holds), None)


@given(agent_calls())
def test_a_token_history_is_what_the_server_saw(calls):
    trajectory = trajectory_of(calls)
    for history in token_histories(trajectory):
        ids = history.token_ids.tolist()
        assert len(ids) == len(history.loss_mask)
        assert history.logprobs is None or len(history.logprobs) == len(ids)
        under_mask: list[int] = []
        for span in history.spans:
            turn = trajectory.turns[span.turn]
            assert ids[: span.end] == token_path(trajectory, span.turn)
            assert span.end - span.start == len(turn.token_ids)
            under_mask += turn.token_ids if span.trained else ()
        assert [token for token, mask in zip(ids, history.loss_mask, strict=True) if mask] == under_mask


@pytest.mark.long
@given(agent_calls())
def test_it_says_where_messages_and_ids_part(calls):
    trajectory = trajectory_of(calls)
    for call in trajectory.calls:
        parent, token_parent = last_turn(call.prompt_node), last_turn(call.prompt_token_node)
        path = None if parent is None else token_path(trajectory, parent)
        expected = None
        if path is not None and call.prompt_token_ids is not None:
            shared = shared_length(call.prompt_token_ids, path)
            expected = shared if shared < len(path) else None
        assert call.drifted_at == expected
        path = None if token_parent is None else message_path(trajectory, token_parent)
        expected = None
        if path is not None and call.input_messages is not None:
            shared = shared_length(identities(call.input_messages), path)
            expected = shared if shared < len(path) else None
        assert call.rewritten_at == expected


def shared_length(one, other) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def drifting_agent(turns: int, *, first_as_sampled: bool) -> list[InferenceCall]:
    """An agent whose server tokenizes each completion anew in the next prompt: 300 new ids, then 300 sampled."""
    calls, messages, ids = [], [], []
    for number in range(turns):
        messages = [*messages, Message(role="user", content=f"q{number}")]
        ids = [*ids, *range(1000 * number, 1000 * number + 300)]
        sampled = list(range(1000 * number + 500, 1000 * number + 800))
        said = Message(role="assistant", content=f"a{number}")
        calls.append(asked(number, messages, ids, [choice_of(said, sampled)]))
        messages = [*messages, said]
        as_sampled = first_as_sampled and number == 0
        ids = [*ids, *(sampled if as_sampled else [-1 - token for token in sampled])]
    return calls


def choice_of(message: Message, ids: list[int]) -> Choice:
    return Choice(index=0, message=message, finish_reason="stop", token_ids=TokenIds.of(ids))


@pytest.mark.parametrize("first_as_sampled", [True, False])
def test_stored_size_is_linear_in_what_is_new_also_where_every_turn_drifts(first_as_sampled):
    trajectory = trajectory_of(drifting_agent(60, first_as_sampled=first_as_sampled))
    assert sum(len(node.ids) for node in in_order(token_ends(trajectory.calls))) <= 60 * (300 + 300 + 300)
    assert sum(call.drifted_at is not None for call in trajectory.calls) == 59 - first_as_sampled
    assert len([*in_order(message_ends(trajectory.calls))]) == 60 * 2
    assert sum(len(history.token_ids) for history in token_histories(trajectory)) > 500_000


@given(agent_calls())
def test_the_main_history_is_the_longest_one(calls):
    trajectory = trajectory_of(calls)
    every, main = histories(trajectory), main_history(trajectory)
    assert (main is None) == (not every)
    if main is not None:
        turns = frozenset(range(len(trajectory.turns)))
        counted = turns - delegated_turns(trajectory) or turns
        assert any(one.turns[: len(main.turns)] == main.turns for one in every)
        known = [one for one in every if one.messages is not None] or every
        assert len(counted.intersection(main.turns)) == max(len(counted.intersection(one.turns)) for one in known)


@given(agent_calls(), st.data())
def test_the_main_history_ends_with_a_turn_of_the_policy(calls, data):
    trajectory = trajectory_of(calls)
    every = range(len(trajectory.turns))
    left_out = data.draw(st.sets(st.sampled_from(every))) if every else set()
    main = main_history(trajectory, left_out)
    if len(left_out) == len(every):
        assert main == main_history(trajectory)
        return
    assert main is not None
    assert main.turns[-1] not in left_out
    assert any(one.turns[: len(main.turns)] == main.turns for one in histories(trajectory))


@pytest.mark.parametrize(
    ("operation", "pieces", "prompt_length"),
    [
        ("generate_content", ["Hel", "lo", "!"], 3),
        ("generate_content", ["Hello", "?"], 4),  # nobody said that
        ("chat", ["Hel", "lo", "!"], 5),  # another API shows the model three messages
    ],
)
def test_pieces_of_an_answer_in_a_prompt_of_gemini_are_the_answer(operation, pieces, prompt_length):
    """google-genai's chats send the answer of a stream back as its chunks were."""
    hello, more = Message(role="user", content="hi"), Message(role="user", content="more")
    hi = Message(role="assistant", content="Hello!")
    sent = [hello, *(Message(role="assistant", content=piece) for piece in pieces), more]
    calls = [
        structs.replace(asked(number, prompt, None, [choice_of(answer, [])]), operation_name=operation)
        for number, (prompt, answer) in enumerate([([hello], hi), (sent, Message(role="assistant", content="ok"))])
    ]
    trajectory = trajectory_of(calls)
    assert len(trajectory.calls[1].input_messages) == prompt_length
    assert trajectory.turns[1].parent == (0 if prompt_length == 3 else None)


def test_a_message_in_its_first_words_again_is_its_first_node():
    question, more = Message(role="user", content="q"), Message(role="user", content="more")
    thought = Message(role="assistant", content="a", reasoning="hm")
    shown = structs.replace(thought, reasoning=None)
    prompts = [[question], [question, shown, more], [question, thought, more], [question, shown, more]]
    calls = [asked(number, prompt, None, [choice_of(thought, [])]) for number, prompt in enumerate(prompts)]
    trajectory = trajectory_of(calls)
    nodes = [*in_order(message_ends(trajectory.calls))]
    assert [node.message for node in nodes if node.restates is not None] == [shown]
    assert [call.prompt_node.parent.message for call in trajectory.calls[1:]] == [shown, thought, shown]
    assert trajectory.calls[1].prompt_node is trajectory.calls[3].prompt_node
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 0, 0]


@given(trajectories(), st.data())
def test_calls_that_are_left_out_or_moved_are_refused_unless_nothing_continues_them(trajectory, data):
    calls = trajectory.calls
    kept = data.draw(st.lists(st.sampled_from(range(len(calls))), unique=True) if calls else st.just([]))
    sampling = [position for position, call in enumerate(calls) if call.choices]
    those = [(at, position) for at, position in enumerate(kept) if calls[position].choices]
    if those == [(position, position) for position in sampling[: len(those)]]:
        cut = replace(trajectory, calls=tuple(calls[position] for position in kept))
        assert {turn for history in histories(cut) for turn in history.turns} <= {*range(len(cut.turns))}
        assert pickle.loads(pickle.dumps(cut)) == cut
    else:
        with pytest.raises(UsageError, match=r"calls of a trajectory cannot be left out or moved.*models="):
            replace(trajectory, calls=tuple(calls[position] for position in kept))


def test_what_a_call_sampled_cannot_be_left_out_of_it():
    user, said = Message(role="user", content="a"), Message(role="assistant", content="b")
    first = asked(1, [user], [1], [choice("b", [2])])
    trajectory = trajectory_of([first, asked(2, [user, said, user], [1, 2, 3], [choice("d", [4])])])
    without = structs.replace(trajectory.calls[0], choices=None)
    with pytest.raises(UsageError, match="models="):
        replace(trajectory, calls=(without, trajectory.calls[1]))
