"""Rewards reach what they judge, wherever and whenever they were given."""

from itertools import pairwise

import msgspec
import pytest

from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, build_trajectories
from tests.conversions import convert_files, convert_spans
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.trajectories.reward_spans import evaluation, link_to, rollout, step


def test_the_final_reward_is_an_attribute_of_the_rollout(tmp_path):
    (trajectory,), _ = convert_spans(tmp_path, rollout(attributes={"art.reward": 1}), chat_span(2, 1, ["a"], "b"))
    assert trajectory.reward == 1.0
    (reward,) = trajectory.rewards
    assert (reward.name, reward.value, reward.target, reward.source) == ("reward", 1.0, None, "attribute")


def test_events_judge_the_call_the_step_or_the_rollout_they_stand_on(tmp_path):
    spans = [
        rollout(events=[evaluation("reward", 0.25)]),
        step(2, 0, events=[evaluation("progress", 0.5)]),
        chat_span(3, 2, ["a"], "b", events=[evaluation("helpful", 0.75)]),
        make_span(4, 1, name="grade", events=[evaluation("style", 2)]),
    ]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    found = {reward.name: (reward.value, reward.step, (reward.target or "")[-1:]) for reward in trajectory.rewards}
    assert found == {
        "reward": (0.25, None, ""),
        "progress": (0.5, 0, "2"),
        "helpful": (0.75, 0, "3"),
        "style": (2.0, None, ""),
    }
    assert trajectory.reward == 0.25


def test_a_linked_reward_span_in_another_trace_and_file(tmp_path):
    spans = write_lines(tmp_path / "spans.jsonl", [request_of(rollout(), chat_span(2, 1, ["a"], "b"))])
    later = make_span(7, trace=2, name="reward human", links=link_to(1), events=[evaluation("human", 0.9, time=99)])
    rewards = write_lines(tmp_path / "rewards.jsonl", [request_of(later)])
    for sources in ([spans, rewards], [rewards, spans]):
        (trajectory,), report = convert_files(tmp_path / "out", *sources)
        assert trajectory.reward == 0.9
        assert trajectory.rewards[0].source == "reward_span"
        assert trajectory.complete
        assert report.spans.used == 3


def test_a_reward_span_links_to_a_call_or_a_step(tmp_path):
    spans = [
        rollout(),
        step(2, 4),
        chat_span(3, 2, ["a"], "b"),
        make_span(7, trace=2, name="reward call", links=link_to(3), attributes={"art.reward": -1.5}),
        make_span(8, trace=3, name="reward step", links=link_to(2), attributes={"art.reward": 2.5}),
    ]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    found = {reward.name: (reward.value, reward.step, reward.target) for reward in trajectory.rewards}
    assert found == {"call": (-1.5, 4, f"{3:016x}"), "step": (2.5, 4, f"{2:016x}")}
    assert trajectory.reward is None


def test_a_judge_with_calls_of_its_own_rewards_what_it_links_to(tmp_path):
    spans = [
        rollout(),
        chat_span(2, 1, ["a"], "b"),
        make_span(11, trace=2, name="judge"),
        chat_span(12, 11, ["good?"], "yes", trace=2),
        make_span(13, 11, trace=2, name="reward judge", links=link_to(1), events=[evaluation("judge", 1.0)]),
    ]
    trajectories, _ = convert_spans(tmp_path, *spans)
    rewards = {trajectory.rollout_id: trajectory.reward for trajectory in trajectories}
    assert rewards == {"r": 1.0, f"{2:032x}": None}


def test_the_last_correction_wins_and_all_are_kept(tmp_path):
    spans = [
        rollout(attributes={"art.reward": 1.0}),
        chat_span(2, 1, ["a"], "b"),
        make_span(8, trace=3, name="reward x", links=link_to(1), events=[evaluation("reward", 0.5, time=9_000_000)]),
        make_span(9, trace=4, name="reward x", links=link_to(1), events=[evaluation("reward", 0.0, time=8_000_000)]),
    ]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    assert trajectory.reward == 0.5
    assert [reward.value for reward in trajectory.rewards] == [1.0, 0.0, 0.5]


def test_a_label_without_a_number_is_a_reward_without_value(tmp_path):
    graded = evaluation("grade", **{"gen_ai.evaluation.score.label": "pass", "gen_ai.evaluation.explanation": "fine"})
    (trajectory,), _ = convert_spans(tmp_path, rollout(events=[graded]), chat_span(2, 1, ["a"], "b"))
    (reward,) = trajectory.rewards
    assert (reward.value, reward.label, reward.explanation) == (None, "pass", "fine")
    assert trajectory.reward is None


def test_a_lone_evaluation_of_another_name_is_no_final_reward(tmp_path):
    """Nothing says that more of it is better: a monitor's `hallucination` of 0.97 would train what it warns of."""
    monitor = evaluation("hallucination", 0.97, **{"gen_ai.evaluation.score.label": "fail"})
    (trajectory,), _ = convert_spans(tmp_path / "alone", rollout(events=[monitor]), chat_span(2, 1, ["a"], "b"))
    assert trajectory.reward is None
    assert [(given.name, given.value, given.label) for given in trajectory.rewards] == [("hallucination", 0.97, "fail")]
    human = make_span(7, 1, name="reward human", attributes={"art.reward": 0.5})
    (trajectory,), _ = convert_spans(tmp_path / "beside", rollout(events=[monitor]), human)
    assert trajectory.reward == 0.5


@pytest.mark.parametrize("given", [{"rl.reward.score": 0.5, "rl.reward.name": "tests"}, {"art.reward": 0.5}])
def test_what_is_called_a_reward_is_final_under_any_one_name(tmp_path, given):
    (trajectory,), _ = convert_spans(tmp_path, rollout(attributes=given))
    assert trajectory.reward == 0.5


def test_other_peoples_rewards_are_read(tmp_path):
    spans = [
        rollout(),
        chat_span(2, 1, ["a"], "b", attributes={"rl.reward.score": 0.5}),
        make_span(
            3,
            1,
            name="agentlightning.annotation",
            attributes={"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 0.75},
        ),
    ]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    found = {reward.source: (reward.value, reward.target) for reward in trajectory.rewards}
    assert found == {"rl": (0.5, f"{2:016x}"), "agentlightning": (0.75, None)}
    assert trajectory.reward == 0.75


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "value quarantined"),
        (float("inf"), "value quarantined"),
        ("NaN", "bad reward"),
        ("good", "bad reward"),
        ([1.0], "bad reward"),
    ],
)
def test_what_is_no_number_is_quarantined_and_never_a_reward(tmp_path, value, reason):
    (trajectory,), report = convert_spans(
        tmp_path, rollout(attributes={"art.reward": value}), chat_span(2, 1, ["a"], "b")
    )
    assert trajectory.reward is None
    assert trajectory.rewards == ()
    assert sum(report.spans.quarantined.values()) == 1
    assert trajectory.incomplete_reasons == {reason: 1}
    assert "art.reward" in report.quarantine[0].path or "reward" in report.quarantine[0].path


def test_a_reward_delivered_three_times_is_one(tmp_path):
    late = make_span(9, trace=5, name="reward late", links=link_to(1), attributes={"art.reward": 3.0})
    (trajectory,), report = convert_spans(tmp_path, *[rollout(), chat_span(2, 1, ["a"], "b"), late] * 3)
    assert len(trajectory.rewards) == 1
    assert report.spans.duplicate == 6


def test_a_reward_for_nothing_known_is_undeliverable_and_counted(tmp_path):
    late = make_span(9, trace=5, name="reward late", links=link_to(1, trace=77), attributes={"art.reward": 3.0})
    trajectories, report = convert_spans(tmp_path, late)
    assert trajectories == []
    assert report.spans.used == 1
    assert report.rewards.undeliverable == {"linked span not in the sources": 1}
    (hint,) = report.hints  # and no word of an instrumentor that is missing: a judge calls no model
    assert hint.startswith("1 reward undeliverable, linked span not in the sources: convert")


def test_a_linked_reward_need_not_be_named_one(tmp_path):
    grade = make_span(9, trace=5, name="evaluate", links=link_to(1), events=[evaluation("reward", 0.5)])
    (trajectory,), report = convert_spans(tmp_path, rollout(), chat_span(2, 1, ["a"], "b"), grade)
    assert trajectory.reward == 0.5
    assert report.spans.used == 3


def test_a_reward_below_a_call_judges_the_call_and_above_the_step_none(tmp_path):
    score = {"gen_ai.evaluation.score.value": 1.0}
    spans = [
        rollout(),
        chat_span(2, 1, ["a"], "b"),
        make_span(3, 2, name="parse", attributes=score | {"gen_ai.evaluation.name": "parsed"}),
        make_span(4, 2, name="step 1", attributes={"art.step.index": 1}),
        make_span(5, 4, name="check", attributes=score | {"gen_ai.evaluation.name": "checked"}),
        make_span(
            6, 4, name="tool", attributes=score | {"gen_ai.evaluation.name": "ran", "traceloop.span.kind": "tool"}
        ),
        chat_span(7, 4, ["c"], "d"),
        make_span(8, 7, name="grade", attributes=score | {"gen_ai.evaluation.name": "graded"}),
    ]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    found = {reward.name: (reward.step, reward.target[-1]) for reward in trajectory.rewards}
    assert found == {"parsed": (None, "2"), "checked": (1, "4"), "ran": (1, "6"), "graded": (1, "7")}


def test_rewards_in_a_nested_rollout_know_nothing_of_the_outer_one(tmp_path):
    spans = [
        rollout(),
        step(2, 5),
        make_span(3, 2, name="rollout inner", attributes={"art.rollout.id": "s"}),
        make_span(4, 3, name="grade", attributes={"art.reward": 2.0}),
    ]
    outer, inner = convert_spans(tmp_path, *spans)[0]
    assert outer.rewards == ()
    assert [(reward.step, reward.target) for reward in inner.rewards] == [(None, None)]


@pytest.mark.long
def test_rewards_and_ids_in_a_trace_of_thirty_thousand_levels():
    builder = SpanBuilder()
    spans = [builder.rollout("deep"), *(builder.span(f"level {level}") for level in range(30_000))]
    below = [msgspec.structs.replace(span, parent_span_id=above.span_id) for above, span in pairwise(spans)]
    ids = {"art.rollout.id": "deep"}
    rewarded = [msgspec.structs.replace(span, attributes={"art.reward": 1.0}) for span in below]
    leaves = [builder.span("leaf", parent=below[-1], attributes=ids) for _ in range(1_000)]
    assembly = build_trajectories(SpanGroup(spans=[*leaves, *reversed(rewarded), spans[0]]))
    (trajectory,) = assembly.trajectories
    assert len(trajectory.rewards) == 30_000
    assert {(reward.step, reward.target) for reward in trajectory.rewards} == {(None, None)}
    assert assembly.stats.used == 31_001


def test_a_reward_of_a_tool_in_a_step_says_so(tmp_path):
    score = {"art.reward": 0.1, "traceloop.span.kind": "tool"}
    spans = [rollout(), step(2, 0), chat_span(3, 2, ["a"], "b"), make_span(4, 2, name="tool", attributes=score)]
    spans.append(make_span(5, 1, name="reward reward", links=link_to(2), attributes={"art.reward": 1.0}))
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    kinds = {reward.value: (reward.step, reward.target[-1], reward.target_kind) for reward in trajectory.rewards}
    assert kinds == {0.1: (0, "4", "tool"), 1.0: (0, "2", None)}
