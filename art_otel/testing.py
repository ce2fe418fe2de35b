"""What tests of span pipelines need: spans built by hand, and hypothesis strategies for every record.

Invariant: the builder counts its ids and its clock, so equal calls give equal spans; every strategy gives valid
records only: the prompts and turns of a Trajectory are the lineage of its calls.

Needs hypothesis, which art-otel itself does not depend on.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from msgspec import structs

from art_otel import attributes as names
from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds, ToolCall, Usage
from art_otel.conventions import genai_message
from art_otel.conventions.bodies.tokens import encode_ids, encode_logprobs
from art_otel.spans import Attributes, Event, Link, Span, Value
from art_otel.trajectories.lineage.turns import Lineage, build_lineage
from art_otel.trajectories.model import AddedMessage, PolicyVersions, Reward, ToolExecution, Trajectory

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy
except ImportError as missing:
    raise ImportError("art_otel.testing needs hypothesis: pip install hypothesis") from missing

_EPOCH_NS: Final = 1_700_000_000_000_000_000
_TICK_NS: Final = 1_000_000


class SpanBuilder:
    """Builds the spans of one trace. Each span starts a millisecond after the one built before it."""

    def __init__(self, *, trace: int = 1, start_ns: int = _EPOCH_NS) -> None:
        self.trace_id = f"{trace:032x}"
        self._start_ns = start_ns
        self._built = 0

    def span(self, name: str, *, parent: Span | None = None, **fields: Any) -> Span:  # noqa: ANN401 # Span's own fields
        """A span of any kind, a millisecond long; `fields` are any other fields of Span."""
        self._built += 1
        start_ns = self._start_ns + self._built * _TICK_NS
        defaults: dict[str, Any] = {
            "trace_id": self.trace_id,
            "span_id": f"{self._built:016x}",
            "parent_span_id": None if parent is None else parent.span_id,
            "start_ns": start_ns,
            "end_ns": start_ns + _TICK_NS,
        }
        return Span(name=name, **(defaults | fields))

    def rollout(self, rollout_id: str, *, attributes: Attributes | None = None) -> Span:
        """A rollout's root span, an hour long."""
        own = {names.ROLLOUT_ID: rollout_id, names.ROLLOUT_NAME: "test", **(attributes or {})}
        end_ns = self._start_ns + 3_600_000 * _TICK_NS
        return self.span(f"{names.ROLLOUT_SPAN_PREFIX}test", attributes=own, end_ns=end_ns)

    def step(self, parent: Span, index: int) -> Span:
        """A step's span, a second long."""
        end_ns = self._start_ns + (self._built + 1_000) * _TICK_NS
        return self.span(
            f"{names.STEP_SPAN_PREFIX}{index}", parent=parent, attributes={names.STEP_INDEX: index}, end_ns=end_ns
        )

    def chat(
        self,
        parent: Span,
        prompt: Sequence[Message],
        choices: Sequence[Choice],
        *,
        prompt_token_ids: TokenIds | None = None,
        attributes: Attributes | None = None,
    ) -> Span:
        """A chat call in current GenAI attributes, with token ids and logprobs in ours."""
        chat: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "policy",
            "gen_ai.response.id": f"response-{self._built + 1}",
            "gen_ai.input.messages": json.dumps([genai_message(message) for message in prompt]),
            "gen_ai.output.messages": json.dumps(
                [genai_message(choice.message) | {"finish_reason": choice.finish_reason} for choice in choices]
            ),
            "gen_ai.response.finish_reasons": [choice.finish_reason or "" for choice in choices],
            **_token_attributes(prompt_token_ids, choices),
            **(attributes or {}),
        }
        return self.span("chat policy", parent=parent, kind="client", attributes=chat)

    def reward(self, parent: Span, value: float, *, name: str = "reward", target: Span | None = None) -> Span:
        """A reward given later: a span of its own, linked to the span that it judges."""
        judged = target or parent
        event = Event(
            name="gen_ai.evaluation.result",
            time_ns=self._start_ns + (self._built + 1) * _TICK_NS,
            attributes={"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value},
        )
        link = Link(trace_id=judged.trace_id, span_id=judged.span_id)
        return self.span(f"{names.REWARD_SPAN_PREFIX}{name}", parent=parent, events=(event,), links=(link,))


def _token_attributes(prompt: TokenIds | None, choices: Sequence[Choice]) -> dict[str, Value]:
    tokens: dict[str, Value] = {} if prompt is None else {names.PROMPT_TOKENS: encode_ids(prompt)}
    for choice in choices:
        if choice.token_ids is not None:
            tokens[f"{names.COMPLETION_TOKENS_PREFIX}{choice.index}"] = encode_ids(choice.token_ids)
        if choice.logprobs is not None:
            tokens[f"{names.COMPLETION_LOGPROBS_PREFIX}{choice.index}"] = encode_logprobs(choice.logprobs)
    return tokens


TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=12)
"""Any Unicode text that UTF-8 can hold, the empty one too."""

JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)
"""JSON values."""

# Most fields are filled from few values, because each draw of free text costs as much as ten of these.
_WORD: Final = st.sampled_from(["a", "b", "", "Zürich\n", "\x00", "東京 😀"])
_LABEL: Final = st.sampled_from([None, "a", "", "Zürich\n", "\x00", "東京 😀"])
_NUMBER: Final = st.sampled_from([None, 0, 1, -1, 2**63 - 1, -(2**63)])
_TIME: Final = st.sampled_from([0, 1, 1_700_000_000_000_000_001, 2**63 - 1])
_SCORE: Final = st.none() | st.floats(allow_nan=False, allow_infinity=False)
_RARELY: Final = st.sampled_from([*[False] * 7, True])
_WORDS: Final = st.lists(_WORD, max_size=2).map(tuple)
_OBJECT: Final = st.dictionaries(_WORD, JSON, max_size=2)
_VALUES: Final = st.lists(_OBJECT, max_size=2).map(tuple)
_SPAN_ID: Final = st.integers(1, 2**64 - 1).map("{:016x}".format)
_TRACE_ID: Final = st.integers(1, 2**128 - 1).map("{:032x}".format)


@cache
def tool_calls() -> SearchStrategy[ToolCall]:
    """Tool calls whose arguments are JSON or not."""
    arguments = TEXT | _OBJECT.map(json.dumps)
    return st.builds(ToolCall, id=_LABEL, name=_WORD, arguments=arguments, exact=st.booleans())


@cache
def messages() -> SearchStrategy[Message]:
    """Messages of any role."""
    return st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool", ""]),
        content=st.none() | TEXT,
        name=_LABEL,
        reasoning=_LABEL,
        refusal=_LABEL,
        tool_calls=st.just(()) | st.lists(tool_calls(), max_size=2).map(tuple),
        tool_call_id=_LABEL,
        parts=_LABEL,
    )


@cache
def token_ids(max_size: int = 6) -> SearchStrategy[TokenIds]:
    """Token ids. Shape: (at most max_size,)."""
    ids = st.binary(max_size=4 * max_size).map(lambda data: data[: len(data) // 4 * 4])
    # Ids are not negative: the sign bit of each goes.
    return ids.map(lambda data: TokenIds(bytes(byte & 127 if at % 4 == 3 else byte for at, byte in enumerate(data))))


@cache
def logprobs(max_size: int = 6) -> SearchStrategy[Logprobs]:
    """Logprobs. Shape: (at most max_size,)."""
    return st.lists(_LOGPROB, max_size=max_size).map(_packed_logprobs)


_LOGPROB: Final = st.sampled_from([0.0, -0.0, -0.5, -1.5, -1e-45, -3e38])


def _packed_logprobs(values: Iterable[float]) -> Logprobs:
    return Logprobs(Logprobs.of(values).data)


@st.composite
def choices(draw: DrawFn, index: int = 0) -> Choice:
    """A choice of the given index; it has as many logprobs as token ids, or no logprobs."""
    ids = draw(_MAYBE_IDS)
    has_logprobs = draw(st.booleans())
    return Choice(
        index=index,
        message=draw(messages()),
        finish_reason=draw(_FINISH_REASON),
        token_ids=ids,
        logprobs=_packed_logprobs(draw(_LOGPROB) for _ in ids) if ids is not None and has_logprobs else None,
    )


_MAYBE_IDS: Final = st.integers(0, 3).flatmap(lambda number: token_ids() if number else st.none())
_FINISH_REASON: Final = st.sampled_from([None, "stop", "length", "tool_calls"])


@cache
def inference_calls() -> SearchStrategy[InferenceCall]:
    """Calls without prompts and choices, which `lineages` gives them."""
    counts = dict.fromkeys(Usage.__struct_fields__, _NUMBER)
    texts = dict.fromkeys(_OPTIONAL_TEXTS, _LABEL) | dict.fromkeys(("error_type", "error"), _ERROR)
    return st.builds(
        InferenceCall,
        trace_id=_TRACE_ID,
        span_id=_SPAN_ID,
        operation_name=_WORD,
        start_ns=_TIME,
        end_ns=st.none() | _TIME,
        step=_NUMBER,
        parameters=_OBJECT,
        tools=st.none() | _VALUES,
        usage=st.none() | st.builds(Usage, **counts),
        stream=st.sampled_from([None, True, False]),
        dropped_attributes=st.integers(0, 2**31),
        cut=_WORDS,
        doubts=_WORDS,
        conventions=_WORDS,
        scrubbed=_RARELY,
        contradicted=_RARELY,
        env_state=_OBJECT,
        extra=_OBJECT,
        **texts,
    )


_OPTIONAL_TEXTS: Final = (
    "response_id",
    "previous_response_id",
    "agent",
    "provider",
    "request_model",
    "response_model",
    "policy_version",
)
_ERROR: Final = st.sampled_from([*[None] * 14, "", "Zürich\n"])


@cache
def rewards() -> SearchStrategy[Reward]:
    """Rewards from any source."""
    return st.builds(
        Reward,
        name=_WORD,
        value=_SCORE,
        step=_NUMBER,
        target=st.none() | _SPAN_ID,
        source=st.sampled_from(["attribute", "evaluation", "reward_span", "rl", "agentlightning"]),
        time_ns=_TIME,
        label=_LABEL,
        explanation=_LABEL,
        choice=_NUMBER,
        token_start=_NUMBER,
        token_end=_NUMBER,
        target_kind=st.sampled_from([None, "agent", "tool"]),
    )


@cache
def tool_executions() -> SearchStrategy[ToolExecution]:
    """Runs of tools that no turn asked for, as far as anybody knows."""
    return st.builds(
        ToolExecution,
        span_id=_SPAN_ID,
        name=_WORD,
        call_id=_LABEL,
        arguments=JSON,
        result=JSON,
        error=_LABEL,
        start_ns=_TIME,
        end_ns=st.none() | _TIME,
    )


@st.composite
def lineages(draw: DrawFn, *, max_calls: int = 4) -> Lineage:
    """Calls of an agent in causal order with their prompts and turns.

    There are branches, retries, n > 1, edited messages, prompts that were tokenized or written anew, failed calls and
    whatever is unknown.
    """
    calls: list[InferenceCall] = []
    for _ in range(draw(st.integers(0, max_calls))):
        messages_before, ids_before = draw(_continued(calls)) if calls and draw(st.integers(0, 3)) else ((), TokenIds())
        added, added_ids = draw(_ADDED), draw(_MAYBE_IDS)
        step = draw(st.integers(1, 2))
        count = draw(st.integers(0, 3))
        call = structs.replace(
            draw(inference_calls()),
            input_messages=None if draw(_RARELY) else messages_before + added,
            prompt_token_ids=None if added_ids is None else ids_before + added_ids,
            choices=tuple(draw(choices(index * step)) for index in range(count)) or None,
        )
        calls.append(call)
    calls.sort(key=lambda call: call.start_ns)
    return build_lineage(calls)


_ADDED: Final = st.lists(messages(), max_size=2).map(tuple)
_CHANGE: Final = st.sampled_from([None, "edited", "written anew", "tokenized anew"])


@st.composite
def _continued(draw: DrawFn, calls: Sequence[InferenceCall]) -> tuple[tuple[Message, ...], TokenIds]:
    """What an earlier call was asked and one of its completions, as a later prompt repeats them."""
    call = draw(st.sampled_from(calls))
    repeated, ids = [*(call.input_messages or ())], call.prompt_token_ids or TokenIds()
    if call.choices:
        choice = draw(st.sampled_from(call.choices))
        repeated.append(choice.message)
        ids += choice.token_ids or TokenIds()
    change = draw(_CHANGE)
    if change == "tokenized anew":
        ids = TokenIds(ids.data[: 4 * draw(st.integers(0, len(ids)))])
    elif change is not None and repeated:
        index = draw(st.integers(0, len(repeated) - 1))
        # Reasoning is no part of a message's identity, so the message stays the same one.
        edited = structs.replace(repeated[index], reasoning=draw(_LABEL))
        repeated[index] = edited if change == "edited" else draw(messages())
    return tuple(repeated), ids


@st.composite
def trajectories(draw: DrawFn, rollout_ids: SearchStrategy[str] = TEXT, *, max_calls: int = 4) -> Trajectory:
    """Whole trajectories, whose prompts and turns are the lineage of their calls."""
    lineage = draw(lineages(max_calls=max_calls))
    ran = draw(st.lists(tool_executions(), max_size=2))
    turns = range(len(lineage.turns))
    askers = st.sampled_from([None, *turns])
    added = st.lists(st.builds(AddedMessage, turn=st.sampled_from(turns), message=messages()), max_size=2)
    return Trajectory(
        rollout_id=draw(rollout_ids),
        calls=lineage.calls,
        prompts=lineage.prompts,
        turns=lineage.turns,
        tool_calls=tuple(structs.replace(tool, turn=draw(askers)) for tool in ran),
        added_messages=tuple(draw(added)) if turns else (),
        **draw(_REST_OF_TRAJECTORY),
    )


_REST_OF_TRAJECTORY: Final[SearchStrategy[dict[str, Any]]] = st.fixed_dictionaries(
    {
        "trace_id": _TRACE_ID,
        "name": _LABEL,
        "group_id": _LABEL,
        "attempt": st.sampled_from([None, 0, 1, 2]),
        "split": _LABEL,
        "training_step": _NUMBER,
        "policy_version": st.none() | st.builds(PolicyVersions, first=_WORD, last=_WORD),
        "parent_rollout_id": _LABEL,
        "status": st.sampled_from(["ok", "error", "cancelled", "unfinished"]),
        "revision": st.integers(0, 3),
        "error": _LABEL,
        "started_at": st.none() | _TIME,
        "ended_at": st.none() | _TIME,
        "incomplete_reasons": st.dictionaries(_WORD, st.integers(1, 9), max_size=2),
        "reward": _SCORE,
        "rewards": st.lists(rewards(), max_size=2).map(tuple),
        "metrics": st.dictionaries(_WORD, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
        "metadata": _OBJECT,
        "logs": _WORDS,
        "tools": _VALUES,
    }
)
