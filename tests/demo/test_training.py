"""The whole circle: rollouts, spans, trajectories, batches, better weights."""

import ast
import json
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from art_otel import batches
from art_otel.data import grpo
from art_otel.demo import training as demo
from art_otel.demo.policy import untrained
from art_otel.demo.training import DemoStep, Training, examples, train
from art_otel.engines import Conversion, convert
from art_otel.errors import UsageError
from art_otel.store import read_trajectories

STEPS = 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Training, list[DemoStep]]:
    training = Training(out=tmp_path_factory.mktemp("demo"), steps=STEPS)
    return training, list(train(training))


@pytest.fixture(scope="module")
def short(tmp_path_factory) -> tuple[Training, list[DemoStep]]:
    """The same circle twice: what each step leaves is seen in two of them."""
    training = Training(out=tmp_path_factory.mktemp("short"), steps=2)
    return training, list(train(training))


def gain(steps: list[DemoStep]) -> float:
    third = len(steps) // 3
    return fmean(step.reward for step in steps[-third:]) - fmean(step.reward for step in steps[:third])


@pytest.mark.long
def test_the_policy_gets_better(trained):
    _, steps = trained
    assert 0.1 < steps[0].reward < 0.4
    assert gain(steps) > 0.25


@pytest.mark.program
def test_another_seed_gets_better_too(tmp_path):
    assert gain(list(train(Training(out=tmp_path, steps=STEPS, seed=3)))) > 0.2


@pytest.mark.program
def test_with_advantages_shuffled_it_learns_nothing(tmp_path):
    chance = np.random.default_rng(0)
    shuffled = Training(out=tmp_path, steps=STEPS, advantage=lambda rewards: chance.permutation(grpo(rewards)))
    assert gain(list(train(shuffled))) < 0.2


@pytest.mark.long
@pytest.mark.parametrize("proxy", ["http_proxy", pytest.param("ALL_PROXY", marks=pytest.mark.program)])
def test_a_seed_gives_the_same_again_and_the_agent_goes_past_proxies_of_any_spelling(
    trained, tmp_path, monkeypatch, proxy
):
    monkeypatch.setenv(proxy, "socks5://127.0.0.1:1" if proxy == "ALL_PROXY" else "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "example.com")  # goes before NO_PROXY
    _, steps = trained
    again = list(train(Training(out=tmp_path, steps=2)))
    assert [step[:4] for step in again] == [step[:4] for step in steps[:2]]


@pytest.mark.long
def test_every_sampled_token_is_trained(short):
    training, steps = short
    assert all(step.sampled_tokens == step.trained_tokens > 0 for step in steps)
    rows = [json.loads(line) for line in training.log.folder.history.read_text().splitlines()]
    assert [row["train/reward"] for row in rows] == [step.reward for step in steps]
    assert [row["train/sampled_tokens"] for row in rows] == [row["train/trained_tokens"] for row in rows]
    assert [row["training_step"] for row in rows] == [0, 1]


@pytest.mark.long
def test_the_run_log_has_the_trajectories_of_each_step(short):
    training, steps = short
    for step in steps:
        (*found,) = read_trajectories(training.log.folder.trajectories("train", step.number))
        assert len(found) == 64
        assert fmean(one.reward for one in found) == step.reward
        assert {one.training_step for one in found} == {step.number}
        assert {one.policy_version.first for one in found} == {str(step.number)}
        assert {one.policy_version.last for one in found} == {str(step.number)}


@pytest.mark.long
def test_the_spool_becomes_one_dataset_in_which_nothing_is_lost(trained, tmp_path):
    training, _ = trained
    report = convert(Conversion(sources=[str(training.spool)], out=tmp_path, workers=1))
    assert (report.trajectories.total, report.trajectories.complete) == (64 * STEPS, 64 * STEPS)
    assert not report.spans.quarantined
    assert report.calls.failed == 0
    found = list(read_trajectories(tmp_path))
    assert {len({one.group_id for one in found if one.training_step == step}) for step in range(STEPS)} == {8}
    assert {one.name for one in found} == {"temperature", "hour", "births", "bridges"}
    assert max(len(one.calls) for one in found) > 3, "the archivist was asked"


@pytest.mark.long
def test_a_batch_holds_the_probabilities_that_the_policy_had(short):
    training, _ = short
    first = training.log.folder.trajectories("train", 0)
    policy = untrained()
    (batch,) = batches(first, batch_size=1000)
    logprobs = [policy.logprobs(one.before)[one.token] for one in examples(batch)]
    assert np.array(logprobs, np.float32) == pytest.approx(batch.logprobs[batch.loss_mask], abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("kept", ["spool", "demo/models/guide"])
def test_a_folder_with_an_earlier_run_is_refused(short, tmp_path, kept):
    training, _ = short
    (tmp_path / "notes.txt").write_text("mine")
    train(Training(out=tmp_path))
    (tmp_path / kept).mkdir(parents=True)
    for used in (training, Training(out=tmp_path)):
        with pytest.raises(UsageError, match="choose a new folder"):
            train(used)


@pytest.mark.parametrize(("below", "said"), [("", "is a file"), ("x", "cannot be written to"), ("x/y", "choose")])
def test_a_folder_that_cannot_be_is_refused_at_once(tmp_path, below, said):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=said):
        train(Training(out=tmp_path / "file" / below))


def test_without_openai_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'art-otel\[client\]'"):
        next(train(Training(out=tmp_path)))


def test_the_demo_imports_public_names_only():
    public = {"art_otel", "art_otel.data", "art_otel.errors"}
    for path in Path(demo.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            ours = {name for name in names if name.split(".")[0] == "art_otel" and name[:13] != "art_otel.demo"}
            assert ours <= public, path
