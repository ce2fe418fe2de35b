"""Two gateway processes behind a balancer: each writes a folder of its own, and both are read together."""

import httpx
import pytest

from tests.conversions import convert_files
from tests.model_gateway.gateways import MODEL, Running, user

CALLS = 6


def test_a_rollout_whose_calls_went_through_two_gateways_is_one(tmp_path, address):
    gateways = [Running(tmp_path / name, address) for name in ("one", "two")]
    for each in gateways:
        each.start()
    try:
        for number in range(CALLS):
            url = gateways[number % 2].url
            body = {"model": MODEL, "messages": user(f"turn {number}"), "stream": number % 3 == 0}
            for rollout in ("a", "b"):
                asked = httpx.post(f"{url}/rollout/{rollout};group_id=g/v1/chat/completions", json=body)
                assert asked.status_code == 200
        for rollout in ("a", "b"):
            httpx.post(f"{gateways[0].url}/rollout/{rollout}/end", json={"reward": 1})
    finally:
        for each in gateways:
            each.stop()
    trajectories, _ = convert_files(tmp_path / "out", *(tmp_path / name / "spool" for name in ("one", "two")))
    assert {one.rollout_id for one in trajectories} == {"a", "b"}
    for one in trajectories:
        assert len(one.calls) == CALLS
        assert one.group_id == "g"
        assert one.reward == 1.0
        assert one.complete, one.incomplete_reasons


@pytest.mark.parametrize("then", ["goes on", "is stopped", "is killed", "is another"])
def test_what_was_said_of_a_rollout_counts_wherever_it_is_ended(tmp_path, address, then):
    one, two = gateways = [Running(tmp_path / name, address) for name in ("one", "two")]
    for each in gateways:
        each.start()
    try:
        settings = "group_id=g;split=val;training_step=3;name=solver"
        asked = httpx.post(
            f"{one.url}/rollout/r;{settings}/v1/chat/completions", json={"model": MODEL, "messages": user("Hi")}
        )
        assert asked.status_code == 200
        first = {"reward": 0, "status": "error", "error": "no time", "metadata": {"a": 1, "b": 1}}
        second = {"reward": 1, "metadata": {"b": 2, **{f"c{number}": number for number in range(9)}}}
        assert httpx.post(f"{one.url}/rollout/r/end", json=first).status_code == 200
        if then in ("is stopped", "is killed"):
            (one.stop if then == "is stopped" else one.kill)()
            one.start()
        ended = two if then == "is another" else one
        assert httpx.post(f"{ended.url}/rollout/r/end", json=second).status_code == 200
    finally:
        for each in gateways:
            each.stop()
    spools = [folder for name in ("one", "two") if any((folder := tmp_path / name / "spool").rglob("*.jsonl"))]
    (trajectory,), _ = convert_files(tmp_path / "out", *spools)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert (trajectory.group_id, trajectory.split, trajectory.training_step) == ("g", "val", 3)
    assert (trajectory.name, trajectory.status, trajectory.error) == ("solver", "ok", None)
    assert trajectory.metadata == {"a": 1, **second["metadata"]}
    assert [reward.value for reward in trajectory.rewards] == [0.0, 1.0]
    assert (trajectory.reward, len(trajectory.calls)) == (1.0, 1)
