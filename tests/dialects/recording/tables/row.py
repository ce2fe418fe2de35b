"""Row: how one recording is made.

Invariant: a row and the table of the newest releases say all that decides a recording: packages, program, recorder,
settings, and the day that pins what the packages require themselves.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tests.dialects.recording.tables.newest import BEFORE, DAY, NODE, PYTHON


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """`run` is a program of `programs/` with its arguments; an `.mjs` one runs in Node.

    A package of `requires` without a version is its newest release. No package is newer than `day`.
    """

    requires: tuple[str, ...]
    run: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    day: str = DAY

    @property
    def pins(self) -> tuple[str, ...]:
        """`requires`, each with its version."""
        releases, sign = (NODE, "@") if self.run[0].endswith(".mjs") else (PYTHON, "==")
        return tuple(one if sign in one[1:] else f"{one}{sign}{releases[package_of(one)]}" for one in self.requires)


def before(row: Row) -> Row:
    """The row with the release before of each package that has one in the table."""
    sign = "@" if row.run[0].endswith(".mjs") else "=="
    earlier = (f"{one}{sign}{BEFORE[package_of(one)]}" if package_of(one) in BEFORE else one for one in row.requires)
    return replace(row, requires=tuple(earlier))


def package_of(required: str) -> str:
    """What is required, without its extras; with its version if it has one."""
    return re.sub(r"\[.*]", "", required)


def sdk(version: str | None = None) -> tuple[str, ...]:
    """OTel's SDK and its exporter; without a version the newest."""
    packages = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
    return packages if version is None else tuple(f"{package}=={version}" for package in packages)


CONTENT: Final = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
ON_SPANS: Final = {
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
}
ANTHROPIC_CONTENT: Final = {"ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content"}
