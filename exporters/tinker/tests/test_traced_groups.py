"""Traced builders: every episode gets what its group made of it, and no other's."""

import asyncio
import logging
import pickle
from functools import partial
from types import SimpleNamespace

import pytest

from art_otel.errors import UsageError
from art_otel.trajectories import PolicyVersions, rollout_traces, token_histories
from art_otel_tinker.tracing import trace_builder, trace_dataset, trace_dataset_builder, trace_env, trace_policy
from art_otel_tinker.tracing.calls import watch_renderer
from art_otel_tinker.tracing.wrapping import handle_tinker_errors
from exporters.tinker.tests.plain_envs import (
    Renderer,
    Talk,
    Talks,
    play,
    roll_out,
    sample,
    stored,
)


@pytest.mark.parametrize("policy", [sample, trace_policy(sample)], ids=["logprobs later", "logprobs at once"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_group_gives_each_episode_its_own_reward(app, policy, order):
    inner = Talks(tuple(Talk(turns) for turns in (1, 2, 3)), final=(0.5, 0.25, 0.125))
    builder = trace_builder(inner, split="train", training_step=1, policy_version=lambda: "12")
    rewarded = asyncio.run(roll_out(builder, policy, order))
    assert rewarded == [(0.5, {"place": 0}), (0.25, {"place": 1}), (0.125, {"place": 2})]
    assert inner.seen[:3] == [inner.envs[place] for place in order]
    assert inner.seen[3:] == ["cleaned"]
    found = stored(app)
    assert [len(one.calls) for one in found] == [1, 2, 3]
    assert {one.name for one in found} == {"talks"}
    assert len({one.group_id for one in found}) == 1
    for place, one in enumerate(found):
        final = inner.final[order.index(place)]
        assert one.reward == sum([0.1] * len(one.calls)) + final
        assert [given.value for given in one.rewards if given.name == "final_reward"] == [final]
        assert one.metrics == {"place": order.index(place)}
        assert one.metadata == {"tags": ["talks", "easy"], "stop_reason": "done"}
        assert all(call.choices[0].logprobs.tolist() == [-0.5, -0.25] for call in one.calls)
        assert {call.policy_version for call in one.calls} == {"12"}


def test_each_run_of_a_builder_is_a_group(app):
    builder = trace_builder(Talks((Talk(1), Talk(1)), final=(0.0, 0.0)))

    async def runs():
        await roll_out(builder)
        await roll_out(builder)
        await asyncio.gather(roll_out(builder), roll_out(builder))

    asyncio.run(runs())
    found = stored(app)
    assert [one.status for one in found] == ["ok"] * 8
    groups = [one.group_id for one in found]
    assert sorted(groups.count(group) for group in set(groups)) == [2, 2, 2, 2]
    assert trace_builder(builder) is builder


def test_a_group_id_can_be_given(app):
    asyncio.run(roll_out(trace_builder(Talks((Talk(1),), final=(0.0,), tags=()), group_id="mine")))
    (one,) = stored(app)
    assert (one.group_id, one.name, dict(one.metadata)) == ("mine", "Talks", {"stop_reason": "done"})


def test_environments_of_another_try_are_of_the_same_group(app):
    broken, whole = Talk(1, raises=RuntimeError("broken")), Talk(1)
    builder = trace_builder(Talks((broken, whole), final=(1.0,)))

    async def tried_again():
        first, _ = await builder.make_envs()
        with pytest.raises(RuntimeError, match="broken"):
            await play(first)
        _, second = await builder.make_envs()
        await builder.compute_group_rewards([await play(second)], [second])
        await builder.cleanup()

    asyncio.run(tried_again())
    failed, good = stored(app)
    assert (failed.status, failed.error, failed.reward) == ("error", "RuntimeError: broken", None)
    assert (good.status, good.reward) == ("ok", 1.1)
    assert failed.group_id == good.group_id
    assert failed.calls[0].choices[0].logprobs is None


def test_a_group_that_cannot_be_graded_has_failed(app):
    builder = trace_builder(Talks((Talk(1), Talk(1)), raises=TimeoutError("judge")))
    with pytest.raises(TimeoutError, match="judge"):
        asyncio.run(roll_out(builder))
    assert [(one.status, one.error, one.reward) for one in stored(app)] == [("error", "TimeoutError: judge", None)] * 2


def test_a_builder_that_gives_too_few_rewards(app, caplog):
    faults = handle_tinker_errors.faults
    with caplog.at_level(logging.CRITICAL):
        assert asyncio.run(roll_out(trace_builder(Talks((Talk(1), Talk(1)), final=(1.0,))))) == [(1.0, {"place": 0})]
    assert handle_tinker_errors.faults == faults + 1
    handle_tinker_errors.faults = faults
    assert [one.status for one in stored(app)] == ["ok", "error"]


def test_tasks_of_their_own(app):
    async def in_tasks():
        builder = trace_builder(Talks((Talk(1),), final=(1.0,)))
        await builder.cleanup()
        envs = await asyncio.create_task(builder.make_envs())
        played = [await asyncio.create_task(play(env)) for env in envs]
        await asyncio.create_task(builder.compute_group_rewards(played, envs))
        assert await builder.compute_group_rewards([], []) == []

    asyncio.run(in_tasks())
    (one,) = stored(app)
    assert (one.status, one.reward, len(one.calls)) == ("ok", 1.1, 1)


def test_a_builder_without_tags(app, caplog):
    class Untold(Talks):
        def logging_tags(self):
            raise NotImplementedError

    faults = handle_tinker_errors.faults
    with caplog.at_level(logging.CRITICAL):
        asyncio.run(roll_out(trace_builder(Untold((Talk(1),), final=(1.0,)))))
    assert handle_tinker_errors.faults == faults + 1
    handle_tinker_errors.faults = faults
    assert [one.name for one in stored(app)] == ["Untold"]


def test_what_nobody_rewards_has_failed(app):
    async def abandoned():
        builder = trace_builder(Talks((Talk(1), Talk(1)), final=(1.0,)))
        first, second = await builder.make_envs()
        trajectory = await play(first)
        await play(second)
        await builder.compute_group_rewards([trajectory], [first])
        await builder.cleanup()

    asyncio.run(abandoned())
    good, bad = stored(app)
    assert (good.status, bad.status) == ("ok", "error")
    assert bad.error == "EpisodeError: the group ended before this episode was rewarded"


@pytest.mark.parametrize("policy", [sample, trace_policy(sample)], ids=["logprobs later", "logprobs at once"])
def test_a_step_that_is_cut_off_is_not_trained(app, policy):
    """A limit of time cancels a step; the cookbook's runner grades what there was before it."""

    class Slow(Talk):
        async def step(self, action, *, extra=None):
            if len(self.history) > 1:
                await asyncio.sleep(60)
            return await super().step(action, extra=extra)

    async def timed():
        builder = trace_builder(Talks((Slow(),), final=(0.5,)))
        (env,) = await builder.make_envs()
        prompt, _ = await env.initial_observation()
        answer = await policy(prompt, [])
        result = await env.step(answer.tokens)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await env.step((await policy(result.next_observation, [])).tokens)
        transitions = [SimpleNamespace(ac=answer, reward=result.reward)]
        cut = SimpleNamespace(transitions=transitions, stop_reason="rollout_timeout")
        await builder.compute_group_rewards([cut], [env])

    asyncio.run(timed())
    (one,) = stored(app)
    assert (one.status, one.reward, one.metadata["stop_reason"]) == ("ok", 0.6, "rollout_timeout")
    assert [call.error_type for call in one.calls] == [None, "CancelledError"]
    assert one.complete
    trained = [span.turn for history in token_histories(one) for span in history.spans if span.trained]
    assert trained == [0]


def test_a_first_prompt_that_is_too_long(app):
    too_long = SimpleNamespace(reward=-0.5, metrics={"stop/max_tokens": 1.0}, logs={"overflow": "by far"})
    asyncio.run(play(trace_env(Talk(first=too_long), name="alone")))
    builder = trace_builder(Talks((Talk(first=too_long), Talk(1)), final=(0.25, 0.5)), name="group", policy_version="5")
    asyncio.run(roll_out(builder))
    alone, empty, full = stored(app)
    assert alone.policy_version is None
    assert empty.policy_version == PolicyVersions(first="5", last="5")
    assert (alone.reward, alone.logs, alone.metadata) == (-0.5, ("overflow: by far",), {"stop_reason": "max_tokens"})
    assert (empty.reward, empty.calls, full.reward) == (-0.25, (), 0.6)


def test_the_switch(app):
    env, builder, dataset = Talk(), Talks(()), SimpleNamespace(get_batch=lambda _: [])
    assert trace_env(env, enabled=False) is env
    assert trace_builder(builder, enabled=False) is builder
    assert trace_dataset(dataset, enabled=False) is dataset
    assert trace_policy(sample, enabled=False) is sample
    traced = trace_env(env)
    assert (trace_env(traced), isinstance(traced, Talk), traced.turns) == (traced, True, 2)
    policy = trace_policy(sample)
    assert trace_policy(policy) is policy
    assert not (app.folder / "spool").exists()


def test_a_dataset_gives_the_step_of_its_batch(app):
    class Dataset:
        def get_batch(self, index):  # noqa: ARG002 # as RLDataset
            return [Talks((Talk(1),), final=(0.0,))]

        def __len__(self):
            return 5

    train, test = (trace_dataset(Dataset(), split=split) for split in ("train", "test"))
    assert (len(train), trace_dataset(train)) == (5, train)
    for dataset in (train, test):
        (builder,) = dataset.get_batch(4)
        asyncio.run(roll_out(builder))
    assert [(one.split, one.training_step) for one in stored(app)] == [("train", 4), ("test", None)]


def test_a_dataset_builder_gives_traced_datasets_and_batches_keep_their_shape(app):
    class Composite:
        def get_batch(self, index):
            return [Talks((Talk(1),), final=(0.25,))], [index]

    async def build(*, tested):
        return Composite(), Composite() if tested else None

    assert asyncio.run(trace_dataset_builder(partial(build, tested=False))())[1] is None
    for dataset in asyncio.run(trace_dataset_builder(partial(build, tested=True), model="policy")()):
        (builder,), numbers = dataset.get_batch(4)
        assert numbers == [4]
        asyncio.run(roll_out(builder))
    found = stored(app)
    assert [(one.split, one.training_step) for one in found] == [("train", 4), ("test", None)]
    assert {call.request_model for one in found for call in one.calls} == {"policy"}


@pytest.mark.parametrize(
    ("trace", "given", "said"),
    [
        (trace_env, Talks(()), "Talks is no Env: it has no method initial_observation and no step"),
        (trace_env, Talk, "Talk is a class: give an instance of it, Env"),
        (trace_builder, Talk(), "Talk is no EnvGroupBuilder: it has no method make_envs"),
        (trace_dataset, sample, r"function is no RLDataset \(trace_dataset_builder takes the builder of one\)"),
        (trace_dataset_builder, Talks(()), "Talks is no RLDatasetBuilder: it has no method __call__"),
        (trace_policy, "policy", "str is no TokenCompleter: it has no method __call__"),
    ],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_what_is_of_another_type_is_refused(trace, given, said, enabled):
    with pytest.raises(UsageError, match=said):
        trace(given, enabled=enabled)


def test_components_of_steps_and_groups_are_raw_numbers_in_the_trace(app):
    class Judged(Talk):
        async def step(self, action, *, extra=None):
            told = await super().step(action, extra=extra)
            return told._replace(metrics={"correct": True, "format": 0, "other": 3})

    class Compared(Talks):
        async def compute_group_rewards(self, trajectory_group, env_group):
            await super().compute_group_rewards(trajectory_group, env_group)
            return [(0.5, {"win_minus_loss": 0.75, "other": 4})]

    asyncio.run(roll_out(trace_builder(Compared((Judged(1),), final=(0.0,)))))
    (found,) = stored(app)
    (trace,) = rollout_traces(found)
    assert trace.reward_data == {
        "step/correct": 1.0,
        "step/format": 0.0,
        "step/reward": 0.1,
        "rollout/win_minus_loss": 0.75,
        "rollout/final_reward": 0.5,
        "rollout/reward": 0.6,
    }


def test_what_is_pickled_comes_back_traced():
    builder = pickle.loads(pickle.dumps(trace_builder(Talks((), final=(1.0,)))))
    assert type(builder).__name__ == "TracedBuilder"
    assert builder.final == (1.0,)
    env = Talk()
    trace_env(env)
    watched = watch_renderer(env)
    assert watch_renderer(env) is watched is env.renderer
    assert type(pickle.loads(pickle.dumps(env.renderer))) is Renderer
