"""Runs in TRL's environment: a step of AsyncGRPOTrainer on what a RolloutWorker gives it, and the same step by hand.

Two things stand in for a GPU, which AsyncGRPOTrainer needs: attention over the paths of its packed rows, which it has
as a kernel, and the name of the GPU, which it asks for.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from datasets import Dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing

import art_otel
from art_otel import TrajectoryGroup
from art_otel_trl.worker import RolloutWorker
from tests.exporting import samples

MODEL = Path(sys.argv[1])
TOKENIZER = AutoTokenizer.from_pretrained(MODEL)
PLAYED = [samples.branching(), *samples.group(), samples.without_ids(), samples.failed()]
ROWS, LEARNING_RATE, CLIP = 6, 0.5, 0.2


def attention(query, key, value, query_ends, key_ends, *_, softmax_scale, **__) -> torch.Tensor:
    """Each segment of the queries attends to the keys on the path to it. Shapes (tokens, heads, size)."""
    answers = []
    for part in range(len(query_ends) - 1):
        keys = slice(key_ends[part], key_ends[part + 1])
        scores = torch.einsum("qhd,khd->hqk", query[query_ends[part] : query_ends[part + 1]], key[keys])
        _, asked, known = scores.shape
        seen = torch.ones(asked, known, dtype=torch.bool).tril(known - asked)
        weights = (scores * softmax_scale).masked_fill(~seen, -torch.inf).softmax(-1)
        answers.append(torch.einsum("hqk,khd->qhd", weights, value[keys]))
    return torch.cat(answers)


class Unsynchronized:
    """A server that nobody sends weights to."""

    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def send_weights(self, iterator) -> None:
        for _ in iterator:
            pass


async def play(prompt: str) -> list[art_otel.Trajectory]:
    assert prompt == "Weather?"
    return PLAYED


def by_trl() -> tuple[LlamaForCausalLM, dict]:
    """The model after a step, and what TRL was given for it."""
    seen = []

    class Watching(AsyncGRPOTrainer):
        def compute_loss(self, model, inputs, *arguments, **named):
            chosen = inputs["token_index"] >= 0
            targets = inputs["shift_labels"].gather(1, inputs["token_index"].clamp(min=0))[chosen]
            seen.append({"rows": int(inputs["segment_id"].max()) + 1, "trained": targets.tolist()})
            return super().compute_loss(model, inputs, *arguments, **named)

    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attention)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None
    worker = RolloutWorker(play, ["Weather?"])
    arguments = AsyncGRPOConfig(
        output_dir=str(MODEL.with_name("trained")),
        max_steps=1,
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=1,
        token_budget=0,
        learning_rate=LEARNING_RATE,
        optim="sgd",
        max_grad_norm=0.0,
        epsilon=CLIP,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        model_init_kwargs={"dtype": torch.float32},
    )
    trainer = Watching(
        str(MODEL),
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "Weather?"}]),
        processing_class=TOKENIZER,
        rollout_worker=worker,
        weight_transfer=Unsynchronized(),
    )
    trainer.train()
    return trainer.model, {"seen": seen[0], "skipped": dict(worker.skipped)}


def by_hand() -> tuple[LlamaForCausalLM, float]:
    """The model after the same step in plain torch: every history by itself, no packing."""
    model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    group = TrajectoryGroup(group_id="g", trajectories=PLAYED)
    sequences = list(art_otel.batches(group, advantage="grpo").sequences())
    tokens = sum(sequence.trained_tokens for sequence in sequences)
    for sequence in sequences:
        ids, mask = torch.from_numpy(sequence.input_ids).long(), torch.from_numpy(sequence.loss_mask)
        logprobs = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        ratio = (logprobs - torch.from_numpy(sequence.logprobs)[1:]).exp()
        advantage = torch.from_numpy(sequence.advantages)[1:]
        gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        (-gain[mask[1:]].sum() / tokens).backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight.sub_(LEARNING_RATE * weight.grad)
    moved = max(float((weight - before[name]).abs().max().detach()) for name, weight in model.named_parameters())
    return model, moved


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(TOKENIZER), max_position_embeddings=1024, **sizes)).save_pretrained(
        MODEL
    )
    hand, moved = by_hand()
    trl, told = by_trl()
    weights = dict(trl.named_parameters())
    apart = max(float((weight - weights[name]).abs().max().detach()) for name, weight in hand.named_parameters())
    print(json.dumps({"moved": moved, "apart": apart, **told}))


if __name__ == "__main__":
    main()
