"""RecordingServer: a model of every API, and the collector that keeps the spans; on loopback, knowing the truth.

Invariant: every request to the model is in `truth`, with its answer, before the first byte of the answer leaves; every
export is in `spans` or `logs` as a collector's file exporter would have written it, one export a line.
"""

import gzip
import itertools
import json
import re
import threading
from http.server import ThreadingHTTPServer
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from tests.dialects.recording import exports
from tests.dialects.recording.apis.api import Api
from tests.dialects.recording.apis.chat import CHAT
from tests.dialects.recording.apis.converse import CONVERSE
from tests.dialects.recording.apis.gemini import GEMINI
from tests.dialects.recording.apis.messages import INVOKE, MESSAGES
from tests.dialects.recording.apis.responses import RESPONSES
from tests.dialects.recording.task import answer
from tests.stand_ins import Handler

PORT: Final = 18181
"""One port for all recordings, so that they do not differ by it."""

_APIS: Final[dict[str, Api]] = {
    r".*/chat/completions": CHAT,
    r".*/responses": RESPONSES,
    r".*/v1/messages": MESSAGES,
    r"/model/(?P<model>.+)/converse(?P<stream>-stream)?": CONVERSE,
    r"/model/(?P<model>.+)/invoke(?P<stream>-with-response-stream)?": INVOKE,
    r".*/models/(?P<model>[^:]+):(?P<stream>streamG|g)enerateContent": GEMINI,
}


class RecordingServer:
    """`with RecordingServer() as server: … server.url …`; then `truth`, `spans` and `logs` are what came.

    Port 0 is any free one, for what is not kept.
    """

    def __init__(self, port: int = PORT) -> None:
        self._port = port
        self.truth: list[dict] = []
        self.spans: list[dict] = []
        self.logs: list[dict] = []
        self._numbers = itertools.count(1)
        self._items: dict[str, dict] = {}
        self._histories: dict[str, list[dict]] = {}

    def __enter__(self) -> Self:
        self._http = _Http(self, self._port)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def ask(self, api: Api, body: dict) -> tuple[dict, list[dict]]:
        """Keep the truth, and give the answer whole and in chunks."""
        body = self._with_what_it_names(body)
        asked = api.asked(body)
        said = answer(asked, next(self._numbers), thinks=api.thinks(body))
        self.truth.append(
            {
                "api": api.name,
                "model": body["model"],
                "stream": bool(body.get("stream")),
                "messages": asked.messages,
                "tools": [tool["name"] for tool in asked.tools],
                "answer": said.as_truth(),
                "usage": {"input": said.input_tokens, "output": said.output_tokens},
            }
        )
        whole = api.whole(body, said)
        if whole.get("object") == "response":
            self._items |= {item["id"]: item for item in whole["output"]}
            self._histories[whole["id"]] = [*body["input"], *whole["output"]]
        return whole, list(api.chunks(body, said))

    def _with_what_it_names(self, body: dict) -> dict:
        """A request of Responses may name items and a response that the server has."""
        if "input" not in body:
            return body
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        named = [self._items[item["id"]] if item.get("type") == "item_reference" else item for item in items]
        return body | {"input": [*self._histories.get(body.get("previous_response_id"), ()), *named]}


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, recording: RecordingServer, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.recording = recording


class _Handler(Handler):
    server: _Http

    def do_POST(self) -> None:  # noqa: N802 # the base class's name
        path, data = unquote(urlsplit(self.path).path), self._data()
        if path.endswith(("/v1/traces", "/v1/logs", "/v1/metrics")):
            self._export(path.rsplit("/", 1)[1], data)
            return
        for pattern, api in _APIS.items():
            if found := re.fullmatch(pattern, path):
                self._answer(api, json.loads(data) | _said_by_path(found.groupdict()))
                return
        self._send(404, {"error": {"message": f"no such path: {path}"}})

    def do_GET(self) -> None:  # noqa: N802 # the base class's name
        """Answer what asks whether somebody is there."""
        self._send(200, {})

    def _data(self) -> bytes:
        data = self.body()
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def _export(self, signal: str, data: bytes) -> None:
        is_json = self.headers.get("Content-Type", "").startswith("application/json")
        if signal != "metrics":
            kept = self.server.recording.spans if signal == "traces" else self.server.recording.logs
            kept.append(json.loads(data) if is_json else exports.as_json(signal, data))
        self._send(200, {} if is_json else b"")

    def _answer(self, api: Api, body: dict) -> None:
        whole, chunks = self.server.recording.ask(api, body)
        if not body.get("stream"):
            self._send(200, whole)
            return
        self._head(200, api.stream_type, ("Transfer-Encoding", "chunked"))
        for data in (*map(api.framed, chunks), api.last):
            if data:
                self.chunk(data)
        self.chunk(b"")

    def _send(self, status: int, answer: dict | bytes) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        kind = "application/x-protobuf" if isinstance(answer, bytes) else "application/json"
        self._head(status, kind, ("Content-Length", str(len(data))))
        self.wfile.write(data)

    def _head(self, status: int, kind: str, length: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("request-id", "req_1")
        self.send_header(*length)
        self.end_headers()


def _said_by_path(found: dict[str, str | None]) -> dict:
    if "model" not in found:
        return {}
    return {"model": found["model"], "stream": found["stream"] not in (None, "g")}
