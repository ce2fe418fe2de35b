"""Masks: texts that recorders and backends write in place of content, so that the real content is lost.

    "redacted-by-litellm"                             masked: the whole text is a mask (rule 1)
    "LiteLLM writes redacted-by-litellm when …"       an answer that only mentions a mask
    "call [REDACTED EMAIL] back"                      masked if the span shows that Langfuse masked (rule 2)

Invariant: a text counts as masked only by one of these rules:

1. **It is a mask**: the whole message, reasoning, refusal or arguments of a tool call, or the whole text of one of its
   parts (OpenInference writes `__REDACTED__` for the URL of a large image).
2. **It contains one, and the span shows that this writer masked**: by the writer's own attribute (the Collector's
   redaction processor counts in `redaction.masked.count`), by the same mask in an attribute that neither model nor
   prompt writes (`user.email` is `<EMAIL_ADDRESS>`), or because another text of the same call is wholly that mask.
   Without such a sign `<EMAIL_ADDRESS>`, `****` or `[REDACTED]` in a text counts as real content: apps and LiteLLM's
   guardrail send prompts that were made anonymous before, models write `****` and placeholders themselves, and tools
   answer with `"password": "****"`.
3. **It is a hash** (hex digits only, of the length of a hash), and so is all of the prompt, or an instruction, or
   messages of several roles, one of them the user's. A single hash may be real: a user may ask about a hash.

Masks of an app's own mask function are found only by rule 1.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias, cast

import msgspec

from art_otel.calls import Message
from art_otel.conventions.attribute_names import NameFamilies
from art_otel.conventions.attributes import SpanRecording
from art_otel.spans import Value


class Mask(msgspec.Struct, frozen=True, kw_only=True):
    """The mask of one writer.

    `whole` is a pattern for a text that is only the mask, `inside` a pattern for the mask inside of a text, if the
    writer masks parts of texts. `examples` are such masks. `source` is the project and file, or the page of its docs.
    """

    writer: str
    examples: tuple[str, ...]
    whole: str
    inside: str | None = None
    source: str

    @property
    def evidence(self) -> str:
        """The evidence in the gap of a text that this mask replaced."""
        return f"{self.examples[0]} ({self.writer})"


_PRESIDIO: Final = (
    "PERSON|EMAIL_ADDRESS|PHONE_NUMBER|CREDIT_CARD|IBAN_CODE|IP_ADDRESS|MAC_ADDRESS|LOCATION|DATE_TIME|NRP|URL|CRYPTO"
    "|MEDICAL_LICENSE|ORGANIZATION|US_(?:BANK_NUMBER|DRIVER_LICENSE|ITIN|PASSPORT|SSN)|UK_(?:NHS|NINO)|ES_(?:NIF|NIE)"
    "|IT_(?:FISCAL_CODE|DRIVER_LICENSE|VAT_CODE|PASSPORT|IDENTITY_CARD)|PL_PESEL|SG_(?:NRIC_FIN|UEN)|KR_RRN|TH_TNIN"
    "|AU_(?:ABN|ACN|TFN|MEDICARE)|IN_(?:PAN|AADHAAR|VEHICLE_REGISTRATION|VOTER|PASSPORT)|FI_PERSONAL_IDENTITY_CODE"
)
_INFO_TYPES: Final = (
    "ADVERTISING_ID|AGE|AUTH_TOKEN|BLOOD_TYPE|CREDIT_CARD_(?:TRACK_)?NUMBER|DATE|DATE_OF_BIRTH|DOMAIN_NAME"
    "|EMAIL_ADDRESS|ENCRYPTION_KEY|ETHNIC_GROUP|FINANCIAL_(?:ACCOUNT_NUMBER|ID)|(?:FIRST|LAST|PERSON)_NAME|GENDER"
    "|GENERIC_ID|GOVERNMENT_ID|IBAN_CODE|IMEI_HARDWARE_ID|IP_ADDRESS|JSON_WEB_TOKEN|LOCATION|MAC_ADDRESS"
    "|MEDICAL_(?:RECORD_NUMBER|TERM)|ORGANIZATION_NAME|PASSPORT|PASSWORD|PHONE_NUMBER|STREET_ADDRESS|SWIFT_CODE|TIME"
    "|URL|VEHICLE_IDENTIFICATION_NUMBER|(?:CANADA|FRANCE|GERMANY|INDIA|UK|US)_[A-Z]+(?:_[A-Z]+)*"
)
_PII_ENTITIES: Final = (
    "ADDRESS|AGE|AWS_(?:ACCESS|SECRET)_KEY|CA_(?:HEALTH|SOCIAL_INSURANCE)_NUMBER"
    "|CREDIT_DEBIT_CARD_(?:CVV|EXPIRY|NUMBER)|DRIVER_ID|EMAIL|INTERNATIONAL_BANK_ACCOUNT_NUMBER|IP_ADDRESS"
    "|LICENSE_PLATE|MAC_ADDRESS|NAME|PASSWORD|PHONE|PIN|SWIFT_CODE|UK_NATIONAL_(?:HEALTH_SERVICE|INSURANCE)_NUMBER"
    "|UK_UNIQUE_TAXPAYER_REFERENCE_NUMBER|URL|USERNAME|US_BANK_(?:ACCOUNT|ROUTING)_NUMBER"
    "|US_INDIVIDUAL_TAX_IDENTIFICATION_NUMBER|US_PASSPORT_NUMBER|US_SOCIAL_SECURITY_NUMBER"
    "|VEHICLE_IDENTIFICATION_NUMBER"
)
_STARS: Final = r"(?<!\*)\*{4}(?!\*)"
_HEX: Final = r"(?<![0-9a-fA-F])(?:[0-9a-f]{128}|[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9a-fA-F])"

COLLECTOR_REDACTION: Final = "Collector, redaction processor"

MASKS: Final = (
    Mask(
        writer="LiteLLM",
        examples=("redacted-by-litellm",),
        whole=r'redacted-by-litellm|\{"text": ?"redacted-by-litellm"\}',
        source="BerriAI/litellm: litellm/litellm_core_utils/redact_messages.py",
    ),
    Mask(
        writer="OpenInference",
        examples=("__REDACTED__",),
        whole="__REDACTED__",
        source="Arize-ai/openinference: spec/configuration.md; python/openinference-instrumentation, config.py",
    ),
    Mask(
        writer="Langfuse",
        examples=("<fully masked due to failed mask function>",),
        whole="<fully masked due to failed mask function>",
        source="langfuse-python: langfuse/_client/span.py; langfuse-js: packages/otel/src/span-processor.ts",
    ),
    Mask(
        writer="Langfuse, mask functions of its docs",
        examples=("REDACTED", "[REDACTED EMAIL]"),
        whole=r"REDACTED|\[REDACTED[ _](?:EMAIL|PHONE|CREDIT CARD|SSN|[A-Z]+_\d+)\]",
        inside=r"\[REDACTED[ _](?:EMAIL|PHONE|CREDIT CARD|SSN|[A-Z]+_\d+)\]",
        source="langfuse.com/docs/observability/features/masking",
    ),
    Mask(
        writer="LangSmith",
        examples=("[redacted]",),
        whole=r"\[redacted\]",
        inside=r"\[redacted\]",
        source="langchain-ai/langsmith-sdk: python/langsmith/anonymizer.py",
    ),
    Mask(
        writer="LangSmith, anonymizers of its docs",
        examples=("<email-address>", "<REDACTED_API_KEY>"),
        whole=r"<(?:email-address|ssn|REDACTED_[A-Z_]+)>",
        inside=r"<(?:email-address|ssn|REDACTED_[A-Z_]+)>",
        source="docs.langchain.com/langsmith/mask-inputs-outputs",
    ),
    Mask(
        writer="Logfire",
        examples=("[Scrubbed due to 'password']",),
        whole=r"\[Scrubbed due to (?:'[^'\n]{1,60}'|\"[^\"\n]{1,60}\")\]",
        inside=r"\[Scrubbed due to (?:'[^'\n]{1,60}'|\"[^\"\n]{1,60}\")\]",
        source="pydantic/logfire: logfire/_internal/scrubbing.py",
    ),
    Mask(
        writer="Braintrust",
        examples=("ERROR: Failed to mask field 'input' - ValueError",),
        whole=r"ERROR: Failed to mask field '[^'\n]{1,40}' - \w{1,60}",
        source="braintrustdata/braintrust-sdk: py/src/braintrust/logger.py; its docs: Redact sensitive data",
    ),
    Mask(
        writer="Datadog LLM Observability",
        examples=("[This value has been dropped because this span's size exceeds the 1MB size limit.]",),
        whole=r"\[This value has been dropped because this span's size exceeds the \d+MB size limit\.\]",
        source="DataDog/dd-trace-py: ddtrace/llmobs/_constants.py",
    ),
    Mask(
        writer="Datadog Sensitive Data Scanner",
        examples=("[sensitive_data]",),
        whole=r"\[sensitive_data\]",
        inside=r"\[sensitive_data\]",
        source="docs.datadoghq.com/security/sensitive_data_scanner/setup/telemetry_data",
    ),
    Mask(
        writer=COLLECTOR_REDACTION,
        examples=("****",),
        whole=r"\*{4}(?:\r?\n(?:\*{4})?)*",
        inside=f"{_STARS}|{_HEX}",
        source="opentelemetry-collector-contrib: processor/redactionprocessor",
    ),
    Mask(
        writer="Presidio",
        examples=("<PERSON>", "<EMAIL_ADDRESS>"),
        whole=f"<(?:{_PRESIDIO})>",
        inside=f"<(?:{_PRESIDIO})>",
        source="microsoft/presidio: presidio_anonymizer, operator `replace`",
    ),
    Mask(
        writer="Sentry",
        examples=("[Filtered]",),
        whole=r"\[Filtered\]",
        inside=r"\[Filtered\]",
        source="docs.sentry.io/security-legal-pii/scrubbing/server-side-scrubbing; sentry-python: sentry_sdk/utils.py",
    ),
    Mask(
        writer="Codex, and mask functions of MLflow's docs",
        examples=("[REDACTED]",),
        whole=r"\[REDACTED\]",
        inside=r"\[REDACTED\]",
        source="openai/codex: codex-rs/otel (`log_user_prompt`); mlflow.org: Redacting Sensitive Data from Traces",
    ),
    Mask(
        writer="Claude Code",
        examples=("<REDACTED>",),
        whole="<REDACTED>",
        inside="<REDACTED>",
        source="code.claude.com/docs/en/monitoring-usage (`OTEL_LOG_USER_PROMPTS`)",
    ),
    Mask(
        writer="Google Cloud Sensitive Data Protection",
        examples=("[PERSON_NAME]", "[EMAIL_ADDRESS]"),
        whole=rf"\[(?:{_INFO_TYPES})\]",
        inside=rf"\[(?:{_INFO_TYPES})\]",
        source="docs.cloud.google.com/sensitive-data-protection/docs/deidentify-sensitive-data (`replaceWithInfoType`),"
        " /infotypes-reference",
    ),
    Mask(
        writer="Amazon Bedrock Guardrails",
        examples=("{NAME}", "{EMAIL}"),
        whole=rf"\{{(?:{_PII_ENTITIES})\}}",
        inside=rf"\{{(?:{_PII_ENTITIES})\}}",
        source="docs.aws.amazon.com/bedrock: userguide/guardrails-sensitive-filters.html (Mask),"
        " APIReference/API_GuardrailPiiEntity.html (types)",
    ),
    Mask(
        writer="a mask function of the app's own",
        examples=("[MASKED]", "***REDACTED***"),
        whole=r"(?i:[\[<({*_#-]{1,4} ?(?:[a-z]+[ _:-]{1,2})?(?:redacted|masked|scrubbed|anonymi[sz]ed|sanitized)"
        r"(?:[ _:-]{1,2}[a-z]+)? ?[\]>)}*_#-]{1,4})",
        source="what such functions write in examples of Langfuse's, LangSmith's, MLflow's and Traceloop's docs",
    ),
)
"""All known masks. Content that a switch leaves out without a trace is missing, not masked."""

HASH: Final = Mask(
    writer="Collector, attributes processor (`action: hash`)",
    examples=(64 * "a", 40 * "a"),
    whole="[0-9a-f]{128}|[0-9a-f]{96}|[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32}",
    source="opentelemetry-collector-contrib: processor/attributesprocessor, internal/coreinternal/attraction",
)
"""Also the output of the redaction processor's `hash_function` and of `transform`'s SHA256. Only rule 3 uses it."""

Signs: TypeAlias = frozenset[str]
"""The writers that certainly masked something on a span, so that their masks count inside of texts, too (rule 2)."""

NO_SIGNS: Final[Signs] = frozenset()


Where: TypeAlias = Literal["prompt", "answer"]


class MaskedText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A masked message: in the prompt or an answer, its position there, its mask and the evidence."""

    where: Where
    index: int
    mask: Mask
    evidence: str


def find_masked(
    recording: SpanRecording, prompt: Sequence[Message], answers: Sequence[Message]
) -> tuple[MaskedText, ...]:
    """Find the masked messages of a call, with the evidence."""
    signs = signs_of(recording)
    masked = [*_masked("prompt", prompt, signs), *_masked("answer", answers, signs)]
    # A text that is wholly a mask is a sign of its writer: then its masks count inside of the other texts, too.
    wider = signs.union([one.mask.writer for one in masked])
    if wider != signs:
        masked = [*_masked("prompt", prompt, wider), *_masked("answer", answers, wider)]
    return (*masked, *_hashed(prompt, answers))


def is_plain(message: Message) -> bool:
    """A fast test that most messages pass: one text that does not begin like a mask and is not as long as a hash."""
    text = message.content
    return (
        text is not None
        and text[:1] not in _FIRST
        and len(text) not in _HASH_LENGTHS
        and message.parts is None
        and message.reasoning is None
        and message.refusal is None
        and not message.tool_calls
    )


def is_hash(message: Message) -> bool:
    """Whether the text of a message is a hash. `find_masked` counts it as masked only by rule 3."""
    text = message.content
    return text is not None and len(text) in _HASH_LENGTHS and _HASH.fullmatch(text) is not None


def mask_of(message: Message, signs: Signs = NO_SIGNS) -> Mask | None:
    """The mask that a text of the message consists of, or contains if its writer is in `signs`; None without one."""
    content = message.content
    if content is not None and (mask := mask_in(content, signs)) is not None:
        return mask
    texts = [message.reasoning, message.refusal, *[call.arguments for call in message.tool_calls]]
    for text in texts:
        if text is not None and (mask := mask_in(text, signs)) is not None:
            return mask
    return None if message.parts is None else _mask_of_parts(message.parts, signs)


def mask_in(text: str, signs: Signs = NO_SIGNS) -> Mask | None:
    """The mask that a text consists of, or contains if its writer is in `signs`; None without one."""
    if text[:1] in _FIRST and (len(text) <= _LONGEST or text.startswith("****")):
        text_alone = text.strip()
        if text_alone[:1] == '"' == text_alone[-1:]:  # JSON of one text
            text_alone = text_alone[1:-1]
        match = _WHOLE.fullmatch(text_alone)
        if match is not None:
            return MASKS[cast("int", match.lastindex) - 1]
    if signs:
        for mask, inside in _INSIDE:
            if mask.writer in signs and inside.search(text) is not None:
                return mask
    return None


def signs_of(recording: SpanRecording) -> Signs:
    """The writers that masked something of a call, shown by attributes that neither the model nor the app writes."""
    span, signs = recording.span, NO_SIGNS
    for name in recording.names.of(recording.families.memo(_witnesses)):
        value = span.attributes[name]
        if isinstance(value, str):
            signs |= {mask.writer for mask, inside in _INSIDE if _is_sign(mask, inside, value)}
    if not (span.events or recording.logs or recording.families.memo(_redaction_counts)):
        return signs  # fast path of most spans
    carriers = [record.attributes for record in (span, *span.events, *recording.logs)]
    return signs | {COLLECTOR_REDACTION} if any(map(_masks_content, carriers)) else signs


_LONGEST: Final = 120
"""The most characters of a mask, except the Collector's `****`, which may be repeated."""
_FIRST: Final = frozenset('rR_<[({E*#- \t\r\n"')
"""The first characters of all masks, with white space and the quote of a JSON text: other texts need no regex."""

_WHOLE: Final = re.compile("|".join(f"({mask.whole})" for mask in MASKS))
_INSIDE: Final = tuple((mask, re.compile(mask.inside)) for mask in MASKS if mask.inside is not None)
_HASH: Final = re.compile(HASH.whole)
_HASH_LENGTHS: Final = frozenset({32, 40, 64, 96, 128})

_COUNTED: Final = "redaction.masked.count"
_NAMED: Final = "redaction.masked.keys"
_BODY_COUNTED: Final = "redaction.body.masked.count"
_WITNESS: Final = re.compile(
    r"(?:user|enduser|client|server|network|net|url|http|session|customer|account|tenant|service|host)\.[\w.\-]{1,80}"
    r"|(?:[\w.\-]{1,80}\.)?(?:user|session|customer|account|tenant)[._](?:id|name|email|ip|address)"
    r"|(?:gen_ai|ai)\.usage\.[\w.]{1,80}|llm\.token_count\.[\w.]{1,80}"
)
"""Attributes with identities, places and counts, which never come from a prompt or an answer."""

_CONTENT_KEY: Final = re.compile(
    r"prompt|completion|message|content|instruction|(?:^|[._])(?:in|out)puts?\b|response|events|body|tool",
    re.IGNORECASE,
)


def _witnesses(families: NameFamilies) -> tuple[str, ...]:
    return tuple(name for name in families.starting("") if _WITNESS.fullmatch(name))


def _redaction_counts(families: NameFamilies) -> tuple[str, ...]:
    return families.among((_NAMED, _COUNTED, _BODY_COUNTED))


def _masks_content(attributes: Mapping[str, Value]) -> bool:
    """Whether the redaction processor masked something that may be content: it names the keys, or only counts."""
    keys = attributes.get(_NAMED)
    if isinstance(keys, str):
        return any(_CONTENT_KEY.search(key) is not None and "token" not in key for key in keys.split(","))
    return any(attributes.get(name) not in (None, 0, "0") for name in (_COUNTED, _BODY_COUNTED))


def _is_sign(mask: Mask, inside: "re.Pattern[str]", value: str) -> bool:
    """Whether the value of such an attribute has the mask."""
    if mask.writer == COLLECTOR_REDACTION:  # only its stars count: ids may be hashes although nothing was masked
        return _STARS_ONLY.search(value) is not None
    return inside.search(value) is not None


_STARS_ONLY: Final = re.compile(_STARS)


def _masked(where: Where, messages: Iterable[Message], signs: Signs) -> Iterator[MaskedText]:
    for index, message in enumerate(messages):
        mask = mask_of(message, signs)
        if mask is not None:
            yield MaskedText(where=where, index=index, mask=mask, evidence=mask.evidence)


def _hashed(prompt: Sequence[Message], answers: Sequence[Message]) -> tuple[MaskedText, ...]:
    """The messages that are hashes of one length, by rule 3.

    These are the whole prompt, or contain an instruction, or are of several roles with the user's among them. Real
    hashes occur in a single role: a user asks about one, or a model or tool answers with one.
    """
    sides: tuple[tuple[Where, Sequence[Message]], ...] = (("prompt", prompt), ("answer", answers))
    hashes: list[tuple[Where, int, Message]] = [
        (where, index, message)
        for where, messages in sides
        for index, message in enumerate(messages)
        if is_hash(message)
    ]
    if not hashes:
        return ()
    masked: list[MaskedText] = []
    for length in {len(message.content or "") for _, _, message in hashes}:
        alike = [one for one in hashes if len(one[2].content or "") == length]
        roles = {message.role for _, _, message in alike}
        is_whole_prompt = sum(where == "prompt" for where, _, _ in alike) == len(prompt) > 0
        is_instruction = not roles.isdisjoint(("system", "developer"))
        if is_whole_prompt or is_instruction or (len(roles) > 1 and "user" in roles):
            evidence = f"messages are hashes of {length} digits"
            masked += [MaskedText(where=where, index=index, mask=HASH, evidence=evidence) for where, index, _ in alike]
    return tuple(masked)


@lru_cache(maxsize=256)
def _mask_of_parts(parts: str, signs: Signs) -> Mask | None:
    """The mask in any text inside a message's parts, e.g. in the URL of an image; None without one."""
    for text in _texts_in(msgspec.json.decode(parts)):
        mask = mask_in(text, signs)
        if mask is not None:
            return mask
    return None


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _texts_in(inner)
    elif isinstance(value, dict):
        for inner in cast("dict[str, object]", value).values():
            yield from _texts_in(inner)
