"""Agents as they are, through the gateway: each call, message, tool and id is what the server saw and answered."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies.openai_body import read_request
from art_otel.trajectories import Trajectory
from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.gemini_server import gemini_server
from tests.model_gateway.test_in_process import ROOT
from tests.receiver.node import node_folder, npm_packages
from tests.tracing.server import Exchange, ModelServer
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.install

CLAUDE_AND_CODEX = ("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0")
GEMINI_CLI = "@google/gemini-cli@0.61.0"
OPENCODE = "opencode-ai@1.18.33"
AI_SDK = ("ai@7.0.173", "@ai-sdk/openai@4.0.118", "@ai-sdk/openai-compatible@3.0.92", "zod@4.6.7")
FRAMEWORKS = ("openai-agents==0.24.0", "langgraph==1.2.24", "langchain==1.5.2", "langchain-openai==1.7.4")
PROGRAMS = Path(__file__).parent / "agents"
WORDS = ("HELLO", "AGAIN", "BYE")
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "TERM": "dumb"}

Start: TypeAlias = tuple[list[str], dict[str, str]]
"""A command, and what its environment has."""


def claude(url: str, text: str) -> Start:
    programs = npm_packages(*CLAUDE_AND_CODEX, after="@anthropic-ai/claude-code/install.cjs") / ".bin"
    names = {"ANTHROPIC_MODEL": "m", "ANTHROPIC_SMALL_FAST_MODEL": "m", "ANTHROPIC_API_KEY": "sk-ant-none"}
    command = [str(programs / "claude"), "-p", text, "--allowedTools", "Read"]
    return command, {**names, "ANTHROPIC_BASE_URL": url}


def codex(url: str, text: str) -> Start:
    programs = npm_packages(*CLAUDE_AND_CODEX, after="@anthropic-ai/claude-code/install.cjs") / ".bin"
    provider = f'{{name="gateway",base_url="{url}/v1",env_key="KEY",wire_api="responses"}}'
    options = ["-c", f"model_providers.gateway={provider}", "-c", 'model_provider="gateway"', "-m", "m"]
    return [str(programs / "codex"), "exec", "--skip-git-repo-check", *options, text], {"KEY": "none"}


def opencode(url: str, text: str) -> Start:
    programs = npm_packages(OPENCODE, after="opencode-ai/postinstall.mjs") / ".bin"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"m": {"name": "m"}},
    }
    config = {"provider": {"gateway": provider}, "model": "gateway/m", "small_model": "gateway/m"}
    quiet = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return [str(programs / "opencode"), "run", text], {"OPENCODE_CONFIG_CONTENT": json.dumps(config), **quiet}


def gemini_cli(url: str, text: str) -> Start:
    modules = npm_packages(GEMINI_CLI)
    settings = modules.parent / "settings.json"  # else it asks its user how to log in
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}', encoding="utf-8")
    names = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(settings)}
    return [str(modules / ".bin" / "gemini"), "--skip-trust", "-m", "m", "-p", text], names


def ai_sdk(url: str, text: str, name: str = "ai-sdk") -> Start:
    modules = npm_packages(*AI_SDK)
    # Node looks for packages beside the program.
    program = modules.parent / "ai_sdk.mjs"
    program.write_bytes((PROGRAMS / program.name).read_bytes())
    return [str(node_folder() / "node"), str(program), name, f"{url}/v1", text], {}


def ai_sdk_responses(url: str, text: str) -> Start:
    return ai_sdk(url, text, "ai-sdk-responses")


def openai_agents(url: str, text: str, name: str = "openai-agents") -> Start:
    python = trainer_python("gateway-agents", *FRAMEWORKS)
    return [str(python), str(PROGRAMS / "frameworks.py"), name, f"{url}/v1", text], {}


def openai_agents_chat(url: str, text: str) -> Start:
    return openai_agents(url, text, "openai-agents-chat")


def langgraph(url: str, text: str) -> Start:
    return openai_agents(url, text, "langgraph")


def langgraph_responses(url: str, text: str) -> Start:
    return openai_agents(url, text, "langgraph-responses")


def environment_of(home: Path) -> dict[str, str]:
    """What every agent has: a folder of its own, and Node."""
    return {**QUIET, "PATH": f"{node_folder()}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}


NAMING_A_SESSION = (claude, codex, opencode)
NAMING_NOTHING = (ai_sdk, ai_sdk_responses, openai_agents, openai_agents_chat, langgraph, langgraph_responses)


@pytest.mark.parametrize("agent", [*NAMING_A_SESSION, *NAMING_NOTHING])
def test_agents_at_once_are_a_rollout_each(tmp_path, agent: Callable[[str, str], Start]):
    """By the session that they name, else by the conversation; one has a URL of its own."""
    with ModelServer(tmp_path) as server, gateway(tmp_path / "art", server.url) as running:
        urls = dict(zip(WORDS, (running.url, running.url, f"{running.url}/rollout/mine;group_id=g"), strict=True))
        started: list[tuple[str, subprocess.Popen[str]]] = []
        for word, url in urls.items():
            (home := tmp_path / word).mkdir()
            command, environment = agent(url, f"Say it. #say={word}")
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            known = {**environment_of(home), **environment}
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
        is_inferred = agent in NAMING_NOTHING and trajectory is not mine
        assert trajectory.metadata == ({"inferred": True} if is_inferred else {})
        check(trajectory, exchanges)
        if agent not in (claude, codex):  # the stand-in asks for a tool
            results = [one for call in trajectory.calls for one in call.input_messages or () if one.role == "tool"]
            assert results


def test_claude_code_in_rollouts_of_an_app(tmp_path):
    (home := tmp_path / "home").mkdir()
    with ModelServer(tmp_path) as server:
        (name, *_), environment = claude(server.url, "")
        known = {**os.environ, **environment_of(home), **environment}
        address = server.url.removesuffix("/v1")
        command = [sys.executable, "-m", "tests.model_gateway.app", "claude", address, str(tmp_path / "art"), name]
        done = subprocess.run(command, env=known, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        asked = [exchange for exchange in server.answered() if exchange.body.get("max_tokens") != 1]
    # Before the first call, the gateway asked for one token, to know whether ids come with Chat Completions.
    assert sorted(done.stdout.split()) == sorted(exchange.answer["id"] for exchange in asked if exchange.answer)


def test_gemini_cli(tmp_path):
    with gemini_server() as url, gateway(tmp_path / "art", url) as running:
        command, names = gemini_cli(f"{running.url}/rollout/mine", "Say HELLO")
        known = {**environment_of(tmp_path), **names}
        said = subprocess.run(command, env=known, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert "You said HELLO." in said.stdout
    (trajectory,) = recorded(tmp_path / "art")
    assert trajectory.complete, trajectory.incomplete_reasons
    (call,) = trajectory.calls
    assert [message.role for message in call.input_messages or ()] == ["system", "user"]
    assert call.tools
    assert [turn.message.content for turn in trajectory.turns] == ["You said HELLO."]


def check(trajectory: Trajectory, exchanges: list[Exchange]) -> None:
    """Each call says what its server saw and answered; none is of another rollout."""
    words: set[str] = set()
    for call in trajectory.calls:
        (exchange,) = [one for one in exchanges if one.answer is not None and one.answer["id"] == call.response_id]
        seen = read_request(AttributeReader({}), "", exchange.body)
        assert seen is not None
        assert [one.identity for one in call.input_messages or ()] == [
            one.identity for one in seen.input_messages or ()
        ]
        assert (call.tools or ()) == (seen.tools or ())
        assert call.choices is not None
        recorded_ids = (call.prompt_token_ids, *(choice.token_ids for choice in call.choices))
        assert [None if ids is None else ids.tolist() for ids in recorded_ids] == ids_of(exchange)
        words |= {word for word in WORDS if word in str(call.choices[-1].message.content)}
    assert len(words) == 1


def ids_of(exchange: Exchange) -> list[list[int] | None]:
    """The ids of the prompt and of each completion, as the server answered them; Anthropic's dialect has none."""
    answer = exchange.answer or {}
    if "choices" in answer:
        return [answer["prompt_token_ids"], *(choice["token_ids"] for choice in answer["choices"])]
    if "output_messages" in answer:
        return [answer[name][0]["tokens"] for name in ("input_messages", "output_messages")]
    assert exchange.path.startswith("/v1/messages")
    return [None, None]
