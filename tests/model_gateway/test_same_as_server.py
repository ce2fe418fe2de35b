"""The same requests with and without the gateway: the server gets the same, and so does the agent, byte by byte.

A table of requests and answers, as wide as the endpoints and faults of model servers are. Headers are compared but for
those of one connection, and bytes as they are, not decompressed.
"""

import gzip
import http.client
import json
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer

import pytest

from tests.model_gateway.gateways import MODEL, gateway, user
from tests.stand_ins import Handler

OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date", "server"}
JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream; charset=utf-8"}
CHAT = json.dumps({"model": MODEL, "messages": user("Hi")}).encode()
STREAM = json.dumps({"model": MODEL, "messages": user("Hi"), "stream": True}).encode()
ANSWER = (
    b'{"id": "c1", "object":"chat.completion",  "choices": [{"index": 0, "message": {"content": "\\u00fc \xc3\xbc"}}]}'
)
ERROR = b'{"error": {"message": "no", "type": "t", "param": null, "code": "c"}}'
EVENT = b'data: {"id": "c1", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": null}]}'
END = b'data: {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}'
FORM = {"content-type": "multipart/form-data; boundary=XX"}
UPLOAD = (
    b'--XX\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' + bytes(range(256)) + b"\r\n--XX--\r\n"
)
RECORDED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request, and how the server answers it: `pieces` are chunks where it streams, else its body."""

    method: str = "POST"
    path: str = "/v1/chat/completions"
    asks: dict[str, str] = field(default_factory=lambda: JSON)
    body: bytes = CHAT
    is_chunked: bool = False
    status: int = 200
    headers: Sequence[tuple[str, str]] = tuple(JSON.items())
    pieces: Sequence[bytes] = (ANSWER,)
    streams: bool = False


def _get(path: str, body: bytes = b'{"object": "list", "data": [], "has_more": false}', **more) -> Case:
    return Case(method="GET", path=path, asks={}, body=b"", pieces=(body,), **more)


def _events(*pieces: bytes, path: str = "/v1/chat/completions") -> Case:
    return Case(path=path, body=STREAM, headers=tuple(SSE.items()), pieces=pieces, streams=True)


ERRORS = {
    f"{status} {path}": Case(
        path=path,
        status=status,
        headers=(*JSON.items(), ("retry-after", "7"), ("x-request-id", "r1"), ("x-ratelimit-remaining-tokens", "0")),
        pieces=(ERROR,),
    )
    for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529)
    for path in RECORDED
}
ENDPOINTS = {
    "models": _get("/v1/models"),
    "a model with a slash": _get("/v1/models/a%2Fb?x=%20&y=a+b"),
    "a page of files": _get("/v1/files?after=file-1&limit=2&order=asc"),
    "a file's content": _get("/v1/files/f/content", bytes(range(256)), headers=(("content-type", "x/y"),)),
    "a response": _get("/v1/responses/resp_1?include=a&include=b"),
    "a response's stream": Case(
        method="GET",
        path="/v1/responses/r?stream=true",
        asks={},
        body=b"",
        headers=tuple(SSE.items()),
        pieces=(EVENT + b"\n\n", END + b"\n\n"),
        streams=True,
    ),
    "cancel a response": Case(path="/v1/responses/resp_1/cancel", body=b"{}"),
    "delete": Case(method="DELETE", path="/v1/files/f", asks={}, body=b""),
    "put": Case(method="PUT", path="/v1/x", body=b"\x00\xff"),
    "patch": Case(method="PATCH", path="/v1/x", body=b"{}"),
    "options": Case(method="OPTIONS", path="/v1/chat/completions", asks={}, body=b"", headers=(("allow", "POST"),)),
    "embeddings": Case(path="/v1/embeddings", pieces=(b'{"data": [{"embedding": [1e-7,0.10]}]}',)),
    "batches": Case(path="/v1/batches", body=b'{"input_file_id":"f"}'),
    "tokens counted": Case(path="/v1/messages/count_tokens?beta=true", pieces=(b'{"input_tokens":3}',)),
    "message batches": Case(path="/v1/messages/batches", pieces=(b'{"id":"b"}',)),
    "upload": Case(path="/v1/files", asks=FORM, body=UPLOAD),
    "audio": Case(path="/v1/audio/transcriptions", asks=FORM, body=UPLOAD),
    "speech": Case(path="/v1/audio/speech", headers=(("content-type", "audio/mpeg"),), pieces=(b"\xff\xfb" * 50_000,)),
    "not a path of OpenAI": Case(path="/tokenize"),
    "another version": Case(path="/api/v3/chat/completions"),
    "a redirect": _get("/v1", b"", status=307, headers=(("location", "/v1/models"),)),
    "nothing": Case(method="DELETE", path="/v1/x", asks={}, body=b"", status=204, headers=(), pieces=(b"",)),
    "not modified": _get("/v1/models", b"", status=304, headers=(("etag", '"1"'),)),
    "head": Case(method="HEAD", path="/", asks={}, body=b"", pieces=(b"",)),
    "a head's 404": Case(method="HEAD", path="/v1/x", asks={}, body=b"", status=404, pieces=(b"",)),
}
ZIPPED = (("content-type", "application/json"), ("content-encoding", "gzip"))
BODIES = {
    "in chunks": Case(is_chunked=True),
    "upload in chunks": Case(path="/v1/files", asks=FORM, body=UPLOAD * 100, is_chunked=True),
    "large": Case(body=json.dumps({"model": MODEL, "messages": user("ü" * 3_000_000)}).encode()),
    "large answer": Case(pieces=(b'{"choices": [], "x": "' + b"y" * 5_000_000 + b'"}',)),
    "empty": Case(body=b""),
    "not JSON": Case(body=b"\xff{", status=400, pieces=(ERROR,)),
    "an array": Case(body=b"[1]", status=422, pieces=(ERROR,)),
    "text": Case(asks={"content-type": "text/plain"}, body=b"Hi"),
    "a request that is zipped": Case(asks={**JSON, "content-encoding": "gzip"}, body=gzip.compress(CHAT, mtime=0)),
    "zipped": _get("/v1/models", gzip.compress(ANSWER, mtime=0), headers=ZIPPED),
    "zipped unasked": Case(headers=ZIPPED, pieces=(gzip.compress(ANSWER, mtime=0),)),
    "deflated": _get("/v1/models", zlib.compress(ANSWER), headers=(*JSON.items(), ("content-encoding", "deflate"))),
    "br": _get("/v1/models", b"\x0b\x02\x80{}\x03", headers=(*JSON.items(), ("content-encoding", "br"))),
    "answered in chunks": Case(pieces=(ANSWER[:9], ANSWER[9:]), streams=True),
    "no body": Case(pieces=(b"",)),
    "created": Case(status=201),
    "no content": Case(status=204, headers=(), pieces=(b"",)),
    "headers twice": Case(
        headers=(*JSON.items(), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-latin", "caf\xe9"))
    ),
    "headers of clients": Case(
        asks={
            **JSON,
            "authorization": "Bearer sk-x",
            "x-api-key": "sk-y",
            "anthropic-version": "2023-06-01",
            "anthropic-beta": "a,b",
            "openai-organization": "o",
            "x-stainless-lang": "python",
            "user-agent": "OpenAI/Python",
            "cookie": "a=1",
            "accept": "*/*",
            "via": "1.1 x",
            "idempotency-key": "k",
        }
    ),
}
STREAMS = {
    f"{name} {path}": _events(*pieces, path=path)
    for path in RECORDED
    for name, pieces in {
        "events": (EVENT + b"\n\n", END + b"\n\n", b"data: [DONE]\n\n"),
        "crlf": (EVENT + b"\r\n\r\n", END + b"\r\n\r\n", b"data: [DONE]\r\n\r\n"),
        "cr": (EVENT + b"\r\r", END + b"\r\r", b"data: [DONE]\r\r"),
        "comments": (b": OPENROUTER PROCESSING\n\n", EVENT + b"\n\n", b":\n\n", END + b"\n\n", b"data: [DONE]\n\n"),
        "pings": (b'event: ping\ndata: {"type": "ping"}\n\n', EVENT + b"\n\n", b"id: 7\nretry: 10\n" + END + b"\n\n"),
        "byte by byte": tuple(bytes([byte]) for byte in EVENT + b"\n\n" + END + b"\r\n\r\ndata: [DONE]\n\n"),
        "in one piece": (EVENT + b"\n\n" + END + b"\n\ndata: [DONE]\n\n",),
        "without an end": (EVENT + b"\n\n", END),
        "behind the end": (END + b"\n\n", b"data: [DONE]\n\n", b": bye\n\n", b"data: {}\n\n"),
        "error in it": (EVENT + b"\n\n", b'event: error\ndata: {"error": {"message": "no"}}\n\n'),
        "data in lines": (b'data: {"choices":\ndata: []}\n\n', b"data:[DONE]\n\n"),
        "no choices, as Azure begins": (
            b'data: {"choices":[],"prompt_filter_results":[]}\n\n',
            EVENT + b"\n\n",
            b"data: [DONE]\n\n",
        ),
        "mark": (b"\xef\xbb\xbf" + EVENT + b"\n\n", b"data: [DONE]\n\n"),
        "nothing": (),
    }.items()
}
CASES = {**ERRORS, **ENDPOINTS, **BODIES, **STREAMS}


class Server(ThreadingHTTPServer):
    """Answers each request as `case` says, and keeps what came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Scripted)
        self.case = Case()
        self.got: list[tuple[str, str, list[tuple[str, str]], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Scripted(Handler):
    server: Server

    def answer(self, body: bytes) -> None:
        headers = [(name.lower(), value) for name, value in self.headers.items()]
        self.server.got.append((self.command, self.path, headers, body))
        case = self.server.case
        self.send_response(case.status)
        for name, value in case.headers:
            self.send_header(name, value)
        if case.streams:
            self.send_header("transfer-encoding", "chunked")
        elif case.status not in (204, 304):
            self.send_header("content-length", "17" if case.method == "HEAD" else str(len(case.pieces[0])))
        self.end_headers()
        for piece in case.pieces:
            (self.chunk if case.streams else self.wfile.write)(piece)
        if case.streams:
            self.chunk(b"")


for _method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"):
    setattr(Scripted, f"do_{_method}", Scripted.do_POST)


@pytest.fixture(scope="module")
def scripted() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def plain(tmp_path_factory, scripted) -> Iterator[str]:
    """The address of a gateway that asks for nothing."""
    with gateway(tmp_path_factory.mktemp("plain"), scripted.url, tokens="off") as running:
        yield running.url


@pytest.fixture(scope="module")
def asking(tmp_path_factory, scripted) -> Iterator[str]:
    """The address of a gateway that asks for token ids, which this server does not know."""
    with gateway(tmp_path_factory.mktemp("asking"), scripted.url) as running:
        yield running.url


def ask(url: str, case: Case) -> tuple[int, list[tuple[str, str]], bytes, str | None]:
    """The status, the headers, the answer, and the length that a HEAD's answer would have."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    pieces = (case.body[at : at + 50_000] for at in range(0, len(case.body), 50_000))
    body = pieces if case.is_chunked else case.body or None
    connection.request(case.method, case.path, body, case.asks, encode_chunked=case.is_chunked)
    response = connection.getresponse()
    headers = [(name.lower(), value) for name, value in response.getheaders()]
    content = response.read()
    connection.close()
    length = response.getheader("content-length") if case.method == "HEAD" else None
    return response.status, without(headers, OF_CONNECTION), content, length


def without(headers: list[tuple[str, str]], names: set[str]) -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in headers if name not in names)


@pytest.mark.parametrize("name", CASES)
def test_a_request_and_its_answer_are_the_same(scripted, plain, asking, name):
    scripted.case = CASES[name]
    direct, through = (ask(url, CASES[name]) for url in (scripted.url, plain))
    assert through == direct
    sent, passed = (
        (*line, without(headers, OF_CONNECTION | {"accept-encoding"}), body)
        for *line, headers, body in scripted.got[-2:]
    )
    assert passed == sent
    assert ask(asking, CASES[name]) == direct


def test_a_websocket_is_refused_in_words(plain):
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
    connection = http.client.HTTPConnection(plain.removeprefix("http://"), timeout=20)
    connection.request("GET", "/v1/realtime?model=m", headers=upgrade)
    response = connection.getresponse()
    assert response.status == 501
    assert "WebSockets are not supported" in json.load(response)["error"]["message"]
    connection.close()
