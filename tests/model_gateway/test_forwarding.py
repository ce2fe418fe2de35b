"""`--otlp`: a collector has the same spans, or it is counted that it has not. A receiver is one, or behind it."""

import asyncio
import gc
import re
import socket

import httpx
import pytest

from art_otel.http import Address
from art_otel.receiver.receiver import Receiver, ReceiverOptions
from tests.live.rotel import rotel
from tests.model_gateway.exact_cases import requests
from tests.model_gateway.gateways import MODEL, gateway, recorded, user
from tests.model_gateway.record_vllm import MODEL as VLLM_MODEL
from tests.model_gateway.record_vllm import replayed
from tests.scrubbing.secrets import SECRETS

_, SECRET = SECRETS["openai"]
ASK = {"model": MODEL, "messages": user(f"the token is {SECRET}")}


def counted(url: str, name: str) -> int:
    match = re.search(rf"^{name} (\d+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
    assert match is not None
    return int(match[1])


@pytest.mark.long
def test_a_collector_gets_what_the_spool_has(tmp_path, address):
    collector = Receiver(ReceiverOptions(http=Address("127.0.0.1", 0), dir=tmp_path / "collector"))
    collector.start()
    with gateway(tmp_path / "gateway", address, otlp=collector.url) as running:
        for stream in (False, True):
            httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json={**ASK, "stream": stream})
        httpx.post(f"{running.url}/rollout/r/end", json={"reward": 1})
    collector.stop()
    (ours,), (theirs,) = recorded(tmp_path / "gateway"), recorded(tmp_path / "collector")
    assert len(theirs.calls) == 2
    assert theirs.calls == ours.calls
    assert theirs.rewards == ours.rewards
    assert SECRET not in str(theirs.calls)


@pytest.mark.long
def test_a_collector_that_is_away_costs_no_answer_and_is_counted(tmp_path, address, caplog):
    with gateway(tmp_path, address, otlp="http://127.0.0.1:9") as running:
        for _ in range(3):
            assert httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json=ASK).status_code == 200
        assert counted(running.url, "art_otel_gateway_forwarded_spans_total") == 0
        assert counted(running.url, "art_otel_gateway_calls_total") == 3
    said = [record.getMessage() for record in caplog.records if "collector" in record.getMessage()]
    assert len(said) == 1
    (trajectory,) = recorded(tmp_path)
    assert len(trajectory.calls) == 3


@pytest.mark.live
def test_what_a_real_collector_passes_on_are_the_same_rollouts(tmp_path):
    sink = Receiver(ReceiverOptions(http=Address("127.0.0.1", 0), dir=tmp_path / "sink"))
    sink.start()
    try:
        with (
            rotel(tmp_path, sink.url) as collector,
            replayed() as url,
            gateway(tmp_path / "gateway", url, otlp=collector) as running,
        ):
            for number, (path, body) in enumerate(requests(VLLM_MODEL)):
                httpx.post(f"{running.url}/rollout/{number}{path}", json=body, timeout=30)
                httpx.post(f"{running.url}/rollout/{number}/end", json={"reward": 1.0}, timeout=30)
    finally:
        sink.stop()
    own, passed = (
        {one.rollout_id: (one.status, one.complete, one.reward, one.calls) for one in recorded(tmp_path / folder)}
        for folder in ("gateway", "sink")
    )
    assert len(own) == len(requests(VLLM_MODEL))
    assert passed == own


def test_a_gateway_that_ends_leaves_no_task_behind(tmp_path, address, caplog):
    """The collector takes nothing, so what waits for it does so when the gateway ends."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        otlp = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with gateway(tmp_path, address, otlp=otlp) as running:
            loop = running.receiver._loop
            httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json={"model": MODEL, "messages": user("Hi")})
        assert not [task for task in asyncio.all_tasks(loop) if not task.done()]
    gc.collect()
    assert not [message for message in caplog.messages if "was destroyed" in message]
