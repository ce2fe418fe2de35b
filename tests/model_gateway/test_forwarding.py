"""`--otlp`: another receiver stands for any collector. It has the same spans, or it is counted that it has not."""

import re

import httpx

from art_otel.http import Address
from art_otel.receiver.receiver import Receiver, ReceiverOptions
from tests.model_gateway.gateways import MODEL, gateway, recorded, user
from tests.scrubbing.secrets import SECRETS

_, SECRET = SECRETS["openai"]
ASK = {"model": MODEL, "messages": user(f"the token is {SECRET}")}


def counted(url: str, name: str) -> int:
    match = re.search(rf"^{name} (\d+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
    assert match is not None
    return int(match[1])


def test_a_collector_gets_what_the_spool_has(tmp_path, address):
    collector = Receiver(ReceiverOptions(http=Address("127.0.0.1", 0), folder=tmp_path / "collector"))
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
