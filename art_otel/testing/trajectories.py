"""Strategies for whole trajectories.

Invariant: the calls of a trajectory are a lineage.
"""

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec import structs

from art_otel.calls import InferenceCall, Message, TokenIds
from art_otel.testing.records import (
    LABEL,
    MAYBE_IDS,
    NUMBER,
    OBJECT,
    RARELY,
    SCORE,
    TEXT,
    TIME,
    TRACE_ID,
    VALUES,
    WORD,
    WORDS,
    choices,
    inference_calls,
    messages,
    rewards,
    tool_executions,
)
from art_otel.trajectories.lineage import Lineage, build_lineage
from art_otel.trajectories.model import AddedMessage, PolicyVersions, Trajectory


@st.composite
def lineages(draw: DrawFn, *, max_calls: int = 4) -> Lineage:
    """Calls of an agent in causal order.

    There are branches, retries, n > 1, edited messages, prompts that were tokenized or written anew, failed calls and
    whatever is unknown.
    """
    calls: list[InferenceCall] = []
    model = draw(LABEL)  # of all calls: batches refuse to guess which of several models is the policy
    for _ in range(draw(st.integers(0, max_calls))):
        messages_before, ids_before = draw(_continued(calls)) if calls and draw(st.integers(0, 3)) else ((), TokenIds())
        added, added_ids = draw(_ADDED), draw(MAYBE_IDS)
        step = draw(st.integers(1, 2))
        count = draw(st.integers(0, 3))
        call = structs.replace(
            draw(inference_calls()),
            request_model=model,
            response_model=None if model is None else draw(LABEL),
            input_messages=None if draw(RARELY) else messages_before + added,
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
        edited = structs.replace(repeated[index], reasoning=draw(LABEL))
        repeated[index] = edited if change == "edited" else draw(messages())
    return tuple(repeated), ids


@st.composite
def trajectories(draw: DrawFn, rollout_ids: SearchStrategy[str] = TEXT, *, max_calls: int = 4) -> Trajectory:
    """Whole trajectories."""
    lineage = draw(lineages(max_calls=max_calls))
    ran = draw(st.lists(tool_executions(), max_size=2))
    turns = range(len(lineage.turns))
    askers = st.sampled_from([None, *turns])
    added = st.lists(st.builds(AddedMessage, turn=st.sampled_from(turns), message=messages()), max_size=2)
    return Trajectory(
        rollout_id=draw(rollout_ids),
        calls=lineage.calls,
        tool_calls=tuple(structs.replace(tool, turn=draw(askers)) for tool in ran),
        added_messages=tuple(draw(added)) if turns else (),
        **draw(_REST_OF_TRAJECTORY),
    )


_REST_OF_TRAJECTORY: Final[SearchStrategy[dict[str, Any]]] = st.fixed_dictionaries(
    {
        "trace_id": TRACE_ID,
        "name": LABEL,
        "group_id": LABEL,
        "gathering": LABEL,
        "attempt": st.sampled_from([None, 0, 1, 2]),
        "split": LABEL,
        "training_step": NUMBER,
        "policy_version": st.none() | st.builds(PolicyVersions, first=WORD, last=WORD),
        "parent_rollout_id": LABEL,
        "status": st.sampled_from(["ok", "error", "cancelled", "unfinished"]),
        "revision": st.integers(0, 3),
        "error": LABEL,
        "started_at": st.none() | TIME,
        "ended_at": st.none() | TIME,
        "incomplete_reasons": st.dictionaries(WORD, st.integers(1, 9), max_size=2),
        "reward": SCORE,
        "rewards": st.lists(rewards(), max_size=2).map(tuple),
        "metrics": st.dictionaries(WORD, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
        "metadata": OBJECT,
        "logs": WORDS,
        "tools": VALUES,
    }
)
