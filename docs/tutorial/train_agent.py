"""Train the model by games that another program plays, through the gateway: `python train_agent.py smollm2`."""

import argparse
import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import torch
from game import HIGHEST
from server import Server
from train import ATTEMPTS, ROWS, Learner
from transformers import AutoTokenizer

import art_otel

AGENT = Path(__file__).with_name("agent.py")


@art_otel.rollout
async def episode(url: Callable[[str], str], secret: int) -> None:
    """Let the agent play one game, and report its reward."""
    agent = await asyncio.create_subprocess_exec(sys.executable, AGENT, url("/v1"), str(secret), stdout=PIPE)
    said, _ = await agent.communicate()
    art_otel.reward(float(said.decode().strip() == str(secret)))


async def train(folder: str, steps: int) -> None:
    """Roll out, make batches, update."""
    learner = Learner(folder)
    server = Server(learner.model, AutoTokenizer.from_pretrained(folder))
    async with art_otel.gateway(server.url) as gateway:
        for step in range(steps):
            tasks = {
                f"secret {secret}": [episode(gateway.url, secret) for _ in range(ATTEMPTS)]
                for secret in range(1, HIGHEST + 1)
            }
            groups = await art_otel.gather_trajectory_groups(
                tasks, training_step=step, max_concurrent=40, progress=False
            )
            apart = learner.update(list(art_otel.batches(groups, batch_size=ROWS, by_length=True)))
            reward = fmean(trajectory.reward for group in groups for trajectory in group)
            print(f"step {step:2}  reward {reward:.2f}  apart {apart:.1e}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    asyncio.run(train(arguments.folder, arguments.steps))
