"""Token histories: laws 3 and 4 over every kind of forest, and the check of these laws notices any one wrong token."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import InferenceCall, Logprobs, TokenIds
from art_otel.testing import trajectories
from art_otel.trajectories import Drift, TokenHistories, Trajectory, histories, token_histories
from art_otel.trajectories.lineage import build_turns
from tests.conversions import RECORDINGS, convert_files, with_logs
from tests.trajectories.token_calls import call, choice, runs, trajectory_of


def build(*calls: InferenceCall) -> TokenHistories:
    """The token histories of these calls, which hold the laws."""
    trajectory = trajectory_of(calls)
    found = token_histories(trajectory)
    check_laws(trajectory, found)
    return found


def check_laws(trajectory: Trajectory, found: TokenHistories) -> None:
    """Laws 3 and 4, told by the calls as the server gave them and not by the turns that histories are built from."""
    trained = Counter()
    for history in found.known:
        check_history(trajectory, history)
        trained.update(span.turn for span in history.spans if span.trained)
    messages = [entry for history in found.unknown for entry in history.messages or ()]
    trained.update(entry.turn for entry in messages if entry.trained)
    untold = {turn for history in found.unknown if history.messages is None for turn in history.turns}
    for position, turn in enumerate(trajectory.turns):
        wanted = turn.message is not None and turn.untrained is None
        assert trained[position] == wanted or (position in untold and trained[position] == 0)
    with_ids = {at for at in range(len(trajectory.turns)) if path_of(trajectory, at) is not None}
    assert {turn for history in found.known for turn in history.turns} == with_ids
    paths = [history.turns for history in histories(trajectory) if not with_ids.issuperset(history.turns)]
    assert [history.turns for history in found.unknown] == paths
    check_parents(trajectory, found)


def path_of(trajectory: Trajectory, position: int) -> list[int] | None:
    """The ids of a turn's prompt and completion as the server gave them."""
    turn = trajectory.turns[position]
    of = trajectory.calls[turn.call]
    if turn.choice is None or of.prompt_token_ids is None or of.choices[turn.choice].token_ids is None:
        return None
    return [*of.prompt_token_ids, *of.choices[turn.choice].token_ids]


def check_parents(trajectory: Trajectory, found: TokenHistories) -> None:
    """A turn stands behind the deepest earlier one whose path its prompt begins with."""
    above = {turn: before for history in found.known for before, turn in pairwise((None, *history.turns))}
    leaves = [history.turns[-1] for history in found.known]
    assert leaves == sorted(set(above) - set(above.values()))
    for position, parent in above.items():
        prompt = trajectory.calls[trajectory.turns[position].call].prompt_token_ids.tolist()
        depth = 0 if parent is None else len(path_of(trajectory, parent))
        for other in range(position):
            path = path_of(trajectory, other)
            if path is not None and trajectory.turns[other].token_ids.data and prompt[: len(path)] == path:
                assert len(path) <= depth


def check_history(trajectory: Trajectory, history) -> None:
    ids = history.token_ids.tolist()
    mask, logprobs, sampled = [0] * len(ids), [0.0] * len(ids), []
    complete = True
    assert tuple(span.turn for span in history.spans) == history.turns
    for span in history.spans:
        turn = trajectory.turns[span.turn]
        of = trajectory.calls[turn.call]
        told = of.choices[turn.choice]
        assert ids[: span.start] == of.prompt_token_ids.tolist()
        assert (span.start, span.end) == (len(of.prompt_token_ids), span.start + len(told.token_ids))
        assert ids[span.start : span.end] == told.token_ids.tolist()
        if told.logprobs is not None:
            logprobs[span.start : span.end] = told.logprobs
        if span.trained:
            mask[span.start : span.end] = [1] * len(told.token_ids)
            sampled += told.token_ids.tolist()
            complete = complete and (told.logprobs is not None or not told.token_ids)
    assert history.spans[-1].end == len(ids)
    assert list(history.loss_mask) == mask
    assert [token for token, trains in zip(ids, history.loss_mask, strict=True) if trains] == sampled
    assert history.logprobs == (Logprobs.of(logprobs) if complete else None)


@given(runs())
def test_agents_of_every_kind_hold_the_laws(calls):
    found = build(*calls)
    sampled = [one.token_ids for call in calls if not call.failed for one in call.choices or ()]
    if all(call.prompt_token_ids is not None for call in calls) and None not in sampled:
        assert sum(sum(history.loss_mask) for history in found.known) == sum(map(len, sampled))


@settings(suppress_health_check=[HealthCheck.too_slow])  # forests of eight calls are slow to make
@given(trajectories(max_calls=8))
def test_any_forest_holds_the_laws(trajectory):
    check_laws(trajectory, token_histories(trajectory))


@given(runs())
def test_drift_is_told_once_a_call_with_its_length(calls):
    trajectory = trajectory_of(calls)
    expected = {turn.call: turn.drifted_from for turn in trajectory.turns if turn.drifted_from is not None}
    drifts = token_histories(trajectory).drifts
    assert [trajectory.turns[drift.turn].call for drift in drifts] == sorted(expected)
    for drift in drifts:
        assert trajectory.turns[drift.turn].drifted_from == drift.drifted_from
        above = trajectory.turns[drift.drifted_from]
        path = [*trajectory.calls[above.call].prompt_token_ids, *above.token_ids]
        prompt = trajectory.calls[trajectory.turns[drift.turn].call].prompt_token_ids.tolist()
        assert drift.repeated_tokens + drift.replaced_tokens == len(path)
        assert drift.replaced_tokens > 0  # else it would have continued
        assert path[: drift.repeated_tokens] == prompt[: drift.repeated_tokens]
        assert path[drift.repeated_tokens] not in prompt[drift.repeated_tokens : drift.repeated_tokens + 1]


def changed(draw, data: bytes, size: int) -> bytes:
    """The values of `size` bytes with one changed, left out, or said twice."""
    at = draw(st.integers(0, len(data) // size - 1)) * size
    value = data[at : at + size]
    other = bytes([value[0] ^ 1]) + value[1:]
    return data[:at] + draw(st.sampled_from([other, b"", value + value])) + data[at + size :]


@given(runs(), st.data())
def test_one_wrong_token_anywhere_in_a_history_is_noticed(calls, data):
    trajectory = trajectory_of(calls)
    found = token_histories(trajectory)
    assume(any(len(history.token_ids) for history in found.known))
    at = data.draw(st.sampled_from([at for at, history in enumerate(found.known) if len(history.token_ids)]))
    history = found.known[at]
    wrong = [
        {"token_ids": TokenIds(changed(data.draw, history.token_ids.data, 4))},
        {"loss_mask": changed(data.draw, history.loss_mask, 1)},
        {"turns": history.turns[1:]},
        {"spans": history.spans[1:]},
        {"logprobs": None if history.logprobs else Logprobs(bytes(4 * len(history.token_ids)))},
    ]
    if history.logprobs:
        wrong.append({"logprobs": Logprobs(changed(data.draw, history.logprobs.data, 4))})
    place = data.draw(st.integers(0, len(history.spans) - 1))
    span = history.spans[place]
    for edit in ({"start": span.start + 1}, {"end": span.end - 1}, {"trained": not span.trained}):
        spans = (*history.spans[:place], replace(span, **edit), *history.spans[place + 1 :])
        wrong.append({"spans": spans})
    others = [(), (history, history), *((replace(history, **fields),) for fields in wrong)]
    for other in others:
        known = (*found.known[:at], *other, *found.known[at + 1 :])
        with pytest.raises(AssertionError):
            check_laws(trajectory, replace(found, known=known))


@given(runs(), st.data())
def test_one_wrong_token_in_the_forest_is_noticed(calls, data):
    trajectory = trajectory_of(calls)
    shown = {turn for history in token_histories(trajectory).known for turn in history.turns}
    places = [
        (turn, name)
        for turn in sorted(shown)
        for name in ("context_token_ids", "token_ids")
        if len(getattr(trajectory.turns[turn], name))
    ]
    assume(places)
    place, name = data.draw(st.sampled_from(places))
    turn = trajectory.turns[place]
    wrong = structs.replace(turn, **{name: TokenIds(changed(data.draw, getattr(turn, name).data, 4))})
    turns = (*trajectory.turns[:place], wrong, *trajectory.turns[place + 1 :])
    broken = replace(trajectory, turns=turns)
    with pytest.raises(AssertionError):
        check_laws(broken, token_histories(broken))


def sequence(history) -> list[tuple[int, int]]:
    return list(zip(history.token_ids, history.loss_mask, strict=True))


def test_a_conversation_is_one_sequence():
    (history,) = build(call(1, "hi", [1], choice("a", [2, 3])), call(2, "hi a x", [1, 2, 3, 4], choice("b", [5]))).known
    assert sequence(history) == [(1, 0), (2, 1), (3, 1), (4, 0), (5, 1)]
    assert history.logprobs == Logprobs.of([0, -2, -3, 0, -5])
    assert [(span.turn, span.start, span.end) for span in history.spans] == [(0, 1, 3), (1, 4, 5)]


def test_a_prompt_that_is_the_earlier_prompt_and_response_masks_both_responses():
    (history,) = build(call(1, "hi", [1], choice("a", [2, 3])), call(2, "hi a", [1, 2, 3], choice("b", [4]))).known
    assert sequence(history) == [(1, 0), (2, 1), (3, 1), (4, 1)]


def test_a_completion_of_no_tokens_stands_in_its_place():
    empty = choice("", [], logprobs=False)
    (history,) = build(call(1, "hi", [1], empty), call(2, "hi  x", [1, 2], choice("b", [3]))).known
    assert sequence(history) == [(1, 0), (2, 0), (3, 1)]
    assert history.logprobs == Logprobs.of([0, 0, -3])
    assert history.spans[0].trained


def test_retries_with_one_prompt_are_each_trained():
    retries = [call(number, "hi", [1], choice("a", [2])) for number in (1, 2, 3)]
    assert [sequence(history) for history in build(*retries).known] == [[(1, 0), (2, 1)]] * 3


def test_of_several_choices_the_shared_context_is_trained_once():
    first = call(1, "hi", [1], choice("a", [2]))
    known = build(first, call(2, "hi a x", [1, 2, 3], choice("b", [4]), choice("c", [5]))).known
    assert [sequence(history) for history in known] == [
        [(1, 0), (2, 1), (3, 0), (4, 1)],
        [(1, 0), (2, 0), (3, 0), (5, 1)],
    ]
    assert known[1].logprobs == Logprobs.of([0, -2, 0, -5])


def test_nested_and_parallel_agents_are_sequences_of_their_own():
    known = build(
        call(1, "task", [1], choice("ask", [2])),
        call(2, "sub", [7], choice("x", [8])),
        call(3, "other", [6], choice("y", [5])),
        call(4, "sub x more", [7, 8, 9], choice("z", [9])),
        call(5, "task ask found", [1, 2, 3], choice("done", [4])),
    ).known
    assert [history.token_ids.tolist() for history in known] == [[6, 5], [7, 8, 9, 9], [1, 2, 3, 4]]


def test_compaction_and_a_truncated_context_start_a_new_sequence():
    found = build(
        call(1, "hi", [1], choice("a", [2])),
        call(2, "hi a x", [1, 2, 3], choice("b", [4])),
        call(3, "summary", [9], choice("c", [5])),
        call(4, "a x b y", [2, 3, 4, 6], choice("d", [7])),
    )
    assert [history.token_ids.tolist() for history in found.known] == [[1, 2, 3, 4], [9, 5], [2, 3, 4, 6, 7]]
    assert found.drifts == ()


def test_a_template_that_drops_thinking_is_drift_with_its_length():
    found = build(
        call(1, "hi", [1], choice("a", [20, 20, 2])),
        call(2, "hi a x", [1, 2, 3], choice("b", [4]), choice("c", [5])),
    )
    assert [history.token_ids.tolist() for history in found.known] == [[1, 20, 20, 2], [1, 2, 3, 4], [1, 2, 3, 5]]
    assert found.drifts == (Drift(turn=1, drifted_from=0, repeated_tokens=1, replaced_tokens=3),)


def test_where_ids_are_missing_the_messages_stand_and_train_what_no_tokens_do():
    found = build(
        call(1, "hi", [1], choice("a", [2])),
        call(2, "hi a x", None, choice("b", None)),
        call(3, "hi a y", [1, 2, 3], choice("c", [4])),
        call(4, "hi a x b z", [9], choice("d", [8])),
    )
    assert [sequence(history) for history in found.known] == [[(1, 0), (2, 1), (3, 0), (4, 1)], [(9, 0), (8, 1)]]
    (history,) = found.unknown
    assert [entry.message.content for entry in history.messages if entry.trained] == ["b"]


def test_ids_are_enough_to_see_what_continues_what():
    """The client wrote the tool call's id anew, and of the sub-agent nobody recorded a message."""
    known = build(
        call(1, "hi", [1], choice("a", [2])),
        call(2, "hi other x", [1, 2, 3], choice("b", [4])),
        structs.replace(call(3, "", [7], choice("c", [8])), input_messages=None),
        structs.replace(call(4, "", [7, 8, 9], choice("d", [6])), input_messages=None),
    ).known
    assert [sequence(history) for history in known] == [
        [(1, 0), (2, 1), (3, 0), (4, 1)],
        [(7, 0), (8, 1), (9, 0), (6, 1)],
    ]


def test_a_history_begins_where_ids_do():
    found = build(
        call(1, "hi", None, choice("a", None)),
        call(2, "hi a x", [1, 2, 3], choice("b", [4])),
        call(3, "hi a x b y", [1, 2, 3, 4, 5], choice("c", [6])),
    )
    assert [sequence(history) for history in found.known] == [[(1, 0), (2, 0), (3, 0), (4, 1), (5, 0), (6, 1)]]
    (history,) = found.unknown
    assert [entry.message.content for entry in history.messages if entry.trained] == ["a"]


def test_a_later_call_is_no_parent_of_an_earlier_one_by_chance():
    known = build(call(1, "hi", [1, 2], choice("a", [3])), call(2, "ho", [1], choice("b", [2]))).known
    assert [history.token_ids.tolist() for history in known] == [[1, 2, 3], [1, 2]]


def test_a_call_of_which_nothing_but_the_completion_is_known_stays_unknown():
    found = build(structs.replace(call(1, "", None, choice("a", None)), input_messages=None))
    assert found.known == ()
    assert [(history.turns, history.messages) for history in found.unknown] == [((0,), None)]


def test_tokens_are_enough_where_messages_are_unknown():
    told = structs.replace(call(1, "", [1], choice("a", [2])), input_messages=None)
    assert [sequence(history) for history in build(told).known] == [[(1, 0), (2, 1)]]


def test_what_a_failed_call_sampled_is_context():
    broken = call(1, "hi", [1], choice("half", [2], logprobs=False), error_type="Dropped")
    (history,) = build(broken, call(2, "hi half go", [1, 2, 3], choice("on", [4]))).known
    assert sequence(history) == [(1, 0), (2, 0), (3, 0), (4, 1)]
    assert history.logprobs == Logprobs.of([0, 0, 0, -4])


def test_a_trained_completion_without_logprobs_leaves_them_unknown_in_its_history_only():
    bare = choice("a", [2], logprobs=False)
    known = build(call(1, "hi", [1], bare), call(2, "hi a x", [1, 2, 3], choice("b", [4]), choice("c", [5]))).known
    assert [history.logprobs for history in known] == [None, Logprobs.of([0, 0, 0, -5])]


def test_logprobs_of_another_length_than_the_ids_are_unknown():
    trajectory = trajectory_of([call(1, "hi", [1], choice("a", [2, 3]))])
    odd = structs.replace(trajectory.turns[0], logprobs=Logprobs.of([-1]))
    (history,) = token_histories(replace(trajectory, turns=(odd,))).known
    assert (len(history.token_ids), history.loss_mask, history.logprobs) == (3, b"\0\1\1", None)


def test_drift_from_unknown_ids_has_no_length():
    calls = (
        call(1, "hi", None, choice("a", None)),
        call(2, "hi a", [1], choice("b", [2])),
        call(3, "hi a", None, choice("c", None)),
    )
    turns = [
        structs.replace(turn, drifted_from=None if at == 0 else at - 1) for at, turn in enumerate(build_turns(calls)[1])
    ]
    drifts = token_histories(replace(trajectory_of(calls), turns=tuple(turns))).drifts
    assert [(drift.repeated_tokens, drift.replaced_tokens) for drift in drifts] == [(None, None)] * 2


def test_no_calls_no_histories():
    assert build() == TokenHistories(known=(), unknown=(), drifts=())


def test_a_history_goes_on_with_the_choice_that_its_tokens_tell():
    first = call(1, "hi", [1], choice("a", [2]), choice("a", [3]))
    known = build(first, call(2, "hi a x", [1, 3, 4], choice("c", [5]))).known
    assert [history.turns for history in known] == [(0,), (1, 2)]
    assert [history.token_ids.tolist() for history in known] == [[1, 2], [1, 3, 4, 5]]


RECORDED = [("openinference/n2", 6, 0), ("openinference/long100", 1, 4), ("genai_event/sync_tools", 0, 1)]


@pytest.mark.parametrize(("name", "known", "unknown"), RECORDED)
def test_real_recordings_hold_the_laws_with_ids_and_without(name, known, unknown, tmp_path):
    (trajectory,), _ = convert_files(tmp_path, *with_logs(RECORDINGS / f"{name}.jsonl"))
    found = token_histories(trajectory)
    check_laws(trajectory, found)
    assert (len(found.known), len(found.unknown)) == (known, unknown)


def test_a_real_server_that_wrote_a_tool_call_in_other_tokens_drifted(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, RECORDINGS / "openinference" / "sync_tools.jsonl")
    found = token_histories(trajectory)
    check_laws(trajectory, found)
    assert found.drifts == (Drift(turn=1, drifted_from=0, repeated_tokens=41, replaced_tokens=19),)
    assert [sum(history.loss_mask) for history in found.known] == [19, 12]


@given(runs())
def test_a_history_of_messages_has_its_tokens_where_all_turns_have_ids(calls):
    trajectory = trajectory_of(calls)
    assert trajectory.histories == histories(trajectory)
    trained = Counter()
    for history in trajectory.histories:
        known = [path_of(trajectory, turn) for turn in history.turns]
        assert (history.token_ids is not None) == (history.loss_mask is not None) == (None not in known)
        if history.token_ids is None:
            continue
        ids = history.token_ids.tolist()
        assert ids == known[-1]
        assert len(history.loss_mask) == len(ids)
        assert history.logprobs is None or len(history.logprobs) == len(ids)
        learnt = [entry.turn for entry in history.messages if entry.trained]
        trained.update(learnt)
        sampled = [token for turn in learnt for token in trajectory.turns[turn].token_ids]
        assert [token for token, trains in zip(ids, history.loss_mask, strict=True) if trains] == sampled
    assert not trained or max(trained.values()) == 1
