"""Options as texts mean what the options mean."""

from inspect import signature

import pytest

import art_otel
from art_otel.data import message_batches, preference_batches
from art_otel.data.credit import CREDITS, read_credit, weighted
from art_otel.data.option_texts import OPTION_TEXTS, read_options
from art_otel.data.selection import OPTIONS, SelectionKeywords
from art_otel.errors import UsageError
from tests.data.token_rollouts import judged, talk

WITHOUT = {
    "sources", "batch_size", "packed", "pad_token_id", "seed", "epoch", "shuffle_buffer", "by_length", "rank",
    "world_size", "drop_last", "keep_together", "tokenizer", "token_facts",
}  # fmt: skip
"""Options of the arrays and their order; a tokenizer is no text."""


def test_every_option_that_decides_what_is_trained_is_one():
    named = signature(art_otel.batches).parameters.keys() - {*WITHOUT, "selection"}
    assert OPTION_TEXTS.keys() == named | SelectionKeywords.__annotations__.keys()


def test_defaults_and_every_choice_are_what_batches_takes():
    assert read_options({}) == read_options(dict.fromkeys(OPTION_TEXTS, "")) == {}
    for name, option in OPTION_TEXTS.items():
        for text in {*option.choices, option.default_text} - {None}:
            others = {"max_tokens": 5, "credit": weighted({"correct": 1.0})}  # of which GDPO compares each by itself
            art_otel.batches([], **others | read_options({name: text}))


@pytest.mark.parametrize("make", [art_otel.batches, message_batches, preference_batches])
def test_every_function_takes_every_option_that_selects(make):
    for name, option in OPTIONS.items():
        for text in {*option.choices, option.default_text} - {None}:
            chosen = read_options({name: text})
            if option.only_of_ids and make is not art_otel.batches:
                with pytest.raises(UsageError, match=f"^{name}=.* this option is for token ids"):
                    make([], **chosen)
            else:
                make([], **chosen)
    with pytest.raises(UsageError, match="there is no option 'spilt' to select by; there are status, split, "):
        make([], spilt="train")


def test_texts_mean_values():
    texts = {
        "advantage": "none", "status": "ok, error", "split": "train", "training_step": "3, 10-12", "max_tokens": "7",
        "allow_incomplete": "missing root, bad reward", "token_rewards": "style=0.5, format", "max_staleness": "2",
    }  # fmt: skip
    assert read_options(texts) == {
        "advantage": None,
        "status": ("ok", "error"),
        "split": ("train",),
        "training_step": [3, 10, 11, 12],
        "max_tokens": 7,
        "allow_incomplete": ("missing root", "bad reward"),
        "token_rewards": {"style": 0.5, "format": 1.0},
        "max_staleness": 2,
    }
    assert read_options({"status": "any", "allow_incomplete": "true"}) == {"status": None, "allow_incomplete": True}


def test_credits_are_named_as_functions():
    told = talk("r", 2, rewards=(judged(1.0, "correct"), judged(0.5, "style")))
    for text, reward in (("outcome_reward(style)", 0.5), ("weighted(correct=1, style=0.2)", 1.1)):
        assert read_credit(text).rewards(told) == (reward,)
    assert read_credit("discounted(0.9)").name == "discounted 0.9 'reward'"
    assert read_credit("step_reward").per == "step"
    for name in CREDITS:
        assert read_credit(f"{name}()").name == read_credit(name).name


@pytest.mark.parametrize(
    ("text", "problem", "example"),
    [
        ("weighted(a=x)", "the weight of 'a' is 'x', which is no finite number", "weighted(correct=1, style=0.2)"),
        ("weighted(b=1, a=)", "the weight of 'a' is '', which is no finite number", "weighted(correct=1, style=0.2)"),
        ("weighted(a=nan)", "the weight of 'a' is 'nan', which is no finite number", "weighted(correct=1, style=0.2)"),
        ("weighted(a=1, =2)", "'=2' lacks the name of a reward", "weighted(correct=1, style=0.2)"),
        ("weighted(a=1,,b=2)", "'' lacks the name of a reward", "weighted(correct=1, style=0.2)"),
        ("weighted()", "'' lacks the name of a reward", "weighted(correct=1, style=0.2)"),
        ("weighted(a=1, a=2)", "'a' has two weights", "weighted(correct=1, style=0.2)"),
        ("weighted(a=1", "the ) at the end is missing", "weighted(correct=1, style=0.2)"),
        ("weighted", "its arguments are missing", "weighted(correct=1, style=0.2)"),
        ("discounted(x)", "'x' must be a number from 0 to 1", "discounted(0.99)"),
        ("discounted(1.5)", "'1.5' must be a number from 0 to 1", "discounted(0.99)"),
        ("discounted()", "'' must be a number from 0 to 1", "discounted(0.99)"),
        ("step_reward(style", "the ) at the end is missing", "step_reward(style)"),
    ],
)
def test_a_malformed_credit_names_its_bad_part_and_a_right_one(text, problem, example):
    with pytest.raises(UsageError) as raised:
        read_options({"credit": text})
    assert str(raised.value) == f"credit={text!r}: {problem}; write {example}"
    read_credit(example)


def test_a_malformed_weight_of_a_tokens_reward_is_named():
    with pytest.raises(UsageError, match=r"^token_rewards='style=x': the weight of 'style' is 'x', which is no finite"):
        read_options({"token_rewards": "style=x"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("credit", "eval(1)"),
        ("credit", "best"),
        ("advantage", "gae"),
        ("max_tokens", "many"),
        ("training_step", "a-b"),
        ("training_step", "19-10"),
        ("training_step", "0-10000000"),
    ],
)
def test_what_no_option_can_be_is_named(name, text):
    with pytest.raises(UsageError, match=f"^{name}="):
        read_options({name: text})


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("training_step", "x", "'x' is no step and no range of steps; write 3, or 3,10-19"),
        ("training_step", "1, 10-", "'10-' is no step and no range of steps; write 3, or 3,10-19"),
        ("training_step", "-3", "'-3' is no step and no range of steps; write 3, or 3,10-19"),
        ("training_step", "19-10", "19-10 ends before it begins"),
        ("max_staleness", "x", "must be a whole number"),
    ],
)
def test_what_is_no_number_is_said_in_words(name, text, problem):
    with pytest.raises(UsageError) as raised:
        read_options({name: text})
    assert str(raised.value) == f"{name}={text!r}: {problem}"
