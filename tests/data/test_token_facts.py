"""What is known of each token beside its id, through a trajectory, a dataset and batches."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from msgspec import structs

import art_otel
from art_otel.calls import Choice, Logprobs, Message, RoutedExperts, TokenIds, WeightVersion
from art_otel.errors import UsageError
from art_otel.store import read_trajectories, write_trajectories
from art_otel.testing import trajectories
from art_otel.trajectories import Trajectory
from tests.data.token_rollouts import EVERYTHING
from tests.trajectories.calls import call, lineage_of, with_sampled

FACTS = ("routed_experts", "sampling_mask")


def version(name: str, start: int, end: int) -> WeightVersion:
    return WeightVersion(version=name, start=start, end=end)


def experts(start: int, end: int) -> RoutedExperts:
    """Of the tokens from `start` to `end`: token k went to expert k in layer 0, to k + 1 in layer 1."""
    return RoutedExperts(data=bytes(number for at in range(start, end) for number in (at, at + 1)), layers=2, experts=1)


def sampled(ids: list[int], end: int, *versions: WeightVersion, start: int = 0) -> Choice:
    return Choice(
        index=0,
        message=Message(role="assistant", content=" ".join(map(str, ids))),
        token_ids=TokenIds.of(ids),
        logprobs=Logprobs.of([-0.5] * len(ids)),
        weight_versions=versions or None,
        routed_experts=experts(start, end - 1),
        sampling_mask=tuple(TokenIds.of([one, 99]) for one in ids),
    )


def two_turns(start: int = 0, **fields) -> Trajectory:
    """The prompts 1 2 and 1 2 10 11 3, completions 10 11 and 12 13; the weights change within the second."""
    calls = [
        call(0, "q", [1, 2], sampled([10, 11], 4, version("step-6", 0, 2))),
        call(
            1, "q 10_11 r", [1, 2, 10, 11, 3], sampled([12, 13], 7, version("6", 0, 1), version("7", 1, 2), start=start)
        ),
    ]
    return Trajectory(rollout_id="r", trace_id="ab" * 16, **lineage_of(calls), **fields)


@pytest.mark.parametrize("start", [0, 3])
def test_each_trained_token_has_the_version_that_sampled_it_its_experts_and_its_mask(start):
    (batch,) = art_otel.batches([two_turns(start)], **EVERYTHING, token_facts=FACTS)
    assert batch.input_ids.tolist() == [[1, 2, 10, 11, 3, 12, 13]]
    assert batch.weight_versions.tolist() == [[-1, -1, 6, 6, -1, 6, 7]]
    assert batch.routed_experts[0, :, :, 0].tolist() == [*[[at, at + 1] for at in range(6)], [-1, -1]]
    assert batch.sampling_mask_counts.tolist() == [[0, 0, 2, 2, 0, 2, 2]]
    assert batch.sampling_mask_ids.tolist() == [10, 99, 11, 99, 12, 99, 13, 99]


def test_a_turn_keeps_the_experts_of_what_is_new_in_it():
    rows = [turn.routed_experts for turn in two_turns().turns]
    assert rows == [experts(0, 3), experts(3, 6)]
    assert rows == [one.choices[0].routed_experts for one in two_turns().calls]


def test_packed_rows_and_cut_sequences_keep_their_facts():
    found = [two_turns(), replace(two_turns(), rollout_id="s")]
    (batch,) = art_otel.batches(
        found, **EVERYTHING, token_facts=FACTS, packed=True, max_tokens=12, overflow="truncate", batch_size=2
    )
    assert batch.routed_experts.shape == (2, 12, 2, 1)
    assert batch.weight_versions[:, :7].tolist() == [[-1, -1, 6, 6, -1, 6, 7]] * 2
    (cut,) = art_otel.batches([two_turns()], **EVERYTHING, token_facts=FACTS, max_tokens=6, overflow="truncate")
    assert cut.weight_versions.tolist() == [[-1, -1, 6, 6, -1, 6]]
    assert cut.sampling_mask_ids.tolist() == [10, 99, 11, 99, 12, 99]


def test_facts_that_nobody_asked_for_or_recorded_are_none_or_unknown():
    (batch,) = art_otel.batches([two_turns()], **EVERYTHING)
    assert batch.routed_experts is batch.sampling_mask_counts is batch.sampling_mask_ids is None
    plain = with_sampled(two_turns(), lambda _: dict.fromkeys(FACTS))
    (batch,) = art_otel.batches([plain], **EVERYTHING, token_facts=FACTS)
    assert batch.routed_experts.shape == (1, 7, 0, 0)
    assert not batch.sampling_mask_counts.any()
    with pytest.raises(UsageError, match="no 'experts'; use routed_experts or sampling_mask"):
        art_otel.batches([plain], token_facts="experts")


def test_logprobs_of_a_constrained_call_are_known_beside_its_masks():
    told = two_turns()
    calls = (told.calls[0], structs.replace(told.calls[1], parameters={"tool_choice": "required"}))
    told = replace(told, calls=calls)
    (batch,) = art_otel.batches([told], **EVERYTHING)
    assert np.isnan(batch.logprobs).tolist() == [[False] * 5 + [True] * 2]
    (batch,) = art_otel.batches([told], **EVERYTHING, token_facts="sampling_mask")
    assert not np.isnan(batch.logprobs).any()


def test_staleness_counts_every_version_that_sampled_a_token():
    told = two_turns()
    chosen = EVERYTHING | {"policy_version": 8}
    assert [len(list(art_otel.batches([told], **chosen, max_staleness=at))) for at in (1, 2)] == [0, 1]


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(trajectory=trajectories(max_calls=4))
def test_files_have_what_memory_has(trajectory, tmp_path_factory):
    path = tmp_path_factory.mktemp("facts") / "one.parquet"
    write_trajectories([trajectory], path)
    assert list(read_trajectories(path)) == [trajectory]
    options = EVERYTHING | {"token_facts": FACTS}
    for ours, theirs in zip(art_otel.batches([trajectory], **options), art_otel.batches(path, **options), strict=True):
        for name, array in ours.arrays().items():
            np.testing.assert_array_equal(array, theirs[name])
