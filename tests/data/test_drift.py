"""Drift in the report: as often as prompts tell of it, from memory and from files."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from tests.data.rollouts import rollout
from tests.data.token_rollouts import EVERYTHING, rollouts, stored
from tests.examples import examples
from tests.trajectories.calls import call, choice

FIRST = call(1, "hi", [1], choice("a", [2]))
AGREES = call(2, "hi a x", [1, 2, 3], choice("b", [4]))
RESPELLED = call(2, "hi A x", [1, 2, 3], choice("b", [4]))
UNRECORDED = structs.replace(RESPELLED, input_messages=None)
DRIFTED = call(2, "hi a x", [1, 5, 3], choice("b", [4]))


def counted(source, **options) -> tuple[int, int]:
    """How many drifts and rewritten prompts the report tells after an iteration."""
    batches = art_otel.batches(source, **EVERYTHING | options)
    for _ in batches:
        pass
    return batches.report.drifts, batches.report.rewritten_prompts


CASES = [(AGREES, (0, 0)), (RESPELLED, (0, 1)), (UNRECORDED, (0, 0)), (DRIFTED, (1, 0))]


@pytest.mark.parametrize(("second", "expected"), CASES)
def test_prompts_that_drifted_are_counted_from_memory_and_from_files(second, expected):
    found = [rollout([FIRST, second], "r")]
    assert counted(found) == expected
    with stored(found) as folder:
        assert counted(folder) == expected


def test_a_call_of_several_choices_has_one_prompt():
    twice = structs.replace(DRIFTED, choices=(choice("b", [4]), choice("c", [5], index=1)))
    assert counted([rollout([FIRST, twice], "r")]) == (1, 0)


def test_of_many_rollouts_those_that_drifted_are_counted_wherever_they_stand():
    seconds = [AGREES, RESPELLED, UNRECORDED, RESPELLED, DRIFTED, AGREES, RESPELLED]
    found = [rollout([FIRST, second], f"r-{number}") for number, second in enumerate(seconds)]
    assert counted(found) == (1, 3)
    with stored(found, rows=3) as folder:
        assert counted(folder) == counted(folder, seed=3) == counted(folder, packed=True, max_tokens=9) == (1, 3)
        assert [counted(folder, rank=rank, world_size=2) for rank in (0, 1)] == [(1, 3), (1, 3)]


def test_a_rollout_that_is_left_out_is_not_asked():
    found = [rollout([FIRST, RESPELLED], "r-0", status="error"), rollout([FIRST, RESPELLED], "r-1")]
    with stored(found) as folder:
        assert counted(folder, status="ok") == counted(found, status="ok") == (0, 1)


@pytest.mark.long
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(50))
@given(rollouts(storable=True), st.integers(1, 3))
def test_the_report_counts_what_prompts_tell(found, rows):
    prompts = [call for one in found for call in one.calls]
    expected = (
        sum(prompt.drifted_at is not None for prompt in prompts),
        sum(prompt.rewritten_at is not None for prompt in prompts),
    )
    assert counted(found) == expected
    with stored(found, rows) as folder:
        assert counted(folder) == expected
