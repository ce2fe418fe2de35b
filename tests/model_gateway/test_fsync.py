"""With `fsync`, an answer ends when the disk has its call; while the disk takes its time, everything else goes on."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from art_otel.http import Address
from art_otel.model_gateway.gateway import LIMITS, Gateway, GatewayOptions
from art_otel.receiver.receiver import ReceiverOptions
from tests.model_gateway.gateways import MODEL, recorded, user

CALLS = 8
PATIENCE = 600.0
"""Seconds: on a machine that does other work, each step may take long, and only their order matters."""

_REAL = os.fsync


def durable_gateway(folder: Path, address: str) -> Gateway:
    receiver = ReceiverOptions(http=Address("127.0.0.1", 0), dir=folder, limits=LIMITS, fsync=True)
    return Gateway(GatewayOptions(upstreams=[address], receiver=receiver, tokens="off"))


def test_a_slow_disk_holds_ends_and_nothing_else(tmp_path, address, monkeypatch):
    may_go, flushes = threading.Event(), list[int]()

    def slow(descriptor: int) -> None:
        may_go.wait(PATIENCE)
        flushes.append(descriptor)
        _REAL(descriptor)

    running = durable_gateway(tmp_path, address)
    running.receiver.start()
    monkeypatch.setattr(os, "fsync", slow)
    try:
        body = {"model": MODEL, "messages": user("Hi")}
        with ThreadPoolExecutor(CALLS + 1) as threads, httpx.Client(timeout=PATIENCE) as client:
            calls = [
                threads.submit(client.post, f"{running.url}/rollout/r{number}/v1/chat/completions", json=body)
                for number in range(CALLS)
            ]
            while "art_otel_gateway_calls_total 8" not in client.get(f"{running.url}/metrics").text:
                time.sleep(0.05)
            # Its chunks come one by one: a stream that is there at once is held whole, for its end is in it.
            paced = {**body, "messages": user("Hi #pace=0.1"), "stream": True}
            with client.stream("POST", f"{running.url}/rollout/s/v1/chat/completions", json=paced) as response:
                pieces = response.iter_raw()
                assert b"data:" in next(pieces)  # the stream goes on
                assert not any(call.done() for call in calls)
                may_go.set()
                assert b"[DONE]" in b"".join(pieces)
            assert {call.result().status_code for call in calls} == {200}
            assert client.post(f"{running.url}/rollout/s/end", json={"reward": 1}).status_code == 200
        # the first flush has a file and two folders, each later one the file: far from one a call
        assert len(flushes) < CALLS
    finally:
        may_go.set()
        running.receiver.stop()
    trajectories = recorded(tmp_path)
    assert len(trajectories) == CALLS + 1
    assert all(one.complete for one in trajectories)


def test_an_end_that_the_disk_refuses_is_refused(tmp_path, address, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    running = durable_gateway(tmp_path, address)
    running.receiver.start()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            assert httpx.post(f"{running.url}/rollout/r/end", json={"reward": 1}, timeout=PATIENCE).status_code == 503
        assert httpx.post(f"{running.url}/rollout/r/end", json={"reward": 1}, timeout=PATIENCE).status_code == 200
    finally:
        running.receiver.stop()
    (trajectory,) = recorded(tmp_path)
    assert [reward.value for reward in trajectory.rewards] == [1.0]
