"""The prompt of a preference pair is all that both conversations have alike, and only equal prompts are compared."""

import pytest
from msgspec import structs

import art_otel
from art_otel.calls import TokenIds
from art_otel.store import write_trajectories
from art_otel.trajectories import token_histories
from tests.data.rollouts import answer, assistant, call, chat, looking, rollout, said, user
from tests.data.test_messages import OTHER_TOOL, TOOL
from tests.data.test_preferences import names, pairs_of


def test_only_equal_prompts_are_compared():
    other = rollout(chat(user("bonjour"), assistant("c")), "r-2", group_id="g", reward=1.0)
    found, report = pairs_of([said("a", "r-0", 0.5), said("b", "r-1", 0.0), other])
    assert names(found) == [("r-0", "r-1")]
    assert report.trajectories_skipped == {"no equal prompt with another reward": 1}
    assert not pairs_of([said("a", "r-0", 0.5), other])[0]


def test_tools_are_part_of_the_prompt():
    def with_tools(rollout_id, reward, *tools):
        return rollout(chat(user("a"), assistant(rollout_id), tools=tools), rollout_id, group_id="g", reward=reward)

    rollouts = [with_tools("r-0", 1.0, TOOL), with_tools("r-1", 0.0, OTHER_TOOL), with_tools("r-2", 0.5, dict(TOOL))]
    (pair,), _ = pairs_of(rollouts)
    assert names([pair]) == [("r-0", "r-2")]
    assert pair.tools == (TOOL,)


def test_what_both_sampled_alike_is_prompt():
    start = (user("weather?"), looking(), answer("sunny"))
    good = rollout(chat(*start, assistant("sunny")), "r-0", group_id="g", reward=1.0)
    bad = rollout(chat(*start, looking(), answer("still sunny"), assistant("rain")), "r-1", group_id="g", reward=0.0)
    (pair,), _ = pairs_of([good, bad])
    assert [message["role"] for message in pair.prompt] == ["user", "assistant", "tool"]
    assert [message["content"] for message in pair.chosen] == ["sunny"]
    assert [message["role"] for message in pair.rejected] == ["assistant", "tool", "assistant"]
    assert pair.rejected_train == (True, False, True)


def test_where_only_a_tool_differs_the_prompt_ends_before_the_call():
    good = rollout(chat(user("w"), looking(), answer("sunny"), assistant("a")), "r-0", group_id="g", reward=1.0)
    bad = rollout(chat(user("w"), looking(), answer("rain"), assistant("a")), "r-1", group_id="g", reward=0.0)
    (pair,), _ = pairs_of([good, bad])
    assert pair.prompt == ({"role": "user", "content": "w"},)
    assert [message["role"] for message in pair.chosen] == ["assistant", "tool", "assistant"]


def test_one_that_goes_on_where_the_other_ended():
    good = rollout(chat(user("w"), assistant("a")), "r-0", group_id="g", reward=1.0)
    bad = rollout(chat(user("w"), assistant("a"), user("more"), assistant("b")), "r-1", group_id="g", reward=0.0)
    (pair,), _ = pairs_of([good, bad])
    assert [message["content"] for message in pair.chosen] == ["a"]
    assert [message["content"] for message in pair.rejected] == ["a", "more", "b"]


def test_the_same_words_are_no_preference():
    found, report = pairs_of([said("a", "r-0", 1.0), said("a", "r-1", 0.0)])
    assert not found
    assert report.pairs_skipped == {"same messages": 1}


def test_reasoning_is_a_difference():
    good, bad = (
        rollout(
            chat(user("w"), assistant("a", reasoning=f"because {reward}")), f"r-{reward}", group_id="g", reward=reward
        )
        for reward in (1.0, 0.0)
    )
    (pair,), _ = pairs_of([good, bad])
    assert pair.chosen[0]["reasoning_content"] == "because 1.0"


def test_the_main_conversation_is_compared():
    start, first = user("hello"), assistant("a")
    many = rollout(
        [
            call(0, [user("sub-task")], assistant("done")),
            call(1, [start], first),
            call(2, [start, first, user("more")], assistant("early")),
            call(3, [start, first, user("more")], assistant("late"), assistant("second choice")),
        ],
        "r-0",
        group_id="g",
        reward=1.0,
    )
    (pair,), report = pairs_of([many, said("b", "r-1", 0.0)])
    assert [message["content"] for message in pair.chosen] == ["a", "more", "late"]
    # The shared answer is trained in another history, but in a pair it counts all the same.
    assert pair.chosen_train == (True, False, True)
    assert report.other_histories == 3


@pytest.mark.parametrize(
    ("facts", "options"),
    [({"marked_untrained": "user simulator"}, {}), ({"request_model": "simulator"}, {"models": "policy"})],
)
def test_the_main_conversation_is_the_policys_also_where_others_say_more(facts, options):
    def simulated(rollout_id, reward):
        talk = [user("hello"), assistant("a"), user("b"), assistant("c"), user("d"), assistant(rollout_id)]
        simulator = [user("play"), *(assistant(f"line {at}") if at % 2 else user("next") for at in range(1, 9))]
        judged = [*talk, user("is it right?"), assistant(f"reward {reward}")]
        calls = [
            *chat(*talk, request_model="policy"),
            *chat(*simulator, **facts),
            call(0, judged[:-1], judged[-1], **facts),
        ]
        told = [
            structs.replace(one, span_id=f"{at + 1:016x}", start_ns=at, end_ns=at + 1) for at, one in enumerate(calls)
        ]
        return rollout(told, rollout_id, group_id="g", reward=reward)

    (pair,), report = pairs_of([simulated("r-0", 1.0), simulated("r-1", 0.0)], **options)
    assert not report.trajectories_skipped
    assert [message["content"] for message in (*pair.prompt, *pair.chosen)] == ["hello", "a", "b", "c", "d", "r-0"]
    assert [message["content"] for message in pair.rejected] == ["r-1"]


def thinking(rollout_id: str, reward: float, *, ids: bool) -> art_otel.Trajectory:
    """Three answers, each to a prompt whose template dropped the earlier thinking, so that its ids are new."""
    calls, prompt = [], []
    for number in range(3):
        prompt = [*prompt, user(f"question {number}")]
        sampled = assistant(f"{rollout_id} says {number}", reasoning=f"{rollout_id} thinks {number}")
        one = call(number, prompt, sampled)
        if ids:
            choice = structs.replace(one.choices[0], token_ids=TokenIds.of([10 + number, 0]))
            one = structs.replace(one, choices=(choice,), prompt_token_ids=TokenIds.of([number] * (number + 1)))
        calls.append(one)
        prompt = [*prompt, assistant(sampled.content)]
    return rollout(calls, rollout_id, group_id="g", reward=reward)


def test_recorded_ids_do_not_part_a_conversation(tmp_path):
    with_ids, without = ([thinking("r-0", 1.0, ids=ids), thinking("r-1", 0.0, ids=ids)] for ids in (True, False))
    assert [len(token_histories(one)) for one in with_ids] == [3, 3]
    (pair,), report = pairs_of(with_ids)
    assert pair.prompt == ({"role": "user", "content": "question 0"},)
    assert [message["content"] for message in pair.chosen] == [
        "r-0 says 0",
        "question 1",
        "r-0 says 1",
        "question 2",
        "r-0 says 2",
    ]
    assert pair.chosen_train == pair.rejected_train == (True, False, True, False, True)
    assert (report.trajectories_used, report.other_histories) == (2, 0)
    write_trajectories(with_ids, tmp_path)
    assert [pair] == pairs_of(tmp_path)[0] == pairs_of(without)[0]
