"""`verify` finds each fault that is planted in what a model sampled, names it, and finds none where there is none."""

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.trainers.environment import language_model_python

ROOT = Path(__file__).parents[2]

FAULTS = {
    "other_weights": ("other weights", "version 2"),
    "stale_head": ("other weights", "all tokens alike"),
    "stale_head_of_a_sure_policy": ("other weights", "all tokens alike"),
    "another_model": ("another model", "all tokens alike"),
    "tempered": ("tempered logprobs", "at temperature 0.7"),
    "shifted": ("shifted ids", "after an initial agreement"),
    "shifted_inside": ("shifted ids", "from position 2 of each completion on"),
    "shortened": ("shifted ids", "after an initial agreement"),
    "first_tokens": ("first tokens", "the first token of each completion"),
    "constrained": ("constrained", "completions that were constrained"),
    "some_completions": ("some completions", "2 completions of r05, r15"),
    "last_completions": ("some completions", "2 completions of r05, r15"),
    "noise": ("numeric noise", "later ones more"),
}


class Planted(NamedTuple):
    """What was found, the Python that has torch, and the folder with the model and the datasets."""

    tokens: int
    found: dict
    python: Path
    folder: Path


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Planted:
    python = language_model_python()
    folder = tmp_path_factory.mktemp("verify")
    script = Path(__file__).with_name("verify_with_torch.py")
    done = subprocess.run([python, script, folder], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Planted(**json.loads(done.stdout), python=python, folder=folder)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


@pytest.mark.trainer
@pytest.mark.parametrize("name", ["none", "raw_at_temperature", "linear_attention"])
def test_where_nothing_is_wrong_every_token_agrees(planted, name):
    result = planted.found[name]
    assert (result["holds"], result["tokens"], result["diagnoses"]) == (True, planted.tokens, {})
    assert result["worst"] < 1e-5


@pytest.mark.trainer
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(planted, fault):
    result = planted.found[fault]
    name, where = FAULTS[fault]
    assert not result["holds"]
    assert list(result["diagnoses"]) == [name]
    assert where in result["diagnoses"][name][1]
    assert name.upper() in result["line"]


def verify(planted: Planted, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [planted.python, "-m", "art_otel", "verify", *arguments, "--model", planted.folder / "model"]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)


@pytest.mark.trainer
def test_the_command_says_what_it_found_and_ends_with_3(planted):
    right = verify(planted, str(planted.folder / "right"))
    assert (right.returncode, "The recorded tokens come from this model." in right.stdout) == (0, True), right.stderr
    saved = json.loads((planted.folder / "right/_verify.json").read_bytes())
    assert (saved["holds"], saved["model"], saved["all"]["tokens"]) == (True, "model", planted.tokens)
    wrong = verify(planted, str(planted.folder / "other_weights.parquet"))
    assert wrong.returncode == 3
    assert "OTHER WEIGHTS: version 2" in wrong.stdout
    loose = verify(planted, str(planted.folder / "other_weights.parquet"), "--limit", "0.5", "--json")
    assert (loose.returncode, json.loads(loose.stdout)["diagnoses"]) == (0, [])
    of_one = verify(planted, str(planted.folder / "other_weights.parquet"), "--policy-version", "1", "--sample", "5")
    assert (of_one.returncode, of_one.stdout.splitlines()[0].split()[0]) == (0, "5")


@pytest.mark.trainer
def test_a_model_that_is_not_there_is_said(planted):
    command = [planted.python, "-m", "art_otel", "verify", planted.folder / "right", "--model", "no/model"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, "--model no/model" in done.stderr) == (2, True)
