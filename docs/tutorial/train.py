"""Train a language model to find a number between 1 and 5 in three guesses.

    python train.py smollm2 [--steps 30] [--seed 0] [--server http://127.0.0.1:8000]

Without --server, the model is served in this process. With it, a vLLM that serves the folder reads the new weights from
there after each step.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from statistics import fmean
from urllib.request import Request, urlopen

import torch
from game import HIGHEST, play
from openai import AsyncOpenAI
from server import Server
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

import art_otel
from art_otel.data import Batch

ATTEMPTS = 8
LEARNING_RATE = 2e-5
CLIP = 0.2
ENTROPY_BONUS = 0.05  # keeps it trying: a number that no attempt finds has no gradient
ROWS = 20  # at once in torch


@art_otel.rollout
async def episode(client: AsyncOpenAI, secret: int) -> None:
    """Play one game. The reward is 1 if the number was found, else 0."""
    art_otel.reward(float(await play(client, secret)))


class Learner:
    """The model, and what a step does to it."""

    def __init__(self, folder: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model.get_input_embeddings().requires_grad_(
            requires_grad=False
        )  # the head, too: vLLM on a CPU keeps a tied one
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, LEARNING_RATE, weight_decay=0.0)

    def update(self, batches: Sequence[Batch]) -> float:
        """One step along PPO's clipped policy gradient; how far recorded logprobs were from torch's, at most."""
        count, apart = sum(int(batch.loss_mask.sum()) for batch in batches), 0.0
        self.optimizer.zero_grad()
        for batch in batches:
            ids, mask = torch.from_numpy(batch.input_ids).long(), torch.from_numpy(batch.loss_mask)
            recorded, advantages = torch.from_numpy(batch.logprobs)[mask], torch.from_numpy(batch.advantages)[mask]
            logprobs, entropy = logprobs_of(self.model, ids, mask)
            ratio = (logprobs - recorded).exp()
            gain = torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
            (-(gain + ENTROPY_BONUS * entropy).sum() / count).backward()
            apart = max(apart, float((logprobs - recorded).detach().abs().max()))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return apart


def logprobs_of(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The log probabilities of the sampled tokens, and the entropies there. What all rows begin with is read once."""
    shared = int(((ids != ids[:1]).any(0) | mask.any(0)).float().argmax()) - 1
    cache = model.model(ids[:1, :shared], use_cache=True).cache
    cache.batch_repeat_interleave(len(ids))
    states = model.model(ids[:, shared:-1], cache=cache, use_cache=True).last_hidden_state
    sampled, tokens = mask[:, shared + 1 :], ids[:, shared + 1 :]
    logprobs = model.lm_head(states[sampled]).log_softmax(-1)
    return logprobs.gather(-1, tokens[sampled][:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


def publish(model: PreTrainedModel, folder: str, server: str) -> None:
    """Write the weights, and let vLLM read them (`VLLM_SERVER_DEV_MODE=1`)."""
    model.save_pretrained(folder)
    for path, body in (("collective_rpc", {"method": "reload_weights"}), ("reset_prefix_cache", {})):
        request = Request(f"{server}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        urlopen(request).close()


async def train(folder: str, steps: int, server: str | None) -> None:
    """Roll out, make batches, update, publish."""
    learner = Learner(folder)
    url = f"{server}/v1" if server else Server(learner.model, AutoTokenizer.from_pretrained(folder)).url
    client = AsyncOpenAI(base_url=url, api_key="none", timeout=600)
    log = art_otel.RunLog("tutorial", "smollm2")
    step = 0
    art_otel.configure(request_tokens=True, policy_version=lambda: f"step-{step}")
    while step < steps:
        started = time.monotonic()
        games = range(ATTEMPTS)
        tasks = {f"secret {secret}": [episode(client, secret) for _ in games] for secret in range(1, HIGHEST + 1)}
        groups = await art_otel.gather_trajectory_groups(tasks, training_step=step, max_concurrent=40, progress=False)
        gathered = time.monotonic()
        apart = learner.update(list(art_otel.batches(groups, batch_size=ROWS, by_length=True)))
        if server:
            publish(learner.model, folder, server)
        log.log(groups, "train", step=step, metrics={"apart": apart})
        reward = fmean(trajectory.reward for group in groups for trajectory in group)
        seconds = f"{gathered - started:.0f} + {time.monotonic() - gathered:.0f} s"
        print(f"step {step:2}  reward {reward:.2f}  apart {apart:.1e}  {seconds}", flush=True)
        step += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    asyncio.run(train(arguments.folder, arguments.steps, arguments.server))
