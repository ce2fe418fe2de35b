"""Strategies for the records of a trajectory: messages, tokens, choices, calls, rewards, runs of tools.

Invariant: every one gives valid records only.
"""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, get_args

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec import structs

from art_otel.calls import (
    Choice,
    FailureKind,
    Gap,
    GapKind,
    InferenceCall,
    Known,
    Logprobs,
    Message,
    RoutedExperts,
    StreamClose,
    TokenIds,
    ToolCall,
    Usage,
    WeightVersion,
)
from art_otel.sampling import LogprobsMode
from art_otel.trajectories.model import Reward, ToolExecution

TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=12)
"""Any Unicode text that UTF-8 can hold, the empty one too."""

JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)
"""JSON values."""

# Most fields are filled from few values, because each draw of free text costs as much as ten of these.
WORD: Final = st.sampled_from(["a", "b", "", "Zürich\n", "\x00", "東京 😀"])
LABEL: Final = st.sampled_from([None, "a", "", "Zürich\n", "\x00", "東京 😀"])
NUMBER: Final = st.sampled_from([None, 0, 1, -1, 2**63 - 1, -(2**63)])
TIME: Final = st.sampled_from([0, 1, 1_700_000_000_000_000_001, 2**63 - 1])
SCORE: Final = st.none() | st.floats(allow_nan=False, allow_infinity=False)
RARELY: Final = st.sampled_from([*[False] * 7, True])
WORDS: Final = st.lists(WORD, max_size=2).map(tuple)
OBJECT: Final = st.dictionaries(WORD, JSON, max_size=2)
VALUES: Final = st.lists(OBJECT, max_size=2).map(tuple)
SPAN_ID: Final = st.integers(1, 2**64 - 1).map("{:016x}".format)
TRACE_ID: Final = st.integers(1, 2**128 - 1).map("{:032x}".format)


@cache
def tool_calls() -> SearchStrategy[ToolCall]:
    """Tool calls whose arguments are JSON or not."""
    arguments = TEXT | OBJECT.map(json.dumps)
    return st.builds(ToolCall, id=LABEL, name=WORD, arguments=arguments, exact=st.booleans())


@cache
def messages() -> SearchStrategy[Message]:
    """Messages of any role."""
    return st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool", ""]),
        content=st.none() | TEXT,
        name=LABEL,
        reasoning=LABEL,
        refusal=LABEL,
        tool_calls=st.just(()) | st.lists(tool_calls(), max_size=2).map(tuple),
        tool_call_id=LABEL,
        parts=LABEL,
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
    """A choice of the given index. It has as many logprobs as token ids, or none; the same of what else a token has."""
    ids = draw(MAYBE_IDS)
    has_logprobs = draw(st.booleans())
    facts = {} if not ids or draw(st.integers(0, 4)) else draw(_token_facts(len(ids)))
    return Choice(
        index=index,
        message=draw(messages()),
        finish_reason=draw(_FINISH_REASON),
        token_ids=ids,
        logprobs=_packed_logprobs(draw(_LOGPROB) for _ in ids) if ids is not None and has_logprobs else None,
        **facts,
    )


@st.composite
def _token_facts(draw: DrawFn, count: int) -> dict[str, Any]:
    """What is known of a completion of so many tokens beside ids and logprobs."""
    middle, width = draw(st.integers(1, count)), draw(st.sampled_from([1, 2]))
    versions = [WeightVersion(version=draw(WORD), start=0, end=middle)]
    if middle < count:
        versions.append(WeightVersion(version=draw(WORD), start=middle, end=count))
    size = 2 * width * (count - 1)
    rows = draw(st.binary(min_size=size, max_size=size))
    mask = draw(st.lists(token_ids(), min_size=count, max_size=count))
    return {
        "weight_versions": draw(st.sampled_from([None, tuple(versions)])),
        "routed_experts": draw(st.sampled_from([None, RoutedExperts(data=rows, layers=2, experts=1, width=width)])),
        "sampling_mask": draw(st.sampled_from([None, tuple(mask)])),
    }


MAYBE_IDS: Final = st.integers(0, 3).flatmap(lambda number: token_ids() if number else st.none())
_FINISH_REASON: Final = st.sampled_from([None, "stop", "length", "tool_calls"])


_GAPS: Final = st.none().map(lambda _: ()) | st.lists(
    st.builds(
        Gap,
        kind=st.sampled_from(get_args(GapKind)),
        field=st.sampled_from(["prompt", "answer", "answer[0]", "answer[1]", "call", "tools", "tokens", "parameters"]),
        evidence=WORD,
    ),
    max_size=2,
).map(tuple)


@cache
def inference_calls() -> SearchStrategy[InferenceCall]:
    """Calls without prompts and choices, which `lineages` gives them."""
    counts = dict.fromkeys(Usage.__struct_fields__, NUMBER)
    texts = dict.fromkeys(_OPTIONAL_TEXTS, LABEL) | dict.fromkeys(("error_type", "error"), _ERROR)
    return st.builds(
        InferenceCall,
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        operation_name=WORD,
        start_ns=TIME,
        end_ns=st.none() | TIME,
        step=NUMBER,
        parameters=OBJECT,
        tools=st.none() | VALUES,
        usage=st.none() | st.builds(Usage, **counts),
        stream=st.sampled_from([None, True, False]),
        closed_by_app=st.sampled_from([None, *get_args(StreamClose)]),
        prompt_known=st.none() | st.sampled_from(get_args(Known)),
        answer_known=st.none() | st.sampled_from(get_args(Known)),
        gaps=_GAPS,
        has_instructions=st.sampled_from([None, True, False]),
        media=st.sampled_from([(), (), ("image",), ("audio", "file")]),
        logprobs_mode=st.none() | st.sampled_from(get_args(LogprobsMode)),
        conventions=WORDS,
        env_state=OBJECT,
        extra=OBJECT,
        **texts,
    ).flatmap(_with_failure)


def _with_failure(call: InferenceCall) -> SearchStrategy[InferenceCall]:
    """Why a call failed may be known, if it did."""
    if not call.failed:
        return st.just(call)
    return st.sampled_from([None, *get_args(FailureKind)]).map(lambda kind: structs.replace(call, failure=kind))


_OPTIONAL_TEXTS: Final = (
    "response_id",
    "previous_response_id",
    "agent",
    "marked_untrained",
    "provider",
    "request_model",
    "response_model",
    "policy_version",
    "policy_version_end",
)
_ERROR: Final = st.sampled_from([*[None] * 14, "", "Zürich\n"])


@cache
def rewards() -> SearchStrategy[Reward]:
    """Rewards from any source."""
    return st.builds(
        Reward,
        name=WORD,
        value=SCORE,
        step=NUMBER,
        target=st.none() | SPAN_ID,
        source=st.sampled_from(["attribute", "evaluation", "reward_span", "rl", "agentlightning"]),
        time_ns=TIME,
        label=LABEL,
        explanation=LABEL,
        choice=NUMBER,
        token_start=NUMBER,
        token_end=NUMBER,
        target_kind=st.sampled_from([None, "agent", "tool"]),
    )


@cache
def tool_executions() -> SearchStrategy[ToolExecution]:
    """Runs of tools that no turn asked for, as far as anybody knows."""
    return st.builds(
        ToolExecution,
        span_id=SPAN_ID,
        name=WORD,
        call_id=LABEL,
        arguments=JSON,
        result=JSON,
        error=LABEL,
        start_ns=TIME,
        end_ns=st.none() | TIME,
    )
