"""verl in the loop: `python verl_agent_loop.py STEPS`. verl's worker makes a batch of what the demo's agent did.

`GuideLoop` is all that a training run of your own needs: let verl's configuration name it. The rest is what verl does
on its cluster: it serves the policy, hands out rows of the dataset, and computes advantages.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar

os.environ |= {"HF_HUB_OFFLINE": "1"}

import numpy as np
from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from openai import OpenAI
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.agent_loop import register
from verl.trainer.ppo import core_algos

import art_otel
from art_otel.demo.agent import guide
from art_otel.demo.policy import END, IDS, UNKNOWN, untrained
from art_otel.demo.policy_server import VERSION_HEADER, PolicyServer
from art_otel.demo.task import Task, make_task
from art_otel_verl.agent_loop import RolloutAgentLoop

TASKS, ATTEMPTS = 2, 8

art_otel.configure(spool=False, request_tokens=True, policy_version_header=VERSION_HEADER)


@art_otel.rollout
async def answer(url: str, task: Task, seed: int) -> None:
    """One rollout: the agent answers, and the answer is scored."""
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        said = await asyncio.to_thread(guide, client, task.topic, task.city, task.readings, seed)
    art_otel.reward(task.score(said) + 0.1 * (said != ""))


@register("guide")
class GuideLoop(RolloutAgentLoop):
    """Plays the task that a row names; `url` is where the policy is served."""

    url: ClassVar[str] = ""

    def play(self, sampling_params: dict[str, Any], **row: Any) -> Awaitable[None]:  # noqa: ANN401, ARG002 # verl's
        """Call the app's rollout."""
        task = make_task(0, 0, int(row["raw_prompt"][0]["content"]))
        return answer(self.url, task, int(row["index"]))


def configuration(model: Path) -> DictConfig:
    """Compose verl's own configuration, for a model of which it needs the tokenizer alone."""
    words = Tokenizer(models.WordLevel(IDS, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=END, pad_token=UNKNOWN)
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    tokenizer.save_pretrained(model)
    LlamaConfig(vocab_size=len(IDS), architectures=["LlamaForCausalLM"]).save_pretrained(model)
    rollout = {
        "name": "vllm",
        "prompt_length": 16,
        "response_length": 32,
        "calculate_log_probs": "true",
        "agent.default_agent_loop": "guide",
    }
    told = [f"actor_rollout_ref.rollout.{name}={value}" for name, value in rollout.items()]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[f"actor_rollout_ref.model.path={model}", *told])


def rows(step: int) -> DataProto:
    """What verl's dataset gives of a step: each prompt as often as it is tried."""
    prompts = np.empty(TASKS * ATTEMPTS, dtype=object)
    prompts[:] = [[{"role": "user", "content": str(number // ATTEMPTS)}] for number in range(len(prompts))]
    uids = np.array([f"task {number // ATTEMPTS}" for number in range(len(prompts))], dtype=object)
    index = np.arange(len(prompts)) + 1000 * step
    return DataProto.from_dict(
        non_tensors={"raw_prompt": prompts, "uid": uids, "index": index}, meta_info={"global_steps": step}
    )


async def roll_out(steps: int) -> list[DataProto]:
    """Give the batch of each step, sampled with the weights of that step, with GRPO's advantages."""
    batches = []
    with PolicyServer(untrained()) as server:
        GuideLoop.url = server.url
        worker = AgentLoopWorker(configuration(Path("model")), llm_client=None)
        for step in range(steps):
            server.serving = untrained(), str(step)
            batch = await worker.generate_sequences(rows(step))
            batch.batch["advantages"], _ = core_algos.compute_grpo_outcome_advantage(
                batch.batch["rm_scores"], batch.batch["response_mask"].float(), batch.non_tensor_batch["uid"]
            )
            versions = sorted({str(one) for one in batch.non_tensor_batch["policy_version"]})
            print("step", step, "policy", versions, "trained tokens", int(batch.batch["response_mask"].sum()))
            batches.append(batch)
    print("left out:", dict(GuideLoop.skipped))
    return batches


if __name__ == "__main__":
    asyncio.run(roll_out(int(sys.argv[1])))
