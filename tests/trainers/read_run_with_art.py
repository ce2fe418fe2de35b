"""Runs in ART's environment: read a run log, delete checkpoints and log on, all with ART's own code; print JSON."""

import asyncio
import json
import runpy
import sys
from pathlib import Path

import art
from art.utils.benchmarking.load_trajectories import load_trajectories
from art.utils.get_model_step import get_step_from_dir
from art.utils.trajectory_logging import read_trajectory_groups_parquet

# Importing its package would need torch.
delete_checkpoints = runpy.run_path(str(Path(art.__file__).with_name("local") / "checkpoints.py"))["delete_checkpoints"]


class Checkpoints:
    """What `LocalBackend` does with checkpoints, by the functions it does it with; itself it needs a GPU."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.kept: list[int] = []

    async def _get_step(self, _model: art.TrainableModel) -> int:
        return get_step_from_dir(self.folder)

    async def _delete_checkpoint_files(self, _model: art.TrainableModel, steps_to_keep: list[int]) -> None:
        self.kept = steps_to_keep
        delete_checkpoints(self.folder, excluding=steps_to_keep)


async def main(base: str) -> None:
    model = art.TrainableModel(
        name="m", run_name="m", project="p", base_model="none", base_path=base, report_metrics=[]
    )
    folder = Path(model._get_output_dir())
    model._backend = backend = Checkpoints(str(folder))
    frame = await load_trajectories("p", art_path=base)
    loaded = frame.sort("split", "step", "group_number", "reward").select("split", "step", "reward", "metric_turns")
    files = sorted(folder.glob("trajectories/*/*.parquet"))
    groups = {str(file.relative_to(folder)): read_trajectory_groups_parquet(file) for file in files}
    await model.delete_checkpoints()
    left = sorted(path.name for path in (folder / "checkpoints").iterdir())
    rollouts = [art.Trajectory(messages_and_choices=[], reward=value, metrics={"turns": 3}) for value in (0.0, 0.5)]
    await model.log([art.TrajectoryGroup(rollouts)], split="train", step=3, metrics={"loss": 0.5})
    answer = {
        "loaded": loaded.rows(),
        "groups": {name: [[one.reward for one in group] for group in found] for name, found in groups.items()},
        "kept": backend.kept,
        "left": left,
        "row": json.loads((folder / "history.jsonl").read_text().splitlines()[-1]),
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
