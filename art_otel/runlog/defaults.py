"""RunDefaults: where the run logs of a process lie when the app has said so in code.

Invariant: there is one a process, of `art_otel.configure()`. It stands between what a run log is given and the
environment; None is what nobody said.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDefaults:
    """The project, the model and the folder of all run logs."""

    project: str | None = None
    model: str | None = None
    dir: Path | None = None


_in_use = RunDefaults()


def use_run_defaults(defaults: RunDefaults) -> None:
    """Make them those of the process."""
    global _in_use  # noqa: PLW0603 # one a process, as the settings are
    _in_use = defaults


def run_defaults() -> RunDefaults:
    """The defaults of this process."""
    return _in_use
