"""Rewards that name what they judge by an id (of a rollout, a step or a response) judge that and no other."""

from tests.conversions import convert_files, convert_spans
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.trajectories.reward_spans import ROLLOUT, evaluation, link_to, rollout, step


def test_a_response_id_reaches_over_traces_and_files(tmp_path):
    calls = [rollout(), chat_span(2, 1, ["a"], "b", attributes={"gen_ai.response.id": "resp1"})]
    grade = make_span(9, trace=50, name="grade", events=[evaluation("ok", 1.0, **{"gen_ai.response.id": "resp1"})])
    one = write_lines(tmp_path / "calls.jsonl", [request_of(*calls)])
    two = write_lines(tmp_path / "grades.jsonl", [request_of(grade)])
    for sources in ([one, two], [two, one]):
        (trajectory,), report = convert_files(tmp_path / "out", *sources)
        assert [(reward.value, reward.target) for reward in trajectory.rewards] == [(1.0, f"{2:016x}")]
        assert report.spans.used == 3


def test_a_response_id_that_several_traces_have_leads_nowhere(tmp_path):
    known = {"gen_ai.response.id": "resp1"}
    calls = [chat_span(2, None, ["a"], "b", trace=trace, attributes=known) for trace in (1, 2)]
    grade = make_span(9, trace=50, name="grade", events=[evaluation("ok", 1.0, **{"gen_ai.response.id": "resp1"})])
    trajectories, report = convert_spans(tmp_path, *calls, grade)
    assert [trajectory.rewards for trajectory in trajectories] == [(), ()]
    assert report.rewards.undeliverable == {"response of several calls": 1}


def test_a_step_of_another_rollout_is_not_that_of_a_span_moved_out_by_its_id(tmp_path):
    other = {"art.rollout.id": "s"}
    spans = [
        rollout(),
        step(2, 5),
        make_span(3, 2, name="grade", attributes={**other, "art.reward": 2.0}),
        make_span(4, name="rollout y", trace=2, attributes=other),
    ]
    trajectories, _ = convert_spans(tmp_path, *spans)
    assert [[reward.step for reward in trajectory.rewards] for trajectory in trajectories] == [[], [None]]


def test_a_rollout_without_an_id_is_rewarded_by_its_trace_s(tmp_path):
    calls = [make_span(1, name="agent"), chat_span(2, 1, ["a"], "b"), chat_span(3, None, ["a"], "b", trace=2)]
    orphan = chat_span(4, 99, ["a"], "b", trace=3)
    late = [
        make_span(
            8, trace=50 - each, name="reward x", attributes={"art.rollout.id": f"{each:032x}", "art.reward": each}
        )
        for each in (1, 2, 3)
    ]
    for order in ([*calls, orphan, *late], [*late, orphan, *calls]):
        found, report = convert_spans(tmp_path, *order)
        assert [(one.trace_id, one.reward, len(one.calls)) for one in found] == [
            (f"{each:032x}", float(each), 1) for each in (1, 2, 3)
        ]
        assert report.spans.used == 7


def test_a_rollout_named_by_its_span_is_rewarded_by_its_trace_s(tmp_path):
    spans = [
        make_span(1, name="agent"),
        chat_span(2, 1, ["a"], "b"),
        make_span(3, name="agent"),
        chat_span(4, 3, ["c"], "d"),
    ]
    (one, two), _ = convert_spans(tmp_path, *spans, rollout_spans=("agent",))
    late = make_span(8, trace=9, name="reward x", attributes={"art.rollout.id": two.rollout_id, "art.reward": 1.0})
    found, _ = convert_spans(tmp_path, *spans, late, rollout_spans=("agent",))
    assert [(trajectory.rollout_id, trajectory.reward) for trajectory in found] == [
        (one.rollout_id, None),
        (two.rollout_id, 1.0),
    ]


def test_a_reward_names_the_attempt_that_it_judges(tmp_path):
    def attempt(number, name="rollout x", trace=None, **more):
        attributes = ROLLOUT | {"art.rollout.attempt": number} | more
        return make_span(number, trace=trace or number, name=name, attributes=attributes)

    late = [attempt(each, "reward x", 20 + each, **{"art.reward": each / 4}) for each in (3, 1, 2)]
    late.append(attempt(7, "reward x", 40, **{"art.reward": 7.0}))
    found, report = convert_spans(tmp_path, *map(attempt, (1, 2, 3)), *late)
    assert [(one.attempt, [reward.value for reward in one.rewards]) for one in found] == [
        (1, [0.25]),
        (2, [0.5]),
        (3, [0.75]),
    ]
    assert report.rewards.undeliverable == {"rollout not in the sources": 1}


def named(response_id, value=-5.0, **more):
    given = {"gen_ai.evaluation.score.value": value, "gen_ai.response.id": response_id} | more
    return make_span(30, 1, name="reward reward", attributes={"gen_ai.evaluation.name": "reward"} | given)


def test_a_reward_of_a_response_that_its_rollout_does_not_have_is_no_reward_of_the_rollout(tmp_path):
    spans = [rollout(attributes={"art.reward": 0.9}), chat_span(2, 1, ["a"], "b"), named("typo")]
    (trajectory,), report = convert_spans(tmp_path, *spans)
    assert (trajectory.reward, len(trajectory.rewards)) == (0.9, 1)
    assert trajectory.incomplete_reasons == {"bad reward": 1}
    assert report.spans.quarantined == {"bad reward": 1}
    assert (report.rewards.given, report.rewards.undeliverable) == (2, {"response not in the sources": 1})
    assert "names response 'typo', which 0 calls have" in report.quarantine[0].detail


def test_a_reward_of_a_response_that_two_calls_have_is_no_reward_of_the_rollout(tmp_path):
    calls = [chat_span(number, 1, [f"q{number}"], "b") for number in (2, 3)]
    for call in calls:
        call["attributes"].append({"key": "gen_ai.response.id", "value": {"stringValue": "same"}})
    (trajectory,), report = convert_spans(tmp_path, rollout(), *calls, named("same"))
    assert trajectory.reward is None
    assert "names response 'same', which 2 calls have" in report.quarantine[0].detail


def test_a_reward_of_a_lost_call_of_its_own_trace_is_no_reward_of_the_rollout(tmp_path):
    lost = make_span(30, 1, name="reward reward", links=link_to(99), attributes={"art.reward": 1.0})
    (trajectory,), report = convert_spans(tmp_path, rollout(), chat_span(2, 1, ["a"], "b"), lost)
    assert (trajectory.reward, trajectory.complete) == (None, False)
    assert report.quarantine[0].detail == f"judges span {99:016x}, which is in no rollout of the sources"


def test_a_judge_that_is_a_rollout_itself_does_not_keep_what_it_gives_to_others(tmp_path):
    judge = [rollout(), chat_span(2, 1, ["is it good?"], "yes")]
    given = make_span(30, 1, name="reward reward", links=link_to(1, trace=7), attributes={"art.reward": 1.0})
    (trajectory,), report = convert_spans(tmp_path, *judge, given)
    assert (trajectory.reward, trajectory.complete) == (None, True)
    assert report.rewards.undeliverable == {"linked span not in the sources": 1}


def test_a_step_that_is_named_by_its_index_has_no_target(tmp_path):
    """So a correction from elsewhere is no second step of that index."""
    scored = make_span(2, 1, name="step 0", attributes={"art.step.index": 0, "art.reward": 0.5})
    about = {"art.step.index": 0, "art.rollout.id": ROLLOUT["art.rollout.id"], "art.reward": 1.0}
    late = make_span(1, name="reward reward", trace=9, attributes=about)
    (trajectory,), _ = convert_spans(tmp_path, rollout(), scored, chat_span(3, 2, ["a"], "b"), late)
    assert {reward.value: (reward.step, reward.target) for reward in trajectory.rewards} == {
        0.5: (0, f"{2:016x}"),
        1.0: (0, None),
    }
