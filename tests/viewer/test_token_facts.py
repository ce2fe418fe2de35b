"""The tokens view says where the weights change within a completion, and which large facts there are."""

from art_otel.calls import TokenIds, WeightVersion
from art_otel.trajectories import Prompt, Turn
from art_otel.viewer.tokens import facts_of


def test_weights_are_named_where_they_change_and_large_facts_as_known():
    versions = tuple(WeightVersion(version=str(5 + at), start=at, end=at + 1) for at in (0, 1))
    masks = (TokenIds.of([1]), TokenIds.of([2]))
    turn = Turn(call=0, choice=0, prompt=Prompt(), weight_versions=versions, sampling_mask=masks)
    assert facts_of(turn) == " Weights: 5 from token 0, 6 from token 1. Also known: sampling mask."
    assert not facts_of(Turn(call=0, choice=0, prompt=Prompt()))
