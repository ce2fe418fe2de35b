"""PolicyServer: the policy behind OpenAI's API on loopback, as an inference server of a training run is.

    POST /v1/chat/completions    Chat Completions; `return_token_ids` and `logprobs` as vLLM answers them
    POST /weights                the policy's new weights, an array as numpy saves it, and their version in the header

Invariant: a completion comes from one version of the weights, which its header names, and follows from these, the
request and its seed.
"""

import io
import json
import sys
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit
from uuid import uuid4

import numpy as np

from art_otel.demo.policy import END, IDS, VOCABULARY, ChatObject, Policy, Sampled, parse, render
from art_otel.errors import ArtOtelError

VERSION_HEADER: Final = "x-policy-version"


class PolicyServer(ThreadingHTTPServer):
    """`with PolicyServer(policy) as server:` serves it, at `server.url`, in threads of this process."""

    daemon_threads = True

    def __init__(self, policy: Policy) -> None:
        super().__init__(("127.0.0.1", 0), _PolicyHandler)
        self.serving: tuple[Policy, str] = (policy, "0")
        self._sampled_tokens = 0
        self._lock = Lock()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 # the base class's
        """Keep quiet about clients that went away: agents are stopped when the training ends."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def count(self, sampled: Sampled) -> None:
        """Note what was sampled."""
        with self._lock:
            self._sampled_tokens += len(sampled.token_ids)

    def take_count(self) -> int:
        """How many tokens were sampled since the last time."""
        with self._lock:
            taken, self._sampled_tokens = self._sampled_tokens, 0
        return taken


class _PolicyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: PolicyServer  # pyright: ignore[reportIncompatibleVariableOverride] # the base class knows no more of it

    def do_POST(self) -> None:
        """Sample, or take weights."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/chat/completions":
            policy, version = self.server.serving
            self._answer(*self._complete(policy, json.loads(body)), version)
        elif self.path == "/weights":
            version = self.headers[VERSION_HEADER]
            self._answer(*self._take(body, version), version)
        else:
            self._answer(404, _error(f"{self.path}: there is no such path"), "")

    def _complete(self, policy: Policy, request: ChatObject) -> tuple[int, ChatObject]:
        if request.get("stream"):
            return 400, _error("stream: this server cannot stream")
        tools: list[ChatObject] = request.get("tools") or []
        prompt = render(request["messages"], tools)
        sampled = policy.sample(prompt, request.get("seed"))
        self.server.count(sampled)
        return 200, completion(request, prompt, sampled, parse(sampled.token_ids, tools))

    def _take(self, body: bytes, version: str) -> tuple[int, ChatObject]:
        try:
            policy = Policy(weights=np.load(io.BytesIO(body), allow_pickle=False))
        except (ValueError, EOFError) as error:
            return 400, _error(f"weights: {error}; send an array as numpy.save writes it")
        self.server.serving = policy, version
        return 200, {"sampled_tokens": self.server.take_count()}

    def _answer(self, status: int, answer: ChatObject, version: str) -> None:
        encoded = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.send_header(VERSION_HEADER, version)
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class's name
        """Nobody reads a log of requests here."""


def completion(request: ChatObject, prompt: list[int], sampled: Sampled, message: ChatObject) -> ChatObject:
    """A chat completion.

    Source: OpenAI's Chat Completions; `prompt_token_ids` and `token_ids` as vLLM has them (`return_token_ids`).
    """
    ends = sampled.token_ids[-1] == IDS[END]
    finish = "length" if not ends else "tool_calls" if message.get("tool_calls") else "stop"
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish}
    answer: dict[str, Any] = {"choices": [choice]}
    if request.get("logprobs"):
        choice["logprobs"] = {"content": [_logprob(*each) for each in zip(*sampled, strict=True)]}
    if request.get("return_token_ids"):
        choice["token_ids"] = sampled.token_ids
        answer["prompt_token_ids"] = prompt
    counts = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled.token_ids)}
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "usage": {**counts, "total_tokens": sum(counts.values())},
        **answer,
    }


def _logprob(token: int, logprob: float) -> ChatObject:
    word = VOCABULARY[token]
    return {"token": word, "logprob": logprob, "bytes": list(word.encode()), "top_logprobs": []}


def _error(message: str) -> ChatObject:
    return {"error": {"message": message, "type": "refused"}}


def post(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Ask a server of this machine, past any proxy. Return the body of its answer; raise ArtOtelError without one."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc)
    try:
        connection.request("POST", parts.path, body, dict(headers))
        response = connection.getresponse()
        answer = response.read()
    except (OSError, HTTPException) as error:
        raise ArtOtelError(f"{url}: no answer ({error}); what its server printed says why") from error
    finally:
        connection.close()
    if response.status != 200:
        raise ArtOtelError(f"{url}: status {response.status}: {answer[:200].decode(errors='replace')}")
    return answer
