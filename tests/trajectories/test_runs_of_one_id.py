"""Several runs under one rollout id: a reward goes to the one that it names, and to none where it names none."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversions import convert_files, convert_spans
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.examples import examples
from tests.trajectories.reward_spans import ROLLOUT, link_to

LATE = {"startTimeUnixNano": "9000", "endTimeUnixNano": "9001"}


def run(trace, start=1_000, **attributes):
    """A run in its trace, for 100 ns."""
    times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 100)}
    yield make_span(1, name="rollout x", trace=trace, attributes=ROLLOUT | attributes, **times)
    told = {"gen_ai.response.id": f"response-{trace}"}
    yield chat_span(2, 1, ["q"], f"a{trace}", trace=trace, attributes=told, **times)


def judge(value, trace=90, *, when=LATE, links=(), parent=None, **attributes):
    """A reward that is given elsewhere, or below a parent that is lost."""
    given = ROLLOUT | {"art.reward": float(value)} | attributes
    number = 700 + int(value)
    return make_span(number, parent, name="reward reward", trace=trace, attributes=given, links=list(links), **when)


def named(trace):
    return {"art.rollout.trace_id": f"{trace:032x}"}


def rewards(found):
    """What each run was given, by its trace."""
    return {int(one.trace_id, 16): [given.value for given in one.rewards] for one in found}


@st.composite
def judged_runs(draw):
    """Runs at any times, with or without attempts, each judged by its trace, in any order."""
    starts = draw(st.lists(st.integers(0, 9_500), min_size=1, max_size=5))
    attempts = st.just({}) | st.builds(lambda number: {"art.rollout.attempt": number}, st.integers(0, 2))
    told = [draw(attempts) for _ in starts]
    runs = [span for at, start in enumerate(starts) for span in run(at + 1, 1_000 + start, **told[at])]
    given = [judge(at + 1, 90 + at, **named(at + 1), **told[at]) for at in range(len(starts))]
    return len(starts), draw(st.permutations([*runs, *given]))


@settings(max_examples=examples(40), deadline=None)
@given(judged_runs())
def test_a_reward_goes_to_the_run_of_the_trace_that_it_names(judged):
    count, spans = judged
    with tempfile.TemporaryDirectory() as folder:
        found, report = convert_spans(Path(folder), *spans)
    assert rewards(found) == {trace: [float(trace)] for trace in range(1, count + 1)}
    assert all(one.complete for one in found)
    assert report.spans.used == report.spans.read


def test_a_reward_that_names_none_of_several_runs_is_undeliverable(tmp_path):
    found, report = convert_spans(tmp_path, *run(1), *run(2, 2_000), judge(3))
    assert rewards(found) == {1: [], 2: []}
    assert all(one.complete for one in found)
    assert report.rewards.undeliverable == {"several rollouts with this id": 1}
    (hint,) = report.hints
    assert hint.startswith("1 reward undeliverable, several rollouts with this id: give target=trajectory, or art.")


@pytest.mark.parametrize("numbers", [(1, 2), (None, 1)])
def test_it_is_undeliverable_for_numbered_attempts_too(tmp_path, numbers):
    told = [{} if number is None else {"art.rollout.attempt": number} for number in numbers]
    found, report = convert_spans(tmp_path, *run(1, **told[0]), *run(2, 2_000, **told[1]), judge(3))
    assert rewards(found) == {1: [], 2: []}
    assert report.rewards.undeliverable == {"several rollouts with this id": 1}


def test_a_reward_given_while_one_of_several_runs_ran_is_of_that_one(tmp_path):
    when = {"startTimeUnixNano": "1050", "endTimeUnixNano": "1060"}
    found, _ = convert_spans(tmp_path, *run(1), *run(2, 2_000), judge(3, when=when))
    assert rewards(found) == {1: [3.0], 2: []}


def test_a_reward_of_a_run_that_is_not_in_the_sources_is_of_no_other(tmp_path):
    runs = [*run(1), *run(2)]
    for others in ([*run(1)], runs):
        found, report = convert_spans(tmp_path, *others, judge(3, **named(3)))
        assert set(map(tuple, rewards(found).values())) == {()}
        assert report.rewards.undeliverable == {"rollout not in the sources": 1}
    found, report = convert_spans(tmp_path, *runs, *run(3), judge(3, **named(3)))
    assert (rewards(found), report.rewards.undeliverable) == ({1: [], 2: [], 3: [3.0]}, {})


def test_a_run_whose_own_span_is_lost_has_its_reward(tmp_path):
    _, call = run(1)
    call["attributes"].append({"key": "art.rollout.id", "value": {"stringValue": "r"}})
    for late in (judge(3, **named(1)), judge(3)):
        (one,), _ = convert_spans(tmp_path, call, late)
        assert (one.incomplete_reasons, one.reward) == ({"missing root": 1, "missing parent": 1}, 3.0)


def test_runs_of_one_id_in_one_trace_are_told_apart_by_attempt_else_none_has_it(tmp_path):
    def nested(number, **attributes):
        return make_span(number, 1, name="rollout x", attributes=ROLLOUT | attributes)

    runs = [make_span(1, name="app"), *(nested(number, **{"art.rollout.attempt": number}) for number in (2, 3))]
    judged = [judge(5, **named(1), **{"art.rollout.attempt": 2}), judge(6, **named(1)), judge(7, trace=1, parent=1)]
    found, report = convert_spans(tmp_path, *runs, *judged)
    assert [(one.attempt, [given.value for given in one.rewards]) for one in found] == [(2, [5.0]), (3, [])]
    assert report.rewards.undeliverable == {"several rollouts with this id": 2}


def served(number, trace, start, parent=None, **attributes):
    """A request to another service, which does not pass the trace on: its span and a call below, each with the id."""
    times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 9)}
    yield make_span(number, parent, name="POST /", trace=trace, attributes=ROLLOUT | attributes, **times)
    yield chat_span(number + 1, number, ["q"], f"s{number}", trace=trace, attributes=ROLLOUT, **times)


def test_another_service_s_call_is_of_none_of_two_running_attempts(tmp_path):
    """The last one would have it by chance, and be complete."""
    runs = [*run(1), *run(2, 1_050), *run(3, 5_000)]
    found, report = convert_spans(tmp_path / "both", *runs, *served(11, 9, 1_060))
    assert [len(one.calls) for one in found] == [1, 1, 1]
    assert [one.incomplete_reasons for one in found] == [{"spans unassigned": 1}, {"spans unassigned": 1}, {}]
    assert report.spans.ignored == {"unassigned": 2}
    assert report.spans.read == report.spans.used + 2
    assert any(hint.startswith("2 spans unassigned: they name a rollout id, but not which") for hint in report.hints)
    found, report = convert_spans(tmp_path / "one", *runs, *served(11, 9, 1_120))
    assert ([len(one.calls) for one in found], report.spans.ignored) == ([1, 2, 1], {})
    found, report = convert_spans(tmp_path / "none", *runs, *served(11, 9, 3_000))
    assert {tuple(one.incomplete_reasons) for one in found} == {("spans unassigned",)}
    found, _ = convert_spans(tmp_path / "tools", *runs, next(served(11, 9, 1_060)))
    assert all(one.complete for one in found)


def test_what_is_below_an_unassigned_span_is_unassigned_but_for_what_names_its_attempt(tmp_path):
    runs = [*run(1, **{"art.rollout.attempt": 1}), *run(2, 1_050, **{"art.rollout.attempt": 2})]
    request, call = served(11, 9, 1_060)
    late = {"startTimeUnixNano": "1120", "endTimeUnixNano": "1130"}
    below = [chat_span(13, 11, ["q"], "b", trace=9, **late), chat_span(14, 11, ["q"], "c", trace=9, attributes=ROLLOUT)]
    told = chat_span(15, 11, ["q"], "d", trace=9, attributes=ROLLOUT | {"art.rollout.attempt": 1})
    graded = make_span(16, 12, name="reward reward", trace=9, attributes={"art.reward": 1.0})
    found, report = convert_spans(tmp_path, *runs, request, call, *below, told, graded)
    assert [len(one.calls) for one in found] == [2, 1]
    assert [one.incomplete_reasons["spans unassigned"] for one in found] == [3, 3]
    assert report.spans.ignored == {"unassigned": 5}
    assert report.rewards.undeliverable == {"several rollouts with this id": 1}


def test_a_reward_that_lost_its_parent_is_of_the_run_of_its_trace(tmp_path):
    found, report = convert_spans(tmp_path, *run(1), *run(2, 2_000), judge(3, trace=1, parent=99))
    assert (rewards(found), report.spans.quarantined) == ({1: [3.0], 2: []}, {})


def test_a_call_that_lost_its_parent_is_of_the_run_of_its_trace(tmp_path):
    late = chat_span(5, 99, ["late"], "b", attributes=ROLLOUT, **LATE)
    found, _ = convert_spans(tmp_path, *run(1), *run(2, 2_000), late)
    assert [len(one.calls) for one in found] == [2, 1]


def test_an_attempt_is_the_same_as_text_and_by_the_resource(tmp_path):
    dump = write_lines(
        tmp_path / "dump.jsonl",
        [
            request_of(*run(1, **{"art.rollout.attempt": "1"})),
            request_of(*run(2), resource={"art.rollout.attempt": 2}),
            request_of(*(judge(number, 90 + number, **{"art.rollout.attempt": number}) for number in (1, 2))),
        ],
    )
    found, _ = convert_files(tmp_path / "out", dump)
    assert rewards(found) == {1: [1.0], 2: [2.0]}


def test_runs_with_the_same_attempt_are_not_told_apart_by_it(tmp_path):
    attempt = {"art.rollout.attempt": 1}
    runs = [*run(1, **attempt), *run(2, **attempt), *run(3, 5_000, **{"art.rollout.attempt": 2})]
    found, report = convert_spans(tmp_path, *runs, judge(3, **attempt), judge(4, 91, **attempt, **named(2)))
    assert rewards(found) == {1: [], 2: [4.0], 3: []}
    assert report.rewards.undeliverable == {"several rollouts with this id": 1}


def test_a_reward_that_leads_to_its_call_needs_no_run(tmp_path):
    told = {"gen_ai.response.id": "response-1", "gen_ai.evaluation.score.value": 4.0, "gen_ai.evaluation.name": "tone"}
    by_response = make_span(704, name="reward tone", trace=91, attributes=ROLLOUT | told, **LATE)
    given = [judge(3, 90, links=link_to(2, 2)), by_response, judge(5, 92, links=link_to(77, 2))]
    found, report = convert_spans(tmp_path, *run(1), *run(2), *given)
    assert rewards(found) == {1: [4.0], 2: [3.0]}
    assert report.rewards.undeliverable == {"linked span not in the sources": 1}
    assert (report.spans.ignored, report.spans.quarantined) == ({}, {})
