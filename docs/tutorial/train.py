"""Train a policy to find a number between 1 and 5 in three guesses: `python train.py [STEPS [SEED]]`."""

import asyncio
import sys

import torch
from openai import AsyncOpenAI
from policy import Policy
from server import Server
from torch import Tensor

import art_otel

NUMBERS = range(1, 6)
GUESSES = 3
ATTEMPTS = 16
ENTROPY_BONUS = 0.05


@art_otel.rollout
async def play(client: AsyncOpenAI, secret: int) -> None:
    """Play one game and report its reward: 1 if the number was found, else 0."""
    messages = [{"role": "user", "content": "guess"}]
    for _ in range(GUESSES):
        completion = await client.chat.completions.create(model="policy", messages=messages)
        guess = completion.choices[0].message.content
        if guess == str(secret):
            break
        hint = "guess" if not guess.isdigit() else "higher" if int(guess) < secret else "lower"
        messages += [{"role": "assistant", "content": guess}, {"role": "user", "content": hint}]
    art_otel.reward(float(guess == str(secret)))


def policy_gradient_loss(policy: Policy, ids: Tensor, advantages: Tensor, sampled: Tensor) -> Tensor:
    """The policy gradient, with an entropy bonus. What the policy did not sample has advantage 0 and no bonus."""
    logprobs = policy(ids)[:, :-1]
    chosen = logprobs.gather(-1, ids[:, 1:, None])[..., 0]
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return -(chosen * advantages[:, 1:] + ENTROPY_BONUS * entropy * sampled[:, 1:]).sum() / len(ids)


def update(policy: Policy, optimizer: torch.optim.Optimizer, groups: list[art_otel.TrajectoryGroup]) -> None:
    """Make batches of the groups, and step once for each."""
    for batch in art_otel.batches(groups, batch_size=len(NUMBERS) * ATTEMPTS):
        ids, sampled = torch.from_numpy(batch.input_ids).long(), torch.from_numpy(batch.loss_mask)
        optimizer.zero_grad()
        policy_gradient_loss(policy, ids, torch.from_numpy(batch.advantages), sampled).backward()
        optimizer.step()


async def train(steps: int) -> None:
    """Gather groups, update, repeat."""
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    client = AsyncOpenAI(base_url=Server(policy).url, api_key="none")
    art_otel.configure(request_tokens=True)

    for step in range(steps):
        tasks = {f"secret {secret}": [play(client, secret) for _ in range(ATTEMPTS)] for secret in NUMBERS}
        groups = await art_otel.gather_trajectory_groups(tasks, training_step=step, max_concurrent=8, progress=False)
        update(policy, optimizer, groups)
        rewards = [trajectory.reward for group in groups for trajectory in group]
        print(f"step {step:2}  reward {sum(rewards) / len(rewards):.2f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is small: more threads only wait for each other
    steps, seed = *map(int, sys.argv[1:]), *(80, 0)[len(sys.argv) - 1 :]
    torch.manual_seed(seed)
    asyncio.run(train(steps))
