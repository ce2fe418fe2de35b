"""Drift of messages: told where ids continue a turn and messages do not, once a call, and nowhere else."""

from collections import Counter
from dataclasses import replace
from itertools import count, pairwise

from art_otel.trajectories.token_drift import messages_differ
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import InferenceCall, Message, TokenIds
from art_otel.testing import trajectories
from art_otel.trajectories import MessageDrift, Trajectory, token_histories
from tests.trajectories.token_calls import asked, call, choice, runs, trajectory_of

FIRST = call(1, "hi", [1], choice("a", [2]))
SECOND = call(2, "hi a x", [1, 2, 3], choice("b", [4]))


def drifts(*calls: InferenceCall) -> tuple[MessageDrift, ...]:
    return token_histories(trajectory_of(calls)).message_drifts


def drift(turn: int, parent: int, by_messages: int | None, tokens: int | None) -> MessageDrift:
    return MessageDrift(turn=turn, parent=parent, parent_by_messages=by_messages, tokens=tokens)


def unrecorded(one: InferenceCall) -> InferenceCall:
    """The call as recorded without its prompt's messages."""
    return structs.replace(one, input_messages=None)


def test_ids_and_messages_that_agree_are_no_drift():
    assert drifts() == drifts(FIRST) == drifts(FIRST, SECOND) == ()


def test_a_message_that_the_client_spelt_anew_is_drift_with_the_tokens_that_only_ids_continue():
    assert drifts(FIRST, call(2, "hi A x", [1, 2, 3], choice("b", [4]))) == (drift(1, 0, None, 2),)
    third = call(3, "hi a x B y", [1, 2, 3, 4, 5], choice("c", [6]))
    assert drifts(FIRST, SECOND, third) == (drift(2, 1, 0, 2),)
    from_the_start = structs.replace(third, input_messages=call(3, "Hi a x b y", None).input_messages)
    assert drifts(FIRST, SECOND, from_the_start) == (drift(2, 1, None, 4),)


def test_what_continues_the_new_spelling_is_no_drift_and_what_continues_the_old_one_is():
    anew = call(2, "hi A x", [1, 2, 3], choice("b", [4]))
    assert drifts(FIRST, anew, call(3, "hi A x b y", [1, 2, 3, 4, 5], choice("c", [6]))) == (drift(1, 0, None, 2),)
    old = call(3, "hi a x b y", [1, 2, 3, 4, 5], choice("c", [6]))
    assert drifts(FIRST, anew, old) == (drift(1, 0, None, 2), drift(2, 1, 0, 2))


def test_a_history_of_messages_that_was_truncated_is_drift():
    assert drifts(FIRST, SECOND, call(3, "b y", [1, 2, 3, 4, 5], choice("c", [6]))) == (drift(2, 1, None, 4),)
    assert drifts(FIRST, call(2, "hi", [1, 2], choice("b", [3]))) == (drift(1, 0, None, 2),)


def test_spellings_that_mean_the_same_message_are_no_drift():
    thought = structs.replace(choice("", [2]), message=Message(role="assistant", content="", reasoning="hm"))
    again = [Message(role="user", content="hi"), Message(role="assistant"), Message(role="user", content="x")]
    assert drifts(call(1, "hi", [1], thought), asked(2, again, [1, 2, 3], [choice("b", [4])])) == ()


def test_where_nobody_recorded_messages_nothing_disagrees():
    for calls in ((unrecorded(FIRST), unrecorded(SECOND)), (unrecorded(FIRST), SECOND), (FIRST, unrecorded(SECOND))):
        found = token_histories(trajectory_of(calls))
        assert (found.message_drifts, found.unconfirmed) == ((), (drift(1, 0, None, 2),))


def test_a_prompt_is_told_of_once_whatever_came_of_it():
    prompt = ("hi A x", [1, 2, 3])
    expected = (drift(1, 0, None, 2),)
    assert drifts(FIRST, call(2, *prompt, choice("b", [4]), choice("c", [5], index=1))) == expected
    assert drifts(FIRST, call(2, *prompt, choice("b", [4]), error_type="Dropped")) == expected
    assert drifts(FIRST, call(2, *prompt, error_type="Timeout")) == expected
    assert drifts(FIRST, call(2, *prompt, choice("b", None))) == expected


def test_what_a_failed_call_sampled_may_be_continued_too():
    broken = structs.replace(FIRST, error_type="Dropped")
    assert drifts(broken, SECOND) == ()
    assert drifts(broken, call(2, "hi A x", [1, 2, 3], choice("b", [4]))) == (drift(1, 0, None, 2),)


def test_the_choice_that_ids_tell_is_drift_where_messages_tell_another():
    first = call(1, "hi", [1], choice("a", [2]), choice("b", [3], index=1))
    assert drifts(first, call(2, "hi b x", [1, 3, 4], choice("c", [5]))) == ()
    assert drifts(first, call(2, "hi a x", [1, 3, 4], choice("c", [5]))) == (drift(2, 1, None, 2),)


def test_one_of_several_equal_paths_is_no_drift():
    retry = call(2, "hi", [1], choice("a", [2]))
    third = call(3, "hi a x", [1, 2, 3], choice("b", [4]))
    assert drifts(FIRST, retry, third) == ()
    assert drifts(FIRST, call(2, "hi", None, choice("a", None)), third) == ()
    assert drifts(FIRST, call(2, "hi", [1], choice("a", [])), third) == ()
    assert drifts(FIRST, call(2, "hi", [1], choice("a", [2, 9])), call(3, "hi a x", [1, 2, 9, 3])) == ()


def test_retries_of_a_prompt_that_was_spelt_anew_are_told_each():
    anew = [call(number, "hi A x", [1, 2, 3], choice("b", [4])) for number in (2, 3)]
    assert drifts(FIRST, *anew) == (drift(1, 0, None, 2), drift(2, 0, None, 2))


def test_ids_that_are_missing_on_the_way_disagree_with_nothing():
    lost = call(2, "hi a x", None, choice("b", None))
    assert drifts(FIRST, lost, call(3, "hi a x b y", [1, 2, 3, 4, 5], choice("c", [6]))) == ()


def test_beyond_a_path_without_ids_nobody_knows_how_many_tokens():
    lost = call(2, "hi", None, choice("b", None))
    assert drifts(FIRST, lost, call(3, "hi b x", [1, 2, 3], choice("c", [4]))) == (drift(2, 0, 1, None),)


def test_a_prompt_may_drift_both_ways():
    """Its messages continue one conversation, its ids another."""
    other = call(2, "ho", [7], choice("z", [8]))
    found = token_histories(trajectory_of([FIRST, other, call(3, "ho z x", [1, 2, 3], choice("b", [4]))]))
    assert [(one.turn, one.drifted_from, one.repeated_tokens) for one in found.drifts] == [(2, 1, 0)]
    assert found.message_drifts == (drift(2, 0, None, 2),)


@st.composite
def clients(draw):
    """Calls of clients, and by call the sample that its ids continue where it wrote the messages anew.

    Every message and every token is another, so that nothing looks alike by chance.
    """
    fresh = count(1)
    calls: list[InferenceCall] = []
    samples: list[tuple[int, list[Message], list[int]]] = []
    anew: dict[int, int] = {}
    turns = count()
    for number in range(draw(st.integers(1, 8))):
        messages, ids, way = [], [], draw(st.sampled_from(["continue", "continue", "anew", "retry", "start"]))
        if way == "retry" and calls:
            again = draw(st.integers(0, number - 1))
            messages, ids = list(calls[again].input_messages), calls[again].prompt_token_ids.tolist()
            if again in anew:
                anew[number] = anew[again]
        else:
            if way in ("continue", "anew") and samples:
                parent, messages, ids = draw(st.sampled_from(samples))
                if way == "anew":
                    anew[number], messages = parent, draw(written_anew(messages, fresh))
            added = draw(st.integers(0 if ids else 1, 2))
            messages = messages + [Message(role="user", content=f"q{next(fresh)}") for _ in range(added)]
            ids = ids + [next(fresh) for _ in range(added)]
        sampled = [
            choice(f"a{next(fresh)}", [next(fresh) for _ in range(draw(st.integers(1, 2)))], index=index)
            for index in range(draw(st.integers(0, 3)))
        ]
        calls.append(asked(number, messages, ids, sampled, error_type=draw(st.sampled_from([None, None, "Timeout"]))))
        samples += [(next(turns), [*messages, one.message], [*ids, *one.token_ids]) for one in sampled]
        if not sampled:
            next(turns)
    return calls, anew


@st.composite
def written_anew(draw, messages: list[Message], fresh) -> list[Message]:
    """Another spelling of one message, or all but one, or the last few."""
    at = draw(st.integers(0, len(messages) - 1))
    way = draw(st.sampled_from(["other words", "one less", "truncated"]))
    if way == "other words":
        return [*messages[:at], structs.replace(messages[at], content=f"o{next(fresh)}"), *messages[at + 1 :]]
    return [*messages[:at], *messages[at + 1 :]] if way == "one less" else messages[at + 1 :]


def path_size(trajectory: Trajectory, turn: int | None) -> int:
    """How many tokens stand up to the end of the turn, as the server gave them."""
    if turn is None:
        return 0
    of = trajectory.turns[turn]
    return len(trajectory.calls[of.call].prompt_token_ids) + len(of.token_ids)


@given(clients())
def test_each_prompt_that_was_written_anew_is_told_once_and_no_other(found):
    calls, anew = found
    trajectory = trajectory_of(calls)
    told = token_histories(trajectory).message_drifts
    first = {turn.call: at for at, turn in reversed(list(enumerate(trajectory.turns)))}
    assert [(one.turn, one.parent) for one in told] == [(first[number], anew[number]) for number in sorted(anew)]
    for one in told:
        assert one.parent_by_messages == trajectory.turns[one.turn].parent
        assert one.tokens == path_size(trajectory, one.parent) - path_size(trajectory, one.parent_by_messages) > 0


@given(clients())
def test_without_messages_what_may_be_drift_is_unconfirmed(found):
    trajectory = trajectory_of(found[0])
    told = token_histories(trajectory).message_drifts
    silent = token_histories(trajectory_of([structs.replace(one, input_messages=None) for one in found[0]]))
    assert silent.message_drifts == ()
    assert {one.turn for one in told} <= {one.turn for one in silent.unconfirmed}


def begins_with(prompt, path) -> bool:
    return [one.identity for one in prompt[: len(path)]] == [one.identity for one in path]


@given(runs())
def test_drift_is_what_the_calls_themselves_say(calls):
    trajectory = trajectory_of(calls)
    found = token_histories(trajectory)
    above = {turn: before for history in found.known for before, turn in pairwise((None, *history.turns))}
    told = {one.turn: one.parent for one in found.message_drifts}
    assert max(Counter(trajectory.turns[turn].call for turn in told).values(), default=1) == 1
    first = {turn.call: at for at, turn in reversed(list(enumerate(trajectory.turns)))}
    for turn, parent in above.items():
        of = trajectory.turns[turn]
        stored = of.parent
        while stored is not None and stored != parent:
            stored = trajectory.turns[stored].parent
        if turn != first[of.call] or parent is None or stored == parent:
            assert turn not in told
        else:
            before = trajectory.turns[parent]
            path = (*trajectory.calls[before.call].input_messages, before.message)
            agree = begins_with(trajectory.calls[of.call].input_messages, path)
            assert told.get(turn) == (None if agree else parent)


@settings(suppress_health_check=[HealthCheck.too_slow])  # forests of eight calls are slow to make
@given(trajectories(max_calls=8) | runs().map(trajectory_of))
def test_messages_that_are_read_later_tell_the_same(trajectory):
    """Turns that were read without messages leave it open, and their messages alone then tell what is drift."""
    whole = token_histories(trajectory)
    bare = [structs.replace(turn, messages=None, message=None, edits=()) for turn in trajectory.turns]
    unread = token_histories(replace(trajectory, turns=tuple(bare)))
    assert unread.message_drifts == ()
    verdicts = [(messages_differ(trajectory.turns, one), one) for one in unread.unconfirmed]
    assert tuple(one for differ, one in verdicts if differ) == whole.message_drifts
    assert tuple(one for differ, one in verdicts if differ is None) == whole.unconfirmed
    for one in whole.message_drifts:
        assert one.tokens is None or one.tokens > 0


def test_the_ids_of_a_drift_are_the_ones_that_are_trained():
    found = token_histories(trajectory_of([FIRST, call(2, "hi A x", [1, 2, 3], choice("b", [4]))]))
    (history,) = found.known
    assert history.token_ids == TokenIds.of([1, 2, 3, 4])
    assert list(history.loss_mask) == [0, 1, 0, 1]
    assert found.drifts == ()
