"""Runs in tinker-cookbook's environment: its own config, built-in environments and rollouts, traced into a folder."""

import asyncio
import sys
from dataclasses import dataclass, field
from functools import partial

import chz
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.distillation.datasets import CompositeDataset
from tinker_cookbook.renderers.role_colon import RoleColonRenderer
from tinker_cookbook.rl.preference_envs import PairwisePreferenceGroupBuilder, TournamentPattern
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.train import Config
from tinker_cookbook.rl.types import RLDataset, RLDatasetBuilder

import art_otel
from art_otel_tinker.tracing import trace_dataset, trace_dataset_builder, trace_policy
from exporters.tinker.tests.addition import Addition, Bytes, longer

RENDERER = RoleColonRenderer(Bytes())


@dataclass
class Scripted(TokenCompleter):
    """Gives one answer after the other."""

    answers: list[str] = field(default_factory=lambda: ["4", "5", "abc", "a"])

    async def __call__(self, model_input, stop, *, max_tokens=None):  # noqa: ARG002 # as TokenCompleter
        tokens = list(f" {self.answers.pop(0)}\n\nUser:".encode())
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[-0.5] * len(tokens), stop_reason="stop")


@dataclass(frozen=True)
class Batches(RLDataset):
    builder: object

    def get_batch(self, index):  # noqa: ARG002 # as RLDataset
        return [self.builder]

    def __len__(self):
        return 1


@chz.chz
class Builder(RLDatasetBuilder):
    group_size: int

    async def __call__(self):
        return Batches(
            ProblemGroupBuilder(partial(Addition, RENDERER, format_coef=0.1), self.group_size, dataset_name="sums")
        ), None


async def main(folder: str) -> None:
    tracing = art_otel.configure(dir=folder)
    policy = trace_policy(Scripted())
    config = Config(
        learning_rate=1e-4,
        dataset_builder=trace_dataset_builder(Builder(group_size=2), model="policy"),
        model_name="policy",
        recipe_name="sums",
        max_tokens=16,
        log_path=folder,
    )
    assert isinstance(config.dataset_builder, RLDatasetBuilder)
    assert config.dataset_builder.group_size == 2
    dataset, test = await config.dataset_builder()
    assert test is None
    preferences = PairwisePreferenceGroupBuilder(
        [{"role": "user", "content": "Tell."}], RENDERER, TournamentPattern.ALL_PAIRS_BOTH_WAYS, longer, 2
    )
    composite = trace_dataset(CompositeDataset([Batches(preferences)], [1]))
    builders, numbers = composite.get_batch(0)
    assert numbers == [0]
    for builder in (*dataset.get_batch(0), *builders):
        await do_group_rollout(builder, policy)
    tracing.shutdown()


asyncio.run(main(sys.argv[1]))
