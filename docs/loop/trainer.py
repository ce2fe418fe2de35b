"""The trainer: `python trainer.py UPDATES`, while `art-otel serve` runs."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import art_otel
from art_otel.demo.policy import untrained
from art_otel.demo.policy_server import VERSION_HEADER, PolicyServer
from art_otel.demo.task import ATTEMPTS
from art_otel.demo.training import learn, publish

RECEIVER = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
PROCESSES = 2


async def train(updates: int) -> None:
    """Take each group as it finishes, update the policy, publish it."""
    policy, log = untrained(), art_otel.RunLog("loop", "guide")
    with PolicyServer(policy) as server, agents(server.url):
        async with art_otel.connect(RECEIVER, split="train") as rollouts:
            version = 0
            async for group in rollouts.groups(size=ATTEMPTS, timeout=60):
                behind = [version - int(one.policy_version.first) for one in group if one.policy_version]
                policy, _ = learn(policy, list(group), "grpo")
                staleness = {"offpolicy/staleness_mean": fmean(behind), "offpolicy/staleness_max": max(behind)}
                log.log([group], "train", step=version, metrics=staleness)
                version += 1
                publish(server.url, policy, version)
                if version == updates:
                    break


@contextmanager
def agents(model: str) -> Iterator[None]:
    """Run the agent processes, here; they may run anywhere that reaches the model and the receiver."""
    settings = {
        "OPENAI_BASE_URL": f"{model}/v1",
        "OPENAI_API_KEY": "none",
        "ART_OTEL_SPOOL": "0",  # the receiver keeps the spans
        "ART_OTEL_REQUEST_TOKENS": "1",
        "ART_OTEL_POLICY_VERSION_HEADER": VERSION_HEADER,
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": RECEIVER,
        "OTEL_BSP_SCHEDULE_DELAY": "200",  # else spans wait up to five seconds
    }
    command = ["art-otel", "run", "--", sys.executable, str(Path(__file__).with_name("agents.py"))]
    processes = [
        subprocess.Popen([*command, str(number), str(PROCESSES)], env={**os.environ, **settings})  # noqa: S603
        for number in range(PROCESSES)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    asyncio.run(train(int(sys.argv[1])))
