"""A real S3 server (moto, on loopback) in an environment of its own."""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager

import pytest

from tests.trainers.environment import trainer_python

REQUIREMENTS = ("moto[s3]>=5,<6", "flask>=3", "flask-cors>=5")
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
}
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_EC2_METADATA_DISABLED": "true"}


class Server:
    """A running server; `options` go to the end of a URL."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.options = f"?region=us-east-1&scheme=http&endpoint_override={self.address}"

    def put(self, key: str, data: bytes = b"") -> None:
        quoted = urllib.parse.quote(key, safe="/")
        headers = {**SIGNED, "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"http://{self.address}/{quoted}", data, headers, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    def url(self, key: str) -> str:
        return f"s3://{key}{self.options}"


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    """What the server takes; import it to have it in all tests of a module."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@contextmanager
def running(log, **settings):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python = trainer_python("s3", *REQUIREMENTS)
    command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **settings})
        try:
            _wait_for(port, process)
            yield Server(port)
        finally:
            process.terminate()
            process.wait()


def _wait_for(port: int, process) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, "the server did not start"
            time.sleep(0.1)
        else:
            return
    pytest.fail("the server does not answer")
