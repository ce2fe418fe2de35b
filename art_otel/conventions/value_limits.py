"""Value limits: find attributes that a backend or an SDK cut at a length limit without any mark, by their lengths.

    lengths of a span's texts      2048, 2048, 311, 40        the two longest were cut at 2,048
                                   5123, 2048, 311, 40        nothing was cut: a text is longer

A limit cuts every longer text. So if a limit cut a span, no text on the span is longer than the limit, and the longest
texts are exactly as long as it. Invariant: only texts of the greatest length on a span (its attributes, those of its
events and log records) count as cut, and only if the length is shown to be a limit in one of these ways:

1. it is in the table `LIMITS` and at least 1,024 (2,048 bytes is Tempo's limit, 4,095 characters New Relic's), or it
   is a power of two, or one less, from 2,048 on: people set such limits, and a text rarely has just this length;
2. one of several different texts of this length is JSON that ends in the middle. For a single text this counts only if
   it is an answer or tool arguments, and the length is a number that people choose: apps themselves cut tool results;
3. several different texts have this length, which chance rarely makes: an answer and two other texts of 128 or more;
   or, at a number that people choose (a multiple of 50 or 128, a power of two or one less) of 64 or more, an answer and
   another text, or any three texts. (Boards of a game have one length, too, but are rarely a span's longest texts.)

Whole JSON is never cut, whatever its length. Messages inside of JSON are not judged: a limit cuts the whole attribute,
which is then no JSON. So a tool result that the app itself cut to 2,048 characters counts as whole if anything longer
is on the span.

Units: SDKs count characters (Python and Go code points; JavaScript, Java and .NET UTF-16 units), backends count UTF-8
bytes, and some leave up to 3 bytes to end at a whole character. For texts that are not ASCII all three are tried.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from art_otel.conventions.attributes import SpanRecording

LengthUnit: TypeAlias = Literal["characters", "bytes"]


class ValueLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A documented limit: who sets it, the greatest length of a value in `unit`, and the ending of a cut text.

    The ending counts in the length. `length` is None if users choose any number. `source` is the project and file, or
    the page of its docs.
    """

    setter: str
    length: int | None
    unit: LengthUnit
    ending: str = ""
    source: str


LIMITS: Final = (
    ValueLimit(
        setter="Grafana Tempo (`max_attribute_bytes`)",
        length=2048,
        unit="bytes",
        source="grafana.com/docs/tempo/latest/troubleshooting/out-of-memory-errors",
    ),
    ValueLimit(
        setter="New Relic",
        length=4095,
        unit="characters",
        source="docs.newrelic.com: OpenTelemetry, best practices, Attributes (opentelemetry-best-practices-attributes)",
    ),
    ValueLimit(
        setter="Collector `transform` (`truncate_all(attributes, 4096)`)",
        length=4096,
        unit="bytes",
        source="opentelemetry-collector-contrib: pkg/ottl/ottlfuncs/func_truncate_all.go, processor/transformprocessor",
    ),
    ValueLimit(
        setter="Azure Monitor",
        length=8192,
        unit="characters",
        source="azure-sdk-for-java: azure-monitor-opentelemetry-autoconfigure, AbstractTelemetryBuilder",
    ),
    ValueLimit(
        setter="Splunk's distributions of OpenTelemetry",
        length=12_000,
        unit="characters",
        source="signalfx/splunk-otel-js: advanced-config.md",
    ),
    ValueLimit(
        setter="Datadog Agent (25,000 bytes and the ending)",
        length=25_003,
        unit="bytes",
        ending="...",
        source="datadog-agent: pkg/trace/agent/truncator.go (MaxMetaValLen)",
    ),
    ValueLimit(
        setter="Elastic APM agents, fields",
        length=1024,
        unit="characters",
        ending="…",
        source="elastic/apm: specs/agents/field-limits.md; elastic/apm-agent-python: elasticapm/utils/encoding.py",
    ),
    ValueLimit(
        setter="Elastic APM agents, long fields",
        length=10_000,
        unit="characters",
        ending="…",
        source="elastic/apm: specs/agents/field-limits.md; elastic/apm-agent-python: elasticapm/utils/encoding.py",
    ),
    ValueLimit(
        setter="Google Cloud Trace, API v2",
        length=256,
        unit="bytes",
        source="docs.cloud.google.com/trace/docs/reference/v2/rest/v2/projects.traces/batchWrite (`attributeMap`)",
    ),
    ValueLimit(
        setter="OpenTelemetry SDKs (`OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT`, `OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT`)",
        length=None,
        unit="characters",
        source="opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables (attribute limits)",
    ),
    ValueLimit(
        setter="Collector `transform` (`truncate_all` with any number)",
        length=None,
        unit="bytes",
        source="opentelemetry-collector-contrib: pkg/ottl/ottlfuncs/func_truncate_all.go",
    ),
)
"""All known limits. Limits below `_ALONE`, or of any number, are recognized only by a second text of this length."""


class CutValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An attribute whose text was cut: its name, the field of the call, and the evidence."""

    name: str
    field: Literal["prompt", "answer"]
    evidence: str


def cut_values(recording: SpanRecording) -> tuple[CutValue, ...]:
    """Find the attributes with content that a limit cut."""
    carriers = (recording.span, *recording.span.events, *recording.logs)
    values = [value for record in carriers for value in record.attributes.values() if type(value) is str]
    lengths = [*map(len, values)]
    longest = max(lengths, default=0)
    if longest < _SHORTEST:
        return ()
    if (
        longest not in _LENGTHS
        and lengths.count(longest) < 2
        and not _is_chosen(longest)
        and all(map(str.isascii, values))
    ):
        return ()  # fast path of nearly all spans
    texts = [
        (name, value)
        for record in carriers
        for name, value in record.attributes.items()
        if type(value) is str and len(value) >= _SHORTEST
    ]
    # Backends count bytes, SDKs code points or UTF-16 units: the limit's unit is unknown, so all three are tried.
    return (
        _cut_at(texts, [_utf8_length(text) for _, text in texts], "bytes")
        or _cut_at(texts, [len(text) for _, text in texts], "characters")
        or _cut_at(texts, [_utf16_length(text) for _, text in texts], "characters")
    )


_SHORTEST: Final = 64
"""The least length of a cut text: shorter texts often have equal lengths by chance."""
_ALONE: Final = 1024
"""The least limit of the table that a single text can show: many shorter texts have just such a length by chance."""

_ALONE_OF_ANY: Final = 2048
"""The least power of two, or one less, that a single text can show to be a limit although it is not in the table."""

_CERTAIN: Final = 128
"""The least length at which an answer and two other texts show a limit that nobody would choose."""
_WHOLE_CHARACTER: Final = 3
"""How many bytes a limit of bytes may leave free, if the next character needs more."""

_LENGTHS: Final = frozenset(limit.length for limit in LIMITS if limit.length is not None)


def _cut_at(texts: Sequence[tuple[str, str]], lengths: Sequence[int], unit: LengthUnit) -> tuple[CutValue, ...]:
    """The texts that were cut, if the greatest of their lengths in this unit is shown to be a limit."""
    top = max(lengths)
    spare = _WHOLE_CHARACTER if unit == "bytes" else 0
    at_top = [
        one
        for one, length in zip(texts, lengths, strict=True)
        if length == top or (length >= top - spare and not one[1].isascii())
    ]
    open_texts = [(name, text) for name, text in at_top if not _is_whole_json(text)]
    limit = _documented(open_texts, top, unit) if open_texts else None
    if limit is not None:
        evidence = f"{limit.setter} cuts at {top:,} {unit}"
    elif (
        open_texts
        and top >= _ALONE_OF_ANY
        and any(map(_is_power_of_two, range(top, top + _spare(open_texts, unit) + 1)))
    ):
        evidence = f"it ends at {top:,} {unit}, and nothing is longer"
    else:
        evidence = _shown_by(open_texts, top, unit)
    if evidence is None:
        return ()
    return tuple(
        CutValue(name=name, field="answer" if _is_answer(name) else "prompt", evidence=f"{name}: {evidence}")
        for name, _ in open_texts
        if may_hold_content(name)
    )


def _documented(texts: Sequence[tuple[str, str]], top: int, unit: LengthUnit) -> ValueLimit | None:
    """The limit of the table that has the greatest length, or that leaves it when it cuts at a whole character."""
    spare = _spare(texts, unit)
    for limit in LIMITS:
        if limit.length is None or limit.length < _ALONE or limit.unit != unit:
            continue
        if limit.length - spare <= top <= limit.length and all(text.endswith(limit.ending) for _, text in texts):
            return limit
    return None


def _spare(texts: Sequence[tuple[str, str]], unit: LengthUnit) -> int:
    """How many units a limit may leave free in these texts."""
    return 0 if unit == "characters" or all(text.isascii() for _, text in texts) else _WHOLE_CHARACTER


def _shown_by(texts: Sequence[tuple[str, str]], top: int, unit: LengthUnit) -> str | None:
    """The evidence that a length is a limit (ways 2 and 3); None if it may be chance."""
    different = {text for _, text in texts}
    if len(different) < 2:
        is_torn = _is_chosen(top) and any(_is_sampled(name) and _is_torn_json(text) for name, text in texts)
        return f"JSON ends in the middle at {top:,} {unit}" if is_torn else None
    if any(_is_torn_json(text) for text in different):
        return f"JSON ends in the middle at {top:,} {unit}"
    answers = len({text for name, text in texts if _is_answer(name)})
    others = len({text for name, text in texts if not _is_answer(name)})
    many = f"{len(different)} texts have the greatest length, {top:,} {unit}"
    if _is_chosen(top) and ((answers and others) or len(different) > 2):
        return many
    return many if top >= _CERTAIN and answers and others > 1 else None


def _is_chosen(length: int) -> bool:
    """Whether the length is a number that people choose as a limit."""
    return length % 50 == 0 or length % 128 == 0 or _is_power_of_two(length)


def _is_power_of_two(length: int) -> bool:
    """Whether the length is a power of two, or one less."""
    return length & (length - 1) == 0 or length & (length + 1) == 0


def _is_torn_json(text: str) -> bool:
    if not text.startswith(("{", "[")):
        return False
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (UnicodeError, RecursionError):
        return False
    return False


def _is_whole_json(text: str) -> bool:
    if not text.startswith(("{", "[")) or not text.rstrip().endswith(("}", "]")):
        return False
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


def _utf8_length(text: str) -> int:
    """The UTF-8 bytes of a text, without U+FFFD at its end, which stands for a character that was cut in the middle."""
    return len(text) if text.isascii() else len(text.rstrip("\ufffd").encode("utf-8", "surrogatepass"))


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


_ASIDE: Final = re.compile(
    r"(?:exception|error|code|url|http|net|network|server|client|db|rpc|user|session|service|telemetry|resource|art|host"
    r"|process|deployment|cloud|traceloop\.association|traceloop\.entity|openinference)[._]"
    r"|(?:.*\.)?(?:metadata|hidden_params|model_config|model_parameters)(?:$|\.)"
    r"|logfire\.(?:msg|json_schema|scrubbed)|gen_ai\.(?:task|workflow|agent)\."
)
"""Names of attributes without content of the call: neither prompt nor answer, or a copy from outside of the call."""

_ANSWER: Final = re.compile(
    r"completion|response|choice|assistant|(?:^|[._])(?:spanO|o)utputs?(?:$|[._])|output_messages", re.IGNORECASE
)


@lru_cache(maxsize=4096)
def may_hold_content(name: str) -> bool:
    """Whether an attribute with this name may have content of the prompt or the answer."""
    return _ASIDE.match(name) is None


@lru_cache(maxsize=4096)
def _is_answer(name: str) -> bool:
    return _ANSWER.search(name) is not None


@lru_cache(maxsize=4096)
def _is_sampled(name: str) -> bool:
    """Whether an attribute with this name has sampled content: an answer, or the arguments of a tool call."""
    return _is_answer(name) or name.endswith("arguments")
