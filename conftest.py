"""How the tests are run: in parallel, laws on a few examples, and without what is marked; the last is said.

Each marker but `slow` says why a test is slow, and a test that has one of them is `slow` as well. pyproject.toml
leaves `slow` out, `-m` takes its place.
"""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.certificates import NO_CERTIFICATES

MARKERS = {
    "long": "takes more than a second or two by itself: laws over many conversions, processes, pages of examples",
    "trainer": "runs a trainer's own reader in an environment of its own (the first time it installs the trainer)",
    "install": "builds and installs in a fresh environment",
    "live": "traces real apps in environments of their own (the first time it installs the instrumentors)",
    "program": "runs one more program as a whole, for what few meet",
    "store": "runs a real S3 server in an environment of its own (the first time it installs the server)",
    "fuzz": "runs the fuzzer, or many more examples than a law needs every day",
    "kill": "kills processes many times",
    "browser": "opens the viewer's page in a real Chromium (`uv run --group browser`)",
    "ray": "runs a Ray of several nodes (`uv run --group ray`)",
    "real_server": "asks a real vLLM and llama.cpp in environments of their own (the first time it installs 7 GB)",
    "flood": "reads or writes as much as an ordinary test never has",
}

# Compiled modules are kept even where the environment says otherwise: each of hundreds of processes would compile anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No law has a deadline: tests are not for speed, and the machine may be busy. Examples are the same every time, so that
# what fails is what was changed; new ones are looked for by `.ci/full fuzz`.
settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=100, deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers; what is run daily asks nobody but this machine."""
    if config.option.markexpr == "not slow":
        os.environ.update(NO_CERTIFICATES)
    for name, why in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {why}")
    config.addinivalue_line("markers", "slow: has one of the other markers")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage among the modules and tests themselves: there are many, and none of them goes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what has any marker of ours, before pytest chooses by markers."""
    for item in items:
        if any(item.get_closest_marker(name) for name in MARKERS):
            item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Forget the rewards that were given to trajectories in hand: those of tests have the same few trace ids."""
    if (later := sys.modules.get("art_otel.trajectories.later_rewards")) is not None:
        later._by_trace.clear()  # noqa: SLF001 # for tests alone


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """No processes where only files or tests are named; else xdist decides."""
    return None if any(Path(path).is_dir() for path in config.args) else 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, and how it is run."""
    if config.option.markexpr == "not slow":
        kinds = ", ".join(MARKERS)
        terminalreporter.write_line(
            f"Left out: tests marked {kinds}; `uv run pytest -m slow` runs them, `-m trainer` one kind."
        )
