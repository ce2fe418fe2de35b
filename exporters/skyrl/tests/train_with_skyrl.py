"""Runs in SkyRL's environment: makes a training batch of a file as its trainer does, and prints each row of it.

python train_with_skyrl.py FILE N MODE: N rollouts in each group; MODE is `step_wise` or `plain`.
"""

import json
import sys
from types import SimpleNamespace

from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.trainer_utils import validate_generator_output

from art_otel_skyrl import read_rollouts


def trainer_of(groups: int, samples: int, *, step_wise: bool) -> RayPPOTrainer:
    """The trainer without its actors: what it makes of the output of a generator needs none."""
    trainer = object.__new__(RayPPOTrainer)
    trainer.cfg = SkyRLTrainConfig()
    trainer.cfg.trainer.train_batch_size = trainer.cfg.trainer.policy_mini_batch_size = groups
    trainer.cfg.generator.n_samples_per_prompt = samples
    trainer.cfg.generator.step_wise_trajectories = step_wise
    trainer.cfg.trainer.algorithm.advantage_estimator = "grpo"
    trainer.tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    trainer.all_metrics = {}
    return trainer


def rows_of(path: str, samples: int, *, step_wise: bool) -> dict:
    output = read_rollouts(path)
    uids = [one.instance_id for one in output["trajectory_ids"]]
    trainer = trainer_of(len(set(uids)), samples, step_wise=step_wise)
    validate_generator_output(len(uids), output, step_wise=step_wise)
    ids = [one.to_string() for one in output["trajectory_ids"]]
    output, uids = trainer.postprocess_generator_output(output, uids)
    batch = trainer.convert_to_training_input(output, uids)
    batch["values"] = None
    batch = trainer.compute_advantages_and_returns(batch)
    rows = []
    for at, name in enumerate(ids):
        response = batch["response_mask"][at].bool()
        row = {"id": name, "ids": batch["sequences"][at][batch["attention_mask"][at].bool()].tolist()}
        for field in ("loss_mask", "rewards", "rollout_logprobs", "advantages"):
            if batch[field] is not None:
                row[field] = batch[field][at][response].tolist()
        rows.append(row)
    return {"rows": rows, "metrics": trainer.all_metrics}


print(json.dumps(rows_of(sys.argv[1], int(sys.argv[2]), step_wise=sys.argv[3] == "step_wise"), default=float))
