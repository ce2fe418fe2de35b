"""Versions: which number a policy version has, and which request models are versions of the policy."""

from dataclasses import replace

import pytest
from msgspec import structs

import art_otel
from art_otel.data.model_names import version_number
from art_otel.trajectories import PolicyVersions, Trajectory
from tests.data.test_decisions import check
from tests.data.token_rollouts import stored, talk

NUMBERS = {
    **dict.fromkeys(["12", "step-12", "policy-v12", "qwen2.5:0012", "policy-12-final", "V12", "version 12"], 12),
    **dict.fromkeys(
        ["Qwen3-8B-step-100-fp8", "epoch=3-step=100.ckpt", "v2/checkpoint-100/adapter", "step-100-v2"], 100
    ),
    **dict.fromkeys(["global_step_40/actor", "globalstep40", "iter40", "run-7-iteration-40-4bit", "ckpt/40"], 40),
    **dict.fromkeys(["epoch-3", "llama-3-epoch-3-Q4_0", "2024-08-06-v3"], 3),
    **dict.fromkeys(["3f9a2c1", "Qwen3-8B", "policy-4bit", "policy-int4", "policy-8-bit", "SmolLM2-135M", "fp8"]),
    **dict.fromkeys(["policy-Q4_0", "gpt-4o-2024-08-06", "v1.2", "step-1.5", "qwen2.5", "policy12", "main", ""]),
    **dict.fromkeys(["v3f9a", "550e8400-e29b-41d4-a716-446655440000", "9" * 5_000]),
    "20261103": 20261103,
    "9" * 18: int("9" * 18),
}


@pytest.mark.parametrize(("version", "number"), NUMBERS.items(), ids=lambda value: str(value)[:30])
def test_a_number_is_one_only_where_the_text_shows_it(version, number):
    assert version_number(version) == number


def asked(*models: str | None, name: str = "r", version: str | None = None) -> Trajectory:
    told = talk(name, *[1] * len(models))
    calls = [structs.replace(call, request_model=model) for call, model in zip(told.calls, models, strict=True)]
    known = None if version is None else PolicyVersions(first=version, last=version)
    return replace(told, calls=tuple(calls), policy_version=known)


MODELS = [
    (("policy-v12", "policy-v11"), "policy-v12", 1, None),
    (("policy-v12", "policy-v10"), "policy-v12", 1, "stale"),
    (("policy-v12", "policy-v12"), "policy-v12", None, None),
    (("policy-v12", "policy-v11"), "policy-v12", None, "another policy version"),
    (("policy-v12", "gpt-4o"), "policy-v12", 1, "no policy version"),
    (("policy-v12", None), "policy-v12", 1, "no policy version"),
    (("gpt-4o",), "gpt-5", 9, "no policy version"),
    (("gpt-4-turbo",), "gpt-5", 9, "no policy version"),
    (("gpt-4.1",), "gpt-5", 9, "no policy version"),
    (("my-adapter",), "my-adapter", None, None),
    (("policy-v12",), 12, 1, "no policy version"),  # its name was not asked for
]


@pytest.mark.parametrize(("models", "wanted", "behind", "reason"), MODELS)
def test_the_name_of_an_adapter_is_a_version(models, wanted, behind, reason):
    chosen = {"policy_version": wanted, "max_staleness": behind, "advantage": None}
    found = asked(*models)
    batches = art_otel.batches([found], **chosen)
    assert [verdict.skipped for verdict in batches.decisions()] == [reason]
    with stored([found]) as folder:
        check(folder, **chosen)


def test_the_batch_has_the_version_that_the_adapter_names():
    adapters = [asked(f"policy-v{number}", name=f"r-{number}") for number in (12, 11, 3)]
    (batch,) = art_otel.batches(adapters, policy_version="policy-v12", max_staleness=1, advantage=None)
    assert list(batch.policy_version) == ["policy-v12", "policy-v11"]
    assert batch.weight_versions[batch.loss_mask].tolist() == [12, 11]


def test_what_somebody_said_stands():
    """A model has the name of its adapter, and the rollout another version."""
    found = asked("policy-v12", version="step-7")
    batches = art_otel.batches([found], policy_version="policy-v12", max_staleness=1, advantage=None)
    assert [verdict.skipped for verdict in batches.decisions()] == ["stale"]
    (batch,) = art_otel.batches([found], policy_version="step-7", advantage=None)
    assert list(batch.policy_version) == ["step-7"]


def test_a_judge_has_no_version_of_the_policy():
    """As where the version is the name of each request's model."""
    told = asked("policy-v12", "gpt-4o", "policy-v11")
    versions = [structs.replace(call, policy_version=call.request_model) for call in told.calls]
    named = replace(told, calls=tuple(versions), policy_version=PolicyVersions(first="policy-v12", last="gpt-4o"))
    for found in (told, named):
        for models, behind, reason in (
            ("policy-*", 1, None),
            ("policy-*", 0, "stale"),
            ("policy-*", None, "another policy version"),
            ("gpt-5", 1, "another model"),
        ):
            chosen = {"policy_version": "policy-v12", "max_staleness": behind, "models": models, "advantage": None}
            assert [verdict.skipped for verdict in art_otel.batches([found], **chosen).decisions()] == [reason]
            with stored([found]) as folder:
                check(folder, **chosen)


@pytest.mark.parametrize("version", ["Qwen3-8B", None])
def test_a_trained_version_without_a_number_is_told_how_to_have_one(version):
    with pytest.raises(art_otel.errors.UsageError, match=r"Write the number behind step, iter.* as in step-12"):
        art_otel.batches([], policy_version=version, max_staleness=1)


def test_the_older_of_a_call_s_versions_decides_how_stale_it_is():
    """The weights were swapped while it sampled."""

    def swapped(start: str, end: str | None) -> Trajectory:
        (call,) = (told := talk("r", 1)).calls
        return replace(told, calls=(structs.replace(call, policy_version=start, policy_version_end=end),))

    for found, behind, reason in (
        (swapped("step-1", "step-2"), 0, "stale"),
        (swapped("step-1", "step-2"), 1, None),
        (swapped("step-2", "step-1"), 0, "stale"),
        (swapped("step-1", "step-2"), None, "another policy version"),
        (swapped("step-2", "main"), 0, "policy version without a number"),
        (swapped("step-2", None), 0, None),
    ):
        chosen = {"policy_version": "step-2", "max_staleness": behind, "advantage": None}
        assert [verdict.skipped for verdict in art_otel.batches([found], **chosen).decisions()] == [reason]
        with stored([found]) as folder:
            check(folder, **chosen)
