"""Train a policy to find a number between 1 and 7 in three guesses."""

import asyncio
import sys

import torch
from openai import AsyncOpenAI
from policy import Policy
from server import Server

import art_otel

GUESSES = 3
ATTEMPTS = 16


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


def policy_gradient_loss(policy: Policy, ids: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """The policy gradient. The advantage of a token that the policy did not sample is 0."""
    logprobs = policy(ids)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return -(logprobs * advantages[:, 1:]).sum() / len(ids)


def update(policy: Policy, optimizer: torch.optim.Optimizer, groups: list[art_otel.TrajectoryGroup]) -> None:
    """Make batches of the groups, and step once for each."""
    for batch in art_otel.batches(groups, batch_size=7 * ATTEMPTS):
        ids, advantages = torch.from_numpy(batch.input_ids).long(), torch.from_numpy(batch.advantages)
        optimizer.zero_grad()
        policy_gradient_loss(policy, ids, advantages).backward()
        optimizer.step()


async def train(steps: int) -> None:
    """Gather groups, update, repeat."""
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    client = AsyncOpenAI(base_url=Server(policy).url, api_key="none")
    art_otel.configure(request_tokens=True)

    for step in range(steps):
        tasks = {f"secret {secret}": [play(client, secret) for _ in range(ATTEMPTS)] for secret in range(1, 8)}
        groups = await art_otel.gather_trajectory_groups(tasks, max_concurrent=8, progress=False)
        update(policy, optimizer, groups)
        rewards = [trajectory.reward for group in groups for trajectory in group]
        print(f"step {step:2}  reward {sum(rewards) / len(rewards):.2f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is small: more threads only wait for each other
    torch.manual_seed(0)
    asyncio.run(train(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
