"""Runs in verl's environment: read our files with verl's own readers, and print what they give."""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.reward import extract_reward
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.dataset.rl_dataset import collate_fn as collate_prompts
from verl.utils.import_utils import load_extern_object

from art_otel_verl.rollouts import load_rollouts

FOLDER = Path(sys.argv[1])
TOKENIZER = AutoTokenizer.from_pretrained(FOLDER / "tokenizer")
OURS = load_extern_object("pkg://art_otel_verl.sft_dataset", "SftDataset")
"""As `data.custom_cls` of verl's configuration names it."""
LINES = TOKENIZER.chat_template.replace("<|end|>", "<|end|>\n")
"""As most templates have it: a newline behind each message, which the policy does not sample."""


def open_sft(name: str, dataset: type, **options) -> MultiTurnSFTDataset:
    config = OmegaConf.create({"max_length": 256, "pad_mode": "right", **options})
    return dataset(parquet_files=str(FOLDER / f"{name}.parquet"), tokenizer=TOKENIZER, config=config)


def sft(name: str, dataset: type, **options) -> list[dict]:
    opened = open_sft(name, dataset, **options)
    rows = []
    for row in (opened[place] for place in range(len(opened))):
        ids = row["input_ids"][row["attention_mask"].bool()]
        rows.append({"ids": ids.tolist(), "trained": row["input_ids"][row["loss_mask"].bool()].tolist()})
    return rows


def tools() -> list:
    opened = open_sft("sft", OURS)
    return [opened.tools, opened._build_messages(opened.dataframe.iloc[0].to_dict())]


def refused() -> str:
    """What the plain class says to tools in text."""
    try:
        sft("sft", MultiTurnSFTDataset)
    except ValueError as error:
        return str(error)
    return ""


def rollouts() -> dict:
    data = load_rollouts(FOLDER / "rollouts.parquet", response_length=64, pad_token_id=260)
    rewards, _ = extract_reward(data)
    advantages, _ = core_algos.compute_grpo_outcome_advantage(
        rewards, data.batch["response_mask"], data.non_tensor_batch["uid"]
    )
    halves = data.chunk(2) if len(data) % 2 == 0 else [data]
    whole = DataProto.concat(halves)
    tensors = {name: tensor.tolist() for name, tensor in whole.batch.items()}
    names = {name: array.tolist() for name, array in whole.non_tensor_batch.items()}
    return {"tensors": tensors, "names": names, "advantages": advantages.tolist()}


def over_groups(cases: list[list[list[float]]]) -> list[dict[str, list[float]]]:
    """The advantages that verl gives groups of rewards, where every completion has four tokens."""
    found = []
    for groups in cases:
        rewards = [reward for group in groups for reward in group]
        owners = np.array([number for number, group in enumerate(groups) for _ in group])
        scores, mask = torch.zeros(len(rewards), 4, dtype=torch.float64), torch.ones(len(rewards), 4)
        scores[:, -1] = torch.tensor(rewards, dtype=torch.float64)
        config = OmegaConf.create({"gamma": 1.0})
        of_batch, _ = core_algos.compute_reinforce_plus_plus_outcome_advantage(scores, mask, config=config)
        of_group, _ = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(scores, mask, owners)
        left_out, _ = core_algos.compute_rloo_outcome_advantage(scores.clone(), mask, owners)
        found.append(
            {
                "reinforce_plus_plus": of_batch[:, 0].tolist(),
                "reinforce_plus_plus_baseline": of_group[:, 0].tolist(),
                "rloo": left_out[:, 0].tolist(),
            }
        )
    return found


def prompts() -> list[dict]:
    config = OmegaConf.create({"max_prompt_length": 256, "cache_dir": str(FOLDER / "cache")})
    dataset = RLHFDataset(str(FOLDER / "prompts.parquet"), TOKENIZER, config)
    rows = [dataset[place] for place in range(len(dataset))]
    batch = collate_prompts(rows)
    keys = ("data_source", "raw_prompt", "reward_model", "extra_info", "index")
    return [{key: batch[key][place] for key in keys} for place in range(len(rows))]


def main() -> None:
    answer = {
        "plain": sft("no-tools", MultiTurnSFTDataset),
        "refused": refused(),
        "ours": sft("sft", OURS, tool_arguments="text"),
        "tools": tools(),
        "rollouts": rollouts(),
        "prompts": prompts(),
        "over groups": over_groups(json.loads((FOLDER / "groups.json").read_text())),
    }
    TOKENIZER.chat_template = LINES
    answer["plain with lines"] = sft("no-tools", MultiTurnSFTDataset)
    answer["ours with lines"] = sft("no-tools", OURS)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
