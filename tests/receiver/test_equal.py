"""Law 2: what is received is what a dump gives, through every transport, in any order, repeated and split."""

import random

import grpc
import pytest

from tests.conversions import RECORDINGS, convert_files
from tests.dumps import Request, explode, joined
from tests.receiver.consuming import by_order, consume
from tests.receiver.otlp import JSON, PROTOBUF, send, send_grpc
from tests.receiver.serving import serving

pytestmark = pytest.mark.long

TRANSPORTS = [(PROTOBUF, ""), (PROTOBUF, "gzip"), (PROTOBUF, "zstd"), (JSON, "gzip"), (JSON, ""), ("grpc", "gzip")]


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> dict:
    """The trajectories of every recording."""
    return by_order(convert_files(tmp_path_factory.mktemp("dumped"), RECORDINGS)[0])


def shuffled_requests(seed: int) -> list[Request]:
    """Every span and log record in another order and other requests, and some of them twice."""
    chance = random.Random(seed)
    records = explode(*sorted(RECORDINGS.glob("*/*.jsonl")))
    records += chance.sample(records, len(records) // 10)
    chance.shuffle(records)
    requests: list[Request] = []
    while records:
        size = chance.choice((1, 20, 200))
        requests.append(joined(records[:size]))
        del records[:size]
    return requests


@pytest.mark.parametrize(("kind", "encoding"), TRANSPORTS)
def test_received_is_dumped(tmp_path, dumped, kind, encoding):
    seed = TRANSPORTS.index((kind, encoding))
    with serving(tmp_path / "art", "--grace", "6s", grpc=kind == "grpc") as server:
        if kind == "grpc":
            with grpc.insecure_channel(server.grpc) as channel:
                for request in shuffled_requests(seed):
                    send_grpc(channel, request)
        else:
            for request in shuffled_requests(seed):
                send(server.url, request, kind, encoding)
        server.wait_until_all_ended()
        received = consume(server.url, len(dumped))
    assert by_order(received) == dumped
    assert by_order(server.convert(tmp_path / "out")) == dumped
