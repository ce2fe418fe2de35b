"""Gateways in a thread of the test's process or in one of their own, and what is asked through them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from art_otel.http import Address
from art_otel.live.new_trajectories import NewTrajectories
from art_otel.model_gateway.gateway import LIMITS, Gateway, GatewayOptions
from art_otel.model_gateway.settings import Tokens, Translate
from art_otel.receiver.receiver import ReceiverOptions
from art_otel.trajectories import Trajectory

MODEL = "m"
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}},
}


@contextmanager
def gateway(
    folder: Path,
    *upstreams: str,
    grace: float = 60.0,
    tokens: Tokens = "auto",
    token: str | None = None,
    otlp: str | None = None,
    keep_reasoning: bool = False,
    models: tuple[str, ...] | None = None,
    translate: Translate = "never",
    max_calls: int | None = None,
) -> Iterator[Gateway]:
    """A running gateway. It translates only where a test says so: the stand-in has every dialect, and ids in Chat."""
    receiver = ReceiverOptions(http=Address("127.0.0.1", 0), dir=folder, grace=grace, limits=LIMITS, token=token)
    running = Gateway(
        GatewayOptions(
            upstreams=upstreams,
            receiver=receiver,
            tokens=tokens,
            policy_version_header="x-policy-version",
            otlp=otlp,
            keep_reasoning=keep_reasoning,
            models=models,
            translate=translate,
            max_calls=max_calls,
        )
    )
    running.receiver.start()
    try:
        yield running
    finally:
        running.receiver.stop()


class Running:
    """`art-otel gateway` in a process of its own, which is killed and begun again at the same port."""

    def __init__(self, folder: Path, upstream: str, *options: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "art_otel", "gateway", "--upstream", upstream, "--dir", str(folder)]
        self._command = [*command, *options]
        self._listen = f"127.0.0.1:{port}"
        self.url = ""

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*self._command, "--listen", self._listen], stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        assert self._process.stderr is not None
        self.url = self._process.stderr.readline().split()[3].removesuffix(",")
        self._listen = self.url.removeprefix("http://")

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def stop(self) -> str:
        self._process.terminate()
        said = self.wait()
        assert "Traceback" not in said, said
        assert "Task was destroyed" not in said, said
        return said

    def wait(self) -> str:
        """Wait until it has ended, and give what it said."""
        return self._process.communicate(timeout=30)[1]


def recorded(folder: Path) -> list[Trajectory]:
    """The trajectories in the folder of a gateway that has ended."""
    return NewTrajectories(folder / "spool", grace=0.0).take()


def user(text: str) -> list[dict]:
    """A conversation that begins."""
    return [{"role": "user", "content": text}]


def bodies() -> Sequence[tuple[str, dict]]:
    """Requests of every dialect, which a stand-in server answers or refuses."""
    tool = TOOL["function"]
    anthropic = {"name": tool["name"], "input_schema": tool["parameters"]}
    asks = [
        ("/v1/chat/completions", {"messages": user("Hi")}),
        ("/v1/chat/completions", {"messages": user("Hi #think=1"), "n": 2}),
        ("/v1/chat/completions", {"messages": user("Look #calls=2"), "tools": [TOOL]}),
        ("/v1/chat/completions", {"messages": user("Hi"), "logprobs": True, "return_token_ids": True}),
        ("/v1/chat/completions", {"messages": user("Hi #fail=429")}),
        ("/v1/chat/completions", {"messages": user("Hi #fail=400")}),
        ("/v1/completions", {"prompt": "Once"}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/responses", {"input": "Look", "tools": [{"type": "function", **tool}], "instructions": "Be brief."}),
        ("/v1/responses", {"input": "Hi #status=failed"}),
        ("/v1/messages?beta=true", {"messages": user("Hi #think=1"), "system": "Be brief.", "max_tokens": 9}),
        ("/v1/messages", {"messages": user("Look"), "tools": [anthropic], "max_tokens": 9}),
        ("/v1/messages", {"messages": user("Hi #fail=529"), "max_tokens": 9}),
        ("/v1/nowhere", {"input": "Hi"}),
    ]
    return [(path, {"model": MODEL, **ask, **more}) for path, ask in asks for more in ({}, {"stream": True})]


HI = {"model": MODEL, "messages": user("Hi")}


def chat(url: str, body: dict = HI, **headers: str) -> dict:
    """The answer to a Chat Completions request; raises for an error."""
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers).raise_for_status().json()


def spooled(folder: Path) -> str:
    """All lines of the gateway's spool."""
    return "".join(file.read_text() for file in (folder / "spool").rglob("*.jsonl"))
