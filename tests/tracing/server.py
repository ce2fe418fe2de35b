"""ModelServer: an OpenAI-compatible server on loopback, in a process of its own, that knows exactly what it answered.

Invariant: every request is on record, with the whole answer, before the first byte of the answer leaves. So a test
compares trajectories with what was really asked and sampled. What a user message can ask of the server stands in
`tests.tracing.policy`. Needs nothing but Python:

    python -m tests.tracing.server --record requests.jsonl [--port 0] [--strict] [--sglang] [--policy-version v1]
"""

import argparse
import http.client
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Self, TextIO

from tests.stand_ins import Handler
from tests.tracing import anthropic_wire, policy, sglang, wire

POLICY_VERSION_HEADER = "x-policy-version"
OVERFLOW = "This model's maximum context length is 8192 tokens. However, your request has 8195 input tokens."
_ROOT = Path(__file__).parents[2]
_KNOWN_FIELDS = frozenset(
    [
        *("model", "messages", "prompt", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls"),
        *("temperature", "top_p", "n", "max_tokens", "max_completion_tokens", "seed", "stop", "response_format"),
        *("frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "stream", "stream_options"),
        *("user", "previous_response_id", "store", "text", "metadata", "system"),
    ]
)
_HEADERS = (
    *("traceparent", "baggage", "x-stainless-retry-count", "authorization", "x-api-key"),
    *("x-art-rollout-id", "x-art-untrained"),
    *(sglang.INPUT_IDS, sglang.OUTPUT_IDS),
)

_Whole = Callable[[dict, str], dict]
_Chunks = Callable[[dict, str], Iterator[dict]]
_ROUTES: dict[str, tuple[_Whole, _Chunks]] = {
    "/v1/chat/completions": (wire.chat, wire.chat_chunks),
    "/v1/completions": (wire.text, wire.text_chunks),
    "/v1/responses": (wire.responses, wire.responses_events),
    "/v1/messages": (anthropic_wire.message, anthropic_wire.events),
}
_CHAT = "/v1/chat/completions"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One request and the answer to it. `answer` is whole, also where it streamed; None where the server refused."""

    path: str
    headers: dict[str, str]
    body: dict
    status: int
    answer: dict | None

    @property
    def attempt(self) -> int:
        """Which try of the client this was, from 0."""
        return int(self.headers.get("x-stainless-retry-count", "0"))


class ModelServer:
    """The server as a child process: `with ModelServer(folder) as server: … server.url …`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._record = folder / "requests.jsonl"
        self._options = options
        self._known: list[Exchange] = []
        self._read = 0

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.tracing.server", "--record", str(self._record), *self._options]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def exchanges(self) -> list[Exchange]:
        """What was asked and answered so far, in the order of arrival."""
        with self._record.open("rb") as record:
            record.seek(self._read)
            self._known += [Exchange(**json.loads(line)) for line in record]
            self._read = record.tell()
        return list(self._known)

    def answered(self) -> list[Exchange]:
        """Those that were not refused."""
        return [exchange for exchange in self.exchanges() if exchange.answer is not None]

    def say(self, text: str) -> str:
        """Ask it directly, as a check that it is there."""
        connection = http.client.HTTPConnection(self.url.split("/")[2])
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = json.load(connection.getresponse())
        connection.close()
        return answer["choices"][0]["message"]["content"]


class _Record:
    """Numbers the requests and writes them down."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def next_id(self) -> str:
        return f"chatcmpl-{next(self._numbers):06d}"

    def write(self, exchange: Exchange) -> None:
        fields = {name: getattr(exchange, name) for name in Exchange.__slots__}
        with self._lock:
            self._file.write(json.dumps(fields) + "\n")
            self._file.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(
        self,
        port: int,
        record: _Record,
        *,
        strict: bool,
        sglang: bool,
        loses: bool,
        chat_only: bool,
        policy_version: str | None,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.record = record
        self.strict = strict
        self.sglang = sglang
        self.loses = loses
        self.chat_only = chat_only
        self.policy_version = policy_version

    def handle_error(self, request, client_address) -> None:
        """A client that went away, as killed ones do, is no error of the server."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(Handler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 # the base class's name
        """The models there are, and nothing else."""
        if not self.path.startswith("/v1/models"):
            self._refuse({}, 404, f"no such path: {self.path}")
            return
        self._answer(200, {"object": "list", "data": [{"id": "m", "object": "model"}]}, {})

    def do_HEAD(self) -> None:  # noqa: N802 # the base class's name
        """As clients ask before they do anything."""
        self._head(200, "application/json", {})
        self.send_header("Content-Length", "68")
        self.end_headers()

    def do_POST(self) -> None:  # noqa: N802 # the base class's name
        body = json.loads(self.body())
        route = _ROUTES.get(self.path.partition("?")[0])
        if route is None or (self.server.chat_only and not self.path.startswith(_CHAT)):
            self._refuse(body, 404, f"no such path: {self.path}")
            return
        if not body:
            self._refuse(body, 400, "no model was named")
            return
        unknown = sorted(set(body) - _KNOWN_FIELDS) if self.server.strict else []
        if unknown:
            self._refuse(body, 400, f"Unrecognized request argument supplied: {', '.join(unknown)}")
            return
        is_sglang = self.server.sglang and self.path == _CHAT
        if is_sglang and (refusal := sglang.refusal(body)) is not None:
            self._refuse(body, 400, refusal)
            return
        directed = policy.directions(_messages(body))
        if "fail" in directed and self._fails(directed["fail"]):
            self._refuse(body, int(directed["fail"].split("x")[0]), "as the message asked")
            return
        if "overflow" in directed:
            self._refuse(body, int(directed["overflow"]), OVERFLOW)
            return
        response_id = self.server.record.next_id()
        whole, chunks = (sglang.chat, sglang.chat_chunks) if is_sglang else route
        self._note(body, 200, (sglang.truth if is_sglang else whole)(body, response_id))
        time.sleep(float(directed.get("delay", 0)))
        asked = sglang.asked(body, self.headers) if is_sglang else body
        if body.get("stream"):
            events = chunks(asked, response_id)
            self._stream(directed, map(_cut_chunk, events) if self.server.loses else events)
        else:
            self._answer(
                200, _cut(whole(asked, response_id)) if self.server.loses else whole(asked, response_id), directed
            )

    def _fails(self, wanted: str) -> bool:
        _, _, times = wanted.partition("x")
        return not times or int(self.headers.get("x-stainless-retry-count", "0")) < int(times)

    def _refuse(self, body: dict, status: int, message: str) -> None:
        self._note(body, status, None)
        self._answer(status, {"error": {"message": message, "type": "refused", "param": None, "code": None}}, {})

    def _note(self, body: dict, status: int, answer: dict | None) -> None:
        headers = {name: self.headers[name] for name in _HEADERS if name in self.headers}
        self.server.record.write(Exchange(path=self.path, headers=headers, body=body, status=status, answer=answer))

    def _answer(self, status: int, answer: dict, directed: dict[str, str]) -> None:
        encoded = json.dumps(answer).encode()
        self._head(status, "application/json", directed)
        self.send_header("Content-Length", str(len(encoded)))
        if status >= 400:
            self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(encoded)

    def _stream(self, directed: dict[str, str], chunks: Iterator[dict]) -> None:
        self._head(200, "text/event-stream", directed)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        stops_after = int(directed.get("break", 1 << 30))
        for at, chunk in enumerate(chunks):
            if at == stops_after:
                self.close_connection = True
                return
            time.sleep(float(directed.get("pace", 0)))
            self.chunk(wire.as_event(chunk))
        if self.path in ("/v1/chat/completions", "/v1/completions"):
            self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def _head(self, status: int, kind: str, directed: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        version = directed.get("version", self.server.policy_version)
        if version is not None:
            self.send_header(POLICY_VERSION_HEADER, version)


def _cut(answer: dict) -> dict:
    """The answer without the first token of each choice."""
    for choice in answer["choices"]:
        choice["token_ids"] = choice["token_ids"][1:]
        choice["logprobs"]["content"] = choice["logprobs"]["content"][1:]
    return answer


def _cut_chunk(chunk: dict) -> dict:
    """A chunk without its last token, if it is the last of its choice."""
    for choice in chunk["choices"]:
        if choice["finish_reason"] is not None:
            choice["token_ids"] = choice["token_ids"][:-1]
            choice["logprobs"]["content"] = choice["logprobs"]["content"][:-1]
    return chunk


def _messages(body: dict) -> list[dict]:
    given = body.get("messages") or body.get("input") or body.get("prompt") or ""
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [message for message in messages if "role" in message]


def main() -> None:
    """Serve until terminated; the first line of the output is the base URL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--strict", action="store_true", help="answer 400 to fields OpenAI does not know")
    parser.add_argument("--sglang", action="store_true", help="answer chat as SGLang does")
    parser.add_argument("--loses-a-token", action="store_true", help="leave a token of each choice out of the ids")
    parser.add_argument("--chat-only", action="store_true", help="have no other path than Chat Completions")
    parser.add_argument("--policy-version", help=f"the header {POLICY_VERSION_HEADER}")
    given = parser.parse_args()
    with given.record.open("a", encoding="utf-8") as file:
        options = {
            "strict": given.strict,
            "sglang": given.sglang,
            "loses": given.loses_a_token,
            "chat_only": given.chat_only,
            "policy_version": given.policy_version,
        }
        server = _Server(given.port, _Record(file), **options)
        print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
