"""A group that tells of no rollout is counted at once, and exactly as the long way counts it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_otel.spans import LogRecord, Quarantined
from art_otel.testing import SpanBuilder
from art_otel.trajectories import AssemblyStats, SpanGroup, build_trajectories
from art_otel.trajectories.build import _assemble, _has_nothing_to_build
from tests.examples import examples
from tests.trajectories.groups import groups, idle_groups

GLOBS = st.sampled_from([(), ("GET*",), ("episode *",)])
MANY = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def the_long_way(group: SpanGroup, globs=()) -> tuple[tuple, AssemblyStats]:
    account = AssemblyStats()
    return _assemble(group, globs, account, None), account


@MANY
@given(groups(), GLOBS)
def test_both_ways_give_the_same(group, globs):
    assembly = build_trajectories(group, globs)
    assert (assembly.trajectories, assembly.stats) == the_long_way(group, globs)


@MANY
@given(idle_groups(), st.sampled_from([(), ("episode *",)]))
def test_idle_groups_are_counted_as_the_long_way_counts_them(group, globs):
    assert _has_nothing_to_build(group, globs)
    assembly = build_trajectories(group, globs)
    assert (assembly.trajectories, assembly.stats) == the_long_way(group, globs)
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
    assert not _has_nothing_to_build(group, globs)


def test_an_idle_group_is_told_by_the_scopes_that_made_it():
    assembly = build_trajectories(SpanGroup(spans=[ROOT, ROOT, BUILDER.span("query", parent=ROOT)]))
    assert assembly.trajectories == ()
    assert assembly.stats.ignored == {"no LLM call in its trace": 2}
    assert assembly.stats.spans_without_calls == {"": 2}
    assert assembly.stats.duplicate == 1
