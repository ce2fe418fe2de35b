"""Conditions on rewards and metadata, shares of tasks, and equal conversations."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel import batches
from art_otel.data import message_batches, preference_batches
from art_otel.data.filters import PARTS
from art_otel.errors import UsageError
from art_otel.exporting import export
from art_otel.trajectories import Reward, Trajectory
from tests.examples import examples
from tests.exporting.samples import conversation


def rollout(name: str, question: str = "q", answer: str = "Rain.", *, group: str | None = None, **fields) -> Trajectory:
    """A rollout of one question."""
    made = conversation(name, answer, fields.pop("reward", None), **fields)
    call = made.calls[-1]
    prompt = replace_question(call, question)
    return replace(made, group_id=group, calls=prompt)


def replace_question(call, question):
    from msgspec.structs import replace as with_fields  # noqa: PLC0415

    from art_otel.calls import Message  # noqa: PLC0415
    from art_otel.trajectories import link_calls  # noqa: PLC0415
    from art_otel.trajectories.lineage import recorded_call  # noqa: PLC0415

    recorded = recorded_call(call)
    asked = (Message(role="system", content="Answer."), Message(role="user", content=question))
    return link_calls([with_fields(recorded, input_messages=asked, prompt_token_ids=None)])


def score(name: str, value: float | None, label: str | None = None) -> Reward:
    return Reward(name=name, value=value, label=label, source="evaluation", time_ns=1)


ROLLOUTS = [
    rollout("a", rewards=(score("correct", 1.0),), metadata={"level": "easy", "n": 3, "tags": ["x", "y"]}),
    rollout("b", rewards=(score("correct", 0.0, "bad"),), metadata={"level": "hard", "n": 10, "deep": {"k": True}}),
    rollout("c", metadata={"level": "easy"}, reward=0.5),
]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("correct>=0.5", "a"),
        ("correct<0.5", "b"),
        ("correct=bad", "b"),
        ("rewards.correct!=1", "b"),
        ("level=easy", "ac"),
        ("level=easy&correct>0", "a"),
        ("n>=10", "b"),
        ("n!=3", "b"),
        ("tags=x", "a"),
        ("tags!=x", ""),
        ("metadata.deep.k=true", "b"),
        ("reward>0.4", "c"),
        ("status=ok&level!=hard", "ac"),
        ("level=ea%73y", "ac"),
        ("level>g", "b"),
        ("level=%3Deasy", ""),
        ("correct>=bad", "b"),
    ],
)
def test_conditions(where, ids):
    found = {one.rollout_id for batch in message_batches(ROLLOUTS, where=where) for one in batch}
    assert found == set(ids)
    of_tokens = batches(ROLLOUTS, where=where, advantage=None)
    assert {one.rollout_id for one in of_tokens.decisions() if one.skipped != "not chosen"} == set(ids)
    assert not list(preference_batches(ROLLOUTS, where=where))


def test_a_name_that_nothing_has_is_told_those_there_are():
    with pytest.raises(UsageError, match=r"named 'corect'\. The rewards are correct; the metadata deep, level"):
        message_batches(ROLLOUTS, where="corect>1")
    with pytest.raises(UsageError, match="write conditions such as NAME>=VALUE"):
        message_batches(ROLLOUTS, where="correct")


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("reward>>1", "where='reward>>1': '>>' is no comparison; use >=, <=, !=, =, >, <"),
        ("level=easy&correct==1", "where='correct==1': '==' is no comparison; use >=, <=, !=, =, >, <"),
        ("correct=>1", "where='correct=>1': '=>' is no comparison; use >=, <=, !=, =, >, <"),
        ("level=easy&n>=abc", "where='n>=abc': 'abc' is no number, and 'n' has no texts to compare with it"),
        ("reward>=abc", "where='reward>=abc': 'abc' is no number, and 'reward' has no texts to compare with it"),
        ("reward<", "where='reward<': '' is no number, and 'reward' has no texts to compare with it"),
    ],
)
def test_the_part_that_nothing_can_fulfill_is_named(where, problem):
    for make in (message_batches, batches):
        with pytest.raises(UsageError) as raised:
            make(ROLLOUTS, where=where)
        assert str(raised.value) == problem


KEYS = st.lists(
    st.tuples(st.sampled_from("pqrstu"), st.sampled_from(["g", "h", "i", None, None])), min_size=2, max_size=14
)


@settings(deadline=None, max_examples=examples(60))
@given(KEYS, st.integers(0, 5), st.sampled_from(["0.5/0.5", "0.8/0.2", "0.6/0.2/0.2"]))
def test_no_task_is_in_two_parts_and_every_rollout_is_in_one(keys, seed, shares):
    rollouts = [rollout(f"r{n}", question, f"a{n}", group=group) for n, (question, group) in enumerate(keys)]
    names = PARTS[: shares.count("/") + 1]
    try:
        parts = {name: list(message_batches(rollouts, split=shares, part=name, seed=seed).examples()) for name in names}
    except UsageError as error:
        assert "a task is never in two parts" in str(error)  # noqa: PT017 # few keys join all
        return
    ids = [one.rollout_id for examples_ in parts.values() for one in examples_]
    assert sorted(ids) == sorted(one.rollout_id for one in rollouts)
    for mark in (lambda one: one.messages[1]["content"], lambda one: one.group_id):
        marks = [{mark(one) for one in examples_} - {None} for examples_ in parts.values()]
        assert len(set().union(*marks)) == sum(map(len, marks))
    assert all(parts.values())


def test_shares_are_of_tasks_and_the_seed_chooses_them():
    rollouts = [rollout(f"{task}-{n}", f"task {task}", f"{n}") for task in range(20) for n in range(3)]

    def held_out(seed: int) -> set[str]:
        return {one.rollout_id for one in message_batches(rollouts, split="0.9/0.1", part="val", seed=seed).examples()}

    assert len(held_out(0)) == 6  # two of twenty tasks, with three rollouts each
    assert held_out(0) == held_out(0) != held_out(1)
    for wrong in ({"split": "0.9/0.3"}, {"split": "0.9/0.1", "part": "test"}, {"part": "val"}):
        with pytest.raises(UsageError):
            message_batches(rollouts, **wrong)


def test_equal_conversations_are_given_once_and_counted(tmp_path):
    rollouts = [rollout("a", "q", "x"), rollout("b", "q", "x"), rollout("c", "q", "y"), rollout("d", "r", "x")]
    talks = message_batches(rollouts, dedupe=True)
    assert [one.rollout_id for one in talks.examples()] == ["a", "c", "d"]
    assert talks.report.trajectories_skipped == {"repeated conversation": 1}
    report = export(rollouts, "openai", tmp_path, dedupe=True)
    assert (report.records, report.trajectories_skipped) == (3, {"repeated conversation": 1})
    with pytest.raises(UsageError, match="dedupe=True"):
        export(rollouts, "trl", tmp_path, format="grpo", dedupe=True)
