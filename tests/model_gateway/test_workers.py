"""`art-otel gateway --workers N`: what one process records, and no call lost in silence where one of them dies."""

import json
import os
import random
import re
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from art_otel.trajectories import Trajectory
from tests.conversions import convert_files
from tests.examples import kills
from tests.model_gateway.gateways import MODEL, Running, user
from tests.model_gateway.record_vllm import Reply, serving
from tests.model_gateway.test_kills import PATHS, id_of
from tests.receiver.consuming import consume
from tests.tracing.server import ModelServer

ROLLOUTS = 9
NAMES = (
    lambda name: (f"/rollout/{name};group_id=g", {}, {}),
    lambda name: ("", {"x-art-rollout-id": name}, {}),
    lambda name: ("", {"authorization": f"Bearer art-{name}"}, {}),
    lambda name: ("", {"session-id": name}, {}),
    lambda name: ("", {}, {"metadata": {"user_id": json.dumps({"session_id": name})}}),
    lambda _: ("", {}, {}),
)
"""How an agent says which rollout is its own: the front of the path, headers, fields of the body."""


def workers_of(running: Running) -> list[int]:
    """The processes of the workers."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == running.pid and b"model_gateway.worker" in command:
            found.append(int(entry.name))
    return sorted(found)


def play(url: str, rollout: int, client: httpx.Client | None) -> None:
    """A conversation of three turns. Without a client, each request is on a connection of its own."""
    front, headers, fields = NAMES[rollout % len(NAMES)](f"r{rollout}")
    history: list[dict] = []
    for turn in range(3):
        history += user(f"{rollout} {turn} {'long ' * 40_000 * (turn == 1)}")
        body = {"model": MODEL, "messages": history, "stream": (rollout + turn) % 2 == 0, **fields}
        post = httpx.post if client is None else client.post
        answered = post(f"{url}{front}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert answered.status_code == 200, answered.text
        history.append({"role": "assistant", "content": _said(answered, stream=body["stream"])})
    if rollout % len(NAMES) < len(NAMES) - 1:
        ended = httpx.post(f"{url}/rollout/r{rollout}/end", json={"reward": rollout})
        assert ended.json() == {"rollout_id": f"r{rollout}", "attempt": 1, "calls": 3}


def _said(answered: httpx.Response, *, stream: bool) -> str:
    if not stream:
        return answered.json()["choices"][0]["message"]["content"]
    chunks = [json.loads(line[6:]) for line in answered.text.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


def facts_of(trajectory: Trajectory) -> tuple:
    """What two recordings of the same conversation have in common."""
    turns = [(turn.parent, turn.message.content) for turn in trajectory.turns]
    is_inferred = "inferred" in trajectory.metadata
    named = None if is_inferred else trajectory.rollout_id
    tokens = [choice.token_ids for call in trajectory.calls for choice in call.choices]
    asked = [[message.content for message in call.input_messages] for call in trajectory.calls]
    ids = [None if each is None else each.tolist() for each in tokens]
    return str((named, trajectory.group_id, trajectory.reward, trajectory.incomplete_reasons, turns, ids, asked))


@pytest.mark.long
def test_a_rollout_is_the_same_whichever_worker_its_requests_come_to(tmp_path, address):
    found: dict[str, list[tuple]] = {}
    for count in ("1", "3"):
        running = Running(tmp_path / count, address, "--workers", count, "--grace", "4s")
        running.start()
        with ThreadPoolExecutor(4) as pool, httpx.Client() as client:
            rollouts = range(ROLLOUTS)
            list(
                pool.map(play, [running.url] * ROLLOUTS, rollouts, [client if each % 2 else None for each in rollouts])
            )
        taken = consume(running.url, ROLLOUTS)
        counted = httpx.get(f"{running.url}/metrics").text
        running.stop()
        converted, _ = convert_files(tmp_path / "out" / count, tmp_path / count / "spool")
        assert sorted(taken, key=lambda one: one.order) == converted
        assert all(one.complete and one.revision == 0 for one in taken)
        assert f"art_otel_gateway_calls_total {ROLLOUTS * 3}" in counted
        found[count] = sorted(map(facts_of, converted))
        files = [*(tmp_path / count / "spool").rglob("*.jsonl")]
        assert len(files) >= int(count) - 1
    assert found["1"] == found["3"]


@pytest.mark.long
def test_a_limit_of_calls_and_the_next_attempt_are_those_of_all_workers(tmp_path, address):
    running = Running(tmp_path, address, "--workers", "2", "--max-calls", "2")
    running.start()
    for number in range(4):
        for attempt in (1, 2):
            for _ in range(3):  # the third is answered by the gateway
                body = {"model": MODEL, "messages": user("Hi")}
                url = f"{running.url}/rollout/r{number}/v1/chat/completions"
                assert httpx.post(url, json=body).status_code == 200
            ended = httpx.post(f"{running.url}/rollout/r{number}/end", json={"reward": attempt})
            assert ended.json() == {"rollout_id": f"r{number}", "attempt": attempt, "calls": 2}
    running.stop()
    converted, _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert [(one.rollout_id, one.attempt, one.reward, len(one.calls), one.complete) for one in converted] == [
        (f"r{number}", attempt, float(attempt or 1), 2, True) for number in range(4) for attempt in (None, 2)
    ]
    assert all(one.metadata["max_calls_reached"] for one in converted)


@pytest.mark.long
def test_a_connection_serves_the_receiver_and_the_gateway_in_turn_also_while_all_begin(tmp_path, address):
    """As a program that looks whether it is there, and then lets its agents begin."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = Running(tmp_path, address, "--workers", "2", port=port)
    asking = threading.Event()

    def look() -> None:
        while not asking.is_set():
            with suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=1)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(look)
        running.start()
        asking.set()
    with httpx.Client(base_url=running.url) as client:
        for number in range(4):
            assert client.get("/healthz").text == "ok\n"
            body = {"model": MODEL, "messages": user("Hi")}
            assert client.post(f"/rollout/r{number}/v1/chat/completions", json=body).status_code == 200
            assert client.get("/metrics").status_code == 200
            assert client.post(f"/rollout/r{number}/reward", json={"reward": 1.0}).status_code == 200
    running.stop()
    converted, _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert [(len(one.calls), one.reward) for one in converted] == [(1, 1.0)] * 4


def _exact(path: str, body: str) -> Reply:
    """A server that samples a token for two letters, which its tokenizer writes as two."""
    asked = json.loads(body)
    if path == "/v1/completions/render":
        ids = [ord(letter) for letter in asked["prompt"]]
        return (
            200,
            "application/json",
            json.dumps([{"request_id": "cmpl-1", "token_ids": ids, "sampling_params": {}, "model": "m"}]),
        )
    if path == "/detokenize":
        text = "".join("ab" if each == 1000 else chr(each) for each in asked["tokens"])
        return 200, "application/json", json.dumps({"prompt": text})
    if path == "/inference/v1/generate" and "token_ids" in asked:
        entries = [{"token": "ab", "logprob": -0.5, "bytes": [97, 98], "top_logprobs": []}]
        choice = {"index": 0, "finish_reason": "length", "stop_reason": None, "token_ids": [1000], "text": "ab"}
        usage = {"prompt_tokens": len(asked["token_ids"]), "completion_tokens": 1, "total_tokens": 1}
        answer = {"request_id": "g", "choices": [{**choice, "logprobs": {"content": entries}}], "usage": usage}
        return 200, "application/json", json.dumps(answer)
    return 400, "application/json", '{"error": {"message": "body.token_ids is missing"}}'


@pytest.mark.long
def test_no_prompt_drifts_because_its_turns_came_to_another_worker(tmp_path):
    with serving(_exact) as url:
        running = Running(tmp_path, url, "--workers", "3", "--tokens", "exact")
        running.start()
        for number in range(4):
            prompt = "Q"
            for _ in range(6):
                path = f"{running.url}/rollout/r{number}/v1/completions"
                answered = httpx.post(path, json={"model": "m", "prompt": prompt})
                assert answered.status_code == 200, answered.text
                prompt += answered.json()["choices"][0]["text"] + "+"
            httpx.post(f"{running.url}/rollout/r{number}/end", json={})
        running.stop()
    converted, _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert len(converted) == 4
    for one in converted:
        outcomes = [call.extra["prompt"] for call in one.calls]
        assert outcomes == ["not_needed", *["spliced"] * 5]


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_all_end_together_and_what_runs_is_told(tmp_path, address, how):
    running = Running(tmp_path, address, "--workers", "2")
    running.start()
    workers = workers_of(running)
    assert len(workers) == 2
    has_begun = threading.Semaphore(0)

    def stream(number: int) -> bool:
        body = {"model": MODEL, "messages": user("Hi #words=400 #pace=0.05"), "stream": True}
        try:
            with httpx.stream("POST", f"{running.url}/rollout/r{number}/v1/chat/completions", json=body) as answer:
                pieces = answer.iter_bytes()
                next(pieces)
                has_begun.release()
                list(pieces)
        except httpx.TransportError:
            return True
        return False

    with ThreadPoolExecutor(6) as pool:
        streams = [pool.submit(stream, number) for number in range(6)]
        assert all(has_begun.acquire(timeout=60) for _ in streams)
        os.kill(running.pid, how)
        said = running.wait()
        assert all(each.result() for each in streams)
    assert "Traceback" not in said, said
    assert "Task was destroyed" not in said
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    converted, _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert {one.rollout_id for one in converted} == {f"r{number}" for number in range(6)}
    for one in converted:
        assert one.complete, one.incomplete_reasons
        assert [call.error for call in one.calls] == ["the gateway ends"]


@pytest.mark.long
def test_workers_end_with_a_parent_that_is_killed_and_leave_nothing(tmp_path, address, monkeypatch):
    with tempfile.TemporaryDirectory() as scratch:  # short, as the path of a socket has to be
        monkeypatch.setenv("TMPDIR", scratch)
        running = Running(tmp_path, address, "--workers", "2")
        running.start()
        workers = workers_of(running)
        assert any(Path(scratch).iterdir())
        running.kill()
        ends = time.monotonic() + 20
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            assert time.monotonic() < ends
            time.sleep(0.1)
        assert not [*Path(scratch).iterdir()]


@pytest.mark.long
def test_a_worker_that_ends_by_itself_is_started_again_and_has_its_connections(tmp_path, address):
    running = Running(tmp_path, address, "--workers", "2")
    running.start()
    for worker in workers_of(running):
        os.kill(worker, signal.SIGTERM)
    ends = time.monotonic() + 30
    answered = 0
    while answered < 20:
        assert time.monotonic() < ends
        body = {"model": MODEL, "messages": user("Hi")}
        try:
            url = f"{running.url}/rollout/r{answered}/v1/chat/completions"
            answered += httpx.post(url, json=body, timeout=20).status_code == 200
        except httpx.TransportError:
            time.sleep(0.1)
    assert "is started again" in running.stop()


@pytest.mark.long
def test_requests_that_come_one_behind_the_other_are_all_answered(tmp_path, address):
    """A client that sends more before it has its answer gets that, and is told to send the rest again."""
    running = Running(tmp_path, address, "--workers", "2")
    running.start()
    host, port = running.url.removeprefix("http://").split(":")
    for number in range(4):
        body = json.dumps({"model": MODEL, "messages": user("Hi")}).encode()
        head = f"POST /rollout/r{number}/v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}"
        asked = head.encode() + b"\r\n\r\n" + body
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(asked + asked)
            connection.settimeout(10)
            got = b""
            while got.count(b"HTTP/1.1 200") < 2 and (piece := connection.recv(1 << 16)):
                got += piece
        assert got.count(b"HTTP/1.1 200") == 2 or b"connection: close" in got.lower(), got
    running.stop()


@pytest.mark.kill
def test_a_worker_that_is_killed_costs_no_call_in_silence(tmp_path):
    """Every call that an agent has the answer of is there once, and each that was cut is a failed call, or counted."""
    chance, ends = random.Random(7), threading.Event()
    asked: Counter[str] = Counter()

    def agent(url: str, number: int) -> Iterator[str]:
        with httpx.Client(timeout=30) as client:
            while not ends.is_set():
                path, stream = chance.choice(PATHS), chance.random() < 0.5
                text = f"agent {number} #words=20 #pace=0.002"
                given = {"/v1/completions": {"prompt": text}, "/v1/responses": {"input": text}}.get(path)
                body = {"model": MODEL, "stream": stream, **(given or {"messages": user(text)})}
                asked[f"a{number}"] += 1
                try:
                    response = client.post(f"{url}/rollout/a{number}{path}", json=body)
                except httpx.TransportError:
                    time.sleep(0.02)
                    continue
                assert response.status_code == 200, response.text
                yield id_of(response.text, stream=stream)

    with ModelServer(tmp_path) as server, ThreadPoolExecutor(8) as pool:
        running = Running(tmp_path / "art", server.url, "--workers", "2", "--grace", "5s")
        running.start()
        agents = [pool.submit(lambda number=number: list(agent(running.url, number))) for number in range(8)]
        try:
            for _ in range(kills(3)):
                time.sleep(chance.uniform(0.5, 2))
                if workers := workers_of(running):
                    os.kill(chance.choice(workers), signal.SIGKILL)
            time.sleep(3)
        finally:
            ends.set()
        answered = [response_id for each in agents for response_id in each.result(60)]
        said = running.stop()
        sampled = {exchange.answer["id"] for exchange in server.answered()}
    lost = sum(int(count) for count in re.findall(r"with (\d+) calls in flight, and is started again", said))
    trajectories, _ = convert_files(tmp_path / "out", tmp_path / "art" / "spool")
    calls = [call for one in trajectories for call in one.calls]
    recorded = [call.response_id for call in calls if call.response_id]
    died = [call for call in calls if call.error is not None and "process of the gateway died" in call.error]
    assert len(recorded) == len(set(recorded))
    assert set(answered) <= set(recorded) <= sampled
    assert len(died) == lost
    assert len(answered) > 8
    for one in trajectories:
        is_cut = any(call in died for call in one.calls)
        assert not (is_cut and one.complete), one.incomplete_reasons
