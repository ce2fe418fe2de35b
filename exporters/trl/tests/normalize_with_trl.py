"""The advantages that TRL's own lines of `normalize_then_sum` make of rewards; runs where TRL is installed.

The lines stand in the middle of a method that generates. They are taken out of its source, and not written again.
"""

import ast
import inspect
import json
import sys
import textwrap
from types import SimpleNamespace
from typing import Any

import torch
from trl.trainer import grpo_trainer

NAME = "normalize_then_sum"


def lines_of_trl() -> ast.Module:
    """The branch of the trainer's method that compares each reward by itself."""
    source = textwrap.dedent(inspect.getsource(grpo_trainer.GRPOTrainer))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and NAME in ast.unparse(node.test):
            return ast.Module(body=node.body, type_ignores=[])
    raise SystemExit(f"{NAME}: TRL has no such branch any more")


def advantages(groups: list[dict[str, list[float | None]]], weights: dict[str, float]) -> list[list[float]]:
    """The advantages of groups of one size, NaN where no reward is known."""
    size = len(next(iter(groups[0].values())))
    rows = [[group[name][at] for name in weights] for group in groups for at in range(size)]
    rewards = torch.tensor([[float("nan") if one is None else one for one in row] for row in rows], dtype=torch.float64)
    trainer = SimpleNamespace(
        reward_funcs=list(weights), reward_weights=torch.tensor(list(weights.values()), dtype=torch.float64)
    )
    names: dict[str, Any] = {
        **vars(grpo_trainer),
        "self": trainer,
        "rewards_per_func": rewards,
        "num_generations": size,
        "device": "cpu",
        "unscorable_mask": torch.isnan(rewards).all(dim=1),
    }
    exec(compile(lines_of_trl(), NAME, "exec"), names)  # TRL's own lines
    return names["advantages"].view(-1, size).tolist()


if __name__ == "__main__":
    print(json.dumps([advantages(groups, weights) for groups, weights in json.loads(sys.argv[1])]))
