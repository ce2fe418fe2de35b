"""Every way in traces a program that knows nothing of it, once, and the variable alone decides."""

import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.tracing.setup.programs import ASK, CALL, SCRIPTS, asking, clean_environment, run_code, run_command

ON = {"ART_OTEL_ENABLED": "1", "OTEL_TRACES_EXPORTER": "none"}
OTEL = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none", "ART_OTEL_INSTRUMENTOR": "openllmetry"}

RUN = [SCRIPTS / "art-otel", "run", "--"]
INSTRUMENT = [SCRIPTS / "opentelemetry-instrument"]

ONE_CALL = ["openai.chat", "rollout app.py"]


@pytest.fixture
def app(tmp_path) -> Path:
    script = tmp_path / "app.py"
    script.write_text(ASK)
    return script


@pytest.mark.parametrize("value", ["", "0", "perhaps"])
def test_without_the_variable_nothing_happens(tmp_path, value):
    code = f"import art_otel, sys{CALL}print('opentelemetry.sdk' in sys.modules)"
    found = run_code(tmp_path, code, ART_OTEL_ENABLED=value)
    assert (found.spans, found.output) == ([], "False\n")
    assert ("ART_OTEL_ENABLED" in found.errors) == (value == "perhaps")
    assert not (tmp_path / ".art").exists()


def test_it_is_said_once_that_otel_itself_is_off(tmp_path):
    script = tmp_path / "app.py"
    script.write_text(f"import art_otel{CALL}{CALL}")
    found = run_command(tmp_path, *RUN, sys.executable, script, OTEL_SDK_DISABLED="true")
    assert (found.code, found.spans) == (0, [])
    assert found.errors == "art-otel: nothing is recorded: OTel makes no span while OTEL_SDK_DISABLED=true is set\n"


@pytest.mark.long
def test_run_traces_a_script(app, server):
    found = run_command(app.parent, *RUN, sys.executable, app, ART_OTEL_INSTRUMENTOR="openllmetry", **asking(server))
    assert (found.code, found.ended) == (0, ONE_CALL), found.errors


def test_run_traces_a_module_and_what_it_starts_elsewhere(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "child.py").write_text(CALL)
    (tmp_path / "module.py").write_text(
        f"import subprocess, sys{CALL}subprocess.run([sys.executable, '../child.py'], cwd='elsewhere', check=True)"
    )
    found = run_command(tmp_path, *RUN, sys.executable, "-m", "module", **ON)
    assert found.ended == ["chat m", "chat m", "rollout child.py", "rollout module.py"]


def test_the_exit_code_and_the_arguments_are_the_program_s(tmp_path):
    code = "import sys; print(sys.argv[1:], sys.path[0] == '', sys.stdin.read()); sys.exit(7)"
    command = [str(word) for word in [*RUN, sys.executable, "-c", code, "--json", "--", "-x"]]
    environment = clean_environment()
    done = subprocess.run(
        command, env=environment, input="in", capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (7, "['--json', '--', '-x'] True in\n")


def test_signals_reach_the_program(tmp_path):
    command = [str(word) for word in [*RUN, sys.executable, "-c", f"{CALL}\nprint('ready', flush=True)\ninput()"]]
    with subprocess.Popen(
        command,
        env=clean_environment(),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(10) == -signal.SIGTERM


def test_the_program_finds_its_own_sitecustomize_and_path(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.own_was_here = __file__")
    code = f"import sys{CALL}print(sys.own_was_here, [entry for entry in sys.path if 'startup' in entry])"
    found = run_command(
        tmp_path, *RUN, sys.executable, "-c", code, **ON, PYTHONPATH=f"{own}:{clean_environment()['PYTHONPATH']}"
    )
    assert found.output == f"{own / 'sitecustomize.py'} []\n"
    assert found.ended == ["chat m", "rollout -c"]


def test_a_program_of_another_environment_says_that_it_is_not_traced(tmp_path):
    other = tmp_path / "other"
    venv.create(other, with_pip=False, symlinks=True)
    code = "import subprocess, sys; print(subprocess.run([sys.executable, '-c', ''], stderr=-1, check=True).stderr)"
    found = run_command(tmp_path, *RUN, other / "bin" / "python", "-c", code, PYTHONPATH="")
    assert found.code == 0
    assert "not traced" in found.errors
    assert found.output == "b''\n", "what it starts says nothing"


@pytest.mark.long
def test_opentelemetry_instrument_traces_through_the_entry_points(app, server):
    found = run_command(app.parent, *INSTRUMENT, sys.executable, app, **ON, **OTEL, **asking(server))
    assert set(found.ended) >= set(ONE_CALL), found.errors
    assert found.ended.count("rollout app.py") == 1


@pytest.mark.program
def test_opentelemetry_instrument_without_the_variable_is_left_alone(app, server):
    settings = {**OTEL, **asking(server), "OTEL_TRACES_EXPORTER": "none"}
    found = run_command(app.parent, *INSTRUMENT, sys.executable, app, **settings)
    assert (found.code, found.spans) == (0, []), found.errors


@pytest.mark.program
@pytest.mark.parametrize("command", [[*RUN, *INSTRUMENT], [*INSTRUMENT, *RUN]])
def test_two_ways_at_once_are_one(app, server, command):
    settings = {**ON, **OTEL, **asking(server)}
    alone = run_command(app.parent, *INSTRUMENT, sys.executable, app, **settings, ART_OTEL_DIR=str(app.parent / "a"))
    both = run_command(app.parent, *command, sys.executable, app, **settings, ART_OTEL_DIR=str(app.parent / "b"))
    assert both.ended == alone.ended != [], both.errors


def test_a_fault_of_ours_does_not_stop_the_program(tmp_path):
    (tmp_path / "wrapt.py").write_text("register_post_import_hook = None\nwrap_function_wrapper = None")
    found = run_command(tmp_path, sys.executable, "-c", "import art_otel; print('runs')", **ON)
    assert (found.code, found.output) == (0, "runs\n")
    assert "the app continues" in found.errors


@pytest.mark.long
@pytest.mark.parametrize(
    ("instrumentor", "name"),
    [
        pytest.param("openllmetry", "openai.chat", marks=pytest.mark.program),
        ("genai-openai", "chat m"),
        ("openinference", "ChatCompletion"),
    ],
)
def test_each_instrumentor_can_be_chosen(tmp_path, server, instrumentor, name):
    found = run_code(tmp_path, f"import art_otel{ASK}", **ON, **asking(server), ART_OTEL_INSTRUMENTOR=instrumentor)
    assert (found.ended, found.errors) == (sorted([name, "rollout app.py"]), "")
    assert "hello" in str(found.spans)
