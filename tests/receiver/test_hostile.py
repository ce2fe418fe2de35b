"""Hostile: what is no export gets its status, costs no memory, and nothing that was acknowledged."""

import asyncio
import gzip
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import zstandard
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.requests import Request

from art_otel.http import Address, Bodies, BodyLimits
from art_otel.receiver.receiver import Receiver, ReceiverOptions
from tests.dumps import chat_span, make_span, request_of
from tests.examples import how_many
from tests.receiver.connections import HEAD, PIPELINED, flood, raw
from tests.receiver.otlp import COMPRESS, JSON, PROTOBUF, as_body, export, post, rejected
from tests.receiver.serving import Serve, serving

SMALL = request_of(chat_span(2, 1, ["hi"], "yes"), resource={"service.name": "agent"})
MIB = 1 << 20

REQUESTS = how_many("ART_OTEL_REQUESTS", 1200)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that takes bodies of a megabyte, and knows a token."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "token").write_text("t0ken\n")
    with serving(folder / "art", "--max-body", "1", "--token-file", str(folder / "token"), grpc=True) as running:
        yield running


TOKEN = {"authorization": "Bearer t0ken"}


def status(server: Serve, body: bytes, kind: str = PROTOBUF, **more: str) -> int:
    return post(server.url, body, kind, **TOKEN, **more).status_code


def stored(server: Serve) -> int:
    """How many spans it wrote."""
    return server.metrics(TOKEN)["art_otel_stored_spans_total"]


def is_message(body: bytes) -> bool:
    """Whether protobuf itself reads it."""
    try:
        ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        return False
    return True


def memory(server: Serve) -> int:
    """The most memory that the server had, in bytes."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_a_body_cut_anywhere(server, kind, encoding):
    body = as_body(SMALL, kind)
    if encoding:
        whole = COMPRESS[encoding](body)
        statuses = {status(server, whole[:end], kind, encoding=encoding) for end in range(0, len(whole), 7)}
        assert statuses == {400}
    else:
        for end in range(0, len(body), 7):
            expected = 200 if kind == PROTOBUF and is_message(body[:end]) else 400
            assert status(server, body[:end], kind) == expected, end
    assert status(server, COMPRESS[encoding](body), kind, encoding=encoding) == 200


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_members_and_frames_follow_each_other(server, encoding):
    one, two = (as_body(request_of(make_span(number)), PROTOBUF) for number in (70, 71))
    compress = COMPRESS[encoding]
    before = stored(server)
    assert status(server, compress(one) + compress(two), encoding=encoding) == 200
    assert stored(server) == before + 2
    assert status(server, compress(one) + compress(two)[:-1], encoding=encoding) == 400
    assert status(server, compress(one) + b"rubbish", encoding=encoding) == 400


@pytest.mark.long
@pytest.mark.parametrize("bomb", ["gzip", "zstd"])
def test_a_bomb(server, bomb):
    zeros = bytes(8 * MIB)
    if bomb == "gzip":
        body = b"".join([gzip.compress(zeros)] * 80)
    else:
        compressor = zstandard.ZstdCompressor().compressobj()
        body = b"".join(compressor.compress(zeros) for _ in range(128)) + compressor.flush()
    assert len(body) < MIB
    before = memory(server)
    assert {status(server, body, encoding=bomb) for _ in range(3)} == {413}
    assert memory(server) - before < 2.5 * 256 * MIB


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        (415, {"kind": "text/plain"}),
        (415, {"kind": ""}),
        (415, {"encoding": "br"}),
        (415, {"encoding": "gzip, zstd"}),
        (401, {"authorization": ""}),
        (401, {"authorization": "Bearer other"}),
        (401, {"authorization": "Basic t0ken"}),
        (200, {"authorization": "bearer t0ken"}),
        (200, {"encoding": "identity"}),
        (200, {"kind": "Application/X-Protobuf; charset=utf-8"}),
    ],
)
def test_headers(server, expected, changes):
    answer = post(server.url, as_body(SMALL, PROTOBUF), **{**TOKEN, **changes})
    assert answer.status_code == expected


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"rubbish", PROTOBUF),
        (b"\x00" * 40, PROTOBUF),
        (b"[]", JSON),
        (b"null", JSON),
        (b'{"a": 1}', JSON),
        (b"[" * 100_000, JSON),
        (b'{"resourceSpans": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", JSON),
        (b'{"resourceMetrics": [{"scopeMetrics": []}]}', JSON),
        (json.dumps(SMALL).encode() + b"}", JSON),
        (as_body(SMALL, PROTOBUF), JSON),
        (as_body(SMALL, JSON), PROTOBUF),
    ],
)
def test_no_export(server, body, kind):
    answer = post(server.url, body, kind, **TOKEN)
    assert answer.status_code == 400
    if kind == PROTOBUF:
        assert Status.FromString(answer.content).message
    else:
        assert answer.json()["message"]


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_unusable_spans_are_set_aside(server, kind):
    good = [make_span(number, trace=9) for number in (80, 81)]
    bad = [
        make_span(82, trace=9) | {"spanId": "ab"},
        make_span(83, trace=9) | {"traceId": ""},
        make_span(84, trace=9) | {"startTimeUnixNano": "0"},
        make_span(85, trace=9) | {"endTimeUnixNano": "1"},
    ]
    before = stored(server)
    answer = post(server.url, as_body(request_of(good[0], *bad, good[1]), kind), kind, **TOKEN)
    kept = stored(server) - before
    assert answer.status_code == 200
    assert kept + rejected(answer, kind) == len(good) + len(bad)
    assert kept >= len(good)
    assert rejected(answer, kind) >= 2


def test_text_that_is_no_utf8_costs_its_span_over_http_and_grpc(server):
    body = as_body(request_of(make_span(90), make_span(91, name="XXXX")), PROTOBUF).replace(
        b"XXXX", b"\xff\xfe\xff\xfe"
    )
    answer = post(server.url, body, **TOKEN)
    with grpc.insecure_channel(server.grpc) as channel:
        over_grpc = export(channel, body, metadata=tuple(TOKEN.items()))
    assert (answer.status_code, rejected(answer), over_grpc.partial_success.rejected_spans) == (200, 1, 1)


def test_grpc_says_the_same(server):
    whole = as_body(SMALL, PROTOBUF)
    cases = [
        (whole, (), grpc.StatusCode.UNAUTHENTICATED),
        (whole[:-1], tuple(TOKEN.items()), grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(2 * MIB), tuple(TOKEN.items()), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ]
    with grpc.insecure_channel(server.grpc) as channel:
        for body, metadata, code in cases:
            with pytest.raises(grpc.RpcError) as refused:
                export(channel, body, metadata=metadata, compression=grpc.Compression.Gzip)
            assert refused.value.code() is code
            assert not retry_info(refused.value)


def retry_info(error: grpc.RpcError) -> RetryInfo | None:
    """What tells an exporter when to try again."""
    found = [value for name, value in error.trailing_metadata() or () if name == "grpc-status-details-bin"]
    info = RetryInfo()
    return info if found and Status.FromString(found[0]).details[0].Unpack(info) else None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (HEAD + b"content-length: 2000000\r\n\r\n", 413),
        (HEAD + b"content-length: " + b"9" * 19 + b"\r\n\r\n", 413),
        (HEAD + b"content-length: -1\r\n\r\n", 400),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"100000\r\n" + bytes(MIB) + b"\r\n100\r\n" + bytes(256), 413),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nrubbish\r\n", 400),
        (b"rubbish\r\n\r\n", 400),
        (HEAD + b"x: " + b"y" * MIB + b"\r\n\r\n", 431),
        (HEAD + b"".join(b"x%d: y\r\n" % number for number in range(100_000)) + b"\r\n", 431),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_raw_requests(server, data, expected):
    before = memory(server)
    answer = raw(server.http, data)
    assert answer.startswith(b"HTTP/1.1 %d " % expected), answer
    assert memory(server) - before < 64 * MIB


def test_tiny_requests_without_end(server):
    """Each has its status, nothing that is acknowledged is lost, and memory does not grow with their number."""
    body = as_body(request_of(make_span(1000)), PROTOBUF)
    tiny = {
        200: HEAD + b"content-length: %d\r\n\r\n" % len(body) + body,
        400: HEAD + b"content-length: 9\r\n\r\n" + body[:9],
        401: HEAD.replace(b"t0ken", b"other") + b"content-length: 0\r\n\r\n",
        415: HEAD.replace(PROTOBUF.encode(), b"text/plain") + b"content-length: 0\r\n\r\n",
    }
    before, most = stored(server), memory(server)
    rounds = REQUESTS // (4 * PIPELINED)
    with ThreadPoolExecutor(4) as pool:
        flooding = [pool.submit(flood, server.http, tiny, rounds) for _ in range(4)]
    assert [each.result() for each in flooding] == [list(tiny) * (PIPELINED // len(tiny))] * 4
    assert stored(server) == before + REQUESTS // len(tiny)
    assert memory(server) - most < 64 * MIB


@pytest.mark.program
def test_slow_headers(server):
    """Four at once: a connection that says nothing, and those that stop anywhere in the headers."""
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda sent: raw(server.http, sent), [b"", b"P", HEAD, HEAD + b"x: y"])
    assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in answers)


def test_a_slow_body(tmp_path):
    options = ReceiverOptions(http=Address("127.0.0.1", 0), dir=tmp_path, limits=BodyLimits(seconds=0.2))
    receiver = Receiver(options)
    receiver.start()
    try:
        data = HEAD + b"content-length: 100\r\n\r\n" + bytes(99)
        assert raw(receiver.url.removeprefix("http://"), data).startswith(b"HTTP/1.1 408 ")
        assert post(receiver.url, as_body(SMALL, PROTOBUF)).status_code == 200
    finally:
        receiver.stop()


@pytest.mark.long
def test_overload_is_said_to_be_tried_again(tmp_path):
    """Bodies that are held fill the budget; who comes then is told to come again, and nothing else is lost."""
    with serving(tmp_path / "art", "--max-body", "128", grpc=True) as server:
        host, port = server.http.split(":")
        held: list[socket.socket] = []
        head = "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\n"
        head += f"content-type: {PROTOBUF}\r\ncontent-length: {120 * MIB}\r\n\r\n"
        body = as_body(request_of(make_span(7, attributes={"text": "x" * 17 * MIB})), PROTOBUF)
        for _ in range(2):
            held.append(socket.create_connection((host, int(port))))
            held[-1].sendall(head.encode() + bytes(120 * MIB - 1))
        deadline = time.monotonic() + 30
        answer = post(server.url, body)
        while answer.status_code == 200 and time.monotonic() < deadline:  # the last bytes are on their way
            answer = post(server.url, body)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        with grpc.insecure_channel(server.grpc) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                export(channel, body)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert retry_info(refused.value).retry_delay.seconds == 1
            for connection in held:
                connection.close()
            while post(server.url, body).status_code == 429:
                assert time.monotonic() < deadline + 30
            assert not export(channel, body).HasField("partial_success")


def test_a_timeout_in_the_work_with_a_body_is_no_slow_body():
    async def receive() -> dict:
        return {"type": "http.request", "body": b"x", "more_body": False}

    async def work() -> None:
        request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
        async with Bodies(BodyLimits()).read(request.scope, request.receive):
            raise TimeoutError

    with pytest.raises(TimeoutError):
        asyncio.run(work())
