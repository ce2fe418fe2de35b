"""What else is known of each token: a dataset has it where somebody asked for it, however it was converted."""

import pytest

import art_otel
from art_otel.calls import RoutedExperts, TokenIds
from art_otel.conventions import encode_ids
from art_otel.errors import UsageError
from tests.dumps import chat_span, make_span, request_of, write_lines

FACTS = ("routed_experts", "sampling_mask")


def dump(path, *rollouts: int):
    """Rollouts of a call that sampled 8 and 9 behind 7; the weights changed between them."""
    sampled = {
        "art.tokens.prompt": encode_ids(TokenIds.of([7])),
        "art.tokens.completion.0": encode_ids(TokenIds.of([8, 9])),
        "art.tokens.weight_versions.0": '[{"version":"5","start":0,"end":1},{"version":"6","start":1,"end":2}]',
        "art.tokens.routed_experts.0": "u1:2x1x1:AQI=",
        "art.tokens.sampling_mask.0": f"{encode_ids(TokenIds.of([1, 2]))} {encode_ids(TokenIds.of([8, 9, 3]))}",
    }
    requests = []
    for trace in rollouts:
        call = chat_span(2, 1, ["q"], "a", trace=trace)
        call["attributes"] += make_span(3, attributes=sampled)["attributes"]
        root = make_span(1, name="rollout r", trace=trace, attributes={"art.rollout.id": f"r-{trace}"})
        requests.append(request_of(root, call))
    return write_lines(path, requests)


def facts(dataset):
    return [
        (turn.routed_experts, turn.sampling_mask)
        for one in art_otel.read_trajectories(dataset)
        for turn in one.turns
        if [(span.version, span.start, span.end) for span in turn.weight_versions] == [("5", 0, 1), ("6", 1, 2)]
    ]


ALL = (RoutedExperts(data=b"\1\2", layers=1, experts=1), (TokenIds.of([8]), TokenIds.of([9, 3])))


def test_they_are_off_unless_asked_for_and_weight_versions_never(tmp_path):
    dumped = dump(tmp_path / "a.jsonl", 1)
    for asked, expected in (((), (None, None)), ("routed_experts", (ALL[0], None)), (FACTS, ALL)):
        out = tmp_path / f"out-{len(asked)}"
        art_otel.convert(dumped, out, token_facts=asked, workers=1)
        assert facts(out) == [expected]
    with pytest.raises(UsageError, match="--token-facts experts: there are routed_experts and sampling_mask"):
        art_otel.convert(dumped, tmp_path / "other", token_facts="experts")


def test_rounds_of_one_dataset_have_the_same(tmp_path):
    for number in (1, 2):
        dump(tmp_path / f"{number}.jsonl", number)
        art_otel.convert(f"{tmp_path}/*.jsonl", tmp_path / "out", incremental=True, grace=0, token_facts=FACTS)
    assert facts(tmp_path / "out") == [ALL, ALL]
    with pytest.raises(UsageError, match="with --token-facts routed_experts sampling_mask"):
        art_otel.convert(f"{tmp_path}/*.jsonl", tmp_path / "out", incremental=True, grace=0)


def test_what_is_read_and_written_again_keeps_them(tmp_path):
    art_otel.convert(dump(tmp_path / "a.jsonl", 1, 2), tmp_path / "out", token_facts=FACTS, workers=1)
    art_otel.write_trajectories(art_otel.read_trajectories(tmp_path / "out"), tmp_path / "again")
    assert facts(tmp_path / "again") == [ALL, ALL]
