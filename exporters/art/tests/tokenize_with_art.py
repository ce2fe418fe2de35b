"""Runs in ART's environment: read exports, tokenize them with ART's own code; print JSON."""

import json
import runpy
import sys
from pathlib import Path

from art.preprocessing.tokenize import tokenize_trajectory_groups
from art.utils.trajectory_logging import read_trajectory_groups_parquet
from transformers import AutoTokenizer

READER = Path(__file__).parent.parent / "art_otel_art" / "read.py"


def tokenized(groups, tokenizer) -> dict:
    found = {}
    results = tokenize_trajectory_groups(
        tokenizer,
        groups,
        allow_training_without_logprobs=False,
        scale_rewards=True,
        drop_zero_advantage_trajectories=False,
        shuffle_group_trajectories=False,
    )
    for result in results:
        history = (result.token_ids, result.assistant_mask, result.logprobs)
        worth = (result.trajectory.reward, result.advantage, result.weight)
        found.setdefault(result.trajectory.metadata["art.rollout.id"], []).append((history, worth))
    return found


def whole(dumped, line):
    """The dump, with what was written and is empty: from 0.5.20 on ART leaves it out."""
    if isinstance(dumped, list) and isinstance(line, list) and len(dumped) == len(line):
        return [whole(*pair) for pair in zip(dumped, line, strict=True)]
    if isinstance(dumped, dict) and isinstance(line, dict):
        empty = {name: value for name, value in line.items() if name not in dumped and not value}
        return empty | {name: whole(value, line.get(name)) for name, value in dumped.items()}
    return dumped


def main(folder: Path, tokenizer_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    read_groups = runpy.run_path(str(READER))["read_groups"]
    answer = {}
    for name in ("keep", "exact", "drifted"):
        groups = list(read_groups(folder / f"{name}.jsonl"))
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").open(encoding="utf-8")]
        dumped = whole([group.model_dump(mode="json") for group in groups], lines)
        assert dumped == lines
        answer[name] = {"groups": dumped, "tokenized": tokenized(groups, tokenizer)}
    (file,) = (folder / "log").glob("trajectories/*/*.parquet")
    groups = read_trajectory_groups_parquet(file)
    answer["log"] = {
        "file": str(file.relative_to(folder / "log")),
        "rewards": [[one.reward for one in group] for group in groups],
        "groups": [group.model_dump(mode="json") for group in groups],
        "kept": [group.model_dump(mode="json") for group in read_groups(folder / "keep.jsonl")],
        "tokenized": tokenized(groups, tokenizer),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
