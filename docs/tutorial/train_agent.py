"""Train the policy by games that another program plays, through the gateway: `python train_agent.py [STEPS [SEED]]`."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

import torch
from policy import Policy
from server import Server
from train import ATTEMPTS, NUMBERS, update

import art_otel

AGENT = Path(__file__).with_name("agent.py")
AGENTS = 8


@art_otel.rollout
async def play(url: Callable[[str], str], agents: asyncio.Queue[Process], secret: int) -> None:
    """Let an agent that is free play one game, and report its reward."""
    agent = await agents.get()
    agent.stdin.write(f"{url('/v1')} {secret}\n".encode())
    guess = (await agent.stdout.readline()).decode().strip()
    agents.put_nowait(agent)
    art_otel.reward(float(guess == str(secret)))


async def train(steps: int) -> None:
    """Gather groups, update, repeat."""
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    agents = asyncio.Queue()
    for _ in range(AGENTS):
        agents.put_nowait(await asyncio.create_subprocess_exec(sys.executable, AGENT, stdin=PIPE, stdout=PIPE))

    async with art_otel.gateway(Server(policy).url) as gateway:
        for step in range(steps):
            tasks = {
                f"secret {secret}": [play(gateway.url, agents, secret) for _ in range(ATTEMPTS)] for secret in NUMBERS
            }
            groups = await art_otel.gather_trajectory_groups(
                tasks, training_step=step, max_concurrent=AGENTS, progress=False
            )
            update(policy, optimizer, groups)
            rewards = [trajectory.reward for group in groups for trajectory in group]
            print(f"step {step:2}  reward {sum(rewards) / len(rewards):.2f}", flush=True)

    for _ in range(AGENTS):
        agent = agents.get_nowait()
        agent.stdin.close()
        await agent.wait()


if __name__ == "__main__":
    torch.set_num_threads(1)
    steps, seed = *map(int, sys.argv[1:]), *(80, 0)[len(sys.argv) - 1 :]
    torch.manual_seed(seed)
    asyncio.run(train(steps))
