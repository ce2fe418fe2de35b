"""Promises of a receiver to its consumers: memory that does not grow, words that help, groups that stay whole."""

import asyncio
import gc
import socket
import threading
import tracemalloc
from dataclasses import replace

import pytest

import art_otel
from art_otel.errors import UsageError
from art_otel.live.delivery import Acknowledgment, Question
from art_otel.receiver.delivery import Delivery
from art_otel.receiver.index import Finished, SpooledRolloutIndex
from art_otel.receiver.protocol import Facts, ReceiverSelection
from art_otel.spool import FoundFile, SpooledLine
from art_otel.trajectories import GroupKey
from tests.examples import daily
from tests.receiver.otlp import send
from tests.receiver.rollouts import late_reward, logged_reward, rollout
from tests.receiver.serving import Serve, serving


def finished(number: int, spool, *, group: str | None = None) -> Finished:
    file = FoundFile(spool / "run" / "1.otlp.jsonl")
    return Finished(
        key=(f"r{number}", 0, f"{number:032x}"),
        revision=0,
        digest=f"{number:016x}",
        facts=Facts(
            split="train", models=("m",), policy_version="3", ended_at=0.0, group=group and GroupKey(3, None, group)
        ),
        lines=tuple(SpooledLine(file=file, offset=number * 1000 + n, size=9) for n in range(120)),
    )


@pytest.mark.long
def test_memory_does_not_grow_with_what_was_acknowledged(tmp_path):
    index = SpooledRolloutIndex(tmp_path / "index.sqlite", tmp_path)
    index.add_consumer("trainer")

    def give(numbers) -> None:
        for number in numbers:
            index.add([finished(number, tmp_path)], ())
            with index.pending("trainer", ReceiverSelection()) as pending:
                leased = list(pending)
            assert index.acknowledge("trainer", [each.acknowledgment for each in leased]) == 1

    give(range(100))
    tracemalloc.start()
    give(range(100, 700))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    index.close()
    assert grown < 200_000, grown


def test_sessions_of_one_consumer_share_what_there_is(tmp_path):
    """Each gets what no other one has, whole groups where it asks for these, and a newer text of what another has."""
    index = SpooledRolloutIndex(tmp_path / "index.sqlite", tmp_path)
    delivery = Delivery(index)
    index.add_consumer("trainer")
    of_groups = enumerate(["g", "h", "g", None, "h"])
    index.add([finished(number, tmp_path, group=group) for number, group in of_groups], ())
    first, second = delivery.open_session("trainer"), delivery.open_session("trainer")
    held: dict[str, list[Acknowledgment]] = {first: [], second: []}

    def take(session: str, count: int) -> list[tuple[str, int]]:
        question = Question(holds=held[session], count=count, whole_groups=True)
        taken = delivery.take("trainer", session, question, ReceiverSelection())
        held[session] += [one.acknowledgment for one in taken]
        return [(one.key[0], one.revision) for one in taken]

    assert take(first, 1) == [("r0", 0)]
    assert take(second, 1) == [("r1", 0)]
    assert take(second, 9) == [("r3", 0), ("r4", 0)]
    assert take(first, 9) == [("r2", 0)]
    index.add([replace(finished(3, tmp_path), digest="late")], ())
    assert take(first, 9) == [("r3", 1)]
    assert delivery.acknowledge("trainer", held[first]) == 3
    delivery.close_session("trainer", second)  # what it had waits again, but for what was replaced
    held[first].clear()
    assert take(first, 9) == [("r1", 0), ("r4", 0)]
    index.close()


def connected(url: str, **options):
    async def run() -> None:
        async with art_otel.connect(url, **options):
            pass

    return asyncio.run(run())


@pytest.mark.long
def test_a_receiver_that_is_not_up_yet_is_waited_for(tmp_path, caplog):
    server = Serve(tmp_path / "art").start()
    server.stop()
    later = threading.Timer(1.0, server.start)
    later.start()
    try:
        connected(server.url)
    finally:
        later.join()
        server.stop()
    assert caplog.text.count("waiting for the receiver") == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ntransfer-enc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_a_receiver_that_ends_while_a_session_begins_is_waited_for(tmp_path, said):
    server = Serve(tmp_path / "art").start()
    server.stop()
    host, port = server.http.split(":")
    listener = socket.create_server((host, int(port)))

    def break_off_and_start() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            connection.recv(1 << 16)
            connection.sendall(said)
        server.start()

    later = threading.Thread(target=break_off_and_start)
    later.start()
    try:
        connected(server.url)
    finally:
        later.join()
        server.stop()


def test_what_is_wrong_is_said_with_what_to_write(tmp_path):
    (tmp_path / "token").write_text("t0ken")
    with serving(tmp_path / "art", "--token-file", str(tmp_path / "token"), grpc=True) as server:
        for url, options, words in (
            (server.url, {}, r"write art_otel\.connect\(…, token=TOKEN\)"),
            (server.url, {"token": "other"}, "another token"),
            (server.url, {"token": "t0ken", "consumer": "a b/c"}, "not a valid consumer name"),
            (server.http, {"token": "t0ken"}, f"http://{server.http}"),
            (f"http://{server.grpc}", {"token": "t0ken"}, "maybe gRPC"),
            (f"https://{server.http}", {"token": "t0ken"}, "does not speak TLS"),
            (server.url, {"certificate": "none.pem"}, "none.pem"),
            ("http://127.0.0.1:1", {}, "no receiver answers"),
        ):
            with pytest.raises(UsageError, match=words):
                connected(url, **options, wait=0)
        assert 'art_otel_refused_questions_total{status="401"}' in server.metrics({"authorization": "Bearer t0ken"})
        assert "a question of a consumer is refused with 401" in server.log.read_text()


@pytest.mark.parametrize("late", daily([late_reward, logged_reward], one_in=2))
def test_a_reward_for_an_unknown_rollout_is_mentioned(tmp_path, late):
    with serving(tmp_path / "art", "--grace", "0.2s") as server:
        send(server.url, late(7, 1.0))
        server.wait_until_all_ended()
        assert server.metrics()["art_otel_unmatched_rewards_total"] == 1
        assert "but no other span of it has arrived" in server.log.read_text()


@pytest.mark.long
def test_two_processes_of_one_name_get_whole_groups(tmp_path):
    with serving(tmp_path / "art") as server:

        async def run() -> list:
            groups: list = []

            async def session() -> None:
                async with art_otel.connect(server.url) as rollouts:
                    async for group in rollouts.groups(size=4, timeout=20):
                        groups.append(group)
                        await asyncio.sleep(0.01)
                        if len(groups) >= 12:
                            return

            sessions = [asyncio.create_task(session()) for _ in range(2)]
            for number in range(1, 49):
                group = {"art.group.id": f"g{number % 12}", "art.training.step": 1}
                await asyncio.to_thread(send, server.url, rollout(number, **group))
            await asyncio.wait(sessions, return_when=asyncio.FIRST_COMPLETED, timeout=60)
            for each in sessions:
                each.cancel()
            await asyncio.gather(*sessions, return_exceptions=True)
            return groups

        assert [len(group.trajectories) for group in asyncio.run(run())][:12] == [4] * 12
