"""Many rewards of one span: a link counts once, and what several rewards give to many spans is bounded."""

import pytest

from art_otel.trajectories import rewards as reward_rules
from tests.conversions import convert_spans
from tests.dumps import chat_span, make_span
from tests.trajectories.reward_spans import evaluation, link_to, rollout

MANY = 20_000


def evaluations(count):
    return [evaluation(f"e{number}", 1.0, time=5 + number) for number in range(count)]


def judge(events, links):
    return make_span(9_000_000, name="reward x", trace=2, events=events, links=links)


@pytest.mark.flood
def test_a_span_that_is_linked_again_and_again_is_judged_once_by_each_of_many_rewards(tmp_path):
    spans = [rollout(), chat_span(2, 1, ["a"], "b")]
    (again,), _ = convert_spans(tmp_path, *spans, judge(evaluations(MANY), link_to(2) * MANY))
    assert len(again.rewards) == MANY


def test_a_span_that_is_linked_twice_is_judged_once_by_each_reward(tmp_path):
    spans = [rollout(), chat_span(2, 1, ["a"], "b")]
    (twice,), _ = convert_spans(tmp_path / "twice", *spans, judge(evaluations(3), link_to(2) * 2))
    (once,), _ = convert_spans(tmp_path / "once", *spans, judge(evaluations(3), link_to(2)))
    assert twice == once


def test_one_reward_that_does_not_fit_is_counted_once_however_often_its_target_is_linked(tmp_path):
    given = [evaluation("e", 1.0, **{"art.reward.choice": 4})]
    _, report = convert_spans(tmp_path, rollout(), chat_span(2, 1, ["a"], "b"), judge(given, link_to(2) * 3))
    assert report.rewards.undeliverable == {"no such choice or tokens": 1}


def test_rewards_of_many_spans_each_are_bounded(tmp_path):
    spans = [chat_span(2 + number, 1, ["a"], f"b{number}") for number in range(40)]
    links = [link for number in range(40) for link in link_to(2 + number)]
    (trajectory,), report = convert_spans(tmp_path, rollout(), *spans, judge(evaluations(MANY), links))
    assert (trajectory.rewards, report.rewards.given) == ((), 0)
    (told,) = report.quarantine
    assert told.detail.startswith(f"{MANY} rewards for 40 spans each are ")


def test_any_number_of_rewards_of_one_span_and_of_spans_of_one_reward_is_kept(tmp_path, monkeypatch):
    spans = [rollout(), *(chat_span(2 + number, 1, ["a"], f"b{number}") for number in range(1_000))]
    links = [link for number in range(1_000) for link in link_to(2 + number)]
    monkeypatch.setattr(reward_rules, "MAX_REWARD_BYTES", 120_000)
    (many,), report = convert_spans(tmp_path / "many", *spans, judge(evaluations(2_000), link_to(2)))
    assert (len(many.rewards), len(report.quarantine)) == (2_000, 0)
    (wide,), report = convert_spans(tmp_path / "wide", *spans, judge(evaluations(1), links))
    assert (len(wide.rewards), len(report.quarantine)) == (1_000, 0)


def test_a_long_text_is_not_repeated_for_any_number_of_spans(tmp_path, monkeypatch):
    monkeypatch.setattr(reward_rules, "MAX_REWARD_BYTES", 100_000)
    spans = [rollout(), *(chat_span(2 + number, 1, ["a"], f"b{number}") for number in range(10))]
    links = [link for number in range(10) for link in link_to(2 + number)]
    for length, kept in ((9_000, 10), (10_000, 0)):
        given = [evaluation("tone", 1.0, **{"gen_ai.evaluation.explanation": "x" * length})]
        (trajectory,), _ = convert_spans(tmp_path / str(length), *spans, judge(given, links))
        assert len(trajectory.rewards) == kept


def test_the_first_of_several_lost_spans_is_named_and_the_rest_counted(tmp_path):
    links = [link for number in range(3) for link in link_to(100_000 + number)]
    lost = make_span(30, 1, name="reward x", events=evaluations(1), links=links)
    _, report = convert_spans(tmp_path, rollout(), chat_span(2, 1, ["a"], "b"), lost)
    detail = f"judges span {100_000:016x}, which is in no rollout of the sources (and 2 more)"
    assert report.quarantine[0].detail == detail
    assert report.rewards.undeliverable == {"linked span not in the sources": 3}
