"""Bytes on a connection as no HTTP client sends them, and requests that wait for no answer."""

import re
import socket

from tests.receiver.otlp import PROTOBUF

PIPELINED = 100


def raw(address: str, data: bytes) -> bytes:
    """What comes back for bytes on a connection, until the server closes it or says something whole."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        answer = b""
        try:
            connection.sendall(data)
            while b"\r\n\r\n" not in answer and (more := connection.recv(65536)):
                answer += more
        except ConnectionError:
            pass
        return answer


HEAD = (
    f"POST /v1/traces HTTP/1.1\r\nhost: [::1]\r\nauthorization: Bearer t0ken\r\ncontent-type: {PROTOBUF}\r\n".encode()
)


def flood(address: str, requests: dict[int, bytes], rounds: int) -> list[int]:
    """The statuses of requests that are sent without waiting for each other; they are the same in every round."""
    host, port = address.split(":")
    sent = b"".join(requests.values()) * (PIPELINED // len(requests))
    statuses: set[tuple[int, ...]] = set()
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for _ in range(rounds):
            connection.sendall(sent)
            answers = b""
            while answers.count(b"HTTP/1.1 ") < PIPELINED or not is_whole(answers):
                more = connection.recv(65536)
                assert more, answers[-500:]
                answers += more
            statuses.add(tuple(int(answer[:3]) for answer in answers.split(b"HTTP/1.1 ")[1:]))
    (same,) = statuses
    return list(same)


def is_whole(answers: bytes) -> bool:
    """Whether the last of the answers has its body."""
    head, _, body = answers[answers.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return length is not None and len(body) == int(length[1])
