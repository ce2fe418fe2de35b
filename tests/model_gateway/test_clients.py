"""Clients of OpenAI and Anthropic, in Python and JavaScript, give the same with and without the gateway."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.model_gateway.gateways import gateway
from tests.receiver.node import node_folder, npm_packages
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.install

PROGRAMS = Path(__file__).parent / "agents"
PYTHON = ("openai==3.57.0", "anthropic==2.14.0")
JAVASCRIPT = ("openai@7.59.0", "@anthropic-ai/sdk@1.14.0")
_NUMBERED = re.compile(r"(chatcmpl|resp|msg)([-_\w]*)-\d{6}")


def python() -> list[str]:
    return [str(trainer_python("gateway-clients", *PYTHON)), str(PROGRAMS / "clients.py")]


def javascript() -> list[str]:
    program = npm_packages(*JAVASCRIPT).parent / "clients.mjs"  # Node looks for packages beside the program
    program.write_bytes((PROGRAMS / program.name).read_bytes())
    return [str(node_folder() / "node"), str(program)]


def said(command: list[str], url: str) -> list[str]:
    done = subprocess.run([*command, url], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return _NUMBERED.sub(r"\1\2", done.stdout).splitlines()


@pytest.mark.parametrize("language", [python, javascript])
def test_clients_give_the_same(tmp_path, address, language):
    command = language()
    direct = said(command, address)
    assert len(direct) > 25
    for tokens in ("off", "auto"):
        with gateway(tmp_path / tokens, address, tokens=tokens) as running:
            for through, expected in zip(said(command, running.url), direct, strict=True):
                assert through == expected
