"""TRL in the loop: `python trl_grpo.py STEPS`. GRPOTrainer trains the model that the demo's agent is talking to.

`play` is all that a training run of your own needs: serve the trainer's weights, say which version they are, gather.
"""

import asyncio
import os
import sys
from functools import partial

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from datasets import Dataset
from openai import OpenAI
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

import art_otel
from art_otel.demo.agent import guide
from art_otel.demo.language import END, IDS, UNKNOWN
from art_otel.demo.policy import LONGEST, Sampled
from art_otel.demo.policy_server import VERSION_HEADER, PolicyServer
from art_otel.demo.task import Task, make_task
from art_otel_trl.live import LiveRollouts
from art_otel_trl.replay import recorded_reward

ATTEMPTS = 8


class TorchPolicy:
    """Samples from a model of torch, as the server asks for it; yours is served by vLLM."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    @torch.no_grad()
    def sample(self, prompt: list[int], seed: int | None) -> Sampled:
        """Sample a completion, up to and with its end."""
        chance, sampled = torch.Generator().manual_seed(seed or 0), Sampled([], [])
        while len(sampled.token_ids) < LONGEST and sampled.token_ids[-1:] != [IDS[END]]:
            scores = self.model(torch.tensor([[*prompt, *sampled.token_ids]])).logits[0, -1]
            logprobs = scores.double().log_softmax(0)
            token = int(torch.multinomial(logprobs.exp(), 1, generator=chance))
            sampled.token_ids.append(token)
            sampled.logprobs.append(float(logprobs[token]))
        return sampled


@art_otel.rollout
async def answer(url: str, task: Task, seed: int) -> None:
    """One rollout: the agent answers, and the answer is scored."""
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        said = await asyncio.to_thread(guide, client, task.topic, task.city, task.readings, seed)
    art_otel.reward(task.score(said) + 0.1 * (said != ""))


def play(server: PolicyServer, prompts: list[str], trainer: GRPOTrainer) -> list[art_otel.Trajectory]:
    """Give a trajectory for each prompt, sampled with the weights that the trainer has now."""
    step = trainer.state.global_step
    server.serving = TorchPolicy(trainer.model), str(step)
    rollouts = [answer(server.url, make_task(0, step, int(prompt)), seed) for seed, prompt in enumerate(prompts)]
    return asyncio.run(art_otel.gather_trajectories(rollouts, max_concurrent=4, progress=False))


def warm_up(model: LlamaForCausalLM) -> None:
    """Let the model begin as one that calls a tool, any of them, and repeats what it said."""
    optimizer, tools = torch.optim.AdamW(model.parameters(), lr=1e-2), ("thermometer", "clock", "archivist")
    sampled = torch.tensor([8, 9, 10, 14, 15])
    for step in range(100):
        talks = []
        for number in range(12):
            task, tool = make_task(1, step, number), tools[number % 3]
            reading = task.readings["clock"][task.city]
            question = f"{' '.join(tools)} <user> {task.topic} in {task.city} <assistant> {tool} {task.city} <end>"
            talks.append(f"{question} <tool> {reading} <assistant> {reading} <end>")
        ids = torch.tensor([[IDS[word] for word in talk.split()] for talk in talks])
        scores = model(ids).logits[:, sampled - 1].flatten(0, 1)
        torch.nn.functional.cross_entropy(scores, ids[:, sampled].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def train(steps: int) -> None:
    """Train; after each step, print the policy version of its rollouts, and what was trained."""
    art_otel.configure(spool=False, request_tokens=True, policy_version_header=VERSION_HEADER)
    words = Tokenizer(models.WordLevel(IDS, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=END, pad_token=UNKNOWN)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(IDS), eos_token_id=IDS[END], **sizes))
    warm_up(model)
    arguments = GRPOConfig(
        output_dir="model",
        num_generations=ATTEMPTS,
        per_device_train_batch_size=ATTEMPTS,
        max_steps=steps,
        learning_rate=1e-3,
        beta=0.0,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    with PolicyServer(TorchPolicy(model)) as server:
        live = LiveRollouts(partial(play, server))
        trainer = GRPOTrainer(
            model,
            reward_funcs=recorded_reward,
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": str(number)} for number in range(2)]),
            processing_class=tokenizer,
            rollout_func=live.rollout_func,
        )
        trainer.train()
    print("trained", trainer.state.global_step, "steps; left out:", dict(live.skipped))


if __name__ == "__main__":
    train(int(sys.argv[1]))
