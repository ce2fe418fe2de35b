"""Runs in Trinity-RFT's environment: its own storage, classes and trainer input on our files; prints JSON.

`python read_with_trinity.py DATABASE EMPTY_DATABASE PAYLOADS`: reads the first, makes its own tables in the second.
"""

import asyncio
import json
import logging
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from trinity.algorithm.advantage_fn.multi_step_grpo_advantage import StepWiseGRPOAdvantageFn
from trinity.buffer.storage.sql import SQLExperienceStorage
from trinity.common.config import StorageConfig
from trinity.common.experience import Experience
from trinity.trainer.verl.utils import to_data_proto

ARRAYS = ("tokens", "action_mask", "logprobs", "advantages", "returns", "token_level_reward")
FIELDS = ("prompt_length", "reward", "truncate_status", "response_text", "messages", "tools", "info", "metrics")


def told(experience: Experience) -> dict:
    arrays = {name: getattr(experience, name) for name in ARRAYS}
    return {
        "eid": experience.eid.to_dict(),
        **{name: getattr(experience, name) for name in FIELDS},
        **{name: None if array is None else array.tolist() for name, array in arrays.items()},
        "dtypes": {name: str(array.dtype) for name, array in arrays.items() if array is not None},
    }


def storage(path: str) -> SQLExperienceStorage:
    config = {"name": "experience_buffer", "storage_type": "sql", "schema_type": "experience", "wrap_in_ray": False}
    return SQLExperienceStorage(StorageConfig(path=f"sqlite:///{path}", batch_size=2, **config))


async def stored(database: str, empty: str) -> dict:
    await storage(empty).prepare()
    ours = storage(database)
    experiences = await ours.query(limit=await ours.count())
    return found(experiences, await ours.read())


def stored_in_one_table(database: str, empty: str) -> dict:
    """By 0.5.2, whose storage makes its tables at once, reads without waiting for a loop and has no queries."""
    storage(empty)
    copy = shutil.copyfile(database, f"{database}.copy")
    with closing(sqlite3.connect(database)) as rows:
        (count,) = rows.execute("SELECT count(*) FROM experience_buffer").fetchone()
    newest_first = storage(copy).read(batch_size=count)
    return found(newest_first[::-1], storage(database).read())


def found(experiences: list[Experience], read: list[Experience]) -> dict:
    queried = [told(one) for one in experiences]
    return {"queried": queried, "read": [told(one) for one in read], "proto": proto(experiences)}


def proto(experiences: list[Experience]) -> dict:
    """What the trainer makes of a batch, without the padding."""
    found = to_data_proto(experiences, pad_token_id=-1, model=None, logger=logging.getLogger())
    names = ("responses", "response_mask", "token_level_scores", "rollout_log_probs", "advantages")
    batch = {name: found.batch[name].tolist() for name in names if name in found.batch}
    return {
        **batch,
        "seen": [[token for token in row if token >= 0] for row in found.batch["input_ids"].tolist()],
        "uid": found.non_tensor_batch["uid"].tolist(),
        "model_versions": found.meta_info["model_versions"].tolist(),
    }


def sent(folder: str) -> dict:
    payloads = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    tasks = [Experience.deserialize_many(payload) for payload in payloads]
    again = [[told(one) for one in Experience.deserialize_many(Experience.serialize_many(task))] for task in tasks]
    found = {"tasks": [[told(one) for one in task] for task in tasks], "again": again}
    weighed, _ = StepWiseGRPOAdvantageFn().process([one for task in tasks for one in task])
    return found | {"weighed": [told(one) for one in weighed]}


def main(database: str, empty: str, payloads: str) -> None:
    is_async = hasattr(SQLExperienceStorage, "prepare")
    stores = asyncio.run(stored(database, empty)) if is_async else stored_in_one_table(database, empty)
    print("\n" + json.dumps(stores | sent(payloads)))


if __name__ == "__main__":
    main(*sys.argv[1:])
