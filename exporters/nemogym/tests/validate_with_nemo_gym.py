"""Runs in NeMo Gym's environment: validates each line of a file with its own types, and prints what they keep.

python validate_with_nemo_gym.py FILE
"""

import json
import sys
from pathlib import Path

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming, TokenIDLogProbMixin
from nemo_gym.reward_profile import compute_aggregate_metrics

told = []
lines = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
for line in lines:
    rollout = BaseVerifyResponse.model_validate(line)
    # What was asked and said can be asked again, as NeMo Gym does in the next turn.
    asked = rollout.responses_create_params.model_dump(exclude_unset=True)
    asked["input"] = [*asked["input"], *(item.model_dump() for item in rollout.response.output)]
    again = NeMoGymResponseCreateParamsNonStreaming.model_validate(asked)
    told.append(
        {
            "types": [type(item).__name__ for item in rollout.response.output],
            "trained": [
                {name: getattr(item, name) for name in TokenIDLogProbMixin.model_fields}
                for item in rollout.response.output
                if isinstance(item, TokenIDLogProbMixin)
            ],
            "input": [item.model_dump(exclude_unset=True) for item in rollout.responses_create_params.input],
            "items": len(again.input),
            "tools": [tool["name"] for tool in rollout.responses_create_params.tools],
            "reward": rollout.reward,
        }
    )
metrics = compute_aggregate_metrics(lines)
print(json.dumps({"rollouts": told, "groups": len(metrics.group_level_metrics), "agent": metrics.agent_metrics}))
