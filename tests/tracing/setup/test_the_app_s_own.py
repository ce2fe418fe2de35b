"""What the app sets up itself is used as it is: its provider, its sampler, its exporters, its instrumentor."""

import pytest

from tests.tracing.setup.programs import ASK, CALL, asking, run_code

ON = {"ART_OTEL_ENABLED": "1"}

PROVIDER = """
import logging
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
theirs = InMemorySpanExporter()
def make_provider(**options):
    provider = TracerProvider(resource=Resource({"service.name": "theirs"}), **options)
    provider.add_span_processor(SimpleSpanProcessor(theirs))
    return provider
def exported():
    return sorted(span.name for span in theirs.get_finished_spans())
"""


def test_a_provider_set_before(tmp_path):
    code = f"{PROVIDER}trace.set_tracer_provider(make_provider())\nimport art_otel{CALL}print(exported())"
    found = run_code(tmp_path, code, **ON)
    assert found.ended == ["chat m", "rollout app.py"]
    assert found.output == "['chat m']\n", "the own rollout ends with the process"


@pytest.mark.parametrize("between", ["", "early = trace.get_tracer('early')\n"])
def test_a_provider_set_after_is_set_without_a_warning(tmp_path, between):
    code = (
        f"import art_otel{PROVIDER}{between}provider = make_provider()\ntrace.set_tracer_provider(provider)\n"
        f"assert trace.get_tracer_provider() is provider{CALL}print(exported())"
    )
    found = run_code(tmp_path, code, **ON)
    assert (found.output, found.errors) == ("['chat m']\n", "")
    assert found.ended == ["chat m", "rollout app.py"]


def test_an_app_may_still_set_its_own_after_the_first_span_and_tracers_move_over(tmp_path):
    code = f"""import art_otel{PROVIDER}
tracer = trace.get_tracer("openai.test")
chat = {{"gen_ai.operation.name": "chat"}}
with tracer.start_as_current_span("chat before", attributes=chat):
    pass
trace.set_tracer_provider(make_provider())
with tracer.start_as_current_span("chat after", attributes=chat):
    pass
print(exported())"""
    found = run_code(tmp_path, code, **ON)
    assert (found.output, found.errors) == ("['chat after']\n", "")
    assert found.ended == ["chat after", "chat before", "rollout app.py"]


def test_a_second_provider_of_the_app_is_refused_as_without_us(tmp_path):
    code = f"import art_otel{PROVIDER}" + "trace.set_tracer_provider(make_provider())\n" * 2
    assert "Overriding of current TracerProvider is not allowed" in run_code(tmp_path, code, **ON).errors


def test_otel_s_variable_for_a_provider_holds(tmp_path):
    code = f"import art_otel{CALL}print(type(trace.get_tracer_provider()).__module__)"
    found = run_code(tmp_path, code, **ON, OTEL_PYTHON_TRACER_PROVIDER="sdk_tracer_provider")
    assert found.output == "opentelemetry.sdk.trace\n"
    assert found.ended == ["chat m", "rollout app.py"]


def test_its_sampler_decides_what_is_exported_and_rollouts_are_recorded_all_the_same(tmp_path):
    code = f"""{PROVIDER}
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
provider = make_provider(sampler=ALWAYS_OFF)
trace.set_tracer_provider(provider)
early = trace.get_tracer("openai.early")
import art_otel
with early.start_as_current_span("rollout r", attributes={{"art.rollout.id": "r"}}):
    {CALL.strip().replace(chr(10), chr(10) + "    ")}
with early.start_as_current_span("other"):
    pass
with early.start_as_current_span("request"):
    {CALL.strip().replace(chr(10), chr(10) + "    ")}
print(exported())"""
    found = run_code(tmp_path, code, **ON)
    assert found.output == "[]\n"
    assert found.ended == ["chat m", "chat m", "request", "rollout r"]


def test_its_exporters_see_what_is_scrubbed(tmp_path):
    code = f"""{PROVIDER}
theirs.export = lambda spans: print([span.attributes["gen_ai.input.messages"] for span in spans])  # as they come
trace.set_tracer_provider(make_provider())
import art_otel
chat = {{"gen_ai.operation.name": "chat"}}
with trace.get_tracer("openai.test").start_as_current_span("chat m", attributes=chat) as span:
    span.set_attribute("gen_ai.input.messages", "my key is gsk_{"a1B2cD3e" * 6}wxyz")"""
    output = run_code(tmp_path, code, **ON).output
    assert "my key is" in output
    assert "a1B2" not in output


@pytest.mark.long
def test_its_instrumentor_is_the_one_in_use(tmp_path, server):
    code = f"""import art_otel
import openai
{PROVIDER}
provider = make_provider()
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
OpenAIInstrumentor().instrument(tracer_provider=provider)
{ASK}print(exported())"""
    found = run_code(tmp_path, code, **ON, **asking(server), ART_OTEL_INSTRUMENTOR="openllmetry")
    assert found.output == "['openai.chat']\n", "a provider that is not the global one"
    assert found.ended == ["openai.chat", "rollout app.py"], found.errors
    assert "already instrumented" not in found.errors
    assert "art.response.choices" in str(found.spans), "and its call is captured"


@pytest.mark.program
def test_its_instrumentor_is_given_a_provider_that_is_still_to_be_set(tmp_path, server):
    code = f"""import art_otel{PROVIDER}
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
OpenAIInstrumentor().instrument(tracer_provider=trace.get_tracer_provider())
trace.set_tracer_provider(make_provider())
{ASK}print(exported())"""
    found = run_code(tmp_path, code, **ON, **asking(server))
    assert (found.output, found.errors) == ("['openai.chat']\n", "")
    assert found.ended == ["openai.chat", "rollout app.py"]


@pytest.mark.program
def test_an_instrumentor_that_was_there_before_stays(tmp_path, server):
    code = f"""from opentelemetry.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.instrumentation.openai.shared.config import Config
OpenAIInstrumentor(enrich_assistant=True).instrument()
import art_otel
{ASK}
assert Config.enrich_assistant"""
    found = run_code(tmp_path, code, **ON, **asking(server))
    assert (found.code, found.errors) == (0, "")
    assert found.ended == ["openai.chat", "rollout app.py"]


HANDING = """
class Handing(trace.TracerProvider):
    def __init__(self, provider):
        self.set_provider(provider)
    def set_provider(self, provider):
        self.provider = provider
    def get_tracer(self, *given, **named):
        return self.provider.get_tracer(*given, **named)
    def add_span_processor(self, processor):
        self.provider.add_span_processor(processor)
"""
"""As Logfire's provider."""


def test_a_provider_that_hands_to_the_sdk_s_is_used_as_that_one(tmp_path):
    code = f"""import art_otel{PROVIDER}{HANDING}
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
handing = Handing(make_provider(sampler=ALWAYS_OFF))
trace.set_tracer_provider(handing)
{CALL}
handing.set_provider(make_provider())
chat = {{"gen_ai.operation.name": "chat", "gen_ai.input.messages": "my key is gsk_{"a1B2cD3e" * 6}wxyz"}}
with trace.get_tracer("openai.test").start_as_current_span("chat again", attributes=chat):
    pass
print(exported(), [span.attributes["gen_ai.input.messages"] for span in theirs.get_finished_spans()])"""
    found = run_code(tmp_path, code, **ON)
    assert (found.output, found.errors) == ("['chat again'] ['my key is [scrubbed:groq key]']\n", "")
    assert found.ended == ["chat again", "chat m", "rollout app.py"]


@pytest.mark.long
def test_no_instrumentor_where_none_is_wanted(tmp_path, server):
    found = run_code(tmp_path, f"import art_otel{ASK}", **ON, **asking(server), ART_OTEL_INSTRUMENTOR="none")
    assert (found.code, found.errors) == (0, "")
    assert found.ended == ["chat m", "rollout app.py"], "the call has a span of ours"


@pytest.mark.long
def test_otel_s_variable_turns_recording_of_the_client_off(tmp_path, server):
    disabled = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "openai"}
    found = run_code(tmp_path, f"import art_otel{ASK}", **ON, **asking(server), **disabled)
    assert (found.code, found.spans, found.errors) == (0, [], "")


@pytest.mark.long
def test_a_wanted_instrumentor_that_is_not_installed_is_named(tmp_path, server):
    found = run_code(tmp_path, f"import art_otel{ASK}", **ON, **asking(server), ART_OTEL_INSTRUMENTOR="openai-v2")
    assert found.ended == ["chat m", "rollout app.py"]
    assert "openai-v2 is not installed" in found.errors


@pytest.mark.program
def test_content_off_reaches_the_instrumentor_and_what_the_user_has_set_stays(tmp_path, server):
    code = f"import art_otel, os{ASK}print(os.environ['TRACELOOP_TRACE_CONTENT'])"
    settings = {**ON, **asking(server), "ART_OTEL_INSTRUMENTOR": "openllmetry", "ART_OTEL_CAPTURE_CONTENT": "0"}
    found = run_code(tmp_path, code, **settings)
    assert found.output == "false\n"
    assert found.ended == ["openai.chat", "rollout app.py"]
    assert "hello" not in str(found.spans)
    found = run_code(tmp_path, code, **settings, TRACELOOP_TRACE_CONTENT="true")
    assert found.output == "true\n"
    assert "hello" not in str(found.spans)


@pytest.mark.program
@pytest.mark.parametrize(("given", "used"), [({}, "true"), ({"USE_OTEL_LITELLM_REQUEST_SPAN": "false"}, "false")])
def test_litellm_gives_each_call_a_span_of_its_own_unless_the_user_said_otherwise(tmp_path, given, used):
    code = "import art_otel, openai, os\nprint(os.environ['USE_OTEL_LITELLM_REQUEST_SPAN'])"
    assert run_code(tmp_path, code, **ON, **given).output == f"{used}\n"


IMPORTED_FIRST = "import art_otel\nfrom opentelemetry.instrumentation.openai import OpenAIInstrumentor\n"
"""OpenLLMetry imports the client before it has its class, so the client's hook finds it half imported."""


@pytest.mark.program
@pytest.mark.parametrize("choice", ["auto", "openllmetry"])
def test_where_an_instrumentor_is_imported_and_not_started_calls_have_spans_of_ours(tmp_path, server, choice):
    found = run_code(tmp_path, IMPORTED_FIRST + ASK, **ON, **asking(server), ART_OTEL_INSTRUMENTOR=choice)
    assert (found.code, found.errors) == (0, "")
    assert found.ended == ["chat m", "rollout app.py"]


@pytest.mark.program
def test_one_that_imports_the_client_itself_and_is_not_wanted_is_not_started(tmp_path, server):
    found = run_code(tmp_path, IMPORTED_FIRST + ASK, **ON, **asking(server), ART_OTEL_INSTRUMENTOR="openinference")
    assert (found.code, found.errors) == (0, "")
    assert found.ended == ["ChatCompletion", "rollout app.py"]


@pytest.mark.program
def test_the_app_s_is_used_where_it_imports_the_client_itself(tmp_path, server):
    code = f"""{IMPORTED_FIRST}{PROVIDER}
OpenAIInstrumentor().instrument(tracer_provider=make_provider())
{ASK}print(exported())"""
    found = run_code(tmp_path, code, **ON, **asking(server))
    assert (found.output, found.errors) == ("['openai.chat']\n", "")
    assert found.ended == ["openai.chat", "rollout app.py"]


def test_the_own_rollout_ends_before_the_provider_whenever_that_was_made(tmp_path):
    code = f"""import art_otel{CALL}{PROVIDER}
class Said(InMemorySpanExporter):
    def export(self, spans):
        print(*[span.name for span in spans], flush=True)
    def shutdown(self):
        print("shutdown", flush=True)
theirs = Said()
trace.set_tracer_provider(make_provider())
{CALL}"""
    found = run_code(tmp_path, code, **ON)
    assert found.output.splitlines()[-1] == "shutdown"
    assert found.ended == ["chat m", "chat m", "rollout app.py"]
