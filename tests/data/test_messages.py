"""Message batches: every sampled message is trained once, and everything left out is counted."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given as for_all
from msgspec import structs

import art_otel
import art_otel.data
from art_otel.calls import TokenIds
from art_otel.data.sft import message_batches
from art_otel.errors import StoreError, UsageError
from art_otel.store import FileLimits, write_trajectories
from art_otel.testing import trajectories
from art_otel.trajectories import Reward, Trajectory, TrajectoryGroup, histories
from tests.conversions import RECORDINGS, convert_files
from tests.data.rollouts import (
    agent_rollouts,
    answer,
    assistant,
    call,
    chat,
    ended_on_failure,
    given,
    looking,
    rollout,
    said,
    user,
)
from tests.gaps import SCRUBBED
from tests.trajectories.test_lineage import lacks_messages

TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
OTHER_TOOL = {"type": "function", "function": {"name": "ask", "parameters": {}}}


def examples(sources, **options):
    batches = message_batches(sources, **options)
    found = list(batches.examples())
    check_sums(batches.report, found)
    return found, batches.report


def check_sums(report, found):
    assert report.trajectories == report.trajectories_used + report.trajectories_skipped.total()
    assert report.histories == report.examples + report.histories_skipped.total()
    assert report.examples == len(found)
    assert report.messages == sum(len(one.messages) for one in found)
    assert report.trained_messages == sum(sum(one.train) for one in found)


def test_a_conversation_with_a_tool():
    messages = (user("weather?"), looking(), answer("sunny"), assistant("it is sunny", reasoning="easy"))
    trajectory = rollout(chat(*messages, tools=(TOOL,)), "r-1", group_id="g", reward=0.5)
    (one,), report = examples(trajectory)
    assert one.messages == (
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": '{"city":"Paris"}'}}
            ],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "call_0"},
        {"role": "assistant", "content": "it is sunny", "reasoning_content": "easy"},
    )
    assert one.train == (False, True, False, True)
    assert (one.tools, one.rollout_id, one.group_id, one.reward, one.weight) == ((TOOL,), "r-1", "g", 0.5, 1.0)
    assert report.trained_messages == 2


def test_branches_share_what_they_have_in_common():
    question, first = user("hello"), assistant("a")
    trajectory = rollout(
        [
            call(0, [question], first),
            call(1, [question, first, user("more")], assistant("b")),
            call(2, [question, first, user("else")], assistant("c"), assistant("d")),
        ]
    )
    found, _ = examples(trajectory)
    assert [one.train for one in found] == [
        (False, True, False, True),
        (False, False, False, True),
        (False, False, False, True),
    ]
    assert sum(one.weight for one in found) == pytest.approx(1)


def test_a_given_answer_is_not_trained():
    """An example in the prompt was not sampled."""
    (one,), _ = examples(rollout([call(0, [user("1"), assistant("2"), user("3")], assistant("4"))]))
    assert one.train == (False, False, False, True)


CONTINUES = {"parameters": {"continue_final_message": True, "add_generation_prompt": False}}


@pytest.mark.parametrize(
    ("sampled", "fields"),
    [
        (" is 4", CONTINUES),
        (" is 4", {"provider": "anthropic"}),
        (" is 4", {"provider": "aws.bedrock", "request_model": "anthropic.claude-3-haiku-20240307-v1:0"}),
        ("The answer is 4", {"parameters": {"continue_final_message": True, "echo": True}}),
    ],
)
def test_a_prefill_and_its_continuation_are_one_message(sampled, fields):
    """The agent sends it back as one."""
    prompt, prefill = [user("2 + 2?")], assistant("The answer")
    whole = assistant("The answer is 4")
    first = call(0, [*prompt, prefill], assistant(sampled), **fields)
    second = call(1, [*prompt, whole, user("sure?"), assistant("Yes,")], assistant(" it is"), **CONTINUES)
    (one, next_one), _ = examples(rollout([first, second]))
    spoken = [(message["role"], message["content"]) for message in one.messages]
    assert spoken == [("user", "2 + 2?"), ("assistant", "The answer is 4")]
    assert one.train == (False, True)
    assert [message["content"] for message in next_one.messages] == [
        *(text for _, text in spoken),
        "sure?",
        "Yes, it is",
    ]
    assert next_one.train == (False, False, False, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"provider": "openai"},
        {"provider": "openai", "parameters": {"continue_final_message": False}},
        {"provider": "anthropic", "prompt_token_ids": TokenIds.of([1, 2])},
    ],
)
def test_an_answer_behind_an_assistants_message_is_one_of_its_own(fields):
    sampled = call(0, [user("2 + 2?"), assistant("Hm")], assistant("4"), **fields)
    if "prompt_token_ids" in fields:
        choices = [structs.replace(choice, token_ids=TokenIds.of([3])) for choice in sampled.choices]
        sampled = structs.replace(sampled, choices=tuple(choices))
    (one,), _ = examples(rollout([sampled]))
    assert [message["content"] for message in one.messages] == ["2 + 2?", "Hm", "4"]
    assert one.train == (False, False, True)


def test_an_answer_that_goes_on_with_one_that_must_not_be_trained_is_not_trained():
    begun, rest = assistant("The answer"), assistant(" is 4")
    first = call(0, [user("2 + 2?")], begun, gaps=(SCRUBBED,))
    second = call(1, [user("2 + 2?"), begun], rest, **CONTINUES)
    found, _ = examples(rollout([first, second]), allow_incomplete=True)
    assert not found
    third = call(2, [user("2 + 2?"), begun, rest, user("sure?")], assistant("yes"))
    (one,), _ = examples(rollout([first, second, third]), allow_incomplete=True)
    assert [message["content"] for message in one.messages] == ["2 + 2?", "The answer is 4", "sure?", "yes"]
    assert one.train == (False, False, False, True)


def test_an_answer_that_was_cut_and_continued_is_whole():
    begun, rest = assistant("The answer"), assistant(" is 4")
    first = call(0, [user("2 + 2?")], begun, finish_reason="length")
    second = call(1, [user("2 + 2?"), begun], rest, **CONTINUES)
    (one,), _ = examples(rollout([first, second]))
    assert [message["content"] for message in one.messages] == ["2 + 2?", "The answer is 4"]
    assert one.train == (False, True)


def test_tools_are_those_of_the_path():
    start = [user("a")]
    main = call(0, start, assistant("b"), tools=(TOOL,))
    next_call = call(1, [*start, assistant("b"), user("c")], assistant("d"), tools=(TOOL, OTHER_TOOL))
    helper = call(2, [user("sub-task")], assistant("e"), tools=None)
    alone = call(3, [user("no tools")], assistant("f"), tools=())
    found, _ = examples(rollout([main, next_call, helper, alone]))
    assert [one.tools for one in found] == [(TOOL, OTHER_TOOL), None, ()]


def test_what_cannot_be_learnt_is_counted():
    found, report = examples(
        [
            rollout([call(0, None, assistant("a")), call(1, [user("b")], assistant("c"))], "prompt unknown"),
            rollout([call(0, [user("a")], assistant("b"), gaps=(SCRUBBED,))], "scrubbed"),
            rollout([call(0, [user("a")], assistant("b"), error_type="Timeout")], "failed"),
            rollout([], "nothing sampled"),
            rollout(chat(user("a"), assistant("b")), "incomplete", incomplete_reasons={"missing root": 1}),
            rollout(chat(user("a"), assistant("b")), "error", status="error"),
        ]
    )
    assert [one.rollout_id for one in found] == ["prompt unknown"]
    assert report.histories_skipped == {"messages unknown": 1}
    assert report.trajectories_skipped == {
        "nothing trained": 1,
        "nothing sampled": 1,
        "ended on a failed call": 1,
        "incomplete: missing root": 1,
        "status": 1,
    }
    assert report.trajectories == report.trajectories_used + report.trajectories_skipped.total()


def test_filters():
    rollouts = [
        said("a", "r-0", 1.0, split="train"),
        said("b", "r-1", 0.5, split="val"),
        said("c", "r-2", None),
        said("d", "r-3", 0.0, split="train", status="error", incomplete_reasons={"no content": 1}),
    ]

    def ids(**options):
        return [one.rollout_id for one in examples(rollouts, **options)[0]]

    assert ids() == ["r-0", "r-2"]
    assert ids(split="*") == ["r-0", "r-1", "r-2"]
    assert ids(split="train") == ["r-0"]
    assert ids(split=["val", None]) == ["r-1", "r-2"]
    assert ids(status="error", allow_incomplete=True) == ["r-3"]
    assert ids(status=("ok", "error"), allow_incomplete=True, split="*") == ["r-0", "r-1", "r-2", "r-3"]
    assert ids(min_reward=0.5, split="*") == ["r-0", "r-1"]
    assert ids(min_reward=0.75, split="*") == ["r-0"]
    _, report = examples(rollouts, min_reward=0.75, split="*")
    assert report.trajectories_skipped == {"reward too low": 1, "no reward": 1, "incomplete: no content": 1}


def test_the_best_of_each_group():
    rollouts = [
        said("a", "r-0", 0.5),
        said("b", "r-1", 1.0),
        said("c", "r-2", 1.0),
        said("d", "r-3", None),
        said("e", "r-4", 2.0, incomplete_reasons={"missing root": 1}),
        said("f", "r-5", 0.1, group="h"),
        said("g", "r-6", 5.0, group=None),
        said("h", "r-7", float("nan"), group="h"),
    ]
    found, report = examples(rollouts, best_of_group=True)
    assert [one.rollout_id for one in found] == ["r-1", "r-5"]
    assert report.trajectories_skipped == {
        "not the best of its group": 2,
        "no reward": 2,
        "incomplete: missing root": 1,
        "no group": 1,
    }
    found, _ = examples(rollouts, best_of_group=True, min_reward=0.2)
    assert [one.rollout_id for one in found] == ["r-1"]


def test_the_best_is_one_from_which_something_is_learnt():
    def scrubbed(rollout_id, reward):
        calls = [call(0, [user("hello")], assistant("x"), gaps=(SCRUBBED,))]
        return rollout(calls, rollout_id, group_id="g", reward=reward)

    unknown = rollout([call(0, None, assistant("a"))], "r-2", group_id="g", reward=0.9)
    silent = rollout([], "r-3", group_id="g", reward=0.8)
    found, report = examples(
        [said("a", "r-0", 0.5), scrubbed("r-1", 1.0), unknown, silent, said("b", "r-4", 0.0)], best_of_group=True
    )
    assert [one.rollout_id for one in found] == ["r-0"]
    assert report.trajectories_skipped == {
        "nothing trained": 1,
        "messages unknown": 1,
        "nothing sampled": 1,
        "not the best of its group": 1,
    }


def test_there_is_a_best_of_each_training_step():
    rollouts = [
        said(str(reward), f"r-{reward}", reward, training_step=step)
        for step, reward in ((0, 0.0), (0, 0.5), (1, 0.6), (1, 1.0))
    ]
    assert [one.rollout_id for one in examples(rollouts, best_of_group=True)[0]] == ["r-0.5", "r-1.0"]


def test_a_named_reward():
    marks = (
        given("helpful", 0.2),
        given("helpful", 0.9),
        given("helpful", 0.1, step=0),
        given("helpful", None, label="good"),
        given("short", 0.3),
    )
    rollouts = [said("a", "r-0", 0.0, rewards=marks), said("b", "r-1", 1.0, rewards=(given("short", 0.8),))]
    assert [one.reward for one in examples(rollouts, reward="helpful")[0]] == [0.9, None]
    assert [one.rollout_id for one in examples(rollouts, reward="short", best_of_group=True)[0]] == ["r-1"]
    assert [one.reward for one in examples(rollouts, reward=lambda one: len(one.rewards))[0]] == [5, 1]


def test_batches_and_epochs():
    batches = message_batches([said(str(number), f"r-{number}", 1.0) for number in range(5)], batch_size=2)
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert list(batches) == list(batches)
    assert list(chain.from_iterable(batches)) == list(batches.examples())
    assert batches.report.examples == 5


def test_groups_and_iterators_are_sources():
    group = TrajectoryGroup(group_id="g", trajectories=[said("a", "r-0", 1.0, group=None), said("b", "r-1", 2.0)])
    assert [one.group_id for one in examples(group)[0]] == ["g", "g"]
    assert [one.rollout_id for one in examples(iter([group]), best_of_group=True)[0]] == ["r-1"]


def test_impossible_options():
    with pytest.raises(UsageError, match="batch_size"):
        message_batches([], batch_size=0)
    with pytest.raises(UsageError, match=r"use one of ok, error"):
        message_batches([], status="done")
    with pytest.raises(StoreError, match="nowhere"):
        message_batches("nowhere")


def test_files_give_what_memory_gives(tmp_path):
    rollouts = [said(str(number), f"r-{number}", number % 3, group=f"g-{number % 4}") for number in range(20)]
    write_trajectories(rollouts, tmp_path / "out", limits=FileLimits(group_rows=3))
    in_order = sorted(rollouts, key=lambda one: one.order)
    for options in ({}, {"best_of_group": True}, {"min_reward": 1}):
        assert examples(tmp_path / "out", **options) == examples(in_order, **options)
    assert len(list(art_otel.data.message_batches(str(tmp_path / "out" / "*.parquet")))) == 3


def test_real_recordings(tmp_path):
    recordings = sorted(RECORDINGS.glob("*/*.jsonl"))
    rollouts, _ = convert_files(tmp_path / "out", *recordings)
    options = {"allow_incomplete": True, "status": ("ok", "error", "cancelled", "unfinished")}
    found, report = examples(tmp_path / "out", **options)
    assert report.trajectories == len(rollouts)
    assert found
    sampled = sum(turn.message is not None for one in rollouts for turn in one.turns)
    failed = sum(turn.message is not None and turn.text_untrained is not None for one in rollouts for turn in one.turns)
    unknown = report.histories_skipped["messages unknown"]
    assert sampled - failed - unknown <= report.trained_messages <= sampled - failed


@pytest.mark.long
@for_all(agent_rollouts())
def test_every_sampled_message_is_trained_once(rollouts):
    found, _ = examples(rollouts)
    trained = Counter(
        (one.rollout_id, message["content"])
        for one in found
        for message, flag in zip(one.messages, one.train, strict=True)
        if flag
    )
    assert trained == Counter(
        (one.rollout_id, turn.message.content)
        for one in rollouts
        if one.complete and one.status == "ok" and not ended_on_failure(one)
        for position, turn in enumerate(one.turns)
        if turn.text_untrained is None and position in in_known_histories(one)
    )


def in_known_histories(trajectory: Trajectory) -> set[int]:
    """The turns of all histories of which every message is recorded."""
    found = [history.turns for history in histories(trajectory)]
    return {at for path in found if not any(lacks_messages(trajectory, turn) for turn in path) for at in path}


@for_all(trajectories())
def test_no_trajectory_is_refused(trajectory):
    examples(trajectory, allow_incomplete=True, status=("ok", "error", "cancelled", "unfinished"))


def test_rewards_with_spans_of_tokens_are_none_of_the_rollout():
    mark = Reward(name="m", value=1.0, source="evaluation", time_ns=0, target="00" * 8)
    assert [one.reward for one in examples(said("a", "r", 1.0, rewards=(mark,)), reward="m")[0]] == [None]
