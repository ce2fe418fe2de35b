"""Agents as they are, through a gateway, on real servers: every call has its ids, and torch's log probabilities.

The model is random, so what it says is noise, which some agents refuse at last. So that they go on, a door binds the
first answer to a call of a tool. Run with -s, each test prints its numbers.
"""

import subprocess
from pathlib import Path

import pytest

from art_otel.trajectories import Trajectory
from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.test_real_agents import (
    NAMING_A_SESSION,
    NAMING_NOTHING,
    claude,
    codex,
    environment_of,
    gemini_cli,
    opencode,
)
from tests.model_servers.agreement import check_calls
from tests.model_servers.door import CHAT, SAMPLES_FROM_IDS, called, door
from tests.model_servers.test_logprobs import CLOSE_OVER_MANY

pytestmark = pytest.mark.real_server

CLOSE_FAR_BEHIND = 1e-2
"""llama.cpp computes the angles of positions one from the other, in float32: at 31,000 that is seen."""

CALLED = {
    claude: called("Read", '\\{"file_path": "/etc/hostname"\\}'),
    codex: called("exec_command", '\\{"cmd": "echo hello"\\}'),
    opencode: called("glob", '\\{"pattern": "\\*"\\}'),
    gemini_cli: called("list_directory", '\\{"dir_path": "\\."\\}'),
}
DIALECTS = {claude: "messages", codex: "responses", opencode: None, gemini_cli: "gemini"}
"""What is translated to Chat Completions, where a server has no better way."""


@pytest.mark.xdist_group("vllm")
@pytest.mark.parametrize("agent", [*NAMING_A_SESSION, *NAMING_NOTHING])
def test_every_call_of_an_agent_has_its_ids(vllm, tmp_path, agent):
    with gateway(tmp_path / "art", vllm.url, tokens="exact") as running:
        start(agent, running.url, tmp_path)
    (trajectory,) = recorded(tmp_path / "art")
    assert {call.extra["prompt"] for call in trajectory.calls} <= {"not_needed", "spliced", "differing"}
    print(check_calls(trajectory, vllm, close=CLOSE_OVER_MANY))


@pytest.mark.xdist_group("vllm")
@pytest.mark.parametrize("agent", CALLED)
def test_an_agent_calls_a_tool_and_goes_on(vllm, tmp_path, agent):
    with (
        door(vllm.url, CALLED[agent]) as opened,
        gateway(tmp_path / "art", opened.url, tokens="exact", translate="auto") as running,
    ):
        start(agent, running.url, tmp_path)
    (trajectory,) = recorded(tmp_path / "art")
    assert opened.asked.count(SAMPLES_FROM_IDS) == len(trajectory.calls)
    assert CHAT not in opened.asked
    expected = DIALECTS[agent] if agent is gemini_cli else None
    assert {call.extra.get("translated_from") for call in trajectory.calls} == {expected}
    assert has_result(trajectory)
    print(check_calls(trajectory, vllm, close=CLOSE_OVER_MANY))


@pytest.mark.xdist_group("plain_vllm")
@pytest.mark.parametrize("agent", CALLED)
def test_an_agent_calls_a_tool_on_a_server_that_cannot_sample_from_ids(plain_vllm, tmp_path, agent):
    with (
        door(plain_vllm.url, CALLED[agent]) as opened,
        gateway(tmp_path / "art", opened.url, translate="auto") as running,
    ):
        start(agent, running.url, tmp_path)
    (trajectory,) = recorded(tmp_path / "art")
    assert opened.asked == [CHAT] * len(trajectory.calls)
    assert {call.extra.get("translated_from") for call in trajectory.calls} == {DIALECTS[agent]}
    assert has_result(trajectory)
    print(check_calls(trajectory, plain_vllm, close=CLOSE_OVER_MANY))


@pytest.mark.xdist_group("llama")
@pytest.mark.parametrize("agent", CALLED)
def test_an_agent_talks_to_llama(llama_for_agents, tmp_path, agent):
    """It lists no token that ends inside a character: calls with one have no ids, and say why."""
    with (
        door(llama_for_agents.url) as opened,
        gateway(tmp_path / "art", opened.url, translate="auto") as running,
    ):
        start(agent, running.url, tmp_path)
    (trajectory,) = recorded(tmp_path / "art")
    assert {*opened.asked} == {CHAT}
    assert {call.extra.get("translated_from") for call in trajectory.calls} == {DIALECTS[agent]}
    print(check_calls(trajectory, llama_for_agents, close=CLOSE_FAR_BEHIND, has_gaps=True))


def start(agent, url: str, folder: Path) -> None:
    """Run an agent in a rollout of its own, until it ends or has been asking for long."""
    (home := folder / "home").mkdir()
    command, environment = agent(f"{url}/rollout/r", "Say hello.")
    known = {**environment_of(home), **environment}
    subprocess.run(command, env=known, cwd=home, check=False, timeout=600, stdin=subprocess.DEVNULL)


def has_result(trajectory: Trajectory) -> bool:
    """Whether the agent gave the model what a tool said."""
    return any(message.role == "tool" for call in trajectory.calls for message in call.input_messages or ())
