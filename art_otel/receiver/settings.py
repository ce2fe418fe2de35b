"""Settings: what a receiver keeps and for how long, when its rollouts end, and who may send. Each stands here once.

To add a setting:

    ReceiverSettings    the field with its default, its help text and further arguments of argparse's `add_argument`;
                        the flag of `art-otel serve` and of `art-otel gateway` is made from these
    ReceiverKeywords    its type, for callers of `art_otel.receive` and `art_otel.gateway`

The command line loads this module, so it imports nothing of a server.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypedDict, cast, get_args

from art_otel.errors import UsageError
from art_otel.live.limits import GRACE
from art_otel.scrubbing import Scrubbing
from art_otel.spool.runs import DEFAULT_DIR, DIR, expanded

LISTEN: Final = "127.0.0.1:4318"
"""Where a receiver listens by default: the port that OTel gives to OTLP/HTTP."""


class ReceiverKeywords(TypedDict, total=False):
    """The settings as keywords; ReceiverSettings says what they mean."""

    dir: str | Path
    grace: float
    retain: float | None
    fsync: bool
    scrub: Scrubbing
    scrub_patterns: Iterable[str]
    rollout_spans: Iterable[str]
    rollout_attributes: Iterable[str]
    max_body_mib: int
    token: str | None
    tls_certificate: str | Path | None
    tls_key: str | Path | None


def keywords_of_receiver(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keywords: those of `ReceiverKeywords`, and the others."""
    own = ReceiverKeywords.__annotations__
    return (
        {name: value for name, value in keywords.items() if name in own},
        {name: value for name, value in keywords.items() if name not in own},
    )


def seconds(text: str) -> float:
    """Read a time such as 90s or 30d. Raises UsageError."""
    from art_otel.conversion import seconds_of  # noqa: PLC0415 # loads only for who gives a time

    return seconds_of(text)


def _retain(text: str) -> float | None:
    return None if text == "off" else seconds(text)


def _regex(text: str) -> str:
    try:
        return re.compile(text).pattern
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}") from None


@dataclass(frozen=True, kw_only=True)
class ReceiverSettings:
    """The settings, described by their help texts. Raises UsageError for an invalid value.

    Times are numbers of seconds, and None is "for ever"; only the command line writes them as 90s, 30d or off. A
    setting with several values has a flag in the singular, which may be repeated.
    """

    dir: str | Path = field(
        default_factory=lambda: os.environ.get(DIR) or DEFAULT_DIR,
        metadata={
            "help": f"where to keep received spans (default: {DIR}, else {DEFAULT_DIR})",
            "type": Path,
            "metavar": "DIR",
        },
    )
    grace: float = field(
        default=GRACE,
        metadata={
            "help": "a rollout that does not count its spans, or misses some, has ended once no span has arrived for"
            " this long, such as 90s or 5m (default: 60s)",
            "type": seconds,
            "metavar": "TIME",
        },
    )
    retain: float | None = field(
        default=30 * 24 * 3600.0,
        metadata={
            "help": "remove files that are older than this, if a consumer has acknowledged all their rollouts and no"
            " other consumer is waiting for them (default: 30d; off keeps everything)",
            "type": _retain,
            "metavar": "TIME",
        },
    )
    fsync: bool = field(
        default=False,
        metadata={
            "help": "acknowledge spans only once they would survive a power loss, not just a crash",
            "action": "store_true",
        },
    )
    scrub: Scrubbing = field(
        default="on",
        metadata={"help": "what to do with secrets in received spans (default: on)", "choices": get_args(Scrubbing)},
    )
    scrub_patterns: Iterable[str] = field(
        default=(),
        metadata={
            "help": "a pattern of additional secrets; may be repeated",
            "flag": "--scrub-pattern",
            "action": "append",
            "type": _regex,
            "metavar": "REGEX",
        },
    )
    rollout_spans: Iterable[str] = field(
        default=(),
        metadata={
            "help": "a span with a matching name begins a rollout; may be repeated",
            "flag": "--rollout-span",
            "action": "append",
            "metavar": "GLOB",
        },
    )
    rollout_attributes: Iterable[str] = field(
        default=(),
        metadata={
            "help": "traces that share the value of this attribute are one rollout with that id (session.id,"
            " gen_ai.conversation.id), unless a span `rollout …` has an id; may be repeated",
            "flag": "--rollout-attribute",
            "action": "append",
            "metavar": "NAME",
        },
    )
    max_body_mib: int = field(
        default=64,
        metadata={
            "help": "the largest request in MiB (default: 64)",
            "flag": "--max-body",
            "type": int,
            "metavar": "MIB",
        },
    )
    token: str | None = None
    """Every request must send it; None for no token. It has no flag: all users of a machine see its command lines."""
    tls_certificate: str | Path | None = field(
        default=None,
        metadata={"help": "a PEM file; with --tls-key, serve over TLS", "type": Path, "metavar": "FILE"},
    )
    tls_key: str | Path | None = field(default=None, metadata={"help": "a PEM file", "type": Path, "metavar": "FILE"})

    def __post_init__(self) -> None:
        """Check the values at run time: not every caller uses a type checker."""
        if self.scrub not in get_args(Scrubbing):
            raise UsageError(f"scrub={self.scrub!r}: use one of {', '.join(get_args(Scrubbing))}")
        for name, flag, kinds, least in (
            ("grace", "--grace", int | float, 0),
            ("retain", "--retain", int | float | None, 0),
            ("max_body_mib", "--max-body", int, 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, kinds) or isinstance(value, bool) or (value is not None and not value >= least):
                what = "a whole number" if kinds is int else "a number"
                raise UsageError(f"{name}={value!r} ({flag}): give {what}, {least} or more")
        for name in ("scrub_patterns", "rollout_spans", "rollout_attributes"):
            given: object = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise UsageError(f"{name}={given!r}: give a list of texts")
            texts = tuple(cast(Iterable[object], given))  # read once: it may be a generator
            if not all(isinstance(text, str) for text in texts):
                raise UsageError(f"{name}={texts!r}: give a list of texts")
            object.__setattr__(self, name, texts)
        for pattern in self.scrub_patterns:
            _regex(pattern)
        expanded(self.dir)
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise UsageError("TLS needs both a certificate (tls_certificate, --tls-certificate) and its key (tls_key)")


SETTINGS: Final[tuple["Field[Any]", ...]] = fields(ReceiverSettings)
"""The fields, in the order in which the command line shows them."""
