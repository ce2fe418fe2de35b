"""Many rewards of one span: a link counts once, and what several rewards give to many spans is bounded."""

from art_otel.trajectories.rewards import attribution as rewards
from art_otel.trajectories.rewards.attribution import MAX_REWARDS
from tests.conversions import convert_spans
from tests.dumps import chat_span, make_span
from tests.trajectories.reward_spans import evaluation, link_to, rollout

MANY = 20_000


def evaluations(count):
    return [evaluation(f"e{number}", 1.0, time=5 + number) for number in range(count)]


def judge(events, links):
    return make_span(9_000_000, name="reward x", trace=2, events=events, links=links)


def test_a_span_that_is_linked_again_and_again_is_judged_once_by_each_reward(tmp_path):
    spans = [rollout(), chat_span(2, 1, ["a"], "b")]
    (again,), _ = convert_spans(tmp_path / "again", *spans, judge(evaluations(MANY), link_to(2) * MANY))
    assert len(again.rewards) == MANY
    (twice,), _ = convert_spans(tmp_path / "twice", *spans, judge(evaluations(3), link_to(2) * 2))
    (once,), _ = convert_spans(tmp_path / "once", *spans, judge(evaluations(3), link_to(2)))
    assert twice == once


def test_one_reward_that_does_not_fit_is_told_once_however_often_its_target_is_linked(tmp_path):
    given = [evaluation("e", 1.0, **{"art.reward.choice": 4})]
    _, report = convert_spans(tmp_path, rollout(), chat_span(2, 1, ["a"], "b"), judge(given, link_to(2) * 3))
    (told,) = report.quarantine
    assert "judges choice 4" in told.detail


def test_rewards_of_many_spans_each_are_bounded_and_the_rest_is_told_once(tmp_path):
    spans = [chat_span(2 + number, 1, ["a"], f"b{number}") for number in range(400)]
    links = [link for number in range(400) for link in link_to(2 + number)]
    (trajectory,), report = convert_spans(tmp_path, rollout(), *spans, judge(evaluations(MANY), links))
    assert len(trajectory.rewards) == MAX_REWARDS
    (told,) = report.quarantine
    assert told.path.endswith(f"reward 'e{MAX_REWARDS // 400}'")
    assert f"more than {MAX_REWARDS}" in told.detail


def test_any_number_of_rewards_of_one_span_and_of_spans_of_one_reward_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(rewards, "MAX_REWARDS", 10)
    spans = [rollout(), *(chat_span(2 + number, 1, ["a"], f"b{number}") for number in range(12))]
    links = [link for number in range(12) for link in link_to(2 + number)]
    (many,), report = convert_spans(tmp_path / "many", *spans, judge(evaluations(12), link_to(2)))
    assert (len(many.rewards), len(report.quarantine)) == (12, 0)
    (wide,), report = convert_spans(tmp_path / "wide", *spans, judge(evaluations(1), links))
    assert (len(wide.rewards), len(report.quarantine)) == (12, 0)


def test_the_first_of_many_lost_spans_are_named_and_the_rest_counted(tmp_path):
    links = [link for number in range(MANY) for link in link_to(100_000 + number)]
    lost = make_span(30, 1, name="reward x", events=evaluations(MANY), links=links)
    _, report = convert_spans(tmp_path, rollout(), chat_span(2, 1, ["a"], "b"), lost)
    first = ", ".join(f"{100_000 + number:016x}" for number in range(5))
    assert (
        report.quarantine[0].detail == f"judges span {first} and {MANY - 5} more, which is in no rollout of the sources"
    )
