"""The tests of the `openai` client itself, against a mock server of its own specification, and through the gateway.

`ART_OTEL_OPENAI_PYTHON` names a checkout of the client's repository (3.3 or newer), which has its tests and its
specification; the mock server is the one that they are made for. Nothing else is left out than what is not about
inference: the mock answers at random, so each test says whether the client could read what came.
"""

import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.model_gateway.gateways import gateway, recorded
from tests.receiver.node import node_folder, npm_packages
from tests.trainers.environment import trainer_python

CHECKOUT = os.environ.get("ART_OTEL_OPENAI_PYTHON")
STEADY = "@stdy/cli@0.22.1"
NEEDS = ("httpx2", "pytest>=9", "pytest-asyncio>=1.4", "inline-snapshot", "aiohttp>=3.14", "trio", "rich")
SUITES = (
    *("audio", "chat", "responses", "uploads", "test_batches.py", "test_completions.py", "test_embeddings.py"),
    *("test_files.py", "test_images.py", "test_models.py", "test_moderations.py", "test_responses.py"),
)

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(CHECKOUT is None, reason="ART_OTEL_OPENAI_PYTHON names no checkout of openai/openai-python"),
]


@contextmanager
def mock(folder: Path, checkout: Path) -> Iterator[str]:
    """The mock server; every path begins with /v1, as at OpenAI."""
    text = (checkout / "api_reference" / "openapi.transformed.yml").read_text(encoding="utf-8")
    head, _, rest = text.partition("\npaths:\n")
    ends = re.search(r"^\w", rest, re.MULTILINE)
    assert ends is not None
    paths = re.sub(r"^  (/\S+:)$", r"  /v1\1", rest[: ends.start()], flags=re.MULTILINE)
    specification = folder / "openapi.yml"
    specification.write_text(f"{head}\npaths:\n{paths}{rest[ends.start() :]}", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    brackets = [
        f"--validator-{what}-format=brackets" for what in ("query-array", "form-array", "query-object", "form-object")
    ]
    command = [str(npm_packages(STEADY) / ".bin" / "steady"), "--host", "127.0.0.1", "-p", url.rpartition(":")[2]]
    path = f"{node_folder()}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen([*command, *brackets, str(specification)], env=os.environ | {"PATH": path}) as process:
        try:
            _wait(f"{url}/_x-steady/health", process)
            yield url
        finally:
            process.terminate()


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            urllib.request.urlopen(url).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the mock server has ended")


def outcomes(checkout: Path, url: str) -> tuple[dict[str, str], str]:
    """What became of each test, and the end of what pytest said."""
    python = trainer_python("openai-suite", str(checkout), *NEEDS)
    suites = [f"tests/api_resources/{name}" for name in SUITES]
    done = subprocess.run(
        [python, "-m", "pytest", "-o", "addopts=", "-v", "--tb=short", "-p", "no:cacheprovider", *suites],
        env=os.environ | {"TEST_API_BASE_URL": f"{url}/v1"},
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    return dict(re.findall(r"^(tests/\S+) (PASSED|FAILED|ERROR|SKIPPED)", done.stdout, re.MULTILINE)), done.stdout[
        -3000:
    ]


def test_the_clients_own_tests_pass_through_the_gateway(tmp_path):
    checkout = Path(CHECKOUT or "")
    with mock(tmp_path, checkout) as upstream:
        direct, said = outcomes(checkout, upstream)
        assert sum(outcome == "PASSED" for outcome in direct.values()) > 500, said
        with gateway(tmp_path / "gateway", upstream) as running:
            through, said = outcomes(checkout, running.url)
        assert through == direct, said
        assert sum(len(one.calls) for one in recorded(tmp_path / "gateway")) > 100
