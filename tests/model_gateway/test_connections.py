"""Connections to a model server, against answers that a server may give."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from art_otel.model_gateway.upstreams import BrokenOffError, Connections, UnreachableError

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def server(*answers, ends=False):
    """A server that gives the answers one after the other on each connection, and the requests that it got."""
    requests, connections = [], []

    async def answer(reader, writer):
        connections.append(writer)
        for given in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            requests.append(head)
            writer.write(given)
            await writer.drain()
        if ends:
            writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    host = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield host, requests, connections
    finally:
        for writer in connections:
            writer.close()
        listening.close()


async def ask(connections, method="GET"):
    answer = await connections.ask(method, "/a?b", [(b"X-One", b"1")], b"")
    try:
        return answer.status, b"".join([piece async for piece in answer.pieces()])
    finally:
        answer.close()


def run(case):
    asyncio.run(asyncio.wait_for(case(), 20))


def test_a_connection_is_used_again():
    async def case():
        async with server(HELLO, HELLO) as (host, requests, opened):
            connections = Connections(f"http://user:p%40ss@{host}/below")
            assert [await ask(connections), await ask(connections)] == [(200, b"hello")] * 2
            assert len(opened) == 1
            assert requests[0] == (
                b"GET /below/a?b HTTP/1.1\r\nhost: %b\r\nauthorization: Basic dXNlcjpwQHNz\r\nX-One: 1\r\n\r\n"
                % host.encode()
            )
            connections.close()

    run(case)


def test_a_kept_connection_that_the_server_closes_unanswered_is_asked_anew():
    """As llama.cpp closes one behind a stream, though it says that it keeps it. A new one is not tried again."""

    async def case():
        got = []

        async def answer(reader, writer):
            got.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(HELLO)
            got.append(await reader.readuntil(b"\r\n\r\n"))
            writer.close()

        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        connections = Connections(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        assert [await ask(connections), await ask(connections)] == [(200, b"hello")] * 2
        assert len(got) == 3  # the second one twice
        listening.close()
        connections.close()
        async with server(b"", ends=True) as (host, requests, _):
            with pytest.raises(BrokenOffError, match="closed the connection"):
                await ask(Connections(f"http://{host}"))
            assert len(requests) == 1

    run(case)


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO, False),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", True),  # as long as the connection
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", True),
    ],
    ids=["continue", "until closed", "chunked", "1.0"],
)
def test_a_body_is_whole_however_it_is_framed(given, ends):
    async def case():
        async with server(given, ends=ends) as (host, _, opened):
            connections = Connections(f"http://{host}")
            assert await ask(connections) == (200, b"hello")
            connections.close()
            assert len(opened) == 1

    run(case)


def test_an_answer_to_head_has_no_body():
    async def case():
        async with server(HELLO) as (host, _, opened):
            connections = Connections(f"http://{host}")
            assert await ask(connections, "HEAD") == (200, b"")
            assert await ask(connections) == (200, b"hello")
            assert len(opened) == 2
            connections.close()

    run(case)


@pytest.mark.parametrize(
    "given",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", b"no HTTP\r\n\r\n"],
    ids=["none", "cut", "other"],
)
def test_what_breaks_off_is_told(given):
    async def case():
        async with server(given, ends=True) as (host, _, _):
            with pytest.raises(BrokenOffError):
                await ask(Connections(f"http://{host}"))

    run(case)


def test_a_server_that_is_not_there_is_told():
    async def case():
        async with server() as (host, _, _):
            pass
        with pytest.raises(UnreachableError):
            await ask(Connections(f"http://{host}"))

    run(case)


def test_a_reader_that_is_slow_makes_the_server_wait():
    size = 64 << 20

    async def case():
        async with server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)) as (host, _, opened):
            connections = Connections(f"http://{host}")
            answer = await connections.ask("GET", "/", [], b"")
            await asyncio.sleep(0.2)
            assert opened[0].transport.get_write_buffer_size() > size // 2  # nobody has read it
            assert sum([len(piece) async for piece in answer.pieces()]) == size
            answer.close()
            connections.close()

    run(case)


def test_an_answer_that_is_closed_twice_takes_nothing_from_the_next_request():
    async def case():
        async with server(HELLO, HELLO.replace(b"hello", b"other")) as (host, _, opened):
            connections = Connections(f"http://{host}")
            first = await connections.ask("GET", "/", [], b"")
            assert [piece async for piece in first.pieces()] == [b"hello"]
            first.close()
            second = await connections.ask("GET", "/", [], b"")
            first.close()
            assert [piece async for piece in first.pieces()] == []
            assert b"".join([piece async for piece in second.pieces()]) == b"other"
            second.close()
            connections.close()
            assert len(opened) == 1

    run(case)


def test_what_nobody_asked_for_is_no_answer():
    async def case():
        async with server(HELLO + HELLO, HELLO) as (host, _, opened):
            connections = Connections(f"http://{host}")
            assert await ask(connections) == (200, b"hello")
            opened[0].write(HELLO)
            await asyncio.sleep(0.05)
            assert await ask(connections) == (200, b"hello")
            assert len(opened) == 2
            connections.close()

    run(case)


def test_trailers_are_no_headers():
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Late: 1\r\n\r\n"

    async def case():
        async with server(chunked) as (host, _, _):
            connections = Connections(f"http://{host}")
            answer = await connections.ask("GET", "/", [], b"")
            assert b"".join([piece async for piece in answer.pieces()]) == b"hello"
            assert answer.raw_headers == [(b"Transfer-Encoding", b"chunked")]
            answer.close()
            connections.close()

    run(case)
