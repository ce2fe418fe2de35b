"""Servers of the command line end when they are told to, also if they are told again meanwhile."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from art_otel.demo import RECORDINGS

SERVERS = {
    "serve": ["--listen", "127.0.0.1:0", "--no-grpc", "--dir", "art"],
    "gateway": ["--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--dir", "art"],
    "view": ["dataset", "--port", "0", "--no-open"],
}


@pytest.mark.parametrize("verb", SERVERS)
def test_many_signals_end_a_server_as_one_does(verb, tmp_path):
    """`uv run` passes on each signal that it gets together with the server, so there are often two at once."""
    ours = [sys.executable, "-m", "art_otel"]
    if verb == "view":
        subprocess.run([*ours, "convert", RECORDINGS, "--out", "dataset"], cwd=tmp_path, check=True)
    command = [*ours, verb, *SERVERS[verb]]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            assert any("Ctrl+C" in line for line in server.stderr)
            with contextlib.suppress(ProcessLookupError):
                for number in range(2000):
                    os.kill(server.pid, (signal.SIGTERM, signal.SIGINT)[number % 2])
            assert server.wait(20) == 0
        finally:
            server.kill()
