"""Runs in Harbor's environment: validate documents with Harbor and with `atif`, read them with Harbor; print JSON."""

import json
import sys
from pathlib import Path

import atif
from harbor.models.trajectories import Trajectory
from harbor.utils.traces_utils import extract_conversations_from_trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator
from pydantic import ValidationError

RUN = {"agent_name": "-", "model_name": "-", "model_provider": "-", "start_time": "-", "run_id": "-"}


def check(path: Path) -> dict:
    validator = TrajectoryValidator()
    validator.validate(path)
    told = json.loads(path.read_text(encoding="utf-8"))
    trajectory = None if validator.errors else Trajectory.model_validate(told)
    dumped = trajectory and trajectory.to_json_dict()
    return {
        "errors": [*validator.errors, *errors_by_atif(told)],
        "read": dumped,
        # Harbor refuses to write conversations with media.
        "conversations": None
        if trajectory is None or trajectory.has_multimodal_content()
        else extract_conversations_from_trajectory(path, RUN, embed_tools_in_conversation=False),
    }


def errors_by_atif(document: dict) -> list[str]:
    try:
        atif.Trajectory.model_validate(document)
    except ValidationError as error:
        return [str(error)]
    return []


def main(folder: Path) -> None:
    paths = [path for path in folder.rglob("*.json") if not path.name.startswith("_")]
    print(json.dumps({str(path.relative_to(folder)): check(path) for path in paths}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
