"""What an app or an agent traces itself, and asks through the gateway, is one rollout, and each call is there once."""

import subprocess
import sys
import time

import pytest

from tests.dumps import chat_span, make_span, request_of
from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.test_recording import chat
from tests.receiver.otlp import JSON, as_body, post


@pytest.mark.long
def test_a_call_that_an_app_traced_as_well_is_one_call_with_the_ids_of_the_gateway(tmp_path, address, monkeypatch):
    """The app asks for no tokens, the gateway does; the app tells the gateway its rollout in the baggage."""
    monkeypatch.setenv("ART_OTEL_DIR", str(tmp_path))
    with gateway(tmp_path, address) as running:
        program = (
            "import openai, art_otel\n"
            "from opentelemetry.propagate import inject\n"
            "art_otel.configure()\n"
            "with art_otel.rollout(name='app'), openai.OpenAI(api_key='k', base_url=%r) as client:\n"
            "    tracer = __import__('opentelemetry.trace').trace.get_tracer('app')\n"
            "    for stream in (False, True):\n"
            "        with tracer.start_as_current_span('chat m', attributes={'gen_ai.operation.name': 'chat'}):\n"
            "            inject(headers := {})\n"
            "            answer = client.chat.completions.create(\n"
            "                model='m', messages=[{'role': 'user', 'content': 'Hi'}],"
            " extra_headers=headers, stream=stream)\n"
            "            list(answer) if stream else None\n"
            "    art_otel.reward(1.0)\n"
        )
        subprocess.run([sys.executable, "-c", program % f"{running.url}/v1"], check=True, timeout=60)
    (trajectory,) = recorded(tmp_path)
    assert (trajectory.name, trajectory.reward) == ("app", 1.0)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert len(trajectory.calls) == 2
    assert all(call.choices and call.choices[0].token_ids and call.prompt_token_ids for call in trajectory.calls)


TRACED_APP = """
import sys
import art_otel, httpx, openai
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased

sampler, instrumentor, passes_on = sys.argv[1:]
trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_ON if sampler == "on" else ParentBased(ALWAYS_OFF)))
art_otel.configure(instrumentor=instrumentor)

def pass_on(request):
    propagator = W3CBaggagePropagator() if passes_on == "baggage" else None
    propagator.inject(request.headers) if propagator else inject(request.headers)

hooks = {"request": [pass_on]} if passes_on != "nothing" else {}
with art_otel.rollout(name="app"), openai.OpenAI(http_client=httpx.Client(event_hooks=hooks)) as client:
    messages = [{"role": "user", "content": "Hi"}]
    for _ in range(2):
        message = client.chat.completions.create(model="m", messages=messages).choices[0].message
        messages += [message.model_dump(exclude_none=True), {"role": "user", "content": "Go on"}]
    art_otel.reward(1.0)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("sampler", "instrumentor", "passes_on"),
    [
        ("on", "openinference", "nothing"),  # it tells nobody of its span
        ("on", "genai-openai", "baggage"),
        ("off", "none", "nothing"),
        ("off", "openllmetry", "nothing"),
        ("off", "openinference", "both"),
        ("off", "none", "baggage"),
    ],
)
def test_an_app_s_rollout_is_one_whatever_its_sampler_drops(
    tmp_path, address, monkeypatch, sampler, instrumentor, passes_on
):
    with gateway(tmp_path, address) as running:
        monkeypatch.setenv("ART_OTEL_DIR", str(tmp_path))
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{running.url}/v1")
        subprocess.run([sys.executable, "-c", TRACED_APP, sampler, instrumentor, passes_on], check=True, timeout=60)
    (trajectory,) = recorded(tmp_path)
    assert (trajectory.name, trajectory.reward) == ("app", 1.0)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [turn.tokens_untrained for turn in trajectory.turns] == [None, None]
    assert all(turn.token_ids for turn in trajectory.turns)


def test_a_trace_that_nobody_records_is_no_rollout(tmp_path, address):
    """Its calls are those of a conversation; one of which an app says that it records it is that app's."""
    unsampled = f"00-{7:032x}-{2:016x}-00"
    with gateway(tmp_path, address) as running:
        chat(running.url, traceparent=unsampled, tracestate="vendor=1")
        chat(running.url, traceparent=unsampled, tracestate="vendor=1, art-otel=recorded")
    recorded_trace, conversation = sorted(recorded(tmp_path), key=lambda one: len(one.metadata))
    assert conversation.metadata == {"inferred": True}
    assert recorded_trace.rollout_id == f"{7:032x}"


def test_an_agent_that_sends_its_own_spans_has_each_call_once(tmp_path, address):
    """It is traced in any language, passes its trace on, and sends OTLP to the same address: no baggage, no path."""
    with gateway(tmp_path, address) as running:
        began = time.time_ns()
        answer = chat(running.url, traceparent=f"00-{7:032x}-{2:016x}-01")
        ended = time.time_ns()
        times = {"startTimeUnixNano": str(began), "endTimeUnixNano": str(ended)}
        said = {"gen_ai.response.id": answer["id"]}
        text = answer["choices"][0]["message"]["content"]
        root = make_span(
            1, trace=7, name="invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}, **times
        )
        call = chat_span(2, 1, ["Hi"], text, trace=7, attributes=said, **times)
        post(running.url, as_body(request_of(root, call), JSON), JSON)
    (trajectory,) = recorded(tmp_path)
    (recorded_call,) = trajectory.calls
    assert trajectory.complete, trajectory.incomplete_reasons
    assert recorded_call.span_id == f"{2:016x}"
    assert recorded_call.choices is not None
    assert recorded_call.choices[0].token_ids is not None
    assert [turn.tokens_untrained for turn in trajectory.turns] == [None]
