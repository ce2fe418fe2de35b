"""Trajectories as experiences, without Trinity."""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel import batches
from art_otel.data.credit import step_reward
from art_otel.exporting import NO_LOGPROBS, ExportStats, ScoredTrajectory
from art_otel.testing import trajectories
from art_otel.trajectories import PolicyVersions, Reward
from art_otel_trinity.experiences import ExperiencesConfig, encode_experiences
from tests.examples import examples
from tests.exporting.samples import (
    LOOK_UP,
    QUESTION,
    SYSTEM,
    TRACE,
    asked,
    branching,
    completion_ids,
    conversation,
    found,
    group,
    looking,
    prompt_ids,
    rollout,
    said,
    without_ids,
    without_logprobs,
)

CALLS = ExperiencesConfig(unit="call")


def credited(rollouts, *, advantage="grpo", credit="outcome_reward"):
    stream = batches(rollouts, advantage=advantage, credit=credit, allow_incomplete=True)
    return [ScoredTrajectory(trajectory=one, turn_rewards=rewards) for one, rewards in stream.trajectories()]


def experiences(rollouts, config=ExperiencesConfig(), stats=None, **options):  # noqa: B008 # frozen
    return list(encode_experiences(iter(credited(rollouts, **options)), config, stats or ExportStats()))


def sampled(experience) -> list[int]:
    return experience.tokens[experience.prompt_length :][experience.action_mask].tolist()


def test_a_history_is_one_experience():
    good, fair, bad = experiences(group())
    first = (SYSTEM, QUESTION)
    second = (*first, looking("Zürich"), found("rain"))
    assert good.tokens.tolist() == [*prompt_ids(second), *completion_ids(said("Rain."))]
    assert good.prompt_length == len(prompt_ids(first))
    assert sampled(good) == [*completion_ids(looking("Zürich")), *completion_ids(said("Rain."))]
    last = len(completion_ids(said("Rain.")))
    assert good.logprobs[-last:].tolist() == [-1 - at / 4 for at in range(last)]
    assert not good.logprobs[~good.action_mask].any()
    assert [one.reward for one in (good, fair, bad)] == [1.0, 0.5, 0.0]
    assert [one.eid.run for one in (good, fair, bad)] == [0, 1, 2]
    assert (good.eid.batch, good.eid.task, good.eid.step, good.eid.suffix) == (3, "g", 1, f"{2:016x}")
    assert good.advantages[good.action_mask] == pytest.approx(1.5**0.5, rel=1e-4)
    assert not good.advantages[~good.action_mask].any()
    assert [message["role"] for message in good.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert good.messages[2]["tool_calls"][0]["function"]["arguments"] == '{"city":"Zürich" }'
    assert (good.tools, good.response_text, good.truncate_status) == ([LOOK_UP], "Rain.", None)
    assert good.metrics == {"tokens": 4.0}
    assert good.info == {
        "model_version": 7,
        "rollout_id": "r-good",
        "rollout_name": "weather",
        "trace_id": "ab" * 16,
        "split": "train",
        "status": "ok",
        "metadata": {"level": 3, "hard": True, "nested": {"a": [1, None]}},
    }


def test_a_call_is_one_experience():
    first, second = experiences(group()[:1], CALLS)
    prompts = [(SYSTEM, QUESTION), (SYSTEM, QUESTION, looking("Zürich"), found("rain"))]
    for one, prompt, answer in zip((first, second), prompts, (looking("Zürich"), said("Rain.")), strict=True):
        assert one.tokens[: one.prompt_length].tolist() == prompt_ids(prompt)
        assert sampled(one) == one.tokens[one.prompt_length :].tolist() == completion_ids(answer)
    assert [one.eid.step for one in (first, second)] == [0, 1]
    assert first.response_text is None


@pytest.mark.parametrize("config", [ExperiencesConfig(), CALLS])
def test_every_completion_is_trained_once_and_the_last_call_is_in_the_last_experience(config):
    stats = ExportStats()
    told = experiences([branching()], config, stats)
    answers = [looking("Zürich"), said("I do not know."), said("Yes."), said("Rain.")]
    trained = [token for one in told for token in sampled(one)]
    assert Counter(trained) == Counter(token for answer in answers for token in completion_ids(answer))
    assert sampled(told[-1])[-6:] == completion_ids(said("Rain."))
    assert len({one.eid.suffix for one in told}) == len(told)
    assert f"{1:016x}.1" in {one.eid.suffix for one in told}
    # The helper's call had no tools, and the run's calls have no steps.
    assert [] in [one.tools for one in told]
    assert [one.eid.step for one in told] == list(range(len(told)))
    assert not +stats.trajectories_skipped


def test_what_has_no_ids_or_logprobs_is_left_out_and_counted():
    stats = ExportStats()
    assert experiences([without_ids(), without_logprobs()], stats=stats, advantage=None) == []
    assert stats.trajectories_skipped == {"no token ids": 1, "no logprobs": 1}
    assert stats.skipped == {"no token ids": 1, NO_LOGPROBS: 1}
    (kept,) = experiences([without_logprobs()], ExperiencesConfig(without_logprobs="keep"), advantage=None)
    assert (kept.logprobs, kept.reward, kept.advantages) == (None, None, None)
    assert (kept.eid.task, kept.eid.run) == (f"rollout r-without-logprobs of trace {TRACE}", 0)


@pytest.mark.parametrize("config", [ExperiencesConfig(), CALLS])
def test_a_completion_without_logprobs_costs_no_other(config):
    first = (SYSTEM, QUESTION)
    calls = [
        asked(0, first, looking("Zürich"), logprobs=False),
        asked(1, (*first, looking("Zürich"), found("rain")), said("Rain.")),
    ]
    stats = ExportStats()
    (one,) = experiences([rollout("r", calls, reward=1.0)], config, stats)
    assert sampled(one) == completion_ids(said("Rain."))
    assert stats.skipped == {NO_LOGPROBS: 1}
    assert not +stats.trajectories_skipped


def test_long_histories_are_left_out():
    stats = ExportStats()
    assert experiences(group()[:1], ExperiencesConfig(max_tokens=10), stats) == []
    assert +stats.skipped == {"longer than max_tokens": 2}


def test_rewards_of_steps_stay_with_their_calls():
    given = [
        Reward(name="reward", value=value, step=step, source="evaluation", time_ns=1)
        for step, value in enumerate((0.25, 0.75))
    ]
    one = replace(group()[0], rewards=tuple(given))
    told = experiences([one], CALLS, credit=step_reward())
    assert [experience.reward for experience in told] == [0.25, 0.75]
    stats = ExportStats()
    (whole,) = experiences([one], stats=stats, credit=step_reward())
    assert whole.reward == 0.75
    assert sum(stats.changed.values()) == 1


def test_rewards_of_spans_of_tokens():
    span = Reward(
        name="style", value=0.5, target=f"{1:016x}", token_start=0, token_end=2, source="evaluation", time_ns=1
    )
    config = ExperiencesConfig(token_rewards="style")
    (one,) = experiences([replace(group()[0], rewards=(span,))], config)
    assert one.token_level_reward[:3].tolist() == [0.5, 0.5, 0.0]
    assert one.token_level_reward[-1] == 1.0
    assert one.token_level_reward.sum() == 2.0
    stats = ExportStats()
    (other,) = experiences([group()[0]], config, stats)
    assert other.token_level_reward.sum() == 1.0
    told = {what: count for what, count in stats.changed.items() if count}
    assert told == {"trajectories without a reward of the name token_rewards for any span of tokens": 1}
    assert experiences([group()[0]])[0].token_level_reward is None


@pytest.mark.parametrize(
    ("told", "kept"), [("7", 7), ("2147483647", 2**31 - 1), ("2147483648", None), ("9" * 5000, None), ("step-7", None)]
)
def test_policy_versions_are_whole_numbers(told, kept):
    calls = [asked(0, (QUESTION,), said("Rain."), policy_version=told)]
    stats = ExportStats()
    (one,) = experiences([rollout("r", calls, reward=1.0)], stats=stats)
    assert one.info["model_version"] == kept
    assert sum(stats.changed.values()) == (kept is None)


def test_a_call_without_a_version_has_the_rollout_s():
    calls = [asked(0, (QUESTION,), said("Rain."), policy_version=None)]
    (one,) = experiences([rollout("r", calls, reward=1.0, policy_version=PolicyVersions(first="5", last="6"))])
    assert one.info["model_version"] == 5


def test_a_call_without_a_version_has_none_of_another():
    calls = [asked(at, (QUESTION,), said("Rain."), policy_version=version) for at, version in enumerate((None, "12"))]
    known = PolicyVersions(first="12", last="12")
    found = experiences([rollout("r", calls, reward=1.0, policy_version=known)])
    assert [one.info["model_version"] for one in found] == [None, 12]


def test_a_completion_that_was_cut_says_so():
    call = asked(0, (QUESTION,), said("Rain"))
    cut = msgspec.structs.replace(call, choices=(msgspec.structs.replace(call.choices[0], finish_reason="length"),))
    (one,) = experiences([rollout("r", [cut], reward=1.0)])
    assert one.truncate_status == "response_truncated"


def test_the_same_group_id_in_another_step_is_another_task():
    again = [replace(one, rollout_id=f"{one.rollout_id}-4", training_step=4) for one in group()]
    told = experiences([*group(), *again])
    assert [(one.eid.batch, one.eid.run) for one in told] == [(batch, run) for batch in (3, 4) for run in range(3)]


def test_attempts_without_a_group_are_tasks_of_their_own():
    told = experiences([conversation("r", "Rain.", 1.0, group_id=None, attempt=attempt) for attempt in (None, 0, 1)])
    assert [(one.eid.task, one.eid.run) for one in told] == [
        (f"rollout r of trace {TRACE}", 0),
        (f"rollout r of trace {TRACE}", 1),
        (f"rollout r attempt 1 of trace {TRACE}", 0),
    ]


def test_runs_without_a_group_that_share_an_id_are_tasks_of_their_own():
    alone = conversation("r", "Rain.", 1.0, group_id=None)
    other = replace(alone, trace_id="cd" * 16, reward=0.0)
    told = experiences([alone, other])
    assert [(one.eid.task, one.eid.run) for one in told] == [
        (f"rollout r of trace {trace}", 0) for trace in (alone.trace_id, other.trace_id)
    ]
    assert [one.advantages.tolist() for one in told] == [[0.0] * len(one.action_mask) for one in told]


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(trajectories(), max_size=3), st.booleans(), st.sampled_from(["history", "call"]))
def test_what_is_trained_is_what_the_sequences_train(rollouts, ranked, unit):
    advantage = "grpo" if ranked else None
    config = ExperiencesConfig(unit=unit, without_logprobs="keep")
    stats = ExportStats()
    told = experiences(rollouts, config, stats, advantage=advantage)
    stream = batches(rollouts, advantage=advantage, allow_incomplete=True, max_tokens=None)
    sequences = list(stream.sequences())
    assert sum(int(one.action_mask.sum()) for one in told) == stream.report.trained_tokens
    assert Counter(token for one in told for token in sampled(one)) == Counter(
        int(token) for sequence in sequences for token in sequence.input_ids[sequence.loss_mask]
    )
    assert +stats.skipped == +stream.report.completions_skipped
    for one in told:
        response = len(one.tokens) - one.prompt_length
        arrays = (one.action_mask, one.logprobs, one.advantages)
        assert {len(array) for array in arrays if array is not None} == {response}
        assert one.action_mask[0]
        assert one.action_mask[-1]
        assert (one.advantages is not None) == ranked
