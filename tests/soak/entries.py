"""What an app does often, one entry each: what it needs is made around, and `Once.do` does it one time.

Invariant: an entry uses what is public, as the documentation shows it, and holds on to nothing that it was given. The
event loop of an entry that is async belongs to it and to a clock.
"""

import asyncio
import os
import shutil
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from httpx import AsyncClient, RemoteProtocolError
from openai import APIConnectionError, AsyncOpenAI, BadRequestError, OpenAI
from opentelemetry import trace

import art_otel
import art_otel.data
from art_otel.http import Address
from art_otel.viewer.serving import Api, Viewer
from art_otel.viewer.snapshot import ViewedData
from art_otel.workflows import StepWiseRewardWorkflow
from tests.model_gateway.gateways import Running
from tests.receiver.otlp import send
from tests.receiver.rollouts import rollout as request_of_rollout
from tests.receiver.serving import serving
from tests.tracing.server import ModelServer


@dataclass(frozen=True, kw_only=True, slots=True)
class Once:
    """`do` is given how often it was done before. `process` is another one whose memory counts, where there is one."""

    do: Callable[[int], Awaitable[None]]
    is_async: bool = True
    process: int | None = None


def _sync(do: Callable[[int], None]) -> Once:
    async def run(number: int) -> None:
        do(number)

    return Once(do=run, is_async=False)


@contextmanager
def _clients(work: Path) -> Iterator[tuple[OpenAI, AsyncOpenAI]]:
    with ModelServer(work) as server:
        os.environ.update(OPENAI_BASE_URL=server.url, OPENAI_API_KEY="none")
        with OpenAI() as client:
            yield client, AsyncOpenAI()


@contextmanager
def _recording(work: Path) -> Iterator[None]:
    tracing = art_otel.configure(dir=work / ".art", request_tokens=True)
    try:
        yield
    finally:
        tracing.shutdown()


def _ask(client: OpenAI, text: str = "#words=5") -> str | None:
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content


async def _ask_async(client: AsyncOpenAI, text: str = "#words=5") -> str | None:
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content


@contextmanager
def rollouts(work: Path) -> Iterator[Once]:
    """The forms of `rollout`, with steps, tools, rewards, failing rollouts and failing calls."""
    with _clients(work) as (client, _), _recording(work):

        @art_otel.tool
        def search(text: str) -> str:
            return text

        @art_otel.rollout
        def decorated() -> None:
            _ask(client)
            art_otel.reward(1.0)

        @art_otel.rollout(name="named", group_id="g")
        def steps() -> None:
            for _ in range(2):
                with art_otel.step() as step:
                    search(_ask(client) or "")
                    step.reward = 0.5
            raise ValueError("the app's own")

        def do(number: int) -> None:
            decorated()
            with suppress(ValueError):
                steps()
            with art_otel.rollout(name="block", metadata={"number": number}):
                with suppress(BadRequestError):
                    _ask(client, "#fail=400")
                art_otel.reward(0.0)

        yield _sync(do)


@contextmanager
def rollouts_async(work: Path) -> Iterator[Once]:
    """Async rollouts at once, with streams that are read, left and broken."""
    with _clients(work) as (_, client), _recording(work):

        @art_otel.rollout
        async def whole() -> None:
            await _ask_async(client)
            art_otel.reward(1.0)

        async def stream(text: str, chunks: int) -> None:
            messages = [{"role": "user", "content": text}]
            async with await client.chat.completions.create(model="m", messages=messages, stream=True) as answer:
                async for _ in answer:
                    chunks -= 1
                    if not chunks:
                        break

        @art_otel.rollout
        async def streams() -> None:
            await stream("#words=8", 1_000)
            await stream("#words=8", 2)
            with suppress(APIConnectionError, RemoteProtocolError):
                await stream("#words=8 #break=3", 1_000)

        async def do(_number: int) -> None:
            await asyncio.gather(whole(), whole(), streams())

        yield Once(do=do)


def _gathering(client: AsyncOpenAI) -> Once:
    @art_otel.rollout
    async def solve() -> None:
        await _ask_async(client)
        art_otel.reward(1.0)

    async def do(_number: int) -> None:
        assert (await art_otel.gather_trajectory(solve())).complete
        await art_otel.gather_trajectories([solve(), solve()])
        async for group in art_otel.gather_trajectories([solve(), solve()]).groups(size=2):
            assert len(group) == 1
        async with aclosing(aiter(art_otel.gather_trajectories([solve(), solve()]))) as trajectories:
            await anext(trajectories)
        groups = await art_otel.gather_trajectory_groups({"g": [solve(), solve()]})
        for batch in art_otel.batches(groups, advantage="grpo"):
            assert batch.loss_mask.any()

    return Once(do=do)


@contextmanager
def gather(work: Path) -> Iterator[Once]:
    """Gathering in all its forms, and batches, where nothing was set up."""
    with _clients(work) as (_, client):
        os.environ["ART_OTEL_REQUEST_TOKENS"] = "1"
        yield _gathering(client)


@contextmanager
def gather_configured(work: Path) -> Iterator[Once]:
    """The same, where tracing is set up."""
    with _clients(work) as (_, client), _recording(work):
        yield _gathering(client)


@contextmanager
def configure(work: Path) -> Iterator[Once]:
    """`configure()`, a rollout, `shutdown()`."""
    with _clients(work) as (client, _):

        def do(_number: int) -> None:
            with _recording(work), art_otel.rollout(name="x"):
                _ask(client)
            shutil.rmtree(work / ".art")

        yield _sync(do)


@contextmanager
def new_trajectories(work: Path) -> Iterator[Once]:
    """`NewTrajectories.take()` after each rollout, as a training loop does, and a new one each time."""
    with _clients(work) as (client, _):
        tracing = art_otel.configure(dir=work / ".art")
        new = art_otel.NewTrajectories(work / ".art" / "spool")

        def do(_number: int) -> None:
            with art_otel.rollout(name="x"):
                _ask(client)
            tracing.flush()
            assert len(new.take()) == 1
            assert art_otel.NewTrajectories(work / ".art" / "spool").take()

        yield _sync(do)
        tracing.shutdown()


class _Step(StepWiseRewardWorkflow):
    max_step_num = 2

    def step(self, step_num: int) -> bool:
        assert _ask(self.model)
        return step_num < 1

    def reward(self, exps: list, step_num: int) -> float:
        return float(len(exps) + step_num)


@contextmanager
def workflows(work: Path) -> Iterator[Once]:
    """Workflows with a reward a step."""
    with _clients(work) as (client, _), _recording(work):
        yield _sync(lambda _number: _Step(model=client).run())


@contextmanager
def receive(work: Path) -> Iterator[Once]:
    """A receiver in this process, one rollout, and its end."""

    async def do(number: int) -> None:
        async with art_otel.receive(listen="127.0.0.1:0", dir=work / ".art") as rollouts:
            await asyncio.to_thread(send, rollouts.url, request_of_rollout(number + 1))
            await asyncio.wait_for(anext(rollouts), 60)

    yield Once(do=do)


@contextmanager
def connect(work: Path) -> Iterator[Once]:
    """A connection to a receiver elsewhere, one rollout, and its end."""
    with serving(work / ".art") as server:

        async def do(number: int) -> None:
            await asyncio.to_thread(send, server.url, request_of_rollout(number + 1))
            async with art_otel.connect(server.url) as rollouts:
                await asyncio.wait_for(anext(rollouts), 60)

        yield Once(do=do)


@contextmanager
def serve(work: Path) -> Iterator[Once]:
    """Rollouts come to a receiver, and its consumer takes them: what counts is the receiver's process."""
    with serving(work / ".art") as server:
        assert server.process is not None

        async def do(number: int) -> None:
            numbers = range(number * 10 + 1, number * 10 + 11)
            for each in numbers:
                await asyncio.to_thread(send, server.url, request_of_rollout(each))
            async with art_otel.connect(server.url) as rollouts:
                for _ in numbers:
                    await asyncio.wait_for(anext(rollouts), 60)

        yield Once(do=do, process=server.process.pid)


@contextmanager
def gateway(work: Path) -> Iterator[Once]:
    """Agents ask through a gateway, whole, streamed and left in the middle: what counts is the gateway's process."""
    with ModelServer(work) as server:
        running = Running(work / ".art", server.url)
        running.start()

        async def do(number: int) -> None:
            url = f"{running.url}/rollout/r{number}"
            async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
                await _ask_async(client)
                await _ask_stream(client, "#words=50")
                await _ask_stream(client, "#words=50 #pace=0.01", leave_after=3)
            async with AsyncClient() as client:
                (await client.post(f"{url}/end", json={"reward": 1})).raise_for_status()

        try:
            yield Once(do=do, process=running.pid)
        finally:
            running.stop()


async def _ask_stream(client: AsyncOpenAI, text: str, leave_after: int | None = None) -> None:
    asked = client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}], stream=True)
    async with await asked as stream:
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == leave_after:
                return


def _make_spool(work: Path) -> Path:
    with _clients(work) as (client, _), _recording(work):
        for number in range(4):
            with art_otel.rollout(name="x", group_id=f"g{number % 2}"):
                _ask(client, f"#words=5 {number}")
                art_otel.reward(float(number))
    return work / ".art" / "spool"


@contextmanager
def convert(work: Path) -> Iterator[Once]:
    """A conversion in full, an incremental one beside it, reading, exporting and batches."""
    spool, out, growing = _make_spool(work), work / "out", work / "growing"

    def do(_number: int) -> None:
        art_otel.convert([spool], out)
        art_otel.convert([spool], growing, incremental=True)
        assert len(list(art_otel.read_trajectories(out))) == 4
        assert list(art_otel.batches(out, advantage="grpo"))
        assert list(art_otel.data.message_batches(out)) is not None
        shutil.rmtree(out)

    yield _sync(do)


@contextmanager
def view(work: Path) -> Iterator[Once]:
    """The page's server, two of its answers, and its end."""
    art_otel.convert([_make_spool(work)], work / "out")

    def do(_number: int) -> None:
        viewer = Viewer(Api(data=ViewedData([str(work / "out")])), Address("127.0.0.1", 0))
        viewer.start()
        try:
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            for url in (viewer.one_time_url(), viewer.url):
                with opener.open(url) as answer:
                    assert answer.status == 200
        finally:
            viewer.stop()

    yield _sync(do)


@contextmanager
def run_log(work: Path) -> Iterator[Once]:
    """A run log that is opened and written to at every step."""
    trajectories = list(art_otel.NewTrajectories(_make_spool(work)).take())

    def do(number: int) -> None:
        art_otel.RunLog("p", "m", work / "runs", report_metrics=[]).log(trajectories, "train", number)

    yield _sync(do)


@contextmanager
def spans_only(_work: Path) -> Iterator[Once]:
    """Gathering of a rollout whose spans are those of an app that has no client and no set-up."""

    @art_otel.rollout
    async def solve() -> None:
        with trace.get_tracer("app").start_as_current_span("work"):
            pass

    async def do(_number: int) -> None:
        await art_otel.gather_trajectory(solve())

    yield Once(do=do)


_ENTRIES = [
    *(rollouts, rollouts_async, gather, gather_configured, spans_only, configure, new_trajectories, workflows),
    *(receive, connect, serve, gateway, convert, view, run_log),
]
ENTRIES: dict[str, Callable[[Path], AbstractContextManager[Once]]] = {entry.__name__: entry for entry in _ENTRIES}
