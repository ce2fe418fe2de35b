"""Exact tokens, over exchanges of a real vLLM 0.32 that `record_vllm` recorded."""

import httpx
import pytest

from art_otel.errors import UsageError
from tests.model_gateway.exact_cases import comparable, requests
from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.record_vllm import MODEL, read, replayed


def test_to_the_agent_it_is_the_server_and_every_id_is_known(tmp_path):
    with replayed() as url, gateway(tmp_path, url, tokens="exact") as running:
        for number, ((path, body), (status, kind, text)) in enumerate(zip(requests(MODEL), read()["own"], strict=True)):
            own = httpx.Response(status, headers={"content-type": kind}, content=text.encode())
            ours = httpx.post(f"{running.url}/rollout/{number}{path}", json=body, timeout=30)
            assert comparable(ours) == comparable(own), (path, body)
    calls = [call for trajectory in recorded(tmp_path) for call in trajectory.calls]
    assert len(calls) == len(requests(MODEL))
    outcomes = [call.extra["prompt"] for call in calls]
    assert outcomes.count("passed_through") == sum(status != 200 for status, *_ in read()["own"])
    for call in calls:
        if call.extra["prompt"] != "passed_through":
            assert call.prompt_token_ids is not None
            assert all(len(choice.token_ids) == len(choice.logprobs) > 0 for choice in call.choices)


def test_a_server_that_does_not_sample_from_ids_is_an_error_at_the_start(tmp_path, address):
    with pytest.raises(UsageError, match="--enable-scale-out"), gateway(tmp_path, address, tokens="exact"):
        pass
