"""The JSON that users get is what the JSON schemas say, and the schemas are those of the code."""

import json
import runpy
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from art_otel.cli import main
from art_otel.testing import trajectories
from art_otel.trajectories import trajectory_json, trajectory_schema
from tests.data.batch_options import laws
from tests.docs.pages import DOCS
from tests.examples import examples
from tests.test_recordings import SNAPSHOTS

FILES = runpy.run_path(str(DOCS / "generate_schemas.py"))["schema_files"]()


def strict(schema: dict[str, Any]) -> Draft202012Validator:
    """One that also refuses what the schema does not name."""
    records = {name: {**record, "additionalProperties": False} for name, record in schema["$defs"].items()}
    values = ("TokenIds", "Logprobs")
    records |= {name: schema["$defs"][name] for name in values}
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator({**schema, "additionalProperties": False, "$defs": records})


TRAJECTORY = strict(trajectory_schema())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_file_is_up_to_date(path):
    assert path.read_text(encoding="utf-8") == FILES[path], "run: uv run python docs/generate_schemas.py"


@pytest.mark.parametrize("path", sorted(SNAPSHOTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_recording_is_as_the_schema_says(path):
    for trajectory in json.loads(path.read_text(encoding="utf-8"))["trajectories"]:
        TRAJECTORY.validate(trajectory)


@settings(laws, max_examples=examples(100))
@given(trajectories())
def test_any_trajectory_is_as_the_schema_says(trajectory):
    TRAJECTORY.validate(json.loads(json.dumps(trajectory_json(trajectory))))


def test_what_the_command_line_prints_and_writes_is_as_the_schemas_say(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--recordings"]) == 0
    capsys.readouterr()
    assert main(["show", "out", "--rollout", "r-sync_tools", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    TRAJECTORY.validate(shown)
    report = Draft202012Validator(json.loads(FILES[DOCS / "spec" / "report.schema.json"]))
    report.validate(json.loads((tmp_path / "out" / "_report.json").read_text(encoding="utf-8")))
    for wrong in ({**shown, "status": "well"}, {**shown, "reward": "1"}, {**shown, "more": 1}):
        assert not TRAJECTORY.is_valid(wrong)
