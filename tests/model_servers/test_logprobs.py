"""The log probabilities of trained tokens are the policy's: torch, with the weights that a real vLLM served, has them.

Run with -s, each test prints its numbers.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import art_otel
from tests.model_gateway.gateways import gateway
from tests.model_servers.agreement import agreement

ROOT = Path(__file__).parents[2]
ASKS = Path(__file__).with_name("asks.py")
CLOSE = 1e-5

pytestmark = [pytest.mark.real_server, pytest.mark.xdist_group("vllm")]


def ask(vllm, address: str, *chosen: str) -> str:
    """Run agents, with clients that know nothing of art-otel."""
    command = [str(vllm.python), str(ASKS), address, *chosen]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr
    return done.stdout


def converted(folder: Path) -> list[art_otel.Trajectory]:
    """The trajectories of the spans in a folder, as `art-otel convert` has them."""
    art_otel.convert(folder / "spool", folder / "dataset")
    return [
        one if one.name == "agent" else replace(one, rollout_id=one.name)  # as its ask is called
        for one in art_otel.read_trajectories(folder / "dataset")
    ]


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
    command = [sys.executable, "-m", "tests.model_servers.app", vllm.url, str(tmp_path)]
    subprocess.run(command, check=True, timeout=1800, cwd=ROOT)
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
