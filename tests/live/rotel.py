"""rotel: a real OpenTelemetry collector as a child process that passes traces on over OTLP/HTTP."""

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.environments import rotel_agent


@contextmanager
def rotel(folder: Path, target: str) -> Iterator[str]:
    """The base URL of a collector that sends on to the OTLP/HTTP base URL `target`; it has sent all when this ends."""
    grpc, port = free_port(), free_port()
    command = [
        str(rotel_agent()),
        "start",
        *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--otlp-http-endpoint", f"127.0.0.1:{port}"),
        *("--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", target),
        *("--pid-file", str(folder / "rotel.pid"), "--log-file", str(folder / "rotel.log")),
    ]
    with (folder / "rotel.out").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for_port(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(15)


def free_port() -> int:
    """A port of loopback that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int, process: subprocess.Popen, seconds: float = 60) -> None:
    """Wait until a program listens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.connect()
        except OSError:
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
    raise AssertionError(f"{process.args} does not listen on {port}")
