"""TRL in the loop: `python trl_grpo.py STEPS`. GRPOTrainer trains the model that the demo's agent is talking to.

`play` is all that a training run of your own needs: serve the trainer's weights, say which version they are, gather.
"""

import asyncio
import os
import sys
from functools import partial

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

from datasets import Dataset
from tiny_policy import TorchPolicy, answer, tiny_model, tiny_tokenizer
from trl import GRPOConfig, GRPOTrainer

import art_otel
from art_otel.demo.policy_server import VERSION_HEADER, PolicyServer
from art_otel.demo.task import make_task
from art_otel_trl.rollouts import LiveRollouts, recorded_reward

ATTEMPTS = 8


def play(server: PolicyServer, prompts: list[str], trainer: GRPOTrainer) -> list[art_otel.Trajectory]:
    """Give a trajectory for each prompt, sampled with the weights that the trainer has now."""
    step = trainer.state.global_step
    server.serving = TorchPolicy(trainer.model), str(step)
    url = f"{server.url}/v1"
    rollouts = [answer(url, make_task(0, step, int(prompt)), seed) for seed, prompt in enumerate(prompts)]
    return asyncio.run(art_otel.gather_trajectories(rollouts, max_concurrent=4, progress=False))


def train(steps: int) -> None:
    """Train; after each step, print the policy version of its rollouts, and what was trained."""
    art_otel.configure(spool=False, request_tokens=True, policy_version_header=VERSION_HEADER)
    model = tiny_model()
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
            processing_class=tiny_tokenizer(),
            rollout_func=live.rollout_func,
        )
        trainer.train()
    print("trained", trainer.state.global_step, "steps; left out:", dict(live.skipped))


if __name__ == "__main__":
    train(int(sys.argv[1]))
