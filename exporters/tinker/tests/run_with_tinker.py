"""Runs in tinker-cookbook's environment: its own environments and rollouts, traced and not; prints what they gave.

python run_with_tinker.py FOLDER: the spool goes to FOLDER/spool, tinker-cookbook's own summaries to FOLDER/run. What
the policy answers stands in a script: each prompt names its line by `#name`, and gets the next answer of it.
"""

import asyncio
import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import tinker
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.preference_envs import PairwisePreferenceGroupBuilder, TournamentPattern
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from tinker_cookbook.rl.rollout_limits import ParseErrorPolicy, RolloutLimits
from tinker_cookbook.rl.rollout_logging import serialize_rollout_summaries
from tinker_cookbook.rl.rollout_runner import RolloutHooks, run_rollout
from tinker_cookbook.rl.rollout_strategy import RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout, do_single_rollout
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RLDataset, StepResult, TrajectoryGroup
from tinker_cookbook.stores.storage import LocalStorage
from tinker_cookbook.stores.training_store import TrainingRunStore
from tinker_cookbook.tool_use import simple_tool_result, tool
from tinker_cookbook.tool_use.agent_tool_message_env import build_agent_tool_env

import art_otel
from art_otel_tinker.tracing import trace_builder, trace_dataset, trace_env, trace_policy
from exporters.tinker.tests.addition import Addition, longer
from exporters.tinker.tests.scripted import RENDERER, SCRIPT, Scripted


class Sum(Addition):
    def __init__(self, line: str) -> None:
        super().__init__(RENDERER, convo_prefix=[{"role": "system", "content": "You add."}], format_coef=0.1)
        self.question = f"#{line} 2 + 2 = ?"


@tool
async def look_up(city: str):
    """Look something up."""
    return simple_tool_result(f"rain in {city}", name="look_up", call_id="call_0")


async def judge(messages):
    return float(messages[-1]["role"] == "assistant") / 3, {"judged": 1.0}


def agent(line: str, **options) -> EnvFromMessageEnv:
    messages = [{"role": "system", "content": "You look up."}, {"role": "user", "content": f"#{line} Weather?"}]
    return build_agent_tool_env(RENDERER, [look_up], messages, judge, **options)


class Rewriting(MessageEnv):
    """Changes what was said before, in place, at every step."""

    def __init__(self, line: str) -> None:
        self.history = [{"role": "user", "content": f"#{line} first"}]

    async def initial_observation(self):
        return self.history

    async def step(self, message):
        self.history[0]["content"] += " changed"
        self.history.append(message)
        self.history.append({"role": "user", "content": "and?"})
        return MessageStepResult(reward=0.25, episode_done=len(self.history) > 4, next_messages=self.history)


class Broken(Env):
    """Fails with the first answer that says so."""

    def __init__(self, line: str) -> None:
        self.line = line

    async def initial_observation(self):
        return tinker.ModelInput.from_ints(list(f"#{self.line}".encode())), []

    async def step(self, action, *, extra=None):  # noqa: ARG002 # as Env
        if bytes(action) == b"break":
            raise RuntimeError("broken")
        return StepResult(1.0, True, tinker.ModelInput.empty(), [])


@dataclass(frozen=True)
class Envs(EnvGroupBuilder):
    thunks: tuple
    final: tuple[float, ...] = ()

    async def make_envs(self):
        return [thunk() for thunk in self.thunks]

    async def compute_group_rewards(self, trajectory_group, env_group):
        assert not any("Traced" in type(env).__name__ for env in env_group)
        finals = self.final or (0.0,) * len(trajectory_group)
        return [(final, {"place": float(place)}) for place, final in enumerate(finals)]


def groups() -> dict[str, EnvGroupBuilder]:
    agents = (
        lambda: agent("agent"),
        lambda: agent("broken_frame"),
        lambda: agent("bad_call", parse_error_policy=ParseErrorPolicy(max_consecutive=1, penalty_per_error=0.125)),
        lambda: agent("too_long_answer"),
        lambda: agent("goes_on", terminate_on_length=False),
        lambda: agent("overflow", max_trajectory_tokens=120, max_generation_tokens=20),
        lambda: agent("too_long_prompt", max_trajectory_tokens=10),
    )
    limited = (lambda: with_limits("one_turn", max_turns=1), lambda: with_limits("no_turn", max_trajectory_tokens=5))
    return {
        "problem": ProblemGroupBuilder(lambda: Sum("sum"), 3, dataset_name="sums"),
        "agents": Envs(agents, final=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)),
        "limited": Envs(limited, final=(0.5, -0.5)),
        "rewriting": Envs((lambda: EnvFromMessageEnv(RENDERER, Rewriting("rewriting")),)),
        "preference": PairwisePreferenceGroupBuilder(
            [{"role": "user", "content": "#pair Tell."}], RENDERER, TournamentPattern.ALL_PAIRS_BOTH_WAYS, longer, 4
        ),
        "retry": Envs((lambda: Broken("retry"), lambda: Broken("retry"))),
    }


def with_limits(line: str, **limits) -> EnvFromMessageEnv:
    env = agent(line)
    env.rollout_limits = RolloutLimits(**limits)
    return env


@dataclass(frozen=True)
class Builders(RLDataset):
    builders: tuple

    def get_batch(self, index):
        return self.builders if index == 3 else ()

    def __len__(self):
        return 4


class Inject(RolloutHooks):
    async def on_turn_begin(self, state):
        return [{"role": "user", "content": "Really?"}] if state.turn_index == 1 else None


def told(trajectory) -> dict:
    return {
        "stop_reason": trajectory.stop_reason,
        "steps": [
            {
                "ob": one.ob.to_ints(),
                "ac": one.ac.tokens,
                "logprobs": one.ac.logprobs,
                "reward": one.reward,
                "metrics": one.metrics,
                "logs": one.logs,
            }
            for one in trajectory.transitions
        ],
    }


async def roll_out(builders: dict[str, EnvGroupBuilder], policy) -> dict:
    """All groups at once. The strategy gives trajectories in the order in which they end, not in that of their envs."""
    strategy = RetryOnFailure(max_retries=1)
    found = await asyncio.gather(*[do_group_rollout(builder, policy, strategy) for builder in builders.values()])
    return dict(zip(builders, found, strict=True))


def plain(groups: dict) -> dict:
    return {
        name: {
            "rewards": group.get_total_rewards(),
            "finals": group.final_rewards_G,
            "metrics": group.metrics_G,
            "trajectories": [told(one) for one in group.trajectories_G],
        }
        for name, group in groups.items()
    }


def datums_of(groups: dict) -> list[dict]:
    """What is trained on, in groups without those that never sampled anything."""
    found = [
        TrajectoryGroup(*zip(*members, strict=True))
        for group in groups.values()
        if (
            members := [
                one
                for one in zip(group.trajectories_G, group.final_rewards_G, group.metrics_G, strict=True)
                if any(step.ac.tokens for step in one[0].transitions)
            ]
        )
    ]
    data, _ = assemble_training_data(found, compute_advantages(found))
    return [
        {"model_input": one.model_input.to_ints(), **{name: t.tolist() for name, t in one.loss_fn_inputs.items()}}
        for one in data
    ]


def switched_off() -> bool:
    """What is traced with the switch off, or pickled, is the thing itself, or traced again."""
    builder, env, policy = groups()["limited"], Sum("sum"), Scripted(SCRIPT)
    dataset = Builders((builder,))
    again = pickle.loads(pickle.dumps(trace_builder(Envs((), final=(1.0,)), group_id="kept")))
    traced = trace_env(agent("agent"))
    return (
        trace_builder(builder, enabled=False) is builder
        and trace_env(env, enabled=False) is env
        and trace_policy(policy, enabled=False) is policy
        and trace_dataset(dataset, enabled=False) is dataset
        and isinstance(again, Envs)
        and again.final == (1.0,)
        and type(again).__name__ == "TracedBuilder"
        and isinstance(traced, EnvFromMessageEnv)
        and hasattr(traced, "inject_messages")
        and not hasattr(trace_env(Broken("retry")), "inject_messages")
    )


async def main(folder: Path) -> dict:
    untraced = plain(await roll_out(groups(), Scripted(SCRIPT)))
    without_setup = plain(await roll_out(dict(zip(groups(), traced_builders(), strict=True)), Scripted(SCRIPT)))
    tracing = art_otel.configure(dir=folder)
    traced = await roll_out(dict(zip(groups(), traced_builders(), strict=True)), Scripted(SCRIPT))
    single = await do_single_rollout(
        trace_policy(Scripted(SCRIPT)), trace_env(Sum("single"), name="single", group_id="alone", policy_version="12")
    )
    hooked = await run_rollout(
        trace_policy(Scripted(SCRIPT)), trace_env(agent("injected"), name="injected"), hooks=Inject()
    )
    tracing.shutdown()
    summaries = serialize_rollout_summaries(
        split="train",
        iteration=3,
        trajectory_groups_P=list(traced.values()),
        taglist_P=[builder.logging_tags() for builder in groups().values()],
        sampling_client_steps_P=[12] * len(traced),
    )
    TrainingRunStore(LocalStorage(folder / "run")).write_rollouts(3, summaries)
    return {
        "untraced": untraced,
        "without_setup": without_setup,
        "traced": plain(traced),
        "errors": [one.error_type for one in traced["retry"].rollout_errors],
        "datums": datums_of(traced),
        "single": told(single),
        "injected": told(hooked),
        "switch": switched_off(),
    }


def traced_builders() -> list:
    dataset = trace_dataset(Builders(tuple(groups().values())), model="policy", policy_version=lambda: "12")
    assert len(dataset) == 4
    assert dataset.get_batch(0) == ()
    return dataset.get_batch(3)


print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
