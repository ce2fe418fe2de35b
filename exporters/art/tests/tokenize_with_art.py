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
        found.setdefault(result.trajectory.metadata["art.rollout.id"], []).append(history)
    return found


def main(folder: Path, tokenizer_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    read_groups = runpy.run_path(str(READER))["read_groups"]
    answer = {}
    for name in ("keep", "exact"):
        groups = list(read_groups(folder / f"{name}.jsonl"))
        dumped = [group.model_dump(mode="json") for group in groups]
        assert dumped == [json.loads(line) for line in (folder / f"{name}.jsonl").open(encoding="utf-8")]
        answer[name] = {"groups": dumped, "tokenized": tokenized(groups, tokenizer)}
    files = sorted((folder / "log").glob("trajectories/*/*.parquet"))
    answer["log"] = {
        str(file.relative_to(folder / "log")): [
            [one.reward for one in group] for group in read_trajectory_groups_parquet(file)
        ]
        for file in files
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
