"""ART in the loop: `python art_local.py STEPS`. Its LocalBackend trains the model that the demo's agent is talking to.

`play` is all that a training run of your own needs: gather, and give `art_groups` to `backend.train`. The LocalBackend
trains by Unsloth and serves by vLLM, which need a GPU; here it has `OnCpu` in their place. Groups, advantages, tokens,
packing, loss and steps are ART's own.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import fmean

os.environ |= {"HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

import art
import torch
from art.local import LocalBackend
from art.loss import LossInputs, loss_fn, shift_tensor
from art.preprocessing.pack import packed_tensors_from_dir
from art.utils.output_dirs import get_model_dir
from tiny_policy import TorchPolicy, answer, tiny_model, tiny_tokenizer

import art_otel
from art_otel.demo.policy_server import VERSION_HEADER, PolicyServer
from art_otel.demo.task import make_task
from art_otel_art import art_groups

TASKS = 4
ATTEMPTS = 8


class OnCpu:
    """What LocalBackend asks of Unsloth and vLLM, of a model on a CPU: `art.local.service.ModelService`."""

    def __init__(self, policy: torch.nn.Module, server: PolicyServer, checkpoints: Path) -> None:
        self.policy, self.server, self.checkpoints = policy, server, checkpoints
        self.optimizer = torch.optim.AdamW(policy.parameters())

    async def start_openai_server(self, **_: object) -> tuple[str, int]:
        """Tell ART where the model is served."""
        return "127.0.0.1", self.server.server_port

    async def resolve_global_grad_accumulation_sequences(self, *_: object) -> int:
        """Tell ART how many sequences a step of the optimizer has, for its metrics."""
        return TASKS * ATTEMPTS

    async def train(
        self, packed: dict, config: art.TrainConfig, loss_config: art.dev.TrainConfig, *_: object
    ) -> AsyncIterator[dict[str, float]]:
        """Train a step on what ART packed, and serve the new weights as the next version."""
        inputs = packed_tensors_from_dir(**packed)
        logprobs = self.policy(inputs["tokens"]).logits.log_softmax(-1)
        following = shift_tensor(inputs["tokens"], 0).unsqueeze(2)
        loss = loss_fn(LossInputs(inputs=inputs), logprobs.gather(2, following).squeeze(2), None, None, loss_config)
        loss.policy_loss.backward()
        self.optimizer.param_groups[0]["lr"] = config.learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        step = int(self.server.serving[1]) + 1
        self.policy.save_pretrained(self.checkpoints / f"{step:04d}")
        await self.register_lora_for_step(step)
        yield {"loss/train": loss.policy_loss.item()}

    async def register_lora_for_step(self, step: int, *_: object) -> None:
        """Serve the weights as those of a step: after training, or where ART found nothing to train on."""
        self.server.serving = self.server.serving[0], str(step)

    async def aclose(self) -> None:
        """Nothing to close: the server is the program's."""


class CpuBackend(LocalBackend):
    """ART's LocalBackend; only what trains and serves is another."""

    def __init__(self, service: OnCpu, path: str) -> None:
        super().__init__(path=path)
        self.service = service

    async def _get_service(self, *_: object) -> OnCpu:
        return self.service


async def play(model: art.TrainableModel, step: int) -> list[art_otel.TrajectoryGroup]:
    """Give a group for each task, sampled with the weights that ART serves now."""
    url = model.inference_base_url
    tasks = [make_task(0, step, number) for number in range(TASKS)]
    rollouts = {task.name: [answer(url, task, seed) for seed in range(ATTEMPTS)] for task in tasks}
    return await art_otel.gather_trajectory_groups(rollouts, max_concurrent=4, progress=False)


async def train(steps: int) -> None:
    """Train; after each step, print the policy versions of its rollouts, their mean reward, and the loss."""
    art_otel.configure(spool=False, request_tokens=True, policy_version_header=VERSION_HEADER)
    policy = tiny_model()
    policy.save_pretrained("base")
    tiny_tokenizer().save_pretrained("base")
    model = art.TrainableModel(name="guide", run_name="cpu", project="loop", base_model="base", report_metrics=[])
    with PolicyServer(TorchPolicy(policy)) as server:
        checkpoints = Path(get_model_dir(model, ".art")) / "checkpoints"
        backend = CpuBackend(OnCpu(policy, server, checkpoints), ".art")
        await model.register(backend)
        for _ in range(steps):
            groups = await play(model, await model.get_step())
            result = await backend.train(model, art_groups(groups), learning_rate=1e-3)
            versions = sorted({one.policy_version.last for group in groups for one in group})
            reward = fmean(one.reward for group in groups for one in group)
            print(f"step {result.step}: versions {versions}, reward {reward:.2f}, {result.metrics['loss/train']:+.4f}")
        await backend.close()


if __name__ == "__main__":
    asyncio.run(train(int(sys.argv[1])))
