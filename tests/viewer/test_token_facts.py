"""The tokens view: where weights change within a completion, where images stand, and which large facts there are."""

from art_otel.calls import TokenIds, WeightVersion
from art_otel.store import write_trajectories
from art_otel.trajectories import TokenNode, Turn
from art_otel.viewer.tokens import facts_of
from tests.data.rollouts import rollout
from tests.trajectories.calls import call, choice
from tests.viewer.served import answer, viewer


def test_weights_are_named_where_they_change_and_large_facts_as_known():
    versions = tuple(WeightVersion(version=str(5 + at), start=at, end=at + 1) for at in (0, 1))
    masks = (TokenIds.of([1]), TokenIds.of([2]))
    node = TokenNode(turn=0, weight_versions=versions, sampling_mask=masks)
    turn = Turn(call=0, choice=0, index=0, token_node=node)
    assert facts_of(turn) == " Weights: 5 from token 0, 6 from token 1. Also known: sampling mask."
    assert not facts_of(Turn(call=0, choice=0, index=0))


def test_ids_that_stand_for_an_image_are_its_placeholders(tmp_path):
    """As often as later prompts say it again; what is none, or does not stand in a prompt, is not said."""
    image, prompt = [7] * 576, [1, 2, *[7] * 576, 3]
    calls = [
        call(0, "a", prompt, choice("b", [4]), extra={"placeholders": {"image": [[2, 576]]}}),
        call(
            1,
            "a b c",
            [*prompt, 4, *image, 5],
            choice("d", [6]),
            extra={"placeholders": {"image": [[2, 576], [580, 576], [1157, 1]], "audio": [[0, 0]]}},
        ),
        call(2, "a b c d e", [*prompt, 4, *image, 5, 6, 8], choice("f", [9]), extra={"placeholders": "none"}),
    ]
    write_trajectories([rollout(calls, "r")], tmp_path)
    with viewer(tmp_path) as client:
        (row,) = answer(client, "trajectories")["rows"]
        turns = answer(client, f"rollouts/{row['key']}/tokens")["turns"]
    assert [turn["placeholders"] for turn in turns] == [
        [{"kind": "image", "start": 2, "length": 576}],
        [{"kind": "image", "start": 0, "length": 576}],
        [],
    ]
    assert [len(turn["context"]) for turn in turns] == [579, 577, 1]
