"""The version of a call is the one that its request left with, whatever the weights are when it ends."""

import asyncio
import threading

import pytest

from art_otel.tracing.openai import capture, install
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented


def ask(text: str = "Hi", **more) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


class Weights:
    """What a trainer tells of its weights, which it swaps."""

    def __init__(self) -> None:
        self.version: str | None = "step-1"
        self.models: list[str | None] = []

    def __call__(self, model: str | None) -> str | None:
        self.models.append(model)
        return self.version


@pytest.fixture
def weights():
    return Weights()


@pytest.fixture
def app(server, instrumentor, weights, uninstalled):  # noqa: ARG001 # undoes at the end
    found = Instrumented(server.url)
    install(policy_version=weights, policy_version_header="x-policy-version")
    with instrumented(instrumentor, found.provider):
        yield found


def versions(app) -> list[tuple[str | None, str | None]]:
    return [(call.policy_version, call.policy_version_end) for call in app.calls()]


def test_weights_that_are_swapped_while_they_sample(app, weights):
    with app.client() as client, app.rollout():
        swap = threading.Timer(0.1, lambda: setattr(weights, "version", "step-2"))
        swap.start()
        client.chat.completions.create(**ask("Hi #delay=0.4"))
        swap.join()
        client.chat.completions.create(**ask())
    assert versions(app) == [("step-1", "step-2"), ("step-2", None)]
    assert weights.models == [MODEL] * 4


def test_weights_that_are_swapped_in_the_middle_of_a_stream(app, weights):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                async for _ in await client.chat.completions.create(**ask(stream=True)):
                    weights.version = "step-2"

    asyncio.run(main())
    assert versions(app) == [("step-1", "step-2")]


def test_a_try_that_failed_has_no_version(app, weights):
    """The second try is the call, and it leaves after the weights were swapped."""
    told = iter(("step-1", "step-2", "step-2"))
    weights.__class__ = type("Told", (Weights,), {"__call__": lambda _self, _model: next(told)})
    with app.client() as client, app.rollout():
        client.with_options(max_retries=1).chat.completions.create(**ask("Hi #fail=429x1"))
    assert versions(app)[-1] == ("step-2", None)


def test_what_the_answer_says_counts_more(app, weights):
    with app.client() as client, app.rollout():
        client.chat.completions.create(**ask("Hi #version=step-7"))
        weights.version = None
        client.chat.completions.create(**ask())
    assert versions(app) == [("step-7", None), (None, None)]


def test_a_function_that_fails_costs_the_version_alone(app, weights):
    told = iter(("step-1", RuntimeError("no version"), RuntimeError("no version")))

    def fail(_self, _model):
        if isinstance(found := next(told), Exception):
            raise found
        return found

    weights.__class__ = type("Failing", (Weights,), {"__call__": fail})
    before = capture._ASKING_VERSION.faults
    with app.client() as client, app.rollout():
        client.chat.completions.create(**ask())
        client.chat.completions.create(**ask())
    assert capture._ASKING_VERSION.faults == before + 2, "which are logged"
    assert sorted(versions(app), key=str) == [("step-1", None), (None, None)]
