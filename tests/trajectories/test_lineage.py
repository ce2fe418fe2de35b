"""Lineage: the forest of turns holds every completion once, and every prompt as the server saw it (law 3, messages)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Choice, InferenceCall, Message, TokenIds
from art_otel.trajectories import Trajectory, histories
from art_otel.trajectories.lineage import build_turns
from tests.trajectories.agents import agent_calls


def trajectory_of(calls) -> Trajectory:
    ordered, turns = build_turns(calls)
    return Trajectory(rollout_id="r", trace_id="ab" * 16, calls=ordered, turns=turns)


def call(number: int, prompt: str, *answers: str, ids=None, start=None, **fields) -> InferenceCall:
    """A call; each word of `prompt` is a message, user and assistant in turn."""
    roles = ("user", "assistant")
    messages = tuple(Message(role=roles[at % 2], content=word) for at, word in enumerate(prompt.split()))
    return InferenceCall(
        trace_id="ab" * 16,
        span_id=f"{number:016x}",
        operation_name="chat",
        start_ns=number if start is None else start,
        end_ns=None,
        input_messages=messages,
        choices=tuple(
            Choice(
                index=at,
                message=Message(role="assistant", content=answer),
                token_ids=None if ids is None else TokenIds.of(ids[1]),
            )
            for at, answer in enumerate(answers)
        )
        or None,
        prompt_token_ids=None if ids is None else TokenIds.of(ids[0]),
        **fields,
    )


def parents(calls) -> list[int | None]:
    return [turn.parent for turn in build_turns(calls)[1]]


@given(agent_calls())
def test_every_completion_is_one_turn_and_is_trained_once(calls):
    trajectory = trajectory_of(calls)
    sampled = Counter((turn.call, turn.choice) for turn in trajectory.turns if turn.message is not None)
    assert sampled == Counter(
        (at, choice) for at, call in enumerate(trajectory.calls) for choice in range(len(call.choices or ()))
    )
    trained = Counter(entry.turn for history in histories(trajectory) for entry in history.messages if entry.trained)
    assert trained == Counter(
        at for at, turn in enumerate(trajectory.turns) if turn.message is not None and turn.untrained is None
    )


@given(agent_calls())
def test_a_path_is_a_prefix_of_the_prompt_and_parents_stand_first(calls):
    trajectory = trajectory_of(calls)
    for at, turn in enumerate(trajectory.turns):
        if turn.parent is None:
            continue
        assert turn.parent < at
        above = trajectory.turns[turn.parent]
        path = (*trajectory.calls[above.call].input_messages, above.message)
        prompt = trajectory.calls[turn.call].input_messages
        assert [message.identity for message in prompt[: len(path)]] == [message.identity for message in path]
        edited = list(path)
        for edit in turn.edits:
            edited[edit.index] = edit.message
        assert (*edited, *turn.messages) == prompt


@given(agent_calls())
def test_no_deeper_turn_would_fit(calls):
    trajectory = trajectory_of(calls)
    paths = [
        [message.identity for message in (*trajectory.calls[turn.call].input_messages, turn.message)]
        for turn in trajectory.turns
        if turn.message is not None
    ]
    for turn in trajectory.turns:
        prompt = [message.identity for message in trajectory.calls[turn.call].input_messages]
        fitting = [len(path) for path in paths if prompt[: len(path)] == path]
        known = len(prompt) - len(turn.messages) if turn.parent is not None else 0
        assert max(fitting, default=0) == known


@given(agent_calls(with_tokens=True))
def test_token_paths_are_what_the_server_saw(calls):
    trajectory = trajectory_of(calls)
    whole: list[TokenIds] = []
    for turn in trajectory.turns:
        above = TokenIds() if turn.parent is None else whole[turn.parent]
        prompt = above + turn.context_token_ids
        assert prompt == trajectory.calls[turn.call].prompt_token_ids
        whole.append(prompt + (turn.token_ids or TokenIds()))


@given(agent_calls(with_tokens=True), st.randoms(use_true_random=False))
def test_calls_keep_their_causal_order_under_any_clock(calls, chance):
    shuffled = calls.copy()
    chance.shuffle(shuffled)
    trajectory = trajectory_of(shuffled)
    assert sorted(call.span_id for call in trajectory.calls) == sorted(call.span_id for call in calls)
    assert all(turn.parent is None or turn.parent < at for at, turn in enumerate(trajectory.turns))
    assert all(turn.drifted_from is None or turn.drifted_from < at for at, turn in enumerate(trajectory.turns))


def test_a_conversation_is_one_path():
    calls = [call(1, "hi", "hello"), call(2, "hi hello how", "fine"), call(3, "hi hello how fine bye", "bye")]
    assert parents(calls) == [None, 0, 1]
    (history,) = histories(trajectory_of(calls))
    assert [entry.trained for entry in history.messages] == [False, True, False, True, False, True]


def test_retries_parallel_calls_and_choices_are_siblings():
    first = call(1, "hi", "a")
    assert parents([first, call(2, "hi a x", "b"), call(3, "hi a x", "b"), call(4, "hi a x", "c", "d")]) == [
        None,
        *[0] * 4,
    ]


def test_a_turn_shared_by_histories_is_trained_in_the_first():
    trajectory = trajectory_of([call(1, "hi", "a"), call(2, "hi a x", "b"), call(3, "hi a y", "c")])
    one, two = histories(trajectory)
    assert [entry.trained for entry in one.messages] == [False, True, False, True]
    assert [entry.trained for entry in two.messages] == [False, False, False, True]


def test_compaction_starts_a_new_path():
    assert parents([call(1, "hi", "a"), call(2, "summary", "b")]) == [None, None]


def test_of_equal_retries_the_history_continues_the_latest_before_it():
    calls = [call(1, "hi", "a"), call(2, "hi", "a"), call(3, "hi a x", "b"), call(4, "hi", "a")]
    assert parents(calls) == [None, None, 1, None]


def test_a_call_whose_clock_runs_ahead_still_stands_behind_what_it_continues():
    trajectory = trajectory_of([call(2, "hi a x", "b", start=5), call(1, "hi", "a", start=9)])
    assert [entry.span_id[-1] for entry in trajectory.calls] == ["1", "2"]
    assert [turn.parent for turn in trajectory.turns] == [None, 0]


def test_where_tokens_disagree_a_new_path_starts_and_says_so():
    calls = [call(1, "hi", "a", ids=([1], [2])), call(2, "hi a x", "b", ids=([1, 9, 3], [4]))]
    turns = build_turns(calls)[1]
    assert [(turn.parent, turn.drifted_from) for turn in turns] == [(None, None), (None, 0)]
    assert len(turns[1].messages) == 3
    assert turns[1].context_token_ids.tolist() == [1, 9, 3]


def test_drift_in_the_last_turn_falls_back_to_the_one_before():
    calls = [
        call(1, "hi", "a", ids=([1], [2])),
        call(2, "hi a x", "b", ids=([1, 2, 3], [4])),
        call(3, "hi a x b y", "c", ids=([1, 2, 9, 9, 5], [6])),
    ]
    turn = build_turns(calls)[1][2]
    assert (turn.parent, turn.drifted_from) == (0, 1)
    assert turn.context_token_ids.tolist() == [9, 9, 5]


def test_messages_decide_where_ids_are_unknown():
    calls = [call(1, "hi", "a"), call(2, "hi a x", "b", ids=([7], [8])), call(3, "hi a x b y", "c")]
    turns = build_turns(calls)[1]
    assert [turn.parent for turn in turns] == [None, 0, 1]
    assert turns[1].context_token_ids.tolist() == [7]


def test_a_failed_call_keeps_its_prompt_and_trains_nothing():
    failed = call(2, "hi a x", error_type="Timeout")
    trajectory = trajectory_of([call(1, "hi", "a"), failed])
    assert trajectory.turns[1].message is None
    assert [message.content for message in trajectory.turns[1].messages] == ["x"]
    assert len(histories(trajectory)) == 1


def test_what_a_failed_call_sampled_is_context_only():
    broken = call(1, "hi", "half", error_type="Dropped")
    (history,) = histories(trajectory_of([broken, call(2, "hi half go", "on")]))
    assert [entry.trained for entry in history.messages] == [False, False, False, True]


def test_unknown_messages_are_roots_with_unknown_history():
    unknown = InferenceCall(trace_id="ab" * 16, span_id="1" * 16, operation_name="chat", start_ns=1, end_ns=2)
    trajectory = trajectory_of([unknown])
    assert (trajectory.turns[0].message, trajectory.turns[0].messages) == (None, None)
    assert histories(trajectory) == ()


def test_reasoning_tells_equal_choices_apart():
    calls = [call(1, "hi", "a", "a")]
    choices = [
        Choice(index=at, message=Message(role="assistant", content="a", reasoning=thought))
        for at, thought in enumerate(["one", "two"])
    ]
    first = InferenceCall(
        trace_id="ab" * 16,
        span_id="1" * 16,
        operation_name="chat",
        start_ns=1,
        end_ns=2,
        input_messages=calls[0].input_messages,
        choices=tuple(choices),
    )
    prompt = (*first.input_messages, choices[1].message, Message(role="user", content="x"))
    second = InferenceCall(
        trace_id="ab" * 16, span_id="2" * 16, operation_name="chat", start_ns=3, end_ns=4, input_messages=prompt
    )
    assert build_turns([first, second])[1][2].parent == 1


def test_four_thousand_calls_are_no_problem():
    words = [f"w{at}" for at in range(401)]
    calls = [call(at, " ".join(words[: 2 * at + 1]), words[2 * at + 1]) for at in range(200)]
    assert parents(calls) == [None, *range(199)]
