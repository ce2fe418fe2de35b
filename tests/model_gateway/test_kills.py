"""The gateway killed under load: no call that an agent has the whole answer of is lost or there twice."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.conversions import convert_files
from tests.examples import kills
from tests.model_gateway.gateways import MODEL, Running, user
from tests.tracing.server import ModelServer

pytestmark = pytest.mark.kill

KILLS = kills(5)
AGENTS = 8
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


def ask_until(ends: threading.Event, running: Running, agent: int) -> list[str]:
    """Ask again and again, streamed and not; the ids of the whole answers."""
    answered: list[str] = []
    chance = random.Random(agent)
    with httpx.Client(timeout=30) as client:
        while not ends.is_set():
            path, stream = chance.choice(PATHS), chance.random() < 0.5
            text = f"agent {agent} #words=20 #pace=0.002"
            asked = {"/v1/completions": {"prompt": text}, "/v1/responses": {"input": text}}.get(path)
            body = {"model": MODEL, "stream": stream, **(asked or {"messages": user(text)})}
            try:
                response = client.post(f"{running.url}/rollout/a{agent}{path}", json=body)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            assert response.status_code == 200, response.text
            answered.append(id_of(response.text, stream=stream))
    return answered


def id_of(text: str, *, stream: bool) -> str:
    if not stream:
        return json.loads(text)["id"]
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    first = json.loads(lines[0])
    return first.get("id") or (first.get("response") or first.get("message"))["id"]


def test_no_answered_call_is_lost_or_doubled(tmp_path):
    chance, ends = random.Random(7), threading.Event()
    with ModelServer(tmp_path) as server, ThreadPoolExecutor(AGENTS) as pool:
        running = Running(tmp_path / "art", server.url)
        running.start()
        agents = [pool.submit(ask_until, ends, running, agent) for agent in range(AGENTS)]
        try:
            for _ in range(KILLS):
                time.sleep(chance.uniform(0.3, 1.5))
                running.kill()
                running.start()
            time.sleep(0.5)
        finally:
            ends.set()
        answered = [response_id for agent in agents for response_id in agent.result(60)]
        running.stop()
        sampled = {exchange.answer["id"] for exchange in server.answered()}
    trajectories, _ = convert_files(tmp_path / "out", tmp_path / "art" / "spool")
    recorded = [call.response_id for one in trajectories for call in one.calls if call.response_id]
    assert len(answered) > KILLS * AGENTS
    assert len(recorded) == len(set(recorded))
    assert set(answered) <= set(recorded) <= sampled
    assert {one.rollout_id for one in trajectories} <= {f"a{agent}" for agent in range(AGENTS)}
