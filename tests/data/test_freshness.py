"""Freshness: unknown is never fresh, and versions are compared by the number at their end."""

from dataclasses import replace

import pytest
from msgspec import structs

import art_otel
from art_otel.data.selection import Selection
from art_otel.errors import UsageError
from art_otel.trajectories import PolicyVersions, Trajectory
from tests.data.token_rollouts import skip_reason, talk


def sampled_by(first: str | None, last: str | None = None) -> Trajectory:
    versions = None if first is None else PolicyVersions(first=first, last=last or first)
    return talk("r", 1, policy_version=versions)


EXACT = [
    ("step-12", "step-12", "step-12", None),
    ("step-12", "step-11", "step-12", "another policy version"),
    ("step-12", "step-12", "step-13", "another policy version"),
    ("12", "step-12", None, "another policy version"),
    ("step-12", None, None, "no policy version"),
    (None, None, None, None),
    (None, "step-1", "step-9", None),
]


@pytest.mark.parametrize(("wanted", "first", "last", "reason"), EXACT)
def test_a_version_is_that_of_every_call(wanted, first, last, reason):
    assert skip_reason(Selection(policy_version=wanted), sampled_by(first, last)) == reason


STALE = [
    ("12", 0, "step-12", None),
    ("12", 0, "step-11", "stale"),
    ("12", 1, "qwen2.5:0011", None),
    ("step-12-final", 2, "9", "stale"),
    ("12", 3, "9", None),
    ("9", 0, "10", None),  # newer than what is trained
    ("12", 5, "main", "policy version without a number"),
    ("12", 5, "", "policy version without a number"),
    ("12", 5, "9" * 5_000, "policy version without a number"),
    ("12", 5, None, "no policy version"),
]


@pytest.mark.parametrize(("wanted", "behind", "first", "reason"), STALE)
def test_staleness_is_counted_in_versions(wanted, behind, first, reason):
    fresh = Selection(policy_version=wanted, max_staleness=behind)
    assert skip_reason(fresh, sampled_by(first, "12")) == reason


EVERY_CALL = [
    (["12", "11", "12"], "12", None, "another policy version"),
    (["12", "12", "12"], "12", None, None),
    (["12", None, "12"], "12", None, "no policy version"),  # what the rollout has may be the others'
    ([None, None, None], "12", None, None),  # what the rollout has is theirs
    (["12", "3", "12"], "12", 5, "stale"),
    (["12", "7", "12"], "12", 5, None),
    (["12", "main", "12"], "12", 5, "policy version without a number"),
]


@pytest.mark.parametrize(("versions", "wanted", "behind", "reason"), EVERY_CALL)
def test_calls_between_the_first_and_the_last_count_too(versions, wanted, behind, reason):
    told = talk("r", *[1] * len(versions), policy_version=PolicyVersions(first="12", last="12"))
    calls = [structs.replace(one, policy_version=version) for one, version in zip(told.calls, versions, strict=True)]
    fresh = Selection(policy_version=wanted, max_staleness=behind)
    assert skip_reason(fresh, replace(told, calls=tuple(calls))) == reason
    # Without versions of the rollout those of the calls count, where all are known.
    expected = "no policy version" if None in versions else reason
    assert skip_reason(fresh, replace(told, calls=tuple(calls), policy_version=None)) == expected


@pytest.mark.parametrize("fields", [{}, {"policy_version": "main"}])
def test_a_staleness_without_a_number_to_compare_with_is_refused(fields):
    with pytest.raises(UsageError, match="name the version that is trained now"):
        art_otel.batches([], **{"max_staleness": 1} | fields)


def test_a_version_may_be_given_as_a_number():
    made = art_otel.batches(
        [sampled_by("step-3"), sampled_by("step-1")], policy_version=4, max_staleness=1, advantage=None
    )
    assert [list(batch.policy_version) for batch in made] == [["step-3"]]
    assert made.report.trajectories_skipped == {"stale": 1}
