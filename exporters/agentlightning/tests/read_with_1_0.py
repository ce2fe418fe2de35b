"""Runs in the environment of Agent Lightning 1.0: reads our file with its models, and prints what they have.

python read_with_1_0.py TRIPLETS: each line with what its own manager adds, as the README has it.
"""

import json
import sys
from pathlib import Path

from agentlightning.verl.agl_rollout_manager import CompletedRollout

lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
rollouts = [
    CompletedRollout.model_validate(
        line
        | {
            "data_id": line["metadata"].get("art.group.id", line["rollout_id"]),
            "step": 0,
            "sample_idx_in_step": number,
            "enqueue_time": 0.0,
        }
    )
    for number, line in enumerate(map(json.loads, lines))
]
print(json.dumps([rollout.model_dump() for rollout in rollouts]))
