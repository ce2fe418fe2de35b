"""A group that tells of no rollout is counted at once, and exactly as the long way counts it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel.conventions import RecordedReward
from art_otel.spans import LogRecord, Quarantined
from art_otel.testing import SpanBuilder
from art_otel.trajectories import AssemblyStats, ExternalReward, SpanGroup, build_trajectories
from art_otel.trajectories.rewards import RewardAddress
from tests.examples import examples
from tests.trajectories.groups import groups, idle_groups

GLOBS = st.sampled_from([(), ("GET*",), ("episode *",)])
MANY = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


ELSEWHERE = ExternalReward(
    origin=("", ""),
    reward=RecordedReward(name="reward", value=1.0, source="attribute", time_ns=1),
    address=RewardAddress(rollout_id="elsewhere"),
    undeliverable="elsewhere",
)
"""A reward for another group, so that this one is not passed over."""


@MANY
@given(idle_groups(), st.sampled_from([(), ("episode *",)]))
def test_idle_groups_are_counted_as_the_long_way_counts_them(group, globs):
    assembly = build_trajectories(group, globs)
    the_long_way = build_trajectories(structs.replace(group, external_rewards=[ELSEWHERE]), globs)
    assert the_long_way.stats.rewards_undeliverable.pop("elsewhere") == 1
    assert (assembly.trajectories, assembly.stats) == (the_long_way.trajectories, the_long_way.stats)
    counted = assembly.stats
    assert len(group.spans) == counted.duplicate + counted.ignored.total() + counted.quarantined.total()
    assert 0 not in counted.ignored.values()


@MANY
@given(st.lists(groups(), max_size=3))
def test_one_account_for_several_groups_is_the_sum_of_theirs(several):
    passed, added = AssemblyStats(), AssemblyStats()
    for group in several:
        assert build_trajectories(group, (), passed).stats is passed
        added.add(build_trajectories(group).stats)
    assert passed == added


BUILDER = SpanBuilder()
ROOT = BUILDER.span("GET /")
NAMED = {"trace_id": ROOT.trace_id, "span_id": ROOT.span_id}


@pytest.mark.parametrize(
    ("group", "globs"),
    [
        (SpanGroup(spans=[ROOT]), ("GET *",)),
        (SpanGroup(spans=[ROOT, BUILDER.rollout("r")]), ()),
        (SpanGroup(spans=[ROOT, BUILDER.chat(ROOT, (), ())]), ()),
        (SpanGroup(spans=[ROOT, BUILDER.reward(ROOT, 1.0)]), ()),
        (SpanGroup(spans=[ROOT, BUILDER.span("embed", attributes={"gen_ai.operation.name": "embeddings"})]), ()),
        (SpanGroup(spans=[ROOT], logs=[LogRecord(**NAMED, event_name="x", time_ns=1)]), ()),
        (SpanGroup(spans=[ROOT], quarantine=[Quarantined(**NAMED, reason="bad field", path="x", partial=True)]), ()),
    ],
)
def test_whatever_tells_of_more_goes_the_long_way(group, globs):
    assembly = build_trajectories(group, globs)
    is_idle = not assembly.trajectories and assembly.stats.ignored == {"no LLM call in its trace": len(group.spans)}
    assert not is_idle or assembly.stats.logs_joined or assembly.stats.quarantined


def test_an_idle_group_is_told_by_the_scopes_that_made_it():
    assembly = build_trajectories(SpanGroup(spans=[ROOT, ROOT, BUILDER.span("query", parent=ROOT)]))
    assert assembly.trajectories == ()
    assert assembly.stats.ignored == {"no LLM call in its trace": 2}
    assert assembly.stats.spans_without_calls == {"": 2}
    assert assembly.stats.duplicate == 1
