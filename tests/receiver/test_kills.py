"""The server killed under load: no acknowledged span is lost, and a consumer gets every rollout once."""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.conversions import convert_files
from tests.dumps import request_of
from tests.examples import kills
from tests.receiver.otlp import PROTOBUF, as_body
from tests.receiver.rollouts import call, root
from tests.receiver.serving import Serve

pytestmark = pytest.mark.kill

KILLS = kills(5)
CLIENTS = 16
LONGEST = 1.5
"""Seconds that a server lives after it listens."""

CONSUMER = """
import asyncio, sys, art_otel, art_otel.errors
async def main():
    async with art_otel.connect(sys.argv[1], consumer="named") as rollouts:
        async for rollout in rollouts:
            print(rollout.rollout_id, rollout.revision, len(rollout.calls), rollout.complete, flush=True)
while True:
    try:
        asyncio.run(main())
    except art_otel.errors.UsageError:  # no server just now
        pass
"""


class Client:
    """Sends rollouts, a request for each of their two spans, and tries again as OTel's exporters do."""

    def __init__(self, url: str, number: int, ends: threading.Event) -> None:
        self._url = url
        self._numbers = range(number, 10**9, CLIENTS)
        self._ends = ends
        self.ended: list[str] = []
        self.refused: Counter[int] = Counter()

    def run(self) -> None:
        with httpx.Client(timeout=30, verify=False) as client:
            for number in self._numbers:
                if self._ends.is_set():
                    return
                for span in (call(number), root(number)):
                    self._send(client, as_body(request_of(span), PROTOBUF))
                self.ended.append(f"r{number}")

    def _send(self, client: httpx.Client, body: bytes) -> None:
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, "there is no server any more"
            try:
                answer = client.post(f"{self._url}/v1/traces", content=body, headers={"content-type": PROTOBUF})
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                return
            assert answer.status_code in (429, 503), answer.content
            assert answer.status_code == 503 or answer.headers["retry-after"]
            self.refused[answer.status_code] += 1
            time.sleep(0.05)


class Consumer:
    """A program that writes down what it is given; it may be killed and begun again."""

    def __init__(self, url: str, given: Path) -> None:
        self._url = url
        self._given = given
        self.start()

    def start(self) -> None:
        with self._given.open("ab") as output:
            self._program = subprocess.Popen([sys.executable, "-c", CONSUMER, self._url], stdout=output)

    def kill(self) -> None:
        self._program.kill()
        self._program.wait()

    @property
    def given(self) -> list[tuple[str, ...]]:
        return [tuple(line.split()) for line in self._given.read_text().splitlines()]


def test_no_acknowledged_span_is_lost_and_every_rollout_is_given_once(tmp_path):
    server = Serve(tmp_path / "art").start()
    ends, chance = threading.Event(), random.Random(KILLS)
    clients = [Client(server.url, number + 1, ends) for number in range(CLIENTS)]
    consumer = Consumer(server.url, tmp_path / "given")
    try:
        _kill_under_load(server, clients, consumer, ends, chance)
    finally:
        consumer.kill()
        server.kill()
    ended = {rollout_id for client in clients for rollout_id in client.ended}
    given = Counter(consumer.given)
    print(json.dumps({"kills": KILLS, "rollouts": len(ended), "given": given.total(), "distinct": len(given)}))
    assert set(given) == {(rollout_id, "0", "1", "True") for rollout_id in ended}
    assert given.total() - len(given) <= 1, "only what the killed consumer was handling is given again"
    trajectories, report = convert_files(tmp_path / "out", server.received)
    assert {one.rollout_id for one in trajectories} == ended
    assert all(one.complete and len(one.calls) == 1 for one in trajectories)
    assert sum(report.spans.quarantined.values()) <= KILLS
    assert "Traceback" not in server.log.read_text()


def _kill_under_load(server, clients, consumer, ends, chance) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(client.run) for client in clients]
        try:
            for kill in range(KILLS):
                time.sleep(chance.uniform(0, LONGEST))
                server.kill()
                if kill == KILLS // 2:
                    consumer.kill()
                    consumer.start()
                server.start()
        finally:
            ends.set()
        for each in running:
            each.result()
    ended = {rollout_id for client in clients for rollout_id in client.ended}
    deadline = time.monotonic() + 300
    while not ended <= {rollout_id for rollout_id, *_ in consumer.given}:
        assert time.monotonic() < deadline, f"{len(ended)} ended, {len(consumer.given)} given"
        time.sleep(0.2)
    time.sleep(1)
