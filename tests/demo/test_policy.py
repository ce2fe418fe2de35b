"""The policy: its probabilities, what it reads, and its gradient against differences of its own objective."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.demo.policy import IDS, LONGEST, SIZE, VOCABULARY, Example, Policy, parse, render, untrained, words_read
from art_otel.demo.task import CITIES, READ_FROM, make_task

TOOLS = [{"function": {"name": name}} for name in ("thermometer", "clock", "archivist")]
QUESTION = {"role": "user", "content": "hour in Oslo"}
CONVERSATIONS = st.lists(st.sampled_from(VOCABULARY), max_size=12).map(
    lambda words: [IDS[word] for word in ("clock", "<user>", *words, "<assistant>")]
)


def ids(words: str) -> list[int]:
    return [IDS[word] for word in words.split()]


def random_policy(seed: int) -> Policy:
    return Policy(weights=np.random.default_rng(seed).normal(size=(SIZE, SIZE, SIZE)))


@given(before=CONVERSATIONS, seed=st.integers(0, 1 << 32))
def test_probabilities_add_up_to_one_and_a_sample_tells_its_own(before, seed):
    policy = random_policy(1)
    assert np.exp(policy.logprobs(before)).sum() == pytest.approx(1)
    token_ids, logprobs = policy.sample(before, seed)
    assert (token_ids, logprobs) == policy.sample(before, seed)
    assert 1 <= len(token_ids) <= LONGEST
    for at, (token, logprob) in enumerate(zip(token_ids, logprobs, strict=True)):
        assert policy.logprobs([*before, *token_ids[:at]])[token] == logprob


def test_samples_are_as_frequent_as_their_probability():
    policy, before = untrained(), render([QUESTION], TOOLS)
    first = [policy.sample(before, seed).token_ids[0] for seed in range(4000)]
    expected = np.exp(policy.logprobs(before))
    assert np.bincount(first, minlength=SIZE) / 4000 == pytest.approx(expected, abs=0.03)


def test_it_reads_the_tools_and_the_last_message():
    asked = "thermometer clock <user> hour in Oslo <assistant>"
    assert words_read(ids(asked)) == ids("thermometer clock hour in Oslo")
    assert words_read(ids(f"{asked} clock")) == ids("thermometer clock hour in Oslo")
    assert words_read(ids(f"{asked} clock Oslo <end> <tool> nine <assistant>")) == ids("thermometer clock nine")
    assert words_read(ids("<user> <assistant>")) == []


@given(st.lists(st.tuples(CONVERSATIONS, st.integers(0, SIZE - 1), st.floats(-2, 2)), min_size=1, max_size=4))
def test_the_gradient_is_that_of_advantage_times_log_probability(given_examples):
    examples = [Example(*one) for one in given_examples]
    policy = random_policy(2)
    gradient = policy.gradient(examples)
    direction = np.random.default_rng(3).normal(size=gradient.shape)

    def objective(distance: float) -> float:
        moved = Policy(weights=policy.weights + distance * direction)
        return sum(one.advantage * moved.logprobs(one.before)[one.token] for one in examples)

    slope = (objective(1e-5) - objective(-1e-5)) / 2e-5
    assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_a_conversation_goes_on_with_the_very_tokens():
    prompt = render([QUESTION], TOOLS)
    completion = ids("clock Oslo <end>")
    answer = parse(completion, TOOLS)
    said = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "nine"}
    assert render([QUESTION, answer, said], TOOLS) == [*prompt, *completion, *ids("<tool> nine <assistant>")]


def test_what_calls_no_offered_tool_is_text():
    for words in ("register Oslo", "clock nine", "clock", "clock Oslo Oslo", ""):
        assert parse(ids(f"{words} <end>"), TOOLS) == {"role": "assistant", "content": words}


def test_an_unknown_word_has_a_token_of_its_own():
    assert render([{"role": "tool", "content": "hail"}], []) == ids("<tool> <unknown> <assistant>")


def test_only_the_right_reading_answers_a_task():
    task = make_task(seed=1, step=2, number=3)
    assert task == make_task(seed=1, step=2, number=3)
    assert task != make_task(seed=2, step=2, number=3)
    right = task.readings[READ_FROM[task.topic]][task.city]
    assert task.score(right) == 1.0
    assert task.score("") == 0.0
    assert {make_task(1, 1, number).topic for number in range(4)} == set(READ_FROM)
    assert {make_task(1, step, 0).city for step in range(20)} == set(CITIES)
