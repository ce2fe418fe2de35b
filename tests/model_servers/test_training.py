"""An agent that is another program is trained through the gateway: a real vLLM samples, and takes the new weights.

Before each step the server's log probabilities are those of the weights that the trainer has. Run with -s, it prints
the reward of each step.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

import art_otel
from art_otel.model_gateway.in_process import LocalGateway
from tests.model_servers.servers import vllm_in_training

pytestmark = [pytest.mark.real_server, pytest.mark.xdist_group("vllm")]

STEPS = 12
ATTEMPTS = 24
AT_ONCE = 8
CLOSE = 1e-5

AGENT = """
import json, sys
from urllib.request import Request, urlopen

messages = []
for question in sys.argv[2:]:
    messages.append({"role": "user", "content": question})
    body = json.dumps({"model": "tiny", "messages": messages, "max_tokens": 10, "temperature": 1.0}).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(sys.argv[1] + "/chat/completions", body, headers)) as response:
        answer = json.load(response)["choices"][0]["message"]["content"] or ""
    messages.append({"role": "assistant", "content": answer})
print(json.dumps([each["content"] for each in messages if each["role"] == "assistant"]))
"""
QUESTIONS = ("What is open?", "How do I begin?")
ARRAYS = ("input_ids", "loss_mask", "advantages", "logprobs")


@art_otel.rollout
async def talk(gateway: LocalGateway, question: str) -> None:
    """Let the agent ask twice. The reward is the share of vowels in what it was answered."""
    command = [sys.executable, "-c", AGENT, gateway.url("/v1"), question, "And then?"]
    agent = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    said, _ = await agent.communicate()
    text = said.decode().lower()
    art_otel.reward(sum(text.count(vowel) for vowel in "aeiou") / len(text))


async def train(url: str, learner: subprocess.Popen[str], folder: Path) -> list[float]:
    """Gather, update, publish the weights; the mean reward of each step."""
    means: list[float] = []
    async with art_otel.gateway(url, tokens="exact") as gateway, httpx.AsyncClient(timeout=120) as server:
        for step in range(STEPS):
            tasks = {question: [talk(gateway, question) for _ in range(ATTEMPTS)] for question in QUESTIONS}
            groups = await art_otel.gather_trajectory_groups(tasks, max_concurrent=AT_ONCE, progress=False)
            (batch,) = art_otel.batches(groups, batch_size=4 * len(QUESTIONS) * ATTEMPTS)  # a rollout is a row or two
            np.savez(folder / "batch.npz", **{name: getattr(batch, name) for name in ARRAYS})
            print(folder / "batch.npz", file=learner.stdin, flush=True)
            apart = float(learner.stdout.readline())
            assert apart < CLOSE
            for path, body in (("collective_rpc", {"method": "reload_weights"}), ("reset_prefix_cache", {})):
                (await server.post(f"{url}/{path}", json=body)).raise_for_status()
            rewards = [trajectory.reward for group in groups for trajectory in group]
            means.append(sum(rewards) / len(rewards))
            print(f"step {step:2}  reward {means[-1]:.3f}  logprobs within {apart:.1e}", flush=True)
    return means


def test_an_agent_of_another_program_learns(tmp_path):
    with vllm_in_training(tmp_path) as server:
        command = [str(server.python), str(Path(__file__).with_name("learner.py")), str(server.model)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as learner:
            means = asyncio.run(train(server.url, learner, tmp_path))
    assert sum(means[-3:]) > 1.5 * sum(means[:3])
