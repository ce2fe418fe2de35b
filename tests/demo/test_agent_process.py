"""The agent's process ends with the block, whenever that ends."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from art_otel.demo.agent_process import AgentProcess

pytestmark = pytest.mark.long


@pytest.fixture
def _interrupts():
    """Also where the tests run in the background of a shell, which ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_ctrl_c_while_the_agent_starts_ends_it_in_silence(tmp_path, capfd):
    agent = AgentProcess("http://127.0.0.1:1", tmp_path)
    ended = threading.Event()

    def press_when_it_runs():
        while not hasattr(agent, "_process"):
            ended.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press_when_it_runs)
    presser.start()
    with pytest.raises(KeyboardInterrupt), agent:
        ended.wait(60)
    presser.join()
    assert agent._process.returncode == 0
    assert capfd.readouterr().err == ""


def test_an_agent_whose_starter_has_gone_ends_in_silence():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "art_otel.demo.agent_service"]
    known = {**os.environ, "OPENAI_API_KEY": "none"}
    done = subprocess.run(
        command, env=known, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
