"""Calls of generated and hand-written agents, with the token ids that their server gave."""

from collections.abc import Iterable

from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds
from art_otel.trajectories import Trajectory
from art_otel.trajectories.lineage import build_turns

WORDS = st.sampled_from(["a", "b", ""])
FEW_IDS = st.lists(st.integers(0, 2), max_size=3)


def choice(content: str, ids: list[int] | None, *, index: int = 0, logprobs: bool = True) -> Choice:
    """A completion whose logprobs are its ids, negated."""
    return Choice(
        index=index,
        message=Message(role="assistant", content=content),
        token_ids=None if ids is None else TokenIds.of(ids),
        logprobs=Logprobs.of([-token for token in ids]) if ids is not None and logprobs else None,
    )


def asked(number: int, messages, prompt: Iterable[int] | None, choices, **fields) -> InferenceCall:
    return InferenceCall(
        trace_id="ab" * 16,
        span_id=f"{number:016x}",
        operation_name="chat",
        start_ns=number,
        end_ns=number + 1,
        input_messages=tuple(messages),
        prompt_token_ids=None if prompt is None else TokenIds.of(prompt),
        choices=tuple(choices) or None,
        **fields,
    )


def call(number: int, prompt: str, ids: list[int] | None, *choices: Choice, **fields) -> InferenceCall:
    """A call; each word of `prompt` is a message, user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [Message(role=roles[at % 2], content=word) for at, word in enumerate(prompt.split(" "))]
    return asked(number, messages, ids, choices, **fields)


@st.composite
def runs(draw) -> list[InferenceCall]:
    """The calls of agents: branches, retries, n, no new tokens, truncated and drifted prompts, lost ids, failures.

    Ids and words are few, so that paths that differ often look alike.
    """
    calls: list[InferenceCall] = []
    prompts: list[tuple[list[Message], list[int]]] = []
    samples: list[tuple[list[Message], list[int]]] = []
    for number in range(draw(st.integers(1, 10))):
        way = draw(st.sampled_from(["continue", "continue", "continue", "retry", "start", "drift", "truncate"]))
        if way == "retry" and prompts:
            messages, ids = draw(st.sampled_from(prompts))
        elif way != "start" and samples:
            messages, ids = draw(_continued(draw(st.sampled_from(samples)), way))
        else:
            messages, ids = [Message(role="user", content=draw(WORDS))], draw(FEW_IDS)
        prompts.append((messages, ids))
        choices = [
            choice(draw(WORDS), draw(FEW_IDS), index=index, logprobs=draw(st.integers(0, 4)) > 0)
            for index in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3])))
        ]
        samples += [([*messages, one.message], [*ids, *one.token_ids]) for one in choices]
        calls.append(draw(_recorded(number, messages, ids, choices)))
    return calls


@st.composite
def _continued(draw, path, way):
    messages, ids = path
    if way == "truncate":
        messages, ids = messages[1:], ids[1:]
    elif way == "drift" and ids:
        at = draw(st.integers(0, len(ids) - 1))
        ids = [*ids[:at], 7, *ids[at + 1 :]]
    given = [Message(role="user", content=word) for word in draw(st.lists(WORDS, max_size=2))]
    return [*messages, *given], [*ids, *draw(FEW_IDS)]


@st.composite
def _recorded(draw, number, messages, ids, choices):
    """The call as it was recorded: at times without ids, at times failed."""
    if draw(st.integers(0, 9)) == 0:
        choices = [structs.replace(one, token_ids=None, logprobs=None) for one in choices]
    told = None if draw(st.integers(0, 9)) == 0 else ids
    failed = not choices or draw(st.integers(0, 9)) == 0
    return asked(number, messages, told, choices, error_type="Timeout" if failed else None)


def trajectory_of(calls) -> Trajectory:
    ordered, turns = build_turns(calls)
    return Trajectory(rollout_id="r", trace_id="ab" * 16, calls=ordered, turns=turns)
