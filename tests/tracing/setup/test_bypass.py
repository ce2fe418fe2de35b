"""An app gets from the client what it gets without art-otel, also where OpenLLMetry would give it other things."""

import pytest

from tests.conversions import convert_files
from tests.tracing.setup.programs import asking, run_code

pytestmark = pytest.mark.long

APP = """
import art_otel, asyncio
from collections.abc import AsyncIterator, Iterator
from openai import AsyncOpenAI, OpenAI

messages = [{"role": "user", "content": "hello"}]
client = OpenAI()

def kind(stream):
    has = [hasattr(stream, name) for name in ("__enter__", "__aenter__", "close", "response")]
    return isinstance(stream, Iterator), isinstance(stream, AsyncIterator), *has, type(stream).__name__

for create, asked in [
    (client.chat.completions.create, {"messages": messages}),
    (client.responses.create, {"input": "hello"}),
    (client.completions.create, {"prompt": "hello"}),
]:
    with create(model="m", stream=True, **asked) as stream:
        print(kind(stream), len(list(stream)))
    raw = create(model="m", stream=True, **asked, extra_headers={"x-stainless-raw-response": "true"})
    print(len(list(raw.parse())))

async def ask():
    client = AsyncOpenAI()
    for create, asked in [
        (client.chat.completions.create, {"messages": messages}),
        (client.responses.create, {"input": "hello"}),
        (client.completions.create, {"prompt": "hello"}),
    ]:
        stream = await create(model="m", stream=True, **asked)
        print(kind(stream), len([one async for one in stream]))
        await stream.close()

asyncio.run(ask())
print(client.chat.completions.create(model="m", messages=(one for one in messages)).choices[0].message.content)
"""
CALLS = """
list(OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}], stream=True))
OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
"""
BY_APP = """
import art_otel
from openai import OpenAI
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
OpenAIInstrumentor().instrument()
"""


def test_streams_and_generators_are_the_client_s_own(tmp_path, server):
    before = len(server.exchanges())
    without = run_code(tmp_path, APP, ART_OTEL_ENABLED="0", **asking(server))
    asked = server.exchanges()[before:]
    found = run_code(tmp_path, APP, ART_OTEL_ENABLED="1", **asking(server))
    assert (found.output, without.errors) == (without.output, "")
    assert [one.body for one in server.exchanges()[before + len(asked) :]] == [one.body for one in asked]
    calls = [name for name in found.ended if not name.startswith("rollout ")]
    assert len(calls) == len(asked), found.errors


@pytest.mark.parametrize(
    ("head", "setting", "names"),
    [
        ("import art_otel\nfrom openai import OpenAI", {}, ["chat m", "openai.chat"]),
        (
            "import art_otel\nfrom openai import OpenAI",
            {"ART_OTEL_INSTRUMENTOR": "openllmetry"},
            ["openai.chat", "openai.chat"],
        ),
        (BY_APP, {}, ["openai.chat", "openai.chat"]),
    ],
    ids=["chosen by art-otel", "named", "started by the app"],
)
def test_only_an_instrumentor_that_art_otel_has_chosen_is_gone_around(tmp_path, server, head, setting, names):
    found = run_code(tmp_path, f"{head}\n{CALLS}", ART_OTEL_ENABLED="1", **setting, **asking(server))
    assert found.ended == [*names, "rollout app.py"], found.errors


def test_what_was_named_later_is_no_longer_gone_around(tmp_path, server):
    head = "import art_otel\nfrom openai import OpenAI\nart_otel.configure(instrumentor='openllmetry')"
    found = run_code(tmp_path, f"{head}\n{CALLS}", ART_OTEL_ENABLED="1", **asking(server))
    assert found.ended == ["openai.chat", "openai.chat", "rollout app.py"], found.errors


IN_A_CALL_SPAN = """
import art_otel
from openai import OpenAI
from opentelemetry import trace

@art_otel.rollout
def agent():
    about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    with trace.get_tracer("app").start_as_current_span("ask", attributes=about):
        OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])

agent()
"""


def test_a_call_span_of_the_app_without_a_prompt_costs_no_prompt(tmp_path, server):
    run_code(tmp_path, IN_A_CALL_SPAN, ART_OTEL_ENABLED="1", **asking(server))
    ((trajectory,), _) = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    (call,) = trajectory.calls
    assert [message.content for message in call.input_messages] == ["hello"]
    assert trajectory.complete
