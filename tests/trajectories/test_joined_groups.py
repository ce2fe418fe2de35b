"""Small groups that are built together give what each gives alone."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import Choice, Message
from art_otel.testing import SpanBuilder
from art_otel.trajectories import AssemblyStats, SpanGroup, build_trajectories, join_groups
from tests.examples import examples
from tests.trajectories.groups import groups, idle_groups

ASKED = Message(role="user", content="2+2?")
ANSWER = Choice(index=0, message=Message(role="assistant", content="4"), finish_reason="stop")
GLOBS = st.sampled_from([(), ("GET*",)])


def built(several, globs=()):
    """All trajectories, in an order of their own, and the account."""
    stats = AssemblyStats()
    trajectories = [one for group in several for one in build_trajectories(group, globs, stats).trajectories]
    return sorted(trajectories, key=lambda one: (one.order, one.started_at or 0, repr(one.calls))), stats


def apart(group, number):
    """The group in traces and rollouts that no other group has."""

    def moved(record):
        fields = {"trace_id": record.trace_id and f"{number:x}{record.trace_id[1:]}"}
        if rollout_id := getattr(record, "attributes", {}).get("art.rollout.id"):
            fields["attributes"] = {**record.attributes, "art.rollout.id": f"{rollout_id}{number}"}
        if links := getattr(record, "links", ()):
            fields["links"] = tuple(map(moved, links))
        return structs.replace(record, **fields)

    spans, logs, quarantine = (
        [moved(one) for one in records] for records in (group.spans, group.logs, group.quarantine)
    )
    return SpanGroup(spans=spans, logs=logs, quarantine=quarantine, external_rewards=())


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(groups() | idle_groups(), max_size=6), st.sampled_from([4, 16, 128]), GLOBS)
def test_groups_that_are_built_together_give_what_each_gives_alone(several, most, globs):
    each = [apart(group, number) for number, group in enumerate(several)]
    assert built(join_groups(each, most, globs), globs) == built(each, globs)


def test_short_traces_are_one_group():
    several = [SpanGroup(spans=[SpanBuilder(trace=number).rollout(f"r{number}")]) for number in range(1, 8)]
    assert [len(group.spans) for group in join_groups(several, 3)] == [3, 3, 1]


def test_a_rollout_with_the_id_of_another_ones_trace_is_built_apart():
    one, other = SpanBuilder(trace=1), SpanBuilder(trace=2)
    several = [
        SpanGroup(spans=[one.rollout(other.trace_id)]),
        SpanGroup(spans=[other.chat(other.span("GET /"), [ASKED], [ANSWER])]),
    ]
    assert [len(group.spans) for group in join_groups(several, 128)] == [1, 1]
    assert built(join_groups(several, 128)) == built(several)
