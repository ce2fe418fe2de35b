"""Weights: batches, runs and row groups end by them, so a text that weighs nothing would make these of any size."""

import msgspec
import pytest

from art_otel.calls import Choice, InferenceCall, Message, ToolCall
from art_otel.store.rows import Row, store_trajectory
from art_otel.store.weights import weigh
from art_otel.trajectories import Trajectory
from art_otel.trajectories.lineage import build_turns
from art_otel.trajectories.model import PolicyVersions, Reward

LENGTH = 10_000
NOT_OURS = {"group_metadata", "group_metrics", "group_logs"}  # always null
SAID = {"target_kind", "status"}  # one of a few words


def row() -> Row:
    tool = ToolCall(id="c", name="look", arguments="{}")
    asked, said = Message(role="user", content="hi"), Message(role="assistant", tool_calls=(tool,))
    call = InferenceCall(
        trace_id="a" * 32,
        span_id="b" * 16,
        operation_name="chat",
        start_ns=1,
        end_ns=2,
        input_messages=(asked,),
        choices=(Choice(index=0, message=said),),
    )
    calls, turns = build_turns([call])
    reward = Reward(name="reward", value=1.0, source="event", time_ns=3)
    versions = PolicyVersions(first="1", last="2")
    known = {"trace_id": "a" * 32, "rewards": (reward,), "policy_version": versions}
    return store_trajectory(Trajectory(rollout_id="r", calls=calls, turns=turns, **known))


def grown(record):
    """The record with each of its texts long in turn, also those of records in it, and where the text stands."""
    for field in msgspec.structs.fields(record):
        value, name = getattr(record, field.name), field.name
        if name in NOT_OURS | SAID:
            continue
        if field.type in (str, str | None):
            yield name, msgspec.structs.replace(record, **{name: "x" * LENGTH})
        elif field.type in (tuple[str, ...], tuple[str, ...] | None):
            yield name, msgspec.structs.replace(record, **{name: ("x" * LENGTH,)})
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            for place, longer in grown(value[0]):
                yield f"{name}.{place}", msgspec.structs.replace(record, **{name: (longer, *value[1:])})
        elif isinstance(value, msgspec.Struct):
            for place, longer in grown(value):
                yield f"{name}.{place}", msgspec.structs.replace(record, **{name: longer})


PLACES = dict(grown(row()))


def test_the_texts_are_found():
    assert {"rollout_id", "objects", "calls.agent", "rewards.explanation", "policy_version.last"} <= PLACES.keys()
    assert {"turns.message.tool_calls.arguments", "turns.messages.content", "messages.tool_calls"} <= PLACES.keys()


@pytest.mark.parametrize("place", PLACES)
def test_every_text_of_a_row_weighs_what_it_is_long(place):
    assert weigh(PLACES[place]) - weigh(row()) > LENGTH - 100
