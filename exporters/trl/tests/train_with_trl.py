"""Runs in TRL's environment: load our files with `datasets`, train on each with TRL's trainers, print what they saw."""

import json
import os
import sys
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from datasets import Dataset, load_dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from art_otel_trl.rollouts import LiveRollouts, Replay, recorded_reward
from tests.exporting import samples

FOLDER = Path(sys.argv[1])
TOKENIZER = AutoTokenizer.from_pretrained(FOLDER / "tokenizer")
MARKED = (
    "{% for message in messages %}<|{{ message.role }}|>{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<|call|>{{ call.function.name }}{{ call.function.arguments }}"
    "{% endfor %}<|end|>{% endgeneration %}"
    "{% else %}{{ message.content or '' }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The samples' template with the marks that TRL finds answers by."""


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(TOKENIZER), max_position_embeddings=1024, **sizes))


def load(name: str) -> Dataset:
    files = str(FOLDER / f"{name}.parquet")
    return load_dataset("parquet", data_files=files, split="train", cache_dir=str(FOLDER / "cache"))


def settings(batch_size: int) -> dict:
    return {
        "output_dir": str(FOLDER / "model"),
        "per_device_train_batch_size": batch_size,
        "max_steps": 1,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }


def weights(trained: LlamaForCausalLM) -> float:
    return float(sum(part.detach().double().abs().sum() for part in trained.parameters()))


def sft(name: str, **options) -> dict:
    """The rows and the first batch as SFTTrainer trains on them."""
    rows = load(name)
    seen = []

    class Watching(SFTTrainer):
        def compute_loss(self, model, inputs, *arguments, **named):
            seen.append({key: inputs[key].tolist() for key in ("input_ids", "labels")})
            return super().compute_loss(model, inputs, *arguments, **named)

    args = SFTConfig(max_length=None, shuffle_dataset=False, **settings(len(rows)), **options)
    trainer = Watching(model(), args=args, train_dataset=rows, processing_class=TOKENIZER)
    before = weights(trainer.model)
    loss = trainer.train().training_loss
    prepared = [{key: row[key] for key in ("input_ids", "labels")} for row in trainer.train_dataset]
    return {"rows": prepared, "seen": seen, "loss": loss, "moved": weights(trainer.model) != before}


def dpo(name: str) -> dict:
    rows = load(name)
    args = DPOConfig(max_length=None, **settings(len(rows)))
    trainer = DPOTrainer(model(), ref_model=model(), args=args, train_dataset=rows, processing_class=TOKENIZER)
    before = weights(trainer.model)
    loss = trainer.train().training_loss
    keys = ("prompt_ids", "chosen_ids", "rejected_ids")
    prepared = [{key: row[key] for key in keys} for row in trainer.train_dataset]
    return {"rows": prepared, "loss": loss, "moved": weights(trainer.model) != before}


def grpo(prompts: list[dict], rollout_func, count: int) -> dict:
    seen = []

    class Watching(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            found = super()._generate_and_score_completions(inputs)
            seen.append({key: value.tolist() for key, value in found.items() if isinstance(value, torch.Tensor)})
            return found

    args = GRPOConfig(num_generations=count, beta=0.0, **settings(count))
    trainer = Watching(
        model(),
        reward_funcs=recorded_reward,
        args=args,
        train_dataset=Dataset.from_list(prompts),
        processing_class=TOKENIZER,
        rollout_func=rollout_func,
    )
    before = weights(trainer.model)
    loss = trainer.train().training_loss
    return {"seen": seen, "loss": loss, "moved": weights(trainer.model) != before}


def replayed() -> dict:
    replay = Replay.read(FOLDER / "grpo.parquet", num_generations=4)
    return grpo(replay.prompts, replay.rollout_func, 4) | {"skipped": replay.skipped}


def live() -> dict:
    played = [*samples.group(), samples.without_ids()]
    rollouts = LiveRollouts(lambda _prompts, _trainer: played)
    return grpo([{"prompt": "Weather?"}], rollouts.rollout_func, 4) | {"skipped": rollouts.skipped}


def main() -> None:
    torch.set_num_threads(1)
    answer = {"sft": sft("sft"), "replayed": replayed(), "live": live()}
    answer["objects"] = {name: list(load(name)) for name in ("chat", "dpo", "messages")}
    answer["dpo"] = dpo("dpo-text")
    TOKENIZER.chat_template = MARKED
    answer["chat"] = sft("chat-text", assistant_only_loss=True)
    answer["messages"] = sft("messages-text", assistant_only_loss=True)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
