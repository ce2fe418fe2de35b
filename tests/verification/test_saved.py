"""The verification beside a dataset: read as it was written, and never in the place of somebody else's file."""

import json

import numpy as np
import pytest

from art_otel import write_trajectories
from art_otel.calls import Message
from art_otel.errors import StoreError, UsageError
from art_otel.verification import Verification
from art_otel.verification.saved import SavedVerification, describe, folder_of, read_saved, save
from art_otel.verification.verify import figures
from art_otel.viewer.snapshot import find_sources
from art_otel.viewer.verified import show_verifications
from tests.verification.rollouts import rollout_of

ROLLOUT = rollout_of(Message(role="assistant", content="It rains."), [3, 4])
ALL = figures(np.array([-1.0, -0.5]), np.array([-1.0, -1.0]))
RESULT = Verification(
    rollouts=1,
    total_rollouts=1,
    completions=1,
    limit=0.01,
    all=ALL,
    by_version={"unknown": ALL},
    by_position={"0 to 63": ALL},
    by_kind={"later": ALL},
    diagnoses=(),
    skipped={},
)


def saved_in(folder: str) -> SavedVerification:
    saved = describe(RESULT, dataset=folder, model=folder, dtype="float32", policy_version="1")
    save(saved, folder)
    return saved


def test_the_first_estimate_of_the_divergence_is_the_mean_of_recorded_minus_model():
    assert (ALL.kl_k1, ALL.mean) == (-0.25, 0.25)


def test_it_is_read_as_it_was_written_and_the_page_says_when_the_dataset_is_another(tmp_path):
    folder = str(tmp_path / "data")
    write_trajectories([ROLLOUT], folder)
    saved = saved_in(folder)
    assert read_saved(folder) == saved
    assert (saved.model, json.loads((tmp_path / "data/_verify.json").read_bytes())["holds"]) == ("data", True)
    sources = find_sources([folder])
    (shown,) = show_verifications(sources)["sources"]
    assert (shown["name"], shown["verification"]["datasetChanged"]) == ("data", False)
    write_trajectories([ROLLOUT], folder)
    (shown,) = show_verifications(sources)["sources"]
    assert shown["verification"]["datasetChanged"]
    saved_in(folder)  # in the place of the one before
    assert [file.name for file in tmp_path.glob("data/_v*")] == ["_verify.json"]


def test_nothing_is_kept_for_files_and_globs(tmp_path):
    assert folder_of(str(tmp_path)) == str(tmp_path)
    assert folder_of("s3://bucket/data") == "s3://bucket/data"
    assert [folder_of(path) for path in (f"{tmp_path}/a.parquet", f"{tmp_path}/*", "s3://b/a.parquet?region=x")] == (
        [None] * 3
    )


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\xff"])
def test_a_file_of_somebody_else_is_neither_replaced_nor_shown(tmp_path, text):
    file = tmp_path / "_verify.json"
    file.write_text(text, "latin-1")
    with pytest.raises(UsageError, match=r"_verify\.json: was not written by art-otel"):
        saved_in(str(tmp_path))
    with pytest.raises(StoreError, match=r"_verify\.json"):
        read_saved(str(tmp_path))
    assert file.read_text("latin-1") == text
