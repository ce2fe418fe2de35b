"""Runs in TRL's environment: a step of HistoriesGRPOTrainer on live rollouts, and the same step by hand."""

import json
import os
import sys
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from datasets import Dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

import art_otel
from art_otel.errors import UsageError
from art_otel_trl.rollouts import LiveRollouts, recorded_reward
from art_otel_trl.trainer import HistoriesGRPOTrainer
from tests.exporting import samples

FOLDER = Path(sys.argv[1])
TOKENIZER = AutoTokenizer.from_pretrained(FOLDER / "tokenizer")
PLAYED = [samples.branching(), *samples.group(), samples.failed(), samples.branching()]
LEARNING_RATE = 0.5


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(TOKENIZER), max_position_embeddings=1024, **sizes))


def by_trl(kind: type, given=lambda live: live.rollout_func, **settings) -> tuple[LlamaForCausalLM, dict]:
    """The model after a step in three micro-batches, and what it trained."""
    trained, rows = [], 0

    class Watching(kind):
        def _compute_loss(self, model, inputs):
            nonlocal rows
            rows += len(inputs["completion_ids"])
            seen = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
            trained.extend(inputs["completion_ids"][seen].tolist())
            return super()._compute_loss(model, inputs)

    live = LiveRollouts(lambda _prompts, _trainer: PLAYED)
    arguments = {
        "num_generations": len(PLAYED),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "max_steps": 1,
        "learning_rate": LEARNING_RATE,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "beta": 0.0,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    trainer = Watching(
        model(),
        reward_funcs=recorded_reward,
        args=GRPOConfig(output_dir=str(FOLDER / "out"), **(arguments | settings)),
        train_dataset=Dataset.from_list([{"prompt": "Weather?"}]),
        processing_class=TOKENIZER,
        rollout_func=given(live),
    )
    trainer.train()
    return trainer.model, {"rows": rows, "trained": trained, "skipped": dict(live.skipped)}


def by_hand() -> LlamaForCausalLM:
    """The model after the same step in plain torch: every history by itself, no padding."""
    trained = model()
    played = [one for one in PLAYED if one.status == "ok"]
    rewards = [one.reward for one in played]
    histories = [(one, sequence) for one in played for sequence in art_otel.batches([one], advantage=None).sequences()]
    tokens = sum(sequence.trained_tokens for _, sequence in histories)
    for one, sequence in histories:
        ids, mask = torch.from_numpy(sequence.input_ids).long(), torch.from_numpy(sequence.loss_mask)
        logprobs = trained(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        ratio = (logprobs - logprobs.detach()).exp()  # GRPOTrainer's of what it believes its own weights sampled
        advantage = (one.reward - fmean(rewards)) / (stdev(rewards) + 1e-4)
        (-(ratio * advantage)[mask[1:]].sum() / tokens).backward()
    with torch.no_grad():
        for weight in trained.parameters():
            weight.sub_(LEARNING_RATE * weight.grad)
    return trained


def apart(one: LlamaForCausalLM, other: LlamaForCausalLM) -> float:
    weights = dict(other.named_parameters())
    return max(float((weight - weights[name]).abs().max().detach()) for name, weight in one.named_parameters())


def main() -> None:
    torch.set_num_threads(1)
    hand = by_hand()
    every, told = by_trl(HistoriesGRPOTrainer)
    first, first_told = by_trl(GRPOTrainer)
    refused = []
    for wrong in ({"num_iterations": 2}, {"given": lambda live: partial(live.rollout_func)}):
        try:
            by_trl(HistoriesGRPOTrainer, **wrong)
        except UsageError as error:
            refused.append(str(error))
    print(
        json.dumps(
            {
                "every": told | {"apart": apart(hand, every)},
                "first": first_told | {"apart": apart(hand, first)},
                "moved": apart(hand, model()),
                "refused": refused,
            }
        )
    )


if __name__ == "__main__":
    main()
