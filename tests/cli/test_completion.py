"""A real bash completes verbs, options and their choices."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from art_otel.exporting import installed_exporters
from tests.examples import daily

EXPORTERS = [one.name for one in installed_exporters()]

# What bash does when a tab is pressed, from the script that argcomplete prints.
PROGRAM = """
eval "$(register-python-argcomplete art-otel)"
complete -p art-otel > /dev/null
COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete art-otel "${1##* }"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "words"),
    daily(
        [
            ("art-otel co", {"compact", "convert"}),
            ("art-otel convert --en", {"--engine"}),
            ("art-otel convert --engine ", {"local", "ray"}),
            ("art-otel export --credit s", {"step_reward"}),
            ("art-otel export out --to t", {name for name in EXPORTERS if name.startswith("t")}),
            ("art-otel export --to tri", {"trinity"}),
            ("art-otel show no-such-file", set()),
        ],
        one_in=4,
    ),
)
def test_bash_completes(line, words, tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [bash, "-c", PROGRAM, "bash", line]
    done = subprocess.run(
        command, env=os.environ | {"PATH": path}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert {word.strip() for word in done.stdout.splitlines() if word.strip()} == words
