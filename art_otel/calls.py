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
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypeVar, cast, get_args, overload

import msgspec

from art_otel.sampling import LogprobsMode, Sampling, read_sampling
from art_otel.spans import Value

GapKind: TypeAlias = Literal[
    "masked",
    "cut",
    "dropped",
    "off",
    "not read",
    "not logged",
    "history on the server",
    "template on the server",
    "compacted",
    "not understood",
    "several prompts",
    "lossy recorder",
    "more counted than recorded",
    "miscounted",
    "aborted",
    "scrubbed",
    "contradicted",
]
"""Why content is not what was sent or sampled.

- `masked`: a recorder or backend wrote a mask in its place.
- `cut`: a limit on length cut it, with or without a sign.
- `dropped`: the SDK dropped attributes of the span.
- `off`: nobody recorded it.
- `not read`: its recorder put it into a file or object of its own, and that was not read.
- `not logged`: the log of an agent does not tell it.
- `history on the server`: the prompt continues what only the server has.
- `template on the server`: the prompt is made from a template that only the server has.
- `compacted`: the server showed the model a summary of the prompt, or left parts of it out.
- `not understood`: it is there, in a form that this version does not know.
- `several prompts`: one request of Completions had several, and no choice tells which is its own.
- `lossy recorder`: its recorder loses or rewrites it.
- `more counted than recorded`: the server counted more tokens than what was recorded can have.
- `miscounted`: its token ids are not as many as the server counted, and are left out.
- `aborted`: it came whole, and with null as its finish reason: the server stopped before the policy did.
- `scrubbed`: a secret was found in it.
- `contradicted`: another recording of the call says something else.
"""

Known: TypeAlias = Literal["verbatim body", "parsed attributes", "flattened attributes", "text only", "unknown"]
"""How content is known, from the surest to the least: a request or response body as it was sent, messages that a
recorder parsed, messages as one attribute a field, texts without roles or parts. `unknown`: its dialect does not say.
"""


FailureKind: TypeAlias = Literal["context exceeded"]
"""Why a call failed, where that is known to be the policy's doing; `conventions.failures` has the words of servers."""

StreamClose: TypeAlias = Literal["left", "finished"]
"""How an app closed a stream before it ended. `finished`: it says that this is how it ends a completion."""

ClosedStreams: TypeAlias = Literal["mask", "train"]
"""What the completion of a stream is that the app closed before it ended: context alone, or trained."""


CONTENT_GAPS: Final[tuple[GapKind, ...]] = tuple(
    kind for kind in get_args(GapKind) if kind not in ("compacted", "miscounted", "aborted", "scrubbed", "contradicted")
)
"""The kinds of gaps in one recording, which another recording of the same call may fill."""

ON_SERVER: Final[tuple[GapKind, ...]] = ("history on the server", "template on the server")
"""The kinds of gaps of prompts of which only the server has a part."""


class Gap(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Content of a call that is not, or may not be, what was sent or sampled.

    `field` says of what: `prompt`, `answer` (all choices), `answer[1]` (the choice with that index), `call` (all of
    these), `messages` (what was asked and answered, but not the ids), `tools` (the definitions), `tokens` (ids and
    logprobs) or `parameters`. `evidence` is what shows it: the name of an attribute, or a sentence.
    """

    kind: GapKind
    field: str
    evidence: str


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


class WeightVersion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The tokens `start` to `end` (exclusive) of a completion were sampled by the weights of this version."""

    version: str
    start: int
    end: int


class RoutedExperts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The experts to which each layer of a mixture of experts sent the tokens before the last, for router replay.

    The last token of a completion was never sent through the model, so the rows are those of the tokens of prompt and
    completion that end before it: all of them, or only the last ones. `data` holds rows of `layers` times `experts`
    numbers, each of `width` bytes, little-endian, unsigned: 2 where an expert's number does not fit into 1.
    """

    data: bytes
    layers: int
    experts: int
    width: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError for bytes that are no whole number of rows."""
        if min(self.layers, self.experts) < 1 or self.width not in (1, 2) or len(self.data) % self.row_bytes:
            raise ValueError(
                f"RoutedExperts needs whole rows of layers x experts numbers of 1 or 2 bytes, got {len(self.data)}"
                f" bytes for {self.layers} x {self.experts} of {self.width}"
            )

    @property
    def row_bytes(self) -> int:
        """The bytes of one token."""
        return self.layers * self.experts * self.width

    def __len__(self) -> int:
        return len(self.data) // self.row_bytes

    def last(self, count: int) -> "RoutedExperts":
        """The last rows, all of them where there are fewer than `count`."""
        skipped = max(0, len(self) - count)
        return msgspec.structs.replace(self, data=self.data[skipped * self.row_bytes :]) if skipped else self

    def __repr__(self) -> str:
        return f"RoutedExperts({len(self)} tokens, {self.layers} layers, {self.experts} experts)"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call in an assistant message.

    `arguments` is the text that the model sampled, if the instrumentor kept it. Otherwise, it is the parsed arguments,
    written as JSON with `, ` and `: `. `exact` is then False: only the value is known, not the text.
    """

    id: str | None = None
    name: str
    arguments: str
    exact: bool = True


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message. `content` is its whole text, or None if it has none.

    If there is more than one text, `parts` holds the content as a JSON list of parts (`{"type": "text" | "image" |
    "audio" | "file" | …}`), and `content` is the joined text parts.
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
        return (
            self.content is None
            and self.refusal is None
            and self.reasoning is None
            and self.parts is None
            and not self.tool_calls
        )

    @property
    def says_nothing(self) -> bool:
        """Whether the message is empty, or unknown."""
        return not (self.content or self.refusal or self.tool_calls or self.parts or self.reasoning)

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
        parts = None if self.parts is None or holds_text_only(self.parts) else self.parts
        return (self.role, self.content or None, self.refusal or None, calls, self.tool_call_id, parts)


@lru_cache(maxsize=1024)
def holds_text_only(parts: str) -> bool:
    """Whether all parts are text: then they are the message's content."""
    try:
        decoded = msgspec.json.decode(parts, type=list[dict[str, object]])
    except msgspec.MsgspecError:
        return False
    return all(part.keys() == {"type", "text"} for part in decoded)


_MEDIA: Final = {kind: kind for kind in ("image", "audio", "video", "file")} | {
    "computer_screenshot": "image",
    "computer_call_output": "image",
    "container_upload": "file",
}
"""The kinds of content beside text, by the types of parts."""


class _ContentPart(msgspec.Struct, gc=False):
    """What says of which kind a part is; the bytes of an image beside it are not decoded."""

    type: str | None = None


_PARTS: Final = msgspec.json.Decoder(list[_ContentPart])


def media_in(messages: Iterable[Message]) -> tuple[str, ...]:
    """The kinds of content beside text in messages (`audio`, `file`, `image`, `video`), in the order of the alphabet.

    Token ids hold no more of such content than placeholders.
    """
    kinds: set[str] = set()
    for message in messages:
        if message.parts is not None:
            with suppress(msgspec.MsgspecError):
                kinds.update(_MEDIA[part.type] for part in _PARTS.decode(message.parts) if part.type in _MEDIA)
    return tuple(sorted(kinds))


def canonical_arguments(arguments: str) -> str:
    """JSON arguments in one spelling; other text stays as it is, but none at all is an empty object.

    What a model streamed as no text, clients send back as `{}`.
    """
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments if arguments.strip() else "{}"
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


class Choice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sampled completion. `finish_reason` uses OpenAI's words (stop, length, tool_calls, content_filter).

    For RL, it may have more than ids and logprobs. `weight_versions` says in order which weights sampled which tokens.
    `sampling_mask` has for each token the ids that it could have been (after a grammar, top-k, top-p and min-p).
    `routed_experts` has the experts of the tokens; in a trajectory's calls only those that no earlier turn has.
    """

    index: int
    message: Message
    finish_reason: str | None = None
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    weight_versions: tuple[WeightVersion, ...] | None = None
    routed_experts: RoutedExperts | None = None
    sampling_mask: tuple[TokenIds, ...] | None = None


TOKEN_FACTS: Final = ("routed_experts", "sampling_mask")
"""What of a choice may take much space: a dataset has it only where somebody asked for it."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Token counts as the server reported them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


_CONSTRAINTS: Final = ("guided_", "structured_outputs", "grammar", "json_schema", "regex", "ebnf")
"""How the parameters begin by which vLLM, SGLang and llama.cpp are given a grammar."""


def _field(value: Value, name: str) -> Value:
    """A field of a JSON object; None of anything else."""
    return cast("dict[str, Value]", value).get(name) if isinstance(value, dict) else None


class ToolSet(tuple[Value, ...]):  # a tuple may have no slots
    """The definitions of the tools of a request: one value by its JSON text, which many calls may share.

    It is a tuple, and equals one of equal definitions. `json` is written as it stands wherever the definitions are.
    """

    json: str

    def __new__(cls, json: str) -> Self:
        """The set of a JSON list. Raises msgspec.DecodeError (a ValueError) for text that is none."""
        self = super().__new__(cls, _DEFINITIONS.decode(json))
        self.json = json
        return self

    def __reduce__(self) -> tuple[type["ToolSet"], tuple[str]]:
        return ToolSet, (self.json,)


_DEFINITIONS: Final = msgspec.json.Decoder(tuple[Value, ...])
_SHARED: ContextVar[dict[str, ToolSet] | None] = ContextVar("shared tool sets", default=None)
_MOST_SHARED: Final = 1 << 20
"""Characters of the texts that are shared. What is parsed of them takes several times as much."""


@contextmanager
def shared_tool_sets() -> Generator[None]:
    """Meanwhile equal texts are one `tool_set`: for a conversion, which gives its calls to no app."""
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def tool_set(json: str) -> ToolSet:
    """The set of a JSON list, of its own where an app may get it, and change it. Raises as `ToolSet` does."""
    shared = _SHARED.get()
    if shared is None or len(json) > _MOST_SHARED:
        return ToolSet(json)
    if json not in shared:
        if sum(map(len, shared)) + len(json) > _MOST_SHARED:
            shared.clear()
        shared[json] = ToolSet(json)
    return shared[json]


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one request to a model and its outcome, beside what was asked and what was sampled.

    - Times are nanoseconds since the epoch. `agent` is the name of the nearest `invoke_agent` ancestor, `step` the
      index of the nearest step.
    - `failure` says why a failed call failed, where that is known and the policy's doing: its context was too long.
      None for every other failure, such as an outage.
    - `closed_by_app` says that the app closed the stream of the answer before it ended: "left", or "finished" where the
      app says that this is how it ends a completion. None where it did not, or nobody knows.
    - `prompt_known` and `answer_known` say how its messages and its choices are known; None if there are none.
    - `gaps` lists the parts of the call that differ, or may differ, from what was sent and sampled. A call without gaps
      is whole.
    - `has_instructions` says whether the first message is the `instructions` of the Responses API, which a later
      response does not repeat; None if unknown.
    - `policy_version` is that of the weights as the request left, or as the server says. `policy_version_end` is that
      as the answer ended, where it is another.
    - `media` lists the kinds of content beside text (`audio`, `file`, `image`, `video`) in its whole prompt.
    - `logprobs_mode` says of which distribution the server's logprobs are; None if unknown.
    - `conventions` lists the conventions that described the call.
    - `marked_untrained` is what the call is for, if a span at or above it says that the policy does not learn from it,
      such as `judge`; None where nothing says so.
    - `parameters`, `env_state` and `extra` hold JSON values. `tools` are OpenAI tool definitions (a `ToolSet`
      or a tuple), or None if it is unknown whether there were any.
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
    tools: Sequence[Value] | None = None
    usage: Usage | None = None
    policy_version: str | None = None
    policy_version_end: str | None = None
    error_type: str | None = None
    error: str | None = None
    failure: FailureKind | None = None
    stream: bool | None = None
    closed_by_app: StreamClose | None = None
    prompt_known: Known | None = None
    answer_known: Known | None = None
    gaps: tuple[Gap, ...] = ()
    has_instructions: bool | None = None
    media: tuple[str, ...] = ()
    logprobs_mode: LogprobsMode | None = None
    conventions: tuple[str, ...] = ()
    marked_untrained: str | None = None
    env_state: dict[str, Value] = {}
    extra: dict[str, Value] = {}

    @property
    def failed(self) -> bool:
        """Whether the call ended in an error."""
        return self.error_type is not None or self.error is not None

    @property
    def sampling(self) -> Sampling:
        """What the request says of sampling, and of which distribution the logprobs are."""
        return read_sampling(self.parameters, self.logprobs_mode)

    @property
    def is_constrained(self) -> bool:
        """Whether the request allowed only some tokens, or moved them.

        That is a tool choice, a schema or a grammar, `allowed_token_ids`, `logit_bias`, `bad_words` or `min_tokens`.
        """
        return self._has_grammar or self.sampling.forces_tokens

    @property
    def has_masked_logprobs(self) -> bool:
        """Whether logprobs may be those of the allowed tokens alone, so that a forced token has 0.0.

        Servers such as vLLM apply a grammar before they take logprobs, but what else forces tokens only after that,
        where their logprobs are raw.
        """
        return self._has_grammar or (self.logprobs_mode != "raw" and self.sampling.forces_tokens)

    @property
    def _has_grammar(self) -> bool:
        parameters = self.parameters
        if not parameters:
            return False
        choice = parameters.get("tool_choice")
        formats = (parameters.get("response_format"), _field(parameters.get("text"), "format"))
        return (
            (_field(choice, "type") or choice) not in (None, "auto", "none")
            or any(_field(one, "type") not in (None, "text") for one in formats)
            or any(parameters.get(name) is not None for name in parameters if name.startswith(_CONSTRAINTS))
        )

    @property
    def is_uncounted(self) -> bool:
        """Whether the answer streamed, had tools and came without a count of its tokens.

        Some servers lose ids of streamed tool calls, while a parser holds the text back (vLLM issues 27482 and 29074).
        Only a count shows it.
        """
        return bool(self.stream and self.tools) and (self.usage is None or self.usage.output_tokens is None)

    def has_gap(self, *kinds: GapKind) -> bool:
        """Whether the call has a gap of one of these kinds, or any gap if no kind is given."""
        return bool(self.gaps) and (not kinds or any(gap.kind in kinds for gap in self.gaps))


class InferenceCall(CallRecord, frozen=True, kw_only=True, gc=False):
    """One request to a model and its outcome, as a recorder saw it: with its whole prompt and all its choices."""

    input_messages: tuple[Message, ...] | None = None
    choices: tuple[Choice, ...] | None = None
    prompt_token_ids: TokenIds | None = None

    @property
    def has_answer(self) -> bool:
        """Whether something shows an answer: what it says, its ids, how it finished, its count, the response's id."""
        return (
            self.usage is not None
            or self.response_id is not None
            or any(
                choice.finish_reason is not None or choice.token_ids is not None or not choice.message.says_nothing
                for choice in self.choices or ()
            )
        )
