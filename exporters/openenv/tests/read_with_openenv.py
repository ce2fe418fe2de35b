"""Runs in an environment with OpenEnv and TRL: prints the rows that TRL's AsyncGRPO makes of a file of traces."""

import json
import os
import sys
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

from openenv.core.harness import TrainingTrace
from trl.experimental.async_grpo.async_rollout_worker import _chain_to_sequences
from trl.experimental.async_grpo.openenv_harness import _messages_from_trace, _turns_from_training_trace

found = []
for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    trace = TrainingTrace.model_validate_json(line)
    # A threshold of 0, as TRL has for captures: what does not continue exactly begins a row, and no token is given up.
    rows, _ = _chain_to_sequences(_turns_from_training_trace(trace), "rollout", 0)
    entries = trace.to_trace_entries()
    told = {"rollout_id": entries[0]["metadata"]["rollout_id"], "last": _messages_from_trace(entries)[-1]["content"]}
    told["rows"] = [
        {"ids": row.input_ids, "mask": row.completion_mask, "logprobs": row.old_log_probs, "turns": len(trace.turns)}
        for row in rows
    ]
    found.append(told)
print(json.dumps(found))
