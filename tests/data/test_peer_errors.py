"""Where Agent Lightning 0.3.0 goes wrong on the way from spans to training data, with the right answers.

Each test is one of its errors, reproduced there and described in its name or docstring.
"""

import asyncio

import pytest
from opentelemetry import trace

import art_otel
from art_otel.calls import TokenIds
from art_otel.conventions.bodies.tokens import encode_ids
from art_otel.data import call_reward
from art_otel.tracing.api.context import recorder, use_recorder
from tests.conversions import convert_files, convert_spans
from tests.data.learnt import Learnt, as_given, learn
from tests.dumps import attribute, chat_span, make_span
from tests.tracing.api.app import App

ROLLOUT = {"art.rollout.id": "r"}
SECOND = 1_000_000_000
BEGIN = 100 * SECOND


def tokens(prompt: list[int], answer: list[int] | None) -> dict[str, str]:
    told = {"art.tokens.prompt": encode_ids(TokenIds.of(prompt))}
    if answer is not None:
        told["art.tokens.completion.0"] = encode_ids(TokenIds.of(answer))
    return told


def call(number: int, parent: int | None, prompt: list[list[int]], answer: list[int] | None, **fields):
    """A chat call. A message is a list of ids, which are its text too."""
    ids = [token for message in prompt for token in message]
    told = tokens(ids, answer) | fields.pop("attributes", {})
    texts = [str(message) for message in prompt]
    return chat_span(number, parent, texts, None if answer is None else str(answer), attributes=told, **fields)


def rollout(reward: float | None = 1.0, **fields):
    told = ROLLOUT | ({} if reward is None else {"art.reward": reward})
    return make_span(1, name="rollout x", attributes=told, endTimeUnixNano=str(9 * 10**15), **fields)


def at(start: int, end: int | None = None) -> dict[str, str]:
    return {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 1 if end is None else end)}


def link_to(number: int) -> list[dict[str, str]]:
    return [{"traceId": f"{1:032x}", "spanId": f"{number:016x}"}]


def test_concurrent_rollouts_in_one_process(tmp_path, monkeypatch):
    """There the second rollout of a process raises while the first still runs."""
    before, app = recorder(), App(tmp_path)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", app.provider)

    @art_otel.rollout(name="agent")
    async def agent(number: int) -> None:
        prompt = [number]
        for turn in range(3):
            answer = [100 * number + turn]
            with app.recorded(f"{number} {turn}", "a", None) as span:
                span.set_attributes(tokens(prompt, answer))
                await asyncio.sleep(0)
            prompt = [*prompt, *answer, 99]
        art_otel.reward(float(number))

    async def many() -> None:
        await asyncio.gather(*map(agent, range(6)))

    try:
        asyncio.run(many())
    finally:
        app.processor.shutdown()
        use_recorder(before)
    convert_files(tmp_path / "out", tmp_path / "spool")
    found = learn(tmp_path / "out")
    assert len({learnt.rollout for learnt in found}) == 6
    assert sorted((*learnt.before, *learnt.ids, *learnt.worth) for learnt in found) == sorted(
        (
            number,
            *(token for earlier in range(turn) for token in (100 * number + earlier, 99)),
            100 * number + turn,
            number,
        )
        for number in range(6)
        for turn in range(3)
    )


def two_calls_and_a_reward(reward):
    """The first call is judged; the second runs when a clock that is 3 s off says that the reward was given."""
    return [
        rollout(None),
        call(2, 1, [[1]], [11], **at(BEGIN, BEGIN + SECOND), attributes={"gen_ai.response.id": "one"}),
        call(3, 1, [[2]], [12], **at(BEGIN + 2 * SECOND, BEGIN + 5 * SECOND)),
        reward,
    ]


def by_link(start: int):
    return make_span(9, name="reward reward", links=link_to(2), attributes={"art.reward": 0.5}, trace=7, **at(start))


def by_response(start: int):
    """Agent Lightning's own reward span, with the link that its `emit_annotation` can make."""
    told = {
        "agentlightning.reward.0.name": "primary",
        "agentlightning.reward.0.value": 0.5,
        "agentlightning.link.0.key_match": "gen_ai.response.id",
        "agentlightning.link.0.value_match": "one",
    }
    return make_span(9, 1, name="agentlightning.annotation", attributes=told, **at(start))


def by_event(start: int):
    told = {
        "gen_ai.evaluation.name": "reward",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.response.id": "one",
    }
    pairs = [{"key": key, "value": attribute(value)} for key, value in told.items()]
    event = {"timeUnixNano": str(start), "name": "gen_ai.evaluation.result", "attributes": pairs}
    return make_span(9, 1, name="judge", events=[event], **at(start))


@pytest.mark.parametrize("given", [by_link, by_response, by_event])
@pytest.mark.parametrize("skew", [-3 * SECOND, 0, 3 * SECOND, 3_600 * SECOND])
def test_a_reward_reaches_the_call_that_it_names_whatever_the_clocks_say(tmp_path, given, skew):
    """There a reward goes to the last call that had ended by the clock, so one that is late or skewed goes astray."""
    convert_spans(tmp_path, *two_calls_and_a_reward(given(BEGIN + SECOND + skew)))
    assert learn(tmp_path / "dataset", credit=call_reward()) == [Learnt("r", (1,), (11,), (0.5,))]


@pytest.mark.parametrize("nested", [False, True])
def test_interleaved_agents_are_each_one_sequence(tmp_path, nested):
    """There the calls of a rollout are one list, so a turn of another agent in between ends a merged sequence."""
    agents = [[[100]], [[200]], [[100, 1]]]  # the third begins as the first does
    spans = [rollout()]
    spans += [make_span(50 + n, 1, name="invoke_agent a", **at(10, 10**9)) for n in range(len(agents))] * nested
    expected = []
    for turn in range(4):
        for n, prompt in enumerate(agents):
            answer, number = [1_000 * (1 + n) + turn], 2 + len(spans)
            spans.append(call(number, 50 + n if nested else 1, prompt, answer, **at(1_000 * number)))
            expected.append(Learnt("r", tuple(token for message in prompt for token in message), tuple(answer), (1.0,)))
            prompt += [answer, [n, turn]]
    convert_spans(tmp_path, *spans)
    (batch,) = art_otel.batches(tmp_path / "dataset")
    assert len(batch.input_ids) == len(agents)
    assert learn(tmp_path / "dataset") == sorted(expected)


def test_the_mask_is_aligned_where_the_next_prompt_adds_nothing(tmp_path):
    """There a prompt that equals prompt and response before it shifts the mask of all that follows."""
    prompt, first, second, third = [1, 2, 3], [4, 5], [6], [7, 8, 9]
    spans = [
        rollout(),
        call(2, 1, [prompt], first, **at(100), attributes={"art.reward": 0.25}),
        call(3, 1, [prompt, first], second, **at(200), attributes={"art.reward": 0.5}),
        call(4, 1, [prompt, first, second], third, **at(300), attributes={"art.reward": 0.75}),
    ]
    convert_spans(tmp_path, *spans)
    (batch,) = art_otel.batches(tmp_path / "dataset", credit=call_reward(), advantage=as_given)
    assert batch.input_ids.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9]]
    assert batch.loss_mask.tolist() == [[False] * 3 + [True] * 6]
    assert batch.advantages.tolist() == [[0.0] * 3 + [0.25] * 2 + [0.5] + [0.75] * 3]
