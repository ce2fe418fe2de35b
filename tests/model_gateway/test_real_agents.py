"""Claude Code and Codex, unedited, through the gateway: each call, message and tool is what the server saw."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies.openai_body import read_request
from art_otel.trajectories import Trajectory
from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.test_in_process import ROOT
from tests.receiver.node import node_folder, npm_packages
from tests.tracing.server import Exchange, ModelServer

pytestmark = pytest.mark.install

PACKAGES = ("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0")
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "TERM": "dumb"}


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of their commands."""
    modules = npm_packages(*PACKAGES, after="@anthropic-ai/claude-code/install.cjs")
    return modules / ".bin"


def claude(programs: Path, url: str, text: str) -> tuple[list[str], dict[str, str]]:
    names = {"ANTHROPIC_MODEL": "m", "ANTHROPIC_SMALL_FAST_MODEL": "m", "ANTHROPIC_API_KEY": "sk-ant-none"}
    command = [str(programs / "claude"), "-p", text, "--allowedTools", "Read"]
    return command, {**names, "ANTHROPIC_BASE_URL": url}


def codex(programs: Path, url: str, text: str) -> tuple[list[str], dict[str, str]]:
    provider = f'{{name="gateway",base_url="{url}/v1",env_key="KEY",wire_api="responses"}}'
    options = ["-c", f"model_providers.gateway={provider}", "-c", 'model_provider="gateway"', "-m", "m"]
    return [str(programs / "codex"), "exec", "--skip-git-repo-check", *options, text], {"KEY": "none"}


@pytest.mark.parametrize("agent", [claude, codex])
def test_an_agent_has_its_rollout_by_its_session_or_by_its_url(tmp_path, programs, agent):
    (home := tmp_path / "home").mkdir()
    with ModelServer(tmp_path) as server, gateway(tmp_path / "art", server.url) as running:
        urls = {"HELLO": running.url, "AGAIN": running.url, "BYE": f"{running.url}/rollout/mine;group_id=g"}
        started: list[tuple[str, subprocess.Popen[str]]] = []
        for word, url in urls.items():
            command, environment = agent(programs, url, f"Say it. #say={word}")
            path = f"{node_folder()}{os.pathsep}{os.environ['PATH']}"
            known = {**QUIET, "PATH": path, "HOME": str(home), **environment}
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            started.append((word, subprocess.Popen(command, env=known, cwd=home, text=True, **pipes)))
        for word, process in started:
            said, complained = process.communicate(timeout=120)
            assert process.returncode == 0, complained
            assert word in said
        exchanges = server.answered()
    trajectories = recorded(tmp_path / "art")
    assert len(trajectories) == 3
    (mine,) = [one for one in trajectories if one.rollout_id == "mine"]
    assert mine.group_id == "g"
    assert sum(len(one.calls) for one in trajectories) == len(exchanges)
    for trajectory in trajectories:
        assert trajectory.complete, trajectory.incomplete_reasons
        assert not trajectory.metadata
        check(trajectory, exchanges)


def test_claude_code_in_rollouts_of_an_app(tmp_path, programs):
    (home := tmp_path / "home").mkdir()
    with ModelServer(tmp_path) as server:
        (name, *_), environment = claude(programs, server.url, "")
        path = f"{node_folder()}{os.pathsep}{os.environ['PATH']}"
        known = {**os.environ, **QUIET, **environment, "PATH": path, "HOME": str(home)}
        address = server.url.removesuffix("/v1")
        command = [sys.executable, "-m", "tests.model_gateway.app", "claude", address, str(tmp_path / "art"), name]
        done = subprocess.run(command, env=known, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        answered = [exchange.answer["id"] for exchange in server.answered() if exchange.answer is not None]
    assert sorted(done.stdout.split()) == sorted(answered)


def check(trajectory: Trajectory, exchanges: list[Exchange]) -> None:
    """Each call says what its server saw and answered; none is of another rollout."""
    texts: set[str] = set()
    for call in trajectory.calls:
        (exchange,) = [one for one in exchanges if one.answer is not None and one.answer["id"] == call.response_id]
        seen = read_request(AttributeReader({}), "", exchange.body)
        assert seen is not None
        assert [one.identity for one in call.input_messages or ()] == [
            one.identity for one in seen.input_messages or ()
        ]
        assert (call.tools or ()) == (seen.tools or ())
        assert call.choices is not None
        texts.add(str(call.choices[-1].message.content or ""))
    assert len(texts & {"HELLO", "AGAIN", "BYE"}) == 1
