"""Api: one wire format of a model: what a request asked, and the answer to it, whole or in chunks.

Invariant: the chunks joined are the whole answer, and both say exactly what the `Answer` says.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.dialects.recording.task import Answer, Asked


def server_sent(chunk: dict) -> bytes:
    """A chunk as a server-sent event; those that have a type are named by it."""
    name = f"event: {chunk['type']}\n" if "type" in chunk else ""
    return f"{name}data: {json.dumps(chunk)}\n\n".encode()


def never(_: dict) -> bool:
    """An API that shows no thoughts."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """A wire format. `body` has the model, and whether it streams, also where the path says so."""

    name: str
    asked: Callable[[dict], Asked]
    whole: Callable[[dict, Answer], dict]
    chunks: Callable[[dict, Answer], Iterator[dict]]
    thinks: Callable[[dict], bool] = never
    framed: Callable[[dict], bytes] = server_sent
    last: bytes = b""
    stream_type: str = "text/event-stream"
