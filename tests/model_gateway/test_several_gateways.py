"""Two gateway processes behind a balancer: each writes a folder of its own, and both are read together."""

import httpx

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
