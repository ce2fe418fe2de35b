"""The tests of the clients themselves, against a mock server of their own specification, and through the gateway.

`ART_OTEL_CLIENTS` names a folder with checkouts of the clients' repositories, each under its repository's name: those
that are there are run. OpenAI's have their specification with them; Anthropic's is the file `anthropic.yml` beside
them, from the address in `.stats.yml` of a checkout. The mock server is the one that the tests are made for. It answers
at random, so each test says whether the client could read what came.
"""

import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.model_gateway.gateways import gateway, recorded
from tests.receiver.node import node_folder, npm_packages
from tests.trainers.environment import trainer_python

CLIENTS = Path(os.environ.get("ART_OTEL_CLIENTS", "")).absolute()
STEADY = "@stdy/cli@0.22.2"
PYTEST = ("pytest>=9", "pytest-asyncio>=1.4", "inline-snapshot", "rich")
JEST = ("jest@30", "@swc/core@1", "@swc/jest@0.2", "standardwebhooks@1")
_IS_CALL = re.compile(r"POST /v1/(chat/completions|completions|responses|messages)(\?\S*)? ")
WHOLE_UPLOADS = """
const send = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  if (!String(input).includes("_unknown_path") || !(init?.body instanceof FormData)) return send(input, init);
  const whole = new Request(input, init);
  return send(input, { ...init, headers: whole.headers, body: await whole.arrayBuffer() });
};
"""
"""Uploads to the path that tests take for an unknown one; the mock server refuses them before it has read them, which
breaks one that comes in pieces now and then."""

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif("ART_OTEL_CLIENTS" not in os.environ, reason="ART_OTEL_CLIENTS names no folder of checkouts"),
]


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client: its repository, and what its tests need.

    `specification` lies below `CLIENTS`; `prefix` is what the client's base URL ends with, which the specification
    leaves out. `needs` are packages of Python, beside the client's `extras`; `module` is a name in JavaScript.
    """

    repository: str
    specification: str
    prefix: str = ""
    extras: str = ""
    needs: tuple[str, ...] = ()
    module: str = ""


SUITES = (
    Client(
        repository="openai-python",
        specification="openai-python/api_reference/openapi.transformed.yml",
        prefix="/v1",
        needs=("httpx2", "aiohttp>=3.14", "trio"),
    ),
    Client(
        repository="openai-node",
        specification="openai-node/api_reference/openapi.transformed.yml",
        prefix="/v1",
        module="openai",
    ),
    Client(
        repository="anthropic-sdk-python",
        specification="anthropic.yml",
        extras="[aiohttp,mcp,webhooks]",
        needs=("respx", "time-machine", "dirty-equals", "http-snapshot[httpx]"),
    ),
    Client(repository="anthropic-sdk-typescript", specification="anthropic.yml", module="@anthropic-ai/sdk"),
)


@contextmanager
def mock(folder: Path, client: Client) -> Iterator[str]:
    """The mock server; every path begins with the client's prefix, as at the real one."""
    specification = folder / "openapi.yml"
    specification.write_text(_prefixed(CLIENTS / client.specification, client.prefix), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    brackets = [
        f"--validator-{what}-format=brackets" for what in ("query-array", "form-array", "query-object", "form-object")
    ]
    command = [str(npm_packages(STEADY) / ".bin" / "steady"), "--host", "127.0.0.1", "-p", url.rpartition(":")[2]]
    with (
        (folder / "mock.log").open("wb") as log,
        subprocess.Popen([*command, *brackets, str(specification)], env=_with_node(), stdout=log) as process,
    ):
        try:
            _wait(f"{url}/_x-steady/health", process)
            yield url
        finally:
            process.terminate()


def _prefixed(specification: Path, prefix: str) -> str:
    text = specification.read_text(encoding="utf-8")
    if not prefix:
        return text
    head, _, rest = text.partition("\npaths:\n")
    ends = re.search(r"^\w", rest, re.MULTILINE)
    assert ends is not None
    paths = re.sub(r"^  (/\S+:)$", rf"  {prefix}\1", rest[: ends.start()], flags=re.MULTILINE)
    return f"{head}\npaths:\n{paths}{rest[ends.start() :]}"


def _with_node() -> dict[str, str]:
    return os.environ | {"PATH": f"{node_folder()}{os.pathsep}{os.environ['PATH']}"}


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            urllib.request.urlopen(url).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the mock server has ended")


def outcomes(client: Client, url: str, report: Path) -> dict[str, str]:
    """What became of each test: `passed`, `failed` or `skipped`."""
    run = jest_outcomes if client.module else pytest_outcomes
    return run(client, {"TEST_API_BASE_URL": f"{url}{client.prefix}"}, report)


def pytest_outcomes(client: Client, environment: dict[str, str], report: Path) -> dict[str, str]:
    checkout = CLIENTS / client.repository
    python = trainer_python(client.repository, f"{checkout}{client.extras}", *PYTEST, *client.needs)
    options = ["-o", "addopts=", "-p", "no:cacheprovider", "-q", "--tb=no", f"--junitxml={report}"]
    command = [python, "-m", "pytest", *options, "tests/api_resources"]
    source = {"PYTHONPATH": str(checkout / "src")}  # the environment keeps what it was made of
    _run(command, os.environ | environment | source, checkout)
    ends = {"skipped": "skipped", "failure": "failed", "error": "failed"}
    return {
        f"{case.get('classname')}.{case.get('name')}": next((ends[said.tag] for said in case), "passed")
        for case in ET.parse(report).iter("testcase")
    }


def jest_outcomes(client: Client, environment: dict[str, str], report: Path) -> dict[str, str]:
    """Run with settings of our own: those of the checkout need what only its own installation has."""
    checkout, packages = CLIENTS / client.repository, npm_packages(*JEST)
    setup = report.with_suffix(".js")
    setup.write_text(WHOLE_UPLOADS, encoding="utf-8")
    settings = {
        "rootDir": str(checkout),
        "roots": ["<rootDir>/tests/api-resources"],
        "setupFiles": [str(setup)],
        "modulePaths": [str(packages)],
        "transform": {r"\.ts$": str(packages / "@swc" / "jest")},
        "moduleNameMapper": {
            f"^{client.module}$": "<rootDir>/src/index.ts",
            f"^{client.module}/(.*)$": "<rootDir>/src/$1",
        },
    }
    options = ["--runInBand", "--ci", "--config", json.dumps(settings), "--json", f"--outputFile={report}"]
    _run([packages / ".bin" / "jest", *options], _with_node() | environment, checkout)
    ends = {"passed": "passed", "failed": "failed", "pending": "skipped"}
    return {
        f"{Path(file['name']).relative_to(checkout)}: {case['fullName']}": ends[case["status"]]
        for file in json.loads(report.read_bytes())["testResults"]
        for case in file["assertionResults"]
    }


def _run(command: list[str | Path], environment: dict[str, str], checkout: Path) -> None:
    """Run the tests; that some fail is no fault, but that none could be run is."""
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), (done.stdout + done.stderr)[-3000:]


def _asked(folder: Path) -> Counter[str]:
    """What the mock server was asked so far, with the status of its answer.

    What it does not know is left out: an upload that is refused may be sent again, and the gateway asks whether it
    samples from ids.
    """
    return Counter(re.findall(r"\] ([A-Z]+ \S+ → (?!404)\d+)", (folder / "mock.log").read_text(encoding="utf-8")))


def _timed(client: Client, url: str, report: Path) -> dict[str, str]:
    began = time.monotonic()
    ended = outcomes(client, url, report)
    counts = dict(Counter(ended.values()))
    print(f"\n{client.repository}, {report.name}: {counts} in {time.monotonic() - began:.0f} s")
    return ended


@pytest.mark.parametrize("client", SUITES, ids=lambda client: client.repository)
def test_the_clients_own_tests_end_alike_through_the_gateway(client, tmp_path):
    for needed in (client.repository, client.specification):
        if not (CLIENTS / needed).exists():
            pytest.skip(f"the folder ART_OTEL_CLIENTS has no {needed}")
    with mock(tmp_path, client) as upstream:
        direct = _timed(client, upstream, tmp_path / "direct")
        asked = _asked(tmp_path)
        with gateway(tmp_path / "gateway", upstream) as running:
            through = _timed(client, running.url, tmp_path / "through")
        asked_through = _asked(tmp_path) - asked
    assert through == direct
    assert list(direct.values()).count("passed") > 100
    assert asked_through == asked
    calls = sum(len(one.calls) for one in recorded(tmp_path / "gateway"))
    assert calls == sum(count for what, count in asked.items() if _IS_CALL.match(what)) > 0
