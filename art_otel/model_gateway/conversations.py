"""Conversations: which rollout a call is of whose agent does not say it, by what its prompt continues.

Invariant: a call continues another only if its prompt begins with that one's whole prompt and its answer, message by
message as lineage compares them, or names its response. So rollouts of one task are apart, though they begin alike,
until two were answered alike. Memory is bounded: of the oldest conversations nothing is known any more.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from art_otel.calls import Message
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies.api_bodies import read_request, read_response
from art_otel.conventions.facts import NO_FACTS
from art_otel.spans import Value

_MAX_PATHS: Final = 100_000


class Conversations:
    """The paths that were answered: a digest of each, and its rollout."""

    def __init__(self) -> None:
        self._rollouts: OrderedDict[bytes, str] = OrderedDict()

    def rollout_of(self, request: dict[str, Value]) -> str | None:
        """The rollout of the longest path that a request continues; None where it continues none."""
        facts = read_request(AttributeReader({}), "", request) or NO_FACTS
        if facts.previous_response_id is not None:
            return self._rollouts.get(facts.previous_response_id.encode())
        messages = facts.input_messages or ()
        paths = [
            path
            for message, path in zip(messages, _paths(messages), strict=True)
            if message.role == "assistant" and path in self._rollouts
        ]
        return self._rollouts[paths[-1]] if paths else None

    def answered(self, rollout_id: str, request: dict[str, Value], answer: dict[str, Value]) -> None:
        """Remember the paths of a call."""
        prompt = (read_request(AttributeReader({}), "", request) or NO_FACTS).input_messages or ()
        facts = read_response(AttributeReader({}), "", answer) or NO_FACTS
        for choice in facts.choices or ():
            *_, path = _paths((*prompt, choice.message))
            self._remember(path, rollout_id)
        if facts.response_id is not None:
            self._remember(facts.response_id.encode(), rollout_id)

    def _remember(self, path: bytes, rollout_id: str) -> None:
        self._rollouts[path] = rollout_id
        self._rollouts.move_to_end(path)
        while len(self._rollouts) > _MAX_PATHS:
            self._rollouts.popitem(last=False)


def _paths(messages: Iterable[Message]) -> Iterator[bytes]:
    """The digest of each prefix that ends with a message."""
    path = b""
    for message in messages:
        path = blake2b(path + repr(message.identity).encode(errors="surrogatepass"), digest_size=16).digest()
        yield path
