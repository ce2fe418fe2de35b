"""Texts of rewards that are said once and meant for many: whole while there is budget, then left out and counted."""

import json

import msgspec

from art_otel.conventions import rewards_of
from art_otel.spans import Event, Link, Quarantined, Span
from art_otel.trajectories import SpanGroup, build_trajectories
from art_otel.trajectories.limits import MAX_REPEATED
from art_otel.trajectories.rewards.texts import may_be_repeated

TRACE = "1" * 32
MANY = 100
LONG = "x" * (MAX_REPEATED // (MANY - 10))  # there is budget for 90 of 100


def span(number: int, parent: int | None = None, trace: str = TRACE, **fields) -> Span:
    above = None if parent is None else f"{parent:016x}"
    times = {"start_ns": number, "end_ns": 1_000_000}
    known = {"trace_id": trace, "span_id": f"{number:016x}", "parent_span_id": above, "name": "work"}
    return Span(**(known | times | fields))


def call(number: int, parent: int | None = None, **fields) -> Span:
    message = {"role": "user", "parts": [{"type": "text", "content": str(number)}]}
    asked = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps([message])}
    return span(number, parent, attributes=asked, **fields)


def one(spans: list[Span]):
    (trajectory,) = build_trajectories(SpanGroup(spans=spans)).trajectories
    return trajectory


def judged(count: int, text: str) -> list[Span]:
    said = {"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.value": 1.0}
    event = Event(name="gen_ai.evaluation.result", time_ns=5, attributes=said | {"gen_ai.evaluation.explanation": text})
    links = [Link(trace_id=TRACE, span_id=f"{number:016x}") for number in range(2, count + 2)]
    reward = span(count + 2, 1, name="reward tone", events=[event], links=links)
    return [span(1), *(call(number, 1) for number in range(2, count + 2)), reward]


def test_a_long_reward_of_many_spans_is_a_bad_one():
    fits = one(judged(90, LONG[4:]))
    assert [reward.explanation for reward in fits.rewards] == [LONG[4:]] * 90
    assembly = build_trajectories(SpanGroup(spans=judged(MANY, LONG)))
    assert assembly.trajectories[0].rewards == ()
    (damage,) = assembly.account.damages
    assert damage.reason == "bad reward"
    assert "too many to be repeated for 100 spans" in damage.detail


def test_long_rewards_of_many_spans_share_the_room_of_their_rollout():
    spans = judged(45, LONG[4:])
    event = spans[-1].events[0]
    others = [
        msgspec.structs.replace(
            spans[-1], span_id=f"{number:016x}", events=[msgspec.structs.replace(event, time_ns=number)]
        )
        for number in (1001, 1002)
    ]
    assembly = build_trajectories(SpanGroup(spans=[*spans, *others]))
    assert len(assembly.trajectories[0].rewards) == 2 * 45
    (damage,) = assembly.account.damages
    assert "too many to be repeated for 45 spans" in damage.detail


def test_long_rewards_of_one_span_are_whole_however_many():
    spans = judged(1, LONG)
    (event,) = spans[-1].events
    many = [msgspec.structs.replace(event, time_ns=number) for number in range(MANY + 1)]
    found = one([*spans[:-1], msgspec.structs.replace(spans[-1], events=many)])
    assert [reward.explanation for reward in found.rewards] == [LONG] * (MANY + 1)
    assert found.incomplete_reasons.keys() <= {"no content"}


def judged_traces(count: int, text: str) -> tuple[list[Span], Span]:
    traces = [f"{number:032x}" for number in range(1, count + 1)]
    links = [Link(trace_id=trace, span_id=f"{1:016x}") for trace in traces]
    said = {"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.value": 1.0}
    event = Event(name="gen_ai.evaluation.result", time_ns=5, attributes=said | {"gen_ai.evaluation.explanation": text})
    judge = span(9, trace="f" * 32, name="reward tone", events=[event], links=links)
    return [call(1, trace=trace) for trace in traces], judge


def test_a_long_reward_of_many_rollouts_is_the_same_together_and_apart():
    calls, judge = judged_traces(90, LONG[4:])
    together = build_trajectories(SpanGroup(spans=[*calls, judge])).trajectories
    apart = [build_trajectories(SpanGroup(spans=[one], judges=[judge])).trajectories[0] for one in calls]
    assert apart == list(together)
    assert [[reward.explanation for reward in one.rewards] for one in apart] == [[LONG[4:]]] * 90


def test_one_that_is_too_long_is_bad_for_all():
    calls, judge = judged_traces(MANY, LONG)
    assembly = build_trajectories(SpanGroup(spans=[*calls, judge]))
    assert not any(one.rewards for one in assembly.trajectories)
    assert [damage.reason for damage in assembly.account.damages] == ["bad reward"]
    (given,) = rewards_of(judge)
    assert [may_be_repeated([given], times) for times in (80, MANY)] == [True, False]


def test_a_damage_is_as_short_as_can_be_read():
    damage = Quarantined(reason="bad reward", path="p" * 10_000, detail="d" * 10_000)
    assert (len(damage.path), len(damage.detail)) == (1001, 301)
    assert damage.path.endswith("p…")
