"""The log probabilities of trained tokens are the policy's: torch, with the weights that a real vLLM served, has them.

Run with -s, each test prints its numbers.
"""

import pytest

import art_otel
from tests.model_gateway.gateways import gateway
from tests.model_servers.agreement import agreement
from tests.model_servers.runs import ask, converted, run_app

CLOSE = 1e-5
CLOSE_OVER_MANY = 1e-4
"""The same over 20,000 tokens: vLLM's kernels for CPUs are then 3e-5 from float64, torch 3e-6."""

pytestmark = [pytest.mark.real_server, pytest.mark.xdist_group("vllm")]


def check(trajectories: list[art_otel.Trajectory], vllm, mode: str):
    """Compare with torch; what every mode promises holds."""
    result = agreement(trajectories, vllm)
    print(f"\n{mode}: {result}")
    assert result.compared
    assert max(result.worst.values()) < CLOSE, result
    assert not result.twice, result
    assert not result.untrained, result
    assert not result.uncounted, result
    return result


def test_an_app_without_a_gateway(vllm, tmp_path):
    run_app(vllm, tmp_path)
    check(converted(tmp_path), vllm, "app")


def test_agents_through_a_gateway_that_passes_through(vllm, tmp_path):
    with gateway(tmp_path, vllm.url, tokens="passthrough") as running:
        ask(vllm, f"{running.url}/rollout/{{}}")
    check(converted(tmp_path), vllm, "passthrough")


def test_agents_through_a_gateway_with_exact_tokens(vllm, tmp_path):
    with gateway(tmp_path, vllm.url, tokens="exact") as running:
        ask(vllm, f"{running.url}/rollout/{{}}")
    result = check(converted(tmp_path), vllm, "exact")
    assert {name.removesuffix("-stream") for name in result.without_ids} <= {"completions-prompts"}


def test_a_thousand_turns_do_not_drift(vllm, tmp_path):
    with gateway(tmp_path, vllm.url, tokens="exact") as running:
        took = ask(vllm, f"{running.url}/rollout/{{}}", "long", "1000")
    (trajectory,) = trajectories = converted(tmp_path)
    result = agreement(trajectories, vllm)
    print(f"\n{took.strip()} ms a call at the median; {result}")
    assert len(trajectory.turns) == 1000
    assert {call.extra["prompt"] for call in trajectory.calls} == {"not_needed", "spliced"}
    assert (result.drifts, result.untrained, result.twice) == (0, {}, {})
    assert result.worst["long"] < CLOSE_OVER_MANY
