"""A process of load clients for the receiver's benchmark: each keeps a connection and sends bodies built before.

It says `ready`, begins when a line comes, and prints as JSON what was acknowledged and when each rollout's end was sent
(of the machine's monotonic clock). Without a rate each client sends as fast as it is answered.
"""

import argparse
import json
import socket
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.receiver_bodies import Body, Shape, period, rollout_id

_HEAD = (
    "POST %s HTTP/1.1\r\nhost: %s\r\ncontent-type: application/x-protobuf\r\n"
    "content-length: %d\r\nconnection: keep-alive\r\n\r\n"
)
_RETRY = 0.05


class Client(threading.Thread):
    """`spans_per_second` is None for as fast as it goes. Periods are equally long, so rollouts end evenly."""

    def __init__(self, number: int, url: str, periods: list[list[Body]], spans_per_second: float | None) -> None:
        super().__init__()
        self._number = number
        self._url = urlsplit(url)
        self._periods = periods
        self._rate = spans_per_second
        self.spans = self.bytes = self.requests = self.refused = 0
        self.sent: list[tuple[str, float]] = []
        self.slowest = self.behind = 0.0

    def run(self) -> None:
        """Send all."""
        host, port = self._url.hostname or "", self._url.port or 80
        with socket.create_connection((host, port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            due = time.monotonic() + (0.0 if self._rate is None else self._number / 16 * 512 / self._rate)
            fullest = max(sum(body.spans for body in bodies) for bodies in self._periods)
            for generation, bodies in enumerate(self._periods):
                share = sum(body.spans for body in bodies) / fullest  # the first and the last have fewer rollouts
                for body in bodies:
                    if self._rate is not None:
                        time.sleep(max(0.0, due - time.monotonic()))
                        self.behind = max(self.behind, time.monotonic() - due)
                        due += body.spans / share / self._rate
                    self._send(connection, body, generation)

    def _send(self, connection: socket.socket, body: Body, generation: int) -> None:
        content = body.of(generation, self._number)
        head = (_HEAD % (self._url.path, self._url.netloc, len(content))).encode()
        begin = time.monotonic()
        while True:
            connection.sendall(head)
            connection.sendall(content)
            status = _answer(connection)
            if status == 200:
                break
            if status not in (429, 503):
                raise SystemExit(f"answered {status}")
            self.refused += 1
            time.sleep(_RETRY)
        self.slowest = max(self.slowest, time.monotonic() - begin)
        self.spans += body.spans
        self.bytes += len(content)
        self.requests += 1
        for slot, is_old in body.ends:
            self.sent.append((rollout_id(self._number, generation + (not is_old), slot), begin))


def _answer(connection: socket.socket) -> int:
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = connection.recv(65536)
        if not part:
            raise SystemExit("the server closed the connection")
        answer += part
    head, _, rest = answer.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    left = int(lengths[0].split(b":")[1]) - len(rest) if lengths else 0
    while left > 0:
        left -= len(connection.recv(left))
    return int(head[9:12])


def main() -> None:
    """Build, wait, send, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    for name in ("first", "clients", "periods", "slots", "spans", "batch", "calls", "prompt"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--rate", type=float, help="spans a second and client")
    parser.add_argument("--peer", type=Path, help="JSON with the ids that Agent Lightning knows")
    parser.add_argument("--open", action="store_true", help="rollouts that do not end")
    given = parser.parse_args()
    sizes = {name: getattr(given, name) for name in ("slots", "spans", "batch", "calls", "prompt")}
    shape = Shape(**sizes, peer=json.loads(given.peer.read_text()) if given.peer else [])
    if given.open:
        periods = [period(shape, old=False, ended=False), period(shape, new=False, ended=False)]
    else:
        middle = period(shape)
        periods = [period(shape, old=False), *[middle] * given.periods, period(shape, new=False)]
    numbers = range(given.first, given.first + given.clients)
    clients = [Client(number, given.url, periods, given.rate) for number in numbers]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    begin, used = time.monotonic(), time.process_time()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    totals = {
        name: sum(getattr(client, name) for client in clients) for name in ("spans", "bytes", "requests", "refused")
    }
    slowest = {name: max(getattr(client, name) for client in clients) for name in ("slowest", "behind")}
    times = {"begin": begin, "end": time.monotonic(), "cpu": time.process_time() - used}
    json.dump({**totals, **slowest, **times, "sent": [pair for client in clients for pair in client.sent]}, sys.stdout)


if __name__ == "__main__":
    main()
