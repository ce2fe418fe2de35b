"""InferenceCall: one LLM call, in the same fields whichever instrumentor recorded it.

Invariant: what is unknown is None and never empty. `input_messages=None` means nobody recorded the prompt, `()`
that the call really had none; likewise for choices, ids, logprobs and usage. Messages are order-free records
(text, reasoning, tool calls, refusal each in a field of its own), because instrumentors disagree on the order of
parts, so that one completion is equal whoever recorded it. None of the records can hold itself, so the garbage
collector does not look at them (`gc=False`).
"""

import json
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast, overload

import msgspec

from art_otel.spans import Value

CONTENT_LOST: Final = "content lost"
CONTENT_REWRITTEN: Final = "content rewritten"
CONTENT_TRUNCATED: Final = "content truncated"
LIST_HOLES: Final = "list entries missing"
UNKNOWN_PARTS: Final = "unknown parts"
DOUBTS: Final = (CONTENT_LOST, CONTENT_REWRITTEN, CONTENT_TRUNCATED, LIST_HOLES, UNKNOWN_PARTS)
"""Why the content of a call may be other than what was sent and sampled, although it could be read."""

_Number = TypeVar("_Number", int, float)


class Packed(msgspec.Struct, Generic[_Number], frozen=True, gc=False):
    """An immutable sequence of 4-byte numbers over little-endian bytes: compared, sliced and stored without boxing."""

    data: bytes = b""
    typecode: ClassVar[str]
    _number: ClassVar[struct.Struct]

    def __post_init__(self) -> None:
        """Raises ValueError for bytes that are no whole number of numbers."""
        if len(self.data) % 4:
            raise ValueError(f"{type(self).__name__} needs 4 bytes a number, got {len(self.data)} bytes")

    @classmethod
    def of(cls, numbers: Iterable[_Number]) -> "Packed[_Number]":
        """Pack numbers. Raises OverflowError for one that does not fit, TypeError for what is no number."""
        packed = array(cls.typecode, cast(Any, numbers))
        if sys.byteorder == "big":
            packed.byteswap()
        return cls(packed.tobytes())

    def _array(self) -> "array[Any]":
        unpacked = array(self.typecode, self.data)
        if sys.byteorder == "big":
            unpacked.byteswap()
        return unpacked

    def __len__(self) -> int:
        return len(self.data) // 4

    def __iter__(self) -> Iterator[_Number]:
        return iter(self._array())

    @overload
    def __getitem__(self, index: int) -> _Number: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> "_Number | Self":
        if not isinstance(index, slice):
            return self._number.unpack_from(self.data, 4 * range(len(self))[index])[0]
        start, stop, step = index.indices(len(self))
        if step != 1:
            return cast("Self", self.of(self._array()[index]))
        return type(self)(self.data[4 * start : 4 * max(start, stop)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"

    def tolist(self) -> list[_Number]:
        """The numbers as a list."""
        return self._array().tolist()


class TokenIds(Packed[int], frozen=True, gc=False):
    """Token ids as int32, little-endian. Shape: (tokens,)."""

    typecode: ClassVar[str] = "i"
    _number: ClassVar[struct.Struct] = struct.Struct("<i")

    def startswith(self, prefix: "TokenIds", position: int = 0) -> bool:
        """Whether the ids from `position` on begin with those of `prefix`."""
        return self.data.startswith(prefix.data, 4 * position)

    def after(self, count: int) -> "TokenIds":
        """The ids from position `count` on."""
        return TokenIds(self.data[4 * count :])

    def __add__(self, other: "TokenIds") -> "TokenIds":
        return TokenIds(self.data + other.data)


class Logprobs(Packed[float], frozen=True, gc=False):
    """Natural-log probabilities of sampled tokens as float32, little-endian. Shape: (tokens,)."""

    typecode: ClassVar[str] = "f"
    _number: ClassVar[struct.Struct] = struct.Struct("<f")


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call in an assistant message.

    `arguments` is the text the model sampled where the instrumentor kept it, else the parsed arguments written
    as JSON with `, ` and `: ` (then `exact` is False, and only the meaning is known, not the text).
    """

    id: str | None = None
    name: str
    arguments: str
    exact: bool = True


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message. `content` is its whole text, None when it has none.

    `parts` holds the content as a JSON list of parts (`{"type": "text" | "image" | "audio" | "file" | …}`) when there
    is more to it than one text; `content` is then the text parts joined.
    """

    role: str
    content: str | None = None
    name: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    parts: str | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether nothing was recorded of what the message says; an empty text is known."""
        texts = (self.content, self.refusal, self.reasoning, self.parts)
        return texts == (None,) * len(texts) and not self.tool_calls

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two messages the same message of a conversation.

        Left out is what the way through a client, template or instrumentor changes: absent against null against empty
        content, a text in one part or in several (as it was streamed), the spelling of JSON arguments, reasoning
        (templates drop it from the history), participant names.
        """
        calls: tuple[object, ...] = ()
        if self.tool_calls:
            calls = tuple((call.id, call.name, canonical_arguments(call.arguments)) for call in self.tool_calls)
        parts = None if self.parts is None or _are_texts(self.parts) else self.parts
        return (self.role, self.content or None, self.refusal or None, calls, self.tool_call_id, parts)


@lru_cache(maxsize=1024)
def _are_texts(parts: str) -> bool:
    """Whether all parts are text: then they are the message's content."""
    try:
        decoded = msgspec.json.decode(parts, type=list[dict[str, object]])
    except msgspec.MsgspecError:
        return False
    return all(part.keys() == {"type", "text"} for part in decoded)


def canonical_arguments(arguments: str) -> str:
    """JSON arguments in one spelling; text that is not JSON stays as it is."""
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


class Choice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sampled completion. `finish_reason` uses OpenAI's words (stop, length, tool_calls, content_filter)."""

    index: int
    message: Message
    finish_reason: str | None = None
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Token counts as the server reported them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class InferenceCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to a model and its outcome.

    Times are nanoseconds since the epoch; `agent` is the name of the nearest `invoke_agent` ancestor, `step` the index
    of the nearest step. `cut` names attributes whose JSON was cut off by a length limit, `dropped_attributes` counts
    those the SDK dropped, `doubts` says why its content may be other than what was sent and sampled. `scrubbed` says
    that a secret was found in the prompt or the answer, `contradicted` that another recording of the call says
    something else. `conventions` lists who described the call. `parameters`, `env_state` and `extra` hold JSON values;
    `tools` are OpenAI tool definitions, None when nobody recorded whether there were any.
    """

    trace_id: str
    span_id: str
    operation_name: str
    start_ns: int
    end_ns: int | None
    response_id: str | None = None
    previous_response_id: str | None = None
    agent: str | None = None
    step: int | None = None
    provider: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    parameters: dict[str, Value] = {}
    tools: tuple[Value, ...] | None = None
    input_messages: tuple[Message, ...] | None = None
    choices: tuple[Choice, ...] | None = None
    prompt_token_ids: TokenIds | None = None
    usage: Usage | None = None
    policy_version: str | None = None
    error_type: str | None = None
    error: str | None = None
    stream: bool | None = None
    dropped_attributes: int = 0
    cut: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    scrubbed: bool = False
    contradicted: bool = False
    conventions: tuple[str, ...] = ()
    env_state: dict[str, Value] = {}
    extra: dict[str, Value] = {}

    @property
    def failed(self) -> bool:
        """Whether the call ended in an error."""
        return self.error_type is not None or self.error is not None
