"""Weights: batches, runs and row groups end by them, so a text that weighs nothing would make these of any size."""

import msgspec
import pytest

from art_otel.calls import Choice, InferenceCall, Message, ToolCall
from art_otel.store.rows import Row, store_trajectory
from art_otel.store.weights import weigh
from art_otel.trajectories import PolicyVersions, Reward, ToolExecution, Trajectory
from art_otel.trajectories.lineage.turns import build_lineage

LENGTH = 10_000
NOT_OURS = {"group_metadata", "group_metrics", "group_logs"}  # always null
WORDS = {"target_kind", "status", "untrained"}  # one of a few words


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
    ran = ToolExecution(span_id="c" * 16, name="look", start_ns=2)
    reward = Reward(name="reward", value=1.0, source="evaluation", time_ns=3)
    versions = PolicyVersions(first="1", last="2")
    fields = {"rewards": (reward,), "policy_version": versions, "tool_calls": (ran,), **build_lineage([call])._asdict()}
    return store_trajectory(Trajectory(rollout_id="r", trace_id="a" * 32, **fields))


def grown(record):
    """The record with each of its texts long in turn, also those of records in it, and where the text stands."""
    for field in msgspec.structs.fields(record):
        value, name = getattr(record, field.name), field.name
        if name in NOT_OURS | WORDS:
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
    assert {"tool_calls.arguments", "tool_calls.error"} <= PLACES.keys()
    assert {
        "turns.message.tool_calls.arguments",
        "calls.prompt.messages.content",
        "messages.tool_calls",
    } <= PLACES.keys()


@pytest.mark.parametrize("place", PLACES)
def test_every_text_of_a_row_weighs_what_it_is_long(place):
    assert weigh(PLACES[place]) - weigh(row()) > LENGTH - 100
