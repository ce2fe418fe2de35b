"""Conversion: `art-otel convert` as a function.

Invariant: it converts as the command does, with the same defaults and the same report.
"""

import os
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from art_otel.engines import Conversion, Times
from art_otel.engines import convert as run_conversion
from art_otel.errors import UsageError
from art_otel.scrubbing import Scrubbing, SecretRules

if TYPE_CHECKING:
    from art_otel.store import ConversionReport

SCRUBBINGS: Final[tuple[str, ...]] = get_args(Scrubbing)

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def seconds_of(text: str) -> float:
    """Read `90`, `90s`, `15m`, `2h` or `30d`. Raises UsageError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration: write 90s, 15m, 2h or 30d")
    return float(match[1]) * _UNITS[match[2]]


def since_ns(text: str | None) -> int | None:
    """The time (ns) of a date, or of a date with a time; of this machine's time zone where it names none.

    Raises UsageError.
    """
    if text is None:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp()) * 1_000_000_000
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--since {text}: is no date such as 2026-11-01 or 2026-11-01T12:00") from None


def chosen_secrets(scrub: str | None, patterns: Iterable[str]) -> SecretRules:
    """What is done to secrets in logs of agents: this, else what the variables say. Raises UsageError."""
    by_variable = os.environ.get("ART_OTEL_SCRUB_PATTERNS")
    chosen_patterns = tuple(patterns) or ((by_variable,) if by_variable else ())
    for pattern in chosen_patterns:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise UsageError(
                f"ART_OTEL_SCRUB_PATTERNS or --scrub-pattern {pattern!r}: is no regular expression ({error})"
            ) from None
    chosen = scrub or os.environ.get("ART_OTEL_SCRUB") or "on"
    if chosen not in SCRUBBINGS:
        raise UsageError(f"ART_OTEL_SCRUB or --scrub {chosen}: must be one of {', '.join(SCRUBBINGS)}")
    return SecretRules(mode=cast(Scrubbing, chosen), patterns=chosen_patterns)


def _several(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def convert(  # noqa: PLR0913 # one for each option of the command
    sources: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    format: str = "auto",  # noqa: A002 # the option's name
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    rollout_spans: Iterable[str] = (),
    rollout_attributes: str | Iterable[str] = (),
    incremental: bool = False,
    grace: str | float = "15m",
    retain: str | float = "30d",
    since: str | None = None,
    scrub: Scrubbing | None = None,
    scrub_patterns: Iterable[str] = (),
    rollout_traces: bool = False,
    token_facts: str | Iterable[str] = (),
    content: str | Path | Iterable[str | Path] = (),
    scratch: str | Path | None = None,
) -> "ConversionReport":
    """Convert span dumps into a Parquet dataset of trajectories, as `art-otel convert` does, and return its report.

    - `sources` are files, folders, globs or URLs, one or several. `out` is the dataset's folder or URL.
    - `format` names the format of the dumps; `auto` detects it by content.
    - `workers` is the number of processes. None is one for each processor, and fewer for little input. `engine="ray"`
      runs the work on the Ray at `ray_address`. None is the address in `RAY_ADDRESS`, or otherwise a new Ray.
    - `rollout_spans` are globs: a span with a matching name is a rollout, if no span of its trace has a rollout id.
    - `rollout_attributes` are names of attributes (`session.id`): traces that share the value of one are a rollout.
    - `incremental` reads only input that no earlier conversion into `out` has read. It adds the trajectories of
      rollouts that have ended, or of which no span came for `grace`. A span that comes later gives its trajectory
      again, as its next revision, until no span came for `retain`. Both are seconds, or times such as `15m` and `30d`.
    - `since` leaves out files that were last changed before that day (`2026-11-01`, or with a time).
    - `scrub` says what happens to secrets in logs of agents; None uses `ART_OTEL_SCRUB`. `scrub_patterns` are regular
      expressions of further secrets; the default is `ART_OTEL_SCRUB_PATTERNS`.
    - `rollout_traces` also writes the column for `read_rollout_traces`. `token_facts` also writes other recorded facts
      about each token: `routed_experts`, `sampling_mask`.
    - `content` are folders or URLs of content that spans refer to (`gen_ai.input.messages_ref`), one or several. The
      folders of the sources are looked through as well.
    - `scratch` is a folder or URL for temporary files; None is the dataset's folder.

    Raises UsageError, SourceError and StoreError.
    """
    several = [os.fspath(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]
    if not several:
        raise UsageError("sources: none given; name files, folders, globs or URLs of span dumps")
    return run_conversion(
        Conversion(
            sources=several,
            out=out,
            format=None if format == "auto" else format,
            workers=workers,
            engine=engine,
            ray_address=ray_address,
            rollout_spans=tuple(rollout_spans),
            rollout_attributes=_several(rollout_attributes),
            incremental=incremental,
            times=Times(grace=seconds_of(str(grace)), retain=seconds_of(str(retain))),
            since=since_ns(since),
            secrets=chosen_secrets(scrub, scrub_patterns),
            rollout_traces=rollout_traces,
            token_facts=_several(token_facts),
            content=[os.fspath(one) for one in ([content] if isinstance(content, str | Path) else content)],
            scratch=scratch,
        )
    )
