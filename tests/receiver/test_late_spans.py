"""What another service sends after the rollout ended makes a revision, also where its spans do not name the rollout."""

import asyncio
import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import art_otel
from art_otel.trajectories import Trajectory
from tests.live.rotel import free_port
from tests.receiver.consuming import has_no_more

pytestmark = pytest.mark.long

TRACE = "ab" * 16


def span(span_id: str, name: str, parent: str, attributes: dict[str, str]) -> dict:
    return {
        "traceId": TRACE,
        "spanId": span_id,
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": "1000000000000000000",
        "endTimeUnixNano": "1000000001000000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }


def message(role: str, content: str) -> str:
    parts = [{"type": "text", "content": content}]
    return json.dumps([{"role": role, "parts": parts, "finish_reason": "stop"}])


async def export(url: str, one: dict, service: str = "app") -> None:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [one]}]}]}).encode()
    request = Request(f"{url}/v1/traces", body, {"Content-Type": "application/json"})
    await asyncio.to_thread(lambda: urlopen(request).read())


def test_late_spans_without_the_rollouts_id_are_a_revision(tmp_path):
    root = span("aa" * 8, "rollout r", "", {"art.rollout.id": "r", "art.rollout.spans.started": "0"})
    content = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": message("user", "Oslo?"),
        "gen_ai.output.messages": message("assistant", "Rain."),
    }
    call = span("bb" * 8, "chat m", "aa" * 8, content)
    first, again = asyncio.run(received_after(tmp_path, root, call))
    assert [(one.rollout_id, one.revision, len(one.calls)) for one in (first, again)] == [("r", 0, 0), ("r", 1, 1)]


async def received_after(folder: Path, *spans: dict, **options) -> list[Trajectory]:
    """What is handed out after each of the spans."""
    address = f"127.0.0.1:{free_port()}"
    trajectories: list[Trajectory] = []
    async with asyncio.timeout(60), art_otel.receive(listen=address, dir=folder, grace=0.5, **options) as rollouts:
        for one in spans:
            await export(f"http://{address}", one)
            trajectories.append(await anext(rollouts))
    return trajectories


def test_spans_of_other_services_do_not_stand_for_the_apps_own(tmp_path):
    """The count is that of the app's process; a rollout that has its number of spans by a server's is not whole."""
    address = f"127.0.0.1:{free_port()}"
    named = {"art.rollout.id": "r"}
    root = span("aa" * 8, "rollout r", "", {**named, "art.rollout.spans.started": "1"})
    own, others = (span(each * 8, "work", "aa" * 8, named) for each in ("bb", "cc"))

    async def run() -> tuple[Trajectory, bool]:
        async with asyncio.timeout(60), art_otel.receive(listen=address, dir=tmp_path, grace=3600) as rollouts:
            for one, service in ((root, "app"), (others, "server"), (own, "app")):
                early = await has_no_more(rollouts, 0.7)
                await export(f"http://{address}", one, service)
            return await anext(rollouts), early

    given, nothing_early = asyncio.run(run())
    assert nothing_early
    assert (given.rollout_id, given.revision, given.complete) == ("r", 0, True)


def test_each_trace_of_a_conversation_is_a_revision_of_one_rollout(tmp_path):
    """Across a restart too: what was handed out is in the index then, and no longer in memory."""

    def chat(turn: int) -> dict:
        texts = [part for earlier in range(1, turn) for part in (("user", f"q{earlier}"), ("assistant", f"a{earlier}"))]
        asked = [
            {"role": role, "parts": [{"type": "text", "content": text}]}
            for role, text in [*texts, ("user", f"q{turn}")]
        ]
        content = {
            "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": message("assistant", f"a{turn}"),
        }
        one = span(f"{turn:016x}", "chat m", "", {"gen_ai.operation.name": "chat", "session.id": "s1"} | content)
        start = 10**18 + turn * 10**10
        return one | {
            "traceId": f"{turn:032x}",
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(start + 10**9),
        }

    joining = {"rollout_attributes": ["session.id"]}
    found = asyncio.run(received_after(tmp_path, chat(1), chat(2), **joining))
    found += asyncio.run(received_after(tmp_path, chat(3), **joining))
    assert [(one.rollout_id, one.revision, len(one.calls)) for one in found] == [
        ("s1", 0, 1),
        ("s1", 1, 2),
        ("s1", 2, 3),
    ]
    assert [len(art_otel.histories(one)) for one in found] == [1, 1, 1]
