"""tinker-cookbook in an environment of its own, and the programs that run there."""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
WANTED = (
    "torch==2.13.0",
    *("numpy>=1.26", "anyio>=4", "httpx[http2]<1", "pydantic>=2,<3", "orjson>=3.10", "protobuf>=5,<7"),
    *("pyqwest>=0.4.1", "sniffio>=1.3", "distro>=1.7", "click>=8", "zstandard>=0.24", "chz>=0.4", "pillow>=10"),
    *("cloudpickle>=3", "termcolor>=2", "tqdm>=4.60", "rich>=13.7", "blobfile>=3", "datasets>=2.14"),
    *("jiter>=0.8", "msgspec>=0.22", "wrapt>=1.14", "opentelemetry-sdk>=1.37", "opentelemetry-proto>=1.37"),
    "opentelemetry-instrumentation>=0.58b0",
)
"""What the cookbook's rollouts import, and art-otel's tracing; its tokenizers would bring transformers."""
RELEASES = (("tinker==0.38.0", "tinker-cookbook==0.6.1"), ("tinker==0.36.0", "tinker-cookbook==0.5.8"))
"""The newest of both, and the ones before."""


def run(python: Path, script: str, *arguments: object) -> dict:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ART_OTEL_"))}
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "exporters" / "tinker")))
    command = [str(part) for part in (python, Path(__file__).with_name(script), *arguments)]
    done = subprocess.run(command, env=clean | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "art-otel:" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])
