"""Texts: one text in, the same text without its secrets out.

Invariant: nothing here raises for what a text holds or a hook does; a text that a hook could not read is replaced
whole. JSON stays JSON: patterns with marks match within one string, all else is asked string by string, also in JSON
inside of JSON.
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from art_otel.conventions.caches.prefix_cache import PrefixCache
from art_otel.tracing.redaction import json_text
from art_otel.tracing.redaction.marks import Marks
from art_otel.tracing.redaction.patterns import SecretPattern

logger = logging.getLogger(__name__)

HOOK_FAILED: Final = "hook failed"
_REPLACED: Final = re.compile(r"\[redacted:[a-z ]+\]")

_LONG: Final = 4096
_OVERLAP: Final = 1024
"""Longer than any mark."""

_CLOSING: Final = 2
"""Characters at the end of a list of messages that are gone when it goes on."""


def replacement(kind: str) -> str:
    """What stands in a secret's place: a text without quotes and backslashes."""
    return f"[redacted:{kind}]"


@dataclass(slots=True)
class Tally:
    """How many parts were replaced."""

    count: int = 0


class Texts:
    """What is a secret in a text, by patterns and by the app's own hook."""

    def __init__(self, patterns: Sequence[SecretPattern], hook: Callable[[str], str] | None = None) -> None:
        self._patterns = tuple(patterns)
        self._hook = hook
        self._told = False
        self._clean: PrefixCache[str, None] = PrefixCache()
        self._marks = Marks([pattern for pattern in patterns if pattern.marks])
        self.reads_all = hook is not None or any(not pattern.marks for pattern in patterns)

    def may_hold(self, texts: Iterable[str]) -> bool:
        """Whether one of the texts has to be looked at."""
        if self.reads_all:
            return True
        short: list[str] = []
        for text in texts:
            if len(text) < _LONG:
                short.append(text)
            elif not self._is_passed_over(text):
                return True
        return self._marks.found("\n".join(short))

    def _is_passed_over(self, text: str) -> bool:
        """Whether nothing is in a long text, of which most is the conversation so far, which was clean already."""
        known = self._clean.find(text)
        start = 0 if known is None else max(0, known.length - _OVERLAP)
        if self._marks.found(text[start:]):
            return False
        beginning = len(text) - _CLOSING
        if known is None or known.length < beginning:
            self._clean.keep(text, None, end=beginning, earlier=known)
        return True

    def redact(self, text: str, tally: Tally, *, hooked: bool = True) -> str:
        """The text without secrets. The hook is asked where there is one, unless `hooked` is False."""
        if not text or not (self.reads_all or self._marks.found(text)):
            return text
        if self.reads_all and json_text.is_json(text):
            return json_text.rewrite(text, _Change(self, tally, hooked=hooked))
        return self._plain(text, tally, hooked=hooked)

    def is_clean(self, text: str) -> bool:
        """Whether nothing of a text is redacted."""
        return self.redact(text, Tally()) == text

    def replace(self, text: str, kind: str, tally: Tally) -> str:
        """A text that is a secret whatever it looks like; nothing and what was replaced already stay."""
        if not text or _REPLACED.fullmatch(text) is not None:
            return text
        tally.count += 1
        return replacement(kind)

    def _plain(self, text: str, tally: Tally, *, hooked: bool) -> str:
        for pattern in self._patterns:
            if not pattern.marks or any(mark in text for mark in pattern.marks):
                text = pattern.regex.sub(partial(_replaced, pattern, tally), text)
        return self._asked(text, tally) if hooked and self._hook is not None else text

    def _asked(self, text: str, tally: Tally) -> str:
        """What the hook makes of a text."""
        try:
            changed = self._hook(text) if self._hook is not None else text
            if not isinstance(changed, str):  # pyright: ignore[reportUnnecessaryIsInstance] # the app's code gave it
                raise TypeError(f"the redaction hook returned {type(changed).__name__}, and not a text")  # noqa: TRY301
        except Exception:  # the app's own code; whatever it does, nothing may leak and the app must not notice
            if not self._told:
                self._told = True
                logger.warning("art-otel: the redaction hook failed; what it was given is left out", exc_info=True)
            changed = replacement(HOOK_FAILED)
        tally.count += changed != text
        return changed

    def number(self, text: str, tally: Tally) -> str:
        """A number in JSON, which patterns of the app's own may match."""
        return self._plain(text, tally, hooked=False)


@dataclass(frozen=True, slots=True)
class _Change:
    """What becomes of the strings of a JSON text, as `json_text.Change`."""

    texts: Texts
    tally: Tally
    hooked: bool = field(kw_only=True)

    def string(self, value: str) -> str:
        return self.texts.redact(value, self.tally, hooked=self.hooked)

    def key(self, value: str) -> str:
        return self.texts.redact(value, self.tally, hooked=False)

    def number(self, value: str) -> str:
        return self.texts.number(value, self.tally)


def _replaced(pattern: SecretPattern, tally: Tally, match: re.Match[str]) -> str:
    """The match with its secret replaced; as it is where that is none, or the group `secret` took no part."""
    group = "secret" if "secret" in pattern.regex.groupindex else 0
    start, end = match.span(group)
    if start == end or not pattern.is_secret(match[group]):
        return match[0]
    tally.count += 1
    before, behind = match[0][: start - match.start()], match[0][end - match.start() :]
    return f"{before}{replacement(pattern.kind)}{behind}"
