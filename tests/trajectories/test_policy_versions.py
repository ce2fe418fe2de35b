"""Policy versions: a call has its own, else its rollout's; one that neither says is unknown, whatever others say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.calls import Message, TokenIds
from art_otel.data.selection import Selection
from art_otel.testing import SpanBuilder
from art_otel.trajectories import (
    PolicyVersions,
    SpanGroup,
    Trajectory,
    build_trajectories,
    first_and_last_known,
    link_calls,
    version_of,
)
from art_otel.trajectories.lineage import recorded_call
from tests.conversions import convert_spans
from tests.data.token_rollouts import skip_reason
from tests.dumps import chat_span, make_span
from tests.trajectories.calls import choice

VERSION = "art.policy.version"
VERSIONS = st.sampled_from([None, None, "11", "12"])


def said(version):
    return {} if version is None else {VERSION: version}


def recorded(of_rollout, of_calls) -> Trajectory:
    """A rollout whose calls sample one answer each, with ids."""
    builder = SpanBuilder()
    root = builder.rollout("x", attributes=said(of_rollout))
    calls = []
    for at, version in enumerate(of_calls):
        asked, sampled = Message(role="user", content=f"q{at}"), choice(f"a{at}", [5, at])
        told = {"prompt_token_ids": TokenIds.of([1, at]), "attributes": said(version)}
        calls.append(builder.chat(root, [asked], [sampled], **told))
    (found,) = build_trajectories(SpanGroup(spans=[root, *calls])).trajectories
    return found


@given(VERSIONS, st.lists(VERSIONS, min_size=1, max_size=4))
def test_what_nobody_says_is_never_fresh_and_what_the_rollout_says_is_its_calls(of_rollout, of_calls):
    found = recorded(of_rollout, of_calls)
    versions = [of_rollout if version is None else version for version in of_calls]
    assert [call.policy_version for call in found.calls] == versions
    assert [version_of(found, call) for call in found.calls] == versions
    known = [version for version in versions if version is not None]
    assert found.policy_version == (PolicyVersions(first=known[0], last=known[-1]) if known else None)
    assert first_and_last_known(found) == (None if None in versions else found.policy_version)
    reason = skip_reason(Selection(policy_version="12"), found)
    expected = "no policy version" if None in versions else "another policy version" if "11" in versions else None
    assert reason == expected
    assert skip_reason(Selection(policy_version="12", max_staleness=1), found) == (
        "no policy version" if None in versions else None
    )
    (batch,) = art_otel.batches([found], advantage=None)
    assert sorted(batch.policy_version, key=str) == sorted(versions, key=str)


def test_a_rollout_s_version_is_stored_with_its_calls(tmp_path):
    spans = [
        make_span(1, name="rollout outer", attributes={"art.rollout.id": "outer", VERSION: "5"}),
        chat_span(2, 1, ["q"], "a"),
        chat_span(3, 1, ["q", "a", "more"], "b", attributes={VERSION: "12"}),
        make_span(4, 1, name="rollout inner", attributes={"art.rollout.id": "inner"}),
        chat_span(5, 4, ["inner"], "c"),
    ]
    (inner, outer), _ = convert_spans(tmp_path, *spans)
    assert [call.policy_version for call in outer.calls] == ["5", "12"]
    assert outer.policy_version == PolicyVersions(first="5", last="12")
    assert (inner.policy_version, inner.calls[0].policy_version) == (None, None)


def test_a_call_that_failed_before_it_sampled_needs_no_version():
    found = recorded(None, ["12", "12"])
    broke_off, answered = map(recorded_call, found.calls)
    broke_off = structs.replace(broke_off, policy_version=None, error="429")
    refused = structs.replace(broke_off, choices=None)
    fresh = Selection(policy_version="12")
    with_failed = replace(found, calls=link_calls([refused, answered]))
    assert skip_reason(fresh, with_failed) is None
    with_broken = replace(found, calls=link_calls([broke_off, answered]))
    assert skip_reason(fresh, with_broken) == "no policy version"


@pytest.mark.parametrize("of_calls", [[None, None], []])
def test_where_no_call_says_one_the_rollout_s_are_meant(of_calls):
    """As in datasets of earlier versions, and of who makes trajectories by hand."""
    found = recorded(None, [None, None])
    told = replace(found, policy_version=PolicyVersions(first="11", last="12"))
    if not of_calls:
        told = replace(told, calls=())
    assert [version_of(told, call) for call in told.calls] == ["11"] * len(of_calls)
    assert first_and_last_known(told) == PolicyVersions(first="11", last="12")
    assert skip_reason(Selection(policy_version="12"), told) == "another policy version"
