"""Official clients of four dialects, through a gateway, on real servers: they get what their own servers would send.

Run with -s, each test prints what came.
"""

import subprocess
from pathlib import Path

import pytest

from art_otel.model_gateway.settings import Tokens
from art_otel.trajectories import Trajectory
from tests.model_gateway.gateways import gateway, recorded
from tests.model_servers.agreement import check_calls
from tests.model_servers.door import called, door
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.real_server

CLIENTS = ("openai==3.57.0", "anthropic==2.14.0", "google-genai==3.6.1")
PROGRAM = Path(__file__).with_name("clients.py")
WEATHER = called("weather", '\\{"city": "(Rome|Oslo)"\\}')


@pytest.mark.parametrize(
    ("served", "tokens"),
    [
        pytest.param("vllm", "exact", marks=pytest.mark.xdist_group("vllm")),
        pytest.param("plain_vllm", "auto", marks=pytest.mark.xdist_group("plain_vllm")),
    ],
)
def test_clients_call_a_tool_and_go_on(request, served, tokens: Tokens, tmp_path):
    server = request.getfixturevalue(served)
    with (
        door(server.url, WEATHER) as opened,
        gateway(tmp_path, opened.url, tokens=tokens, translate="auto") as running,
    ):
        said = ask(running.url)
    assert said.count("call weather") == 8, said
    print(check_calls(the_one(tmp_path), server, close=1e-5))


@pytest.mark.xdist_group("llama")
def test_clients_give_llama_the_result_of_a_tool(llama, tmp_path):
    """No grammar binds it to a call: `required` has none for the template of this model."""
    with gateway(tmp_path, llama.url, translate="auto") as running:
        ask(running.url)
    trajectory = the_one(tmp_path)
    assert sum(message.role == "tool" for call in trajectory.calls for message in call.input_messages or ()) == 9
    print(check_calls(trajectory, llama, close=1e-4, has_gaps=True))


def ask(url: str) -> str:
    """Ask by each client; what it says it got."""
    command = [str(trainer_python("gateway-translated", *CLIENTS)), str(PROGRAM), f"{url}/rollout/r"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    print(f"\n{done.stdout}\n{done.stderr}")
    assert done.returncode == 0
    assert "INVALID" not in done.stderr
    assert done.stdout.count(" counted") == 16
    return done.stdout


def the_one(folder: Path) -> Trajectory:
    """The trajectory of all the conversations."""
    (trajectory,) = recorded(folder)
    assert len(trajectory.calls) == 18  # a stream of Messages is asked for twice
    return trajectory
