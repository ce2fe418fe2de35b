"""Gateways in a thread of the test's process, and what is asked through them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from art_otel.http import Address
from art_otel.live.new_trajectories import NewTrajectories
from art_otel.model_gateway.gateway import LIMITS, Gateway, GatewayOptions, Tokens
from art_otel.receiver.receiver import ReceiverOptions
from art_otel.trajectories import Trajectory

MODEL = "m"
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}},
}


@contextmanager
def gateway(
    folder: Path,
    *upstreams: str,
    grace: float = 60.0,
    tokens: Tokens = "auto",
    token: str | None = None,
    otlp: str | None = None,
) -> Iterator[Gateway]:
    """A running gateway."""
    receiver = ReceiverOptions(http=Address("127.0.0.1", 0), folder=folder, grace=grace, bodies=LIMITS, token=token)
    running = Gateway(
        GatewayOptions(
            upstreams=upstreams,
            receiver=receiver,
            tokens=tokens,
            policy_version_header="x-policy-version",
            otlp=otlp,
        )
    )
    running.receiver.start()
    try:
        yield running
    finally:
        running.receiver.stop()


def recorded(folder: Path) -> list[Trajectory]:
    """The trajectories in the folder of a gateway that has ended."""
    return NewTrajectories(folder / "spool", grace=0.0).take()


def user(text: str) -> list[dict]:
    """A conversation that begins."""
    return [{"role": "user", "content": text}]


def bodies() -> Sequence[tuple[str, dict]]:
    """Requests of every dialect, which a stand-in server answers or refuses."""
    tool = TOOL["function"]
    anthropic = {"name": tool["name"], "input_schema": tool["parameters"]}
    asks = [
        ("/v1/chat/completions", {"messages": user("Hi")}),
        ("/v1/chat/completions", {"messages": user("Hi #think=1"), "n": 2}),
        ("/v1/chat/completions", {"messages": user("Look #calls=2"), "tools": [TOOL]}),
        ("/v1/chat/completions", {"messages": user("Hi"), "logprobs": True, "return_token_ids": True}),
        ("/v1/chat/completions", {"messages": user("Hi #fail=429")}),
        ("/v1/chat/completions", {"messages": user("Hi #fail=400")}),
        ("/v1/completions", {"prompt": "Once"}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/responses", {"input": "Look", "tools": [{"type": "function", **tool}], "instructions": "Be brief."}),
        ("/v1/responses", {"input": "Hi #status=failed"}),
        ("/v1/messages?beta=true", {"messages": user("Hi #think=1"), "system": "Be brief.", "max_tokens": 9}),
        ("/v1/messages", {"messages": user("Look"), "tools": [anthropic], "max_tokens": 9}),
        ("/v1/messages", {"messages": user("Hi #fail=529"), "max_tokens": 9}),
        ("/v1/nowhere", {"input": "Hi"}),
    ]
    return [(path, {"model": MODEL, **ask, **more}) for path, ask in asks for more in ({}, {"stream": True})]
