"""`art-otel doctor`: what it finds in an environment, and in sources."""

import json
from dataclasses import replace
from importlib.metadata import Distribution, EntryPoint, version

import pytest

from art_otel.cli import main
from art_otel.tracing.sdk.rollout_registry import FRAMEWORKS
from art_otel.tracing.setup.clients import OPENAI_INSTRUMENTORS
from art_otel.tracing.setup.doctor import Environment, Probe, inspect_environment, probe, run_checks
from art_otel.tracing.setup.instrument import InstalledInstrumentor
from art_otel.tracing.setup.settings import read_settings
from tests.conversions import RECORDINGS
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.tracing.setup.programs import clean_environment

ON = {"ART_OTEL_ENABLED": "1", "ART_OTEL_DIR": "/tmp/art", "ART_OTEL_INSTRUMENTOR": "openllmetry"}


@pytest.fixture(scope="module")
def here() -> Environment:
    """This environment."""
    return inspect_environment(clean_environment(**ON))


def checks(here: Environment, environ=None, **seen) -> list[tuple[str, str, str]]:
    """What is found here under other variables, or where other things were seen."""
    settings, problems = read_settings(environ or ON, {})
    about = replace(here, **{"environ": environ or ON, "settings": settings, "problems": problems, **seen})
    return [(check.name, check.level, check.text) for check in run_checks(about)]


def doctor(capsys, *arguments) -> tuple[int, str]:
    code = main(["doctor", *(str(argument) for argument in arguments)])
    return code, capsys.readouterr().out


def lines_of(out: str, name: str) -> list[str]:
    return [line for line in out.splitlines() if line.split()[1] == f"{name}:"]


@pytest.mark.long
def test_an_environment_that_is_fine(here):
    found = checks(here)
    fine = {name for name, level, _ in found if level == "ok"}
    assert {"enabled", "client", "instrumentor", "content", "spool", "probe"} <= fine
    assert not [text for _, level, text in found if level == "problem"]


@pytest.mark.parametrize(
    ("settings", "name", "level", "text"),
    [
        ({}, "enabled", "note", "ART_OTEL_ENABLED is not set"),
        ({"ART_OTEL_ENABLED": "0"}, "enabled", "problem", "turns tracing off"),
        ({"OTEL_SDK_DISABLED": "true"}, "enabled", "problem", "OTEL_SDK_DISABLED"),
        ({"ART_OTEL_GRACE_SECONDS": "x"}, "settings", "warning", "2.0 is used"),
        ({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "openai"}, "instrumentor", "problem", "no LLM call is recorded"),
        ({"ART_OTEL_INSTRUMENTOR": "none"}, "instrumentor", "note", "get spans of art-otel"),
        ({"ART_OTEL_INSTRUMENTOR": "openai-v2"}, "instrumentor", "warning", "openai-v2 is not installed"),
        ({"ART_OTEL_CAPTURE_CONTENT": "0"}, "content", "warning", "nothing can be learned"),
        ({"TRACELOOP_TRACE_CONTENT": "false"}, "content", "warning", "TRACELOOP_TRACE_CONTENT=false"),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "100"}, "limits", "problem", "cuts messages"),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "128"}, "limits", "warning", "keep 128 attributes"),
        ({"OTEL_TRACES_EXPORTER": "nowhere"}, "exporters", "warning", "nowhere is asked for and not installed"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "exporters", "ok", "spans go to console"),
        ({"ART_OTEL_SPOOL": "0"}, "spool", "warning", "lost when the program is killed"),
        ({"ART_OTEL_SPOOL": "/proc/nobody/here"}, "spool", "problem", "cannot be written"),
    ],
)
def test_variables_that_turn_something_off_or_cost_something(here, settings, name, level, text):
    found = checks(here, settings or {"UNSET": ""})
    assert [told for known, at, told in found if (known, at) == (name, level) and text in told], found


def test_which_instrumentors_there_are(here):
    one = here.instrumentors[0]
    assert ("instrumentor", "warning") in [check[:2] for check in checks(here, instrumentors=[one, one])]
    missing = [text for name, _, text in checks(here, instrumentors=[]) if name == "instrumentor"]
    assert missing == [
        "none is installed for openai: calls get spans of art-otel; pip install opentelemetry-instrumentation-openai"
    ]


@pytest.mark.parametrize(
    ("setting", "level", "advice"),
    [("auto", "note", "streams get spans of art-otel"), ("openllmetry", "warning", "set ART_OTEL_INSTRUMENTOR=none")],
)
def test_what_an_instrumentor_breaks_is_told_with_the_choice(here, setting, level, advice):
    found = checks(here, {**ON, "ART_OTEL_INSTRUMENTOR": setting})
    (text,) = [text for name, at, text in found if (name, at) == ("instrumentor", level) and "instructor" in text]
    assert advice in text


def test_openinference_needs_a_higher_limit_in_a_provider_of_the_app(here):
    one = InstalledInstrumentor(kind="openinference", entry_point=here.instrumentors[0].entry_point)
    environ = {**ON, "ART_OTEL_INSTRUMENTOR": "auto"}
    found = checks(here, environ, instrumentors=[one])
    assert [text for name, level, text in found if (name, level) == ("limits", "note") and "of the app" in text], found


def test_no_client_is_a_problem(here):
    assert ("client", "problem") in [check[:2] for check in checks(here, clients={})]


@pytest.mark.parametrize(
    ("module", "level", "extra"),
    [("anthropic", "warning", "art-otel[anthropic]"), ("boto3", "note", "art-otel[bedrock]")],
)
def test_a_client_without_an_instrumentor_is_told_its_extra(here, module, level, extra):
    found = checks(here, clients={module: "1.0"}, instrumentors=[])
    assert [text for name, at, text in found if (name, at) == ("instrumentor", level) and extra in text], found


def test_a_client_with_an_instrumentor_is_fine(here):
    value = "opentelemetry.instrumentation.anthropic:AnthropicInstrumentor"
    one = InstalledInstrumentor(kind=None, entry_point=EntryPoint("anthropic", value, "opentelemetry_instrumentor"))
    found = checks(here, clients={"anthropic": "2.12"}, instrumentors=[one])
    assert [text for name, level, text in found if (name, level) == ("instrumentor", "ok") and value in text], found
    environ = ON | {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "anthropic"}
    found = checks(here, environ, clients={"anthropic": "2.12"}, instrumentors=[one])
    assert [text for _, level, text in found if level == "warning" and "no call of anthropic" in text], found


def test_an_instrumentor_that_refuses_the_installed_client_is_told(here, tmp_path):
    """As OpenTelemetry's of google-genai refuses version 3, and its first ones of openai the one that is here."""
    folder = tmp_path / "old-1.dist-info"
    folder.mkdir()
    value = OPENAI_INSTRUMENTORS["genai-openai"] + ":OpenAIInstrumentor"
    (folder / "METADATA").write_text("Name: old\nVersion: 1\nRequires-Dist: openai<3; extra == 'instruments'\n")
    (folder / "entry_points.txt").write_text(f"[opentelemetry_instrumentor]\nopenai = {value}\n")
    (entry_point,) = Distribution.at(folder).entry_points
    one = InstalledInstrumentor(kind="genai-openai", entry_point=entry_point)
    environ = {**ON, "ART_OTEL_INSTRUMENTOR": "auto"}
    (text,) = [text for name, level, text in checks(here, environ, instrumentors=[one]) if level == "warning"]
    assert f"genai-openai instruments openai<3 only, and openai {version('openai')} is installed: " in text
    usable = here.instrumentors[0]
    found = checks(here, environ, instrumentors=[usable, one])
    assert [level for name, level, _ in found if (name, level) == ("instrumentor", "warning")] == []


def test_a_distro_without_its_exporter_starts_nothing(here):
    found = checks(here, has_distro=True, exporters=frozenset())
    assert "start nothing at all" in [text for name, _, text in found if name == "exporters"][-1]


@pytest.mark.parametrize(
    ("seen", "level", "text"),
    [
        (Probe(lines=0, active=["openllmetry"], messages=[]), "problem", "did not reach the spool"),
        (Probe(lines=3, active=[], messages=[]), "warning", "nothing instruments"),
        (Probe(lines=3, active=["openllmetry"], messages=["openai has no OpenAI"]), "warning", "no OpenAI"),
    ],
)
def test_what_a_new_process_meets(here, seen, level, text):
    found = checks(here, probe=seen)
    assert [told for name, at, told in found if (name, at) == ("probe", level) and text in told]


def test_the_probe_is_a_real_process(here):
    assert here.probe == Probe(lines=here.probe.lines, active=["openllmetry"], messages=[])
    assert here.probe.lines > 1


@pytest.mark.program
def test_the_probe_needs_no_spool():
    found = probe(clean_environment(ART_OTEL_SPOOL="0", ART_OTEL_INSTRUMENTOR="openllmetry"))
    assert found == Probe(lines=found.lines, active=["openllmetry"], messages=[])
    assert found.lines > 1


def test_a_probe_that_cannot_run_says_so():
    found = probe(clean_environment(PYTHONHOME="/nowhere"))
    assert (found.lines, found.active) == (0, [])
    assert found.messages


@pytest.mark.program
def test_findings_as_text(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ART_OTEL_ENABLED", "0")
    code, out = doctor(capsys)
    assert (code, "FAIL  enabled: ART_OTEL_ENABLED=0 turns tracing off" in out) == (1, True)


@pytest.mark.long
def test_findings_as_json(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ART_OTEL_ENABLED", "0")
    code, out = doctor(capsys, "--json")
    told = json.loads(out)
    assert (code, told["ok"]) == (1, False)
    assert {"enabled", "client", "probe", "autoload"} <= {finding["name"] for finding in told["findings"]}


def test_sources_that_are_fine(capsys):
    code, out = doctor(capsys, RECORDINGS / "genai_span" / "sync_tools.jsonl")
    assert code == 0
    assert "1 rollout (1 complete)" in out


def test_why_a_rollout_is_incomplete_or_empty(tmp_path, capsys):
    spans = [
        make_span(1, name="rollout empty", attributes={"art.rollout.id": "empty"}),
        {**make_span(2, name="rollout killed", attributes={"art.rollout.id": "killed"}), "traceId": f"{2:032x}"},
        {**chat_span(3, 2, ["a"], "b"), "traceId": f"{2:032x}"},
    ]
    del spans[1]["endTimeUnixNano"]
    dump = write_lines(tmp_path / "dump.jsonl", [request_of(span) for span in spans])
    code, out = doctor(capsys, dump)
    assert code == 0
    (empty,) = [line for line in lines_of(out, "rollout") if "empty (empty): no LLM call is in it" in line]
    assert "art_otel.in_context(function)" in empty, "calls in threads are the usual reason"
    assert any("killed (killed): not ended (1)" in line for line in lines_of(out, "rollout"))


def test_sources_without_any_call_are_a_problem_with_a_hint(tmp_path, capsys):
    dump = write_lines(tmp_path / "dump.jsonl", [request_of(make_span(1, name="GET /"))])
    code, out = doctor(capsys, dump)
    assert code == 1
    assert "was one installed and active?" in lines_of(out, "hint")[0]


def test_damaged_and_unreadable_sources_are_named(tmp_path, capsys):
    dump = write_lines(tmp_path / "dump.jsonl", [request_of(chat_span(1, None, ["a"], "b"))])
    with dump.open("a") as file:
        file.write('{"resourceSpans": [{"sco')
    (tmp_path / "other.txt").write_text("nothing of ours")
    code, out = doctor(capsys, dump, tmp_path / "other.txt")
    assert code == 1
    assert "torn" in lines_of(out, "quarantined")[0]
    assert "other.txt" in lines_of(out, "unread")[0]


def test_a_long_list_is_cut(tmp_path, capsys):
    spans = [
        {**make_span(n, name="rollout x", attributes={"art.rollout.id": f"r{n}"}), "traceId": f"{n:032x}"}
        for n in range(1, 31)
    ]
    _, out = doctor(capsys, write_lines(tmp_path / "dump.jsonl", [request_of(span) for span in spans]))
    assert len(lines_of(out, "rollout")) == 21
    assert "10 more" in lines_of(out, "rollout")[-1]


def test_a_framework_without_its_instrumentor_is_named(here):
    found = {text for name, _, text in checks(here, frameworks=FRAMEWORKS) if name == "requests"}
    assert len(found) == len({one.distribution for one in FRAMEWORKS} - {"starlette"})
    assert any("celery is installed and opentelemetry-instrumentation-celery is not" in text for text in found)


def test_a_framework_whose_tools_nothing_records_is_named(here):
    found = checks(here, clients={**here.clients, "agents": "1.0", "smolagents": "1.0"}, instrumentors=[])
    advice = [text for name, level, text in found if (name, level) == ("instrumentor", "note")]
    assert any("pip install openinference-instrumentation-openai-agents" in text for text in advice)
    assert any("pip install openinference-instrumentation-smolagents" in text for text in advice)


def test_a_framework_is_no_client(here):
    found = checks(here, clients={"agents": "1.0"})
    assert [level for name, level, text in found if name == "client" and "none of openai" in text] == ["problem"]
