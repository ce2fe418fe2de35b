"""TRL in the loop: `python trl_grpo.py STEPS [MODEL_FOLDER]`. TRL's GRPO trains the model that an agent is talking to.

Without a folder, a tiny model learns the demo's task. With the folder of the tutorial, a real language model learns the
tutorial's game. `play` is all that a training run of your own needs: gather rollouts of the trainer's prompts.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
sys.path.append(str(Path(__file__).parents[1] / "tutorial"))

import torch
from datasets import Dataset
from openai import AsyncOpenAI
from tiny_policy import TorchPolicy, answer, tiny_model, tiny_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOConfig

import art_otel
from art_otel.demo.policy_server import PolicyServer
from art_otel.demo.task import make_task
from art_otel_trl.rollouts import LiveRollouts, recorded_reward
from art_otel_trl.trainer import HistoriesGRPOTrainer

ATTEMPTS = 8

Attempt = Callable[[str, int, int], Awaitable[None]]
"""(prompt, step, seed) -> one rollout."""


def play(attempt: Attempt, prompts: Sequence[str], trainer: HistoriesGRPOTrainer) -> list[art_otel.Trajectory]:
    """Give a trajectory for each prompt. The server has the trainer's own model, so its weights are there already."""
    step = trainer.state.global_step
    rollouts = [attempt(prompt, step, seed) for seed, prompt in enumerate(prompts)]
    played = asyncio.run(art_otel.gather_trajectories(rollouts, max_concurrent=40, progress=False))
    print(f"step {step}  reward {fmean(one.reward for one in played):.2f}", flush=True)
    return played


def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    attempt: Attempt,
    prompts: Sequence[str],
    *,
    steps: int,
    learning_rate: float,
) -> None:
    """Train; at the end, print what was left out."""
    live = LiveRollouts(partial(play, attempt))
    arguments = GRPOConfig(
        output_dir="model",
        num_generations=ATTEMPTS,
        per_device_train_batch_size=ATTEMPTS,
        gradient_accumulation_steps=len(prompts),
        max_steps=steps,
        learning_rate=learning_rate,
        lr_scheduler_type="constant",
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = HistoriesGRPOTrainer(
        model,
        reward_funcs=recorded_reward,
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        processing_class=tokenizer,
        rollout_func=live.rollout_func,
    )
    art_otel.configure(spool=False, request_tokens=True, policy_version=lambda: str(trainer.state.global_step))
    trainer.train()
    print("trained", trainer.state.global_step, "steps; left out:", dict(live.skipped))


def train_tiny(steps: int) -> None:
    """The demo's agent, with tools, and a tiny model that speaks its language."""
    model = tiny_model()
    with PolicyServer(TorchPolicy(model)) as server:
        url = f"{server.url}/v1"
        attempt = lambda prompt, step, seed: answer(url, make_task(0, step, int(prompt)), seed)  # noqa: E731
        train(model, tiny_tokenizer(), attempt, "01", steps=steps, learning_rate=1e-3)


def train_real(steps: int, folder: str) -> None:
    """The tutorial's game, and SmolLM2."""
    from game import play as play_game  # noqa: PLC0415 # the tutorial's
    from server import Server  # noqa: PLC0415 # as above

    @art_otel.rollout
    async def attempt(secret: str, _step: int, _seed: int) -> None:
        async with AsyncOpenAI(base_url=server.url, api_key="none", timeout=600) as client:
            art_otel.reward(float(await play_game(client, int(secret))))

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.get_input_embeddings().weight.requires_grad = False  # the head, too
    tokenizer = AutoTokenizer.from_pretrained(folder)
    server = Server(model, tokenizer)
    train(model, tokenizer, attempt, "12345", steps=steps, learning_rate=5e-5)


if __name__ == "__main__":
    steps, *folder = sys.argv[1:]
    train_real(int(steps), *folder) if folder else train_tiny(int(steps))
