"""The gateway beside the server alone: time to the first byte, calls and events a second, its CPU and memory.

    uv run python -m tests.benchmarks.gateway [--seconds 5] [--streams 100] [--pace 0.02] [--peer NAME=COMMAND …]

`--peer rllm=ENVIRONMENT/bin/rllm-model-gateway` and `--peer litellm=ENVIRONMENT/bin/litellm` measure these in the same
run, each from an environment of its own (`pip install rllm-model-gateway`, `pip install 'litellm[proxy]'`): every case
with each server after the other. rLLM's gateway keeps each call in SQLite, as it does by default; LiteLLM's proxy keeps
nothing.

The server is a stand-in that answers at once, in a process of its own, as are the clients; both speak plain HTTP over
sockets, so that what is measured is the gateway's. Small calls have a prompt of some words, streams 200 events. CPU is
of the gateway's process without its builder. The machine's cores are shared, so CPU seconds say more than wall time.
"""

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from tests.benchmarks.receiver import cpu_of, memory_of

EVENTS = 200
_IDS = {"prompt_token_ids": list(range(50))}
_CHOICE = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
_ANSWER = {"id": "c", "object": "chat.completion", "model": "m", "choices": [{**_CHOICE, "token_ids": [1, 2]}], **_IDS}
_DELTA = {"index": 0, "delta": {"content": "word "}, "finish_reason": None, "token_ids": [7]}
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [_DELTA]}


@dataclass(kw_only=True)
class Result:
    """Milliseconds to each first byte, and how many events came in how many seconds."""

    first: list[float] = field(default_factory=list[float])
    events: int = 0
    seconds: float = 0.0


async def answer(pace: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The stand-in: whole answers at once, streams an event at a time, with a pause behind each."""
    body = json.dumps(_ANSWER).encode()
    whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    event = b"data: %b\n\n" % json.dumps(_CHUNK).encode()
    try:
        while (request := await read_body(reader)) is not None:
            if b'"stream":true' not in request.replace(b" ", b""):
                writer.write(whole)
            else:
                writer.write(head)
                for _ in range(EVENTS):
                    writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                    await writer.drain()
                    await asyncio.sleep(pace)
                writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def read_body(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next request; None when there is none."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    except asyncio.IncompleteReadError:
        return None
    assert not head.startswith(b"http") or b" 200 " in head[:16], head
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return await reader.readexactly(length)


def serve(port: "multiprocessing.Queue[int]", pace: float) -> None:
    """Run the stand-in."""

    async def run() -> None:
        server = await asyncio.start_server(partial(answer, pace), "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def ask(port: int, path: str, seconds: float, result: Result, *, stream: bool, wait: float = 0.0) -> None:
    """Ask one after the other over one connection, for some seconds, after a wait."""
    await asyncio.sleep(wait)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "some words"}], "stream": stream})
    head = f"POST {path}/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    ends = time.monotonic() + seconds - wait
    while time.monotonic() < ends:
        began = time.perf_counter()
        writer.write((head + body).encode())
        await (read_stream if stream else read_whole)(reader, began, result)
    writer.close()


async def read_whole(reader: asyncio.StreamReader, began: float, result: Result) -> None:
    """Read an answer whose length is known."""
    await read_body(reader)
    result.first.append((time.perf_counter() - began) * 1000)


async def read_stream(reader: asyncio.StreamReader, began: float, result: Result) -> None:
    """Read an answer in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head[:16], head
    size = int(await reader.readline(), 16)
    result.first.append((time.perf_counter() - began) * 1000)
    while size:
        result.events += (await reader.readexactly(size + 2)).count(b"data: ")
        size = int(await reader.readline(), 16)
    await reader.readline()


def load(port: int, paths: Sequence[str], seconds: float, *, stream: bool, spread: float) -> Result:
    """Ask with a client a path, in this process. They begin within `spread` seconds, as streams that run at once do."""
    result = Result()

    async def run() -> None:
        wait = spread / len(paths)
        await asyncio.gather(
            *(ask(port, path, seconds, result, stream=stream, wait=wait * number) for number, path in enumerate(paths))
        )

    began = time.monotonic()
    asyncio.run(run())
    result.seconds = time.monotonic() - began
    return result


class Served(NamedTuple):
    """A port, the process that serves it where its CPU is measured, and where a rollout's calls go."""

    port: int
    pid: int | None
    path: str = ""


@contextmanager
def gateway(upstream: int, *options: str) -> Iterator[Served]:
    """`art-otel gateway` in a process of its own."""
    command = [sys.executable, "-m", "art_otel", "gateway", "--upstream", f"http://127.0.0.1:{upstream}", *options]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--dir", folder, "--grace", "1h"], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        url = process.stderr.readline().split()[3].removesuffix(",")
        try:
            yield Served(port=int(url.rpartition(":")[2]), pid=process.pid, path="/rollout/r{}")
        finally:
            process.terminate()
            process.wait()


@contextmanager
def rllm(upstream: int, command: str) -> Iterator[Served]:
    """rLLM's gateway, with its defaults."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--worker", f"http://127.0.0.1:{upstream}/v1", "--db-path", f"{folder}/traces.db"]
        with peer([command, *options, "--host", "127.0.0.1", "--log-level", "warning"], folder) as served:
            yield served._replace(path="/sessions/r{}")


@contextmanager
def litellm(upstream: int, command: str) -> Iterator[Served]:
    """LiteLLM's proxy, with one process and nothing that records."""
    server = {"model": "openai/m", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(json.dumps({"model_list": [{"model_name": "m", "litellm_params": server}]}), encoding="utf-8")
        with peer([command, "--config", str(config), "--host", "127.0.0.1", "--num_workers", "1"], folder) as served:
            yield served


@contextmanager
def peer(command: Sequence[str], folder: str) -> Iterator[Served]:
    """A server of others on a free port, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alone = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    with Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=folder,
            env=os.environ | alone | {"LITELLM_LOG": "ERROR"},
            stdout=log,
            stderr=log,
        )
    try:
        while process.poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        else:
            raise SystemExit(Path(folder, "log").read_text(encoding="utf-8"))
        yield Served(port=port, pid=process.pid)
    finally:
        process.terminate()
        process.wait()


PEERS = {"rllm": rllm, "litellm": litellm}


class Measured(NamedTuple):
    """Milliseconds to the first byte, and calls and events a CPU second of the server."""

    median: float
    p99: float
    calls: float
    events: float


def measure(name: str, server: Served, clients: int, seconds: float, *, stream: bool, spread: float = 0.0) -> Measured:
    """Measure one case, and print it."""
    before = 0.0 if server.pid is None else cpu_of(server.pid)
    paths = [server.path.format(number) for number in range(clients)]
    result = load(server.port, paths, seconds, stream=stream, spread=spread)
    calls, p99 = len(result.first), quantiles([*result.first, *result.first], n=100)[-1]
    print(f"{name:46} first byte {median(result.first):7.2f} ms, p99 {p99:7.2f} ms", end="")
    print(f"{calls / result.seconds:8.0f} calls/s {result.events / result.seconds:8.0f} events/s", end="")
    cpu = math.nan
    if server.pid is not None:
        cpu = cpu_of(server.pid) - before
        print(f"; a CPU second {calls / cpu:6.0f} calls, {result.events / cpu:6.0f} events", end="")
        print(f"; {memory_of(server.pid, 'VmRSS'):4.0f} MB", end="")
    print(flush=True)
    return Measured(median=median(result.first), p99=p99, calls=calls / cpu, events=result.events / cpu)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two events; 0 for as fast as it goes")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="rllm=… or litellm=…")
    given = parser.parse_args()
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=serve, args=(ports, given.pace), daemon=True)
    process.start()
    alone = Served(port=ports.get(), pid=None)
    cases = [("one client, small calls", 1, False), ("16 clients, small calls", 16, False)]
    cases += [("one stream", 1, True), (f"{given.streams} streams", given.streams, True)]
    with ExitStack() as running:
        servers = {"server alone": alone}
        for options in ((), ("--tokens", "off")):
            servers[" ".join(("gateway", *options))] = running.enter_context(gateway(alone.port, *options))
        for name, _, command in (one.partition("=") for one in given.peer):
            servers[name] = running.enter_context(PEERS[name](alone.port, command))
        for server in servers.values():  # the first call loads modules
            load(server.port, [server.path.format("first")], 1.0, stream=False, spread=0.0)
        for case, clients, stream in cases:
            spread = min(EVENTS * given.pace, given.seconds / 2) if stream else 0.0
            found = {
                name: measure(f"{case}, {name}", server, clients, given.seconds, stream=stream, spread=spread)
                for name, server in servers.items()
            }
            compare(found)
    process.terminate()


def compare(found: Mapping[str, Measured]) -> None:
    """Print what each server of others adds and does beside the gateway with its defaults."""
    alone, ours = found["server alone"], found["gateway"]
    for name in PEERS.keys() & found.keys():
        other = found[name]
        print(
            f"  {name}: adds {other.median - alone.median:.2f} ms, the gateway {ours.median - alone.median:.2f};",
            end="",
        )
        print(f" at p99 {other.p99 - alone.p99:.2f} and {ours.p99 - alone.p99:.2f};", end="")
        print(f" a CPU second of the gateway has {ours.calls / other.calls:.1f} times the calls", end="")
        print(f" and {ours.events / other.events:.1f} times the events" if other.events else "")


if __name__ == "__main__":
    main()
