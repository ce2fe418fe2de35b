"""AgentProcess: the agent's service as a child process, traced by nothing but its environment.

Invariant: the process ends with the block, or with this process if that is killed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from art_otel.demo.policy_server import VERSION_HEADER, post
from art_otel.demo.task import Task
from art_otel.errors import ArtOtelError

_SET_BY_OTHERS: Final = ("ART_OTEL_", "OPENAI_")
_PROPAGATOR: Final = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


class AgentProcess:
    """`with AgentProcess(model, folder) as agent:` asks its model at `model` and records its calls below `folder`."""

    def __init__(self, model: str, folder: Path) -> None:
        self._environment = {
            **{name: value for name, value in os.environ.items() if not _is_set_here(name)},
            "OPENAI_BASE_URL": f"{model}/v1",
            "OPENAI_API_KEY": "none",
            "NO_PROXY": "*",  # the system's neither
            "OTEL_PROPAGATORS": "tracecontext,baggage",  # as `ask` writes them
            "ART_OTEL_DIR": str(folder),
            "ART_OTEL_REQUEST_TOKENS": "1",
            "ART_OTEL_TRUST_ROLLOUT_IDS": "any",  # nobody else knows its port
            "ART_OTEL_POLICY_VERSION_HEADER": VERSION_HEADER,
        }
        self._url = ""

    def ask(self, task: Task, seed: int) -> str:
        """The agent's answer. The rollout that asks goes along as W3C trace context and baggage."""
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers)
        question = {"topic": task.topic, "city": task.city, "readings": task.readings, "seed": seed}
        return post(self._url, json.dumps(question).encode(), headers).decode()

    def __enter__(self) -> Self:
        program = [sys.executable, "-m", "art_otel.demo.agent_service"]
        command = [sys.executable, "-m", "art_otel", "run", "--quiet", "--", *program]
        self._process = subprocess.Popen(  # noqa: S603 # this very Python
            command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is ours; the agent ends with its standard input
        )
        port = ""
        try:
            port = self._process.stdout.readline().strip() if self._process.stdout else ""
        finally:
            if not port:  # Ctrl-C while it starts, too
                self.__exit__(None, None, None)
        if not port:
            raise ArtOtelError("the demo's agent did not start; its output says why")
        self._url = f"http://127.0.0.1:{port}/"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate()


def _is_set_here(name: str) -> bool:
    """Whether the agent's environment says this itself. Of proxies it knows none: the model is on this machine."""
    return name.startswith(_SET_BY_OTHERS) or name.lower().endswith("_proxy")
