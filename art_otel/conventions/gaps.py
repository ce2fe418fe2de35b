"""Gaps: what of a call's content is not, or may not be, what was sent and sampled, although it could be read.

`calls.GapKind` lists the kinds of gaps, `trajectories.wholeness.REASONS` says what follows from each. Invariant: a
dialect that does not say how it knows its content gives a gap; every other gap needs a sign in the recording: a count
of dropped attributes, a mark of its recorder, a mask (`masks`), a length that is a limit (`value_limits`), a part of an
unknown type, or a recorder that is known to lose or rewrite just this (`_JUDGES`).
What the conversation itself shows is `trajectories.wholeness`' subject.

A recorder is judged only with what its source or a recording beside the model's server shows, and where a call has the
shape that it spoils. The docs say which instrumentor to use instead.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Gap, GapKind, Message, canonical_arguments
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeNames, PrefixCache, SpanRecording
from art_otel.conventions.bodies.parts import is_compaction
from art_otel.conventions.bodies.parts import is_known as is_known_part
from art_otel.conventions.dialects import art, nemo_relay
from art_otel.conventions.facts import CallFacts, choices_without_ids, with_gap
from art_otel.conventions.masks import find_masked, is_hash, is_plain, mask_of, signs_of
from art_otel.conventions.references import find_unread, refers_to_content
from art_otel.conventions.value_limits import cut_values
from art_otel.conventions.vocabulary import COMPACTION, UNKNOWN_ROLE, is_responses_api_id
from art_otel.spans import Attributes, Scope, Span, Value

_Sign: TypeAlias = tuple[GapKind, str]
"""The kind and the evidence of a gap in a message."""

_FLAG: Final = re.compile(r"(?:.*[._])?truncated(?:_(?:messages|parts|content|input|output|prompt|completion|count))?")
"""Names of attributes by which recorders say that they cut content: `anthropic.content.truncated`, …."""

_MARKS: Final = ("[truncated]", "[TRUNCATED]", "<truncated>", "(truncated)")
"""How a cut text ends. Tools write it too, so it shows nothing at the end of what they or users said."""

_REPLACED: Final = "<truncated due to size exceeding limit>"
"""What Langfuse writes in place of content."""

_JSON: Final = json.JSONDecoder()

_ASKING: Final = ("system", "developer", "user")
"""Roles of messages that nobody sends without content. Tools may return nothing."""

_TRUNCATING: Final = "truncate_prompt_tokens"

_LAST_CHARACTERS: Final = frozenset(mark[-1] for mark in (*_MARKS, _REPLACED))


def find_gaps(recording: SpanRecording, facts: CallFacts, reasons: Collection[str | None] = ()) -> tuple[Gap, ...]:
    """The gaps of a call, each once: those of its dialects and what its span and its messages show.

    `reasons` are the finish reasons that an attribute of the span has.
    """
    span, logs, names = recording.span, recording.logs, recording.names
    of_dialects = [gap for gap in facts.gaps if gap.kind != "aborted" or not facts.stream]  # such a stream broke
    gaps = [*of_dialects, *_of_messages(recording, facts)]
    if COMPACTION in (*reasons, *(choice.finish_reason for choice in facts.choices or ())):
        gaps.append(Gap(kind="compacted", field="prompt", evidence=f"finish reason {COMPACTION}"))
    if cut := cut_values(recording):
        gaps += [Gap(kind="cut", field=value.field, evidence=value.evidence) for value in cut]
    if "unknown" in (facts.prompt_known, facts.answer_known):
        gaps.append(Gap(kind="not understood", field="call", evidence=f"no source: {', '.join(facts.conventions)}"))
    if dropped := sum([log.dropped_attributes_count for log in logs], span.dropped_attributes_count):
        gaps.append(Gap(kind="dropped", field=_field_of_dropped(facts), evidence=f"{dropped} attributes"))
    if names.memo(_truncation_flags) or span.events or logs:
        gaps += _flags(recording)
    if logs or names.memo(refers_to_content):
        gaps += find_unread(recording, facts)
    if span.scope.name in _JUDGED_SCOPES or names.memo(_has_nemo_relay_names):
        gaps += find_losses(span, names, facts)
    gaps += _of_parameters(facts)
    if names.memo(art.has_extras) or logs:
        gaps += art.read_gaps(recording)
    return tuple(dict.fromkeys(gaps)) if gaps else ()


def _of_messages(recording: SpanRecording, facts: CallFacts) -> list[Gap]:
    """The gaps that messages show, and those of masks and hashes, which the rest of the call confirms."""
    gaps: list[Gap] = []
    judged = _judge_prompt(facts.input_messages) if facts.input_messages else _NOTHING_JUDGED
    has_hash = judged.has_hash
    if judged.signs:
        gaps += [Gap(kind=kind, field="prompt", evidence=sign) for kind, sign in judged.signs]
    for choice in facts.choices or ():
        judged = _judge((choice.message,), _NOTHING_JUDGED)
        has_hash = has_hash or judged.has_hash
        if judged.signs:
            # A server that compacts while it answers samples the answer from another prompt than was sent.
            fields = {"compacted": "prompt"}
            gaps += [
                Gap(kind=kind, field=fields.get(kind, f"answer[{choice.index}]"), evidence=sign)
                for kind, sign in judged.signs
            ]
    is_masked = has_hash or any(gap.kind == "masked" for gap in (*facts.gaps, *gaps))
    return [*gaps, *_masked(recording, facts)] if is_masked or signs_of(recording) else gaps


def _masked(recording: SpanRecording, facts: CallFacts) -> list[Gap]:
    """Find the masked messages of a call, if a message of it is a mask or a hash, or its span shows a mask."""
    prompt, choices = facts.input_messages or (), facts.choices or ()
    answers = [choice.message for choice in choices]
    return [
        Gap(
            kind="masked",
            field="prompt" if one.where == "prompt" else f"answer[{choices[one.index].index}]",
            evidence=one.evidence,
        )
        for one in find_masked(recording, prompt, answers)
    ]


def _of_parameters(facts: CallFacts) -> Iterator[Gap]:
    """What the request asked for, and the recording does not have or cannot show.

    More choices than were recorded: Traceloop's JavaScript writes the first one only. A prompt of which vLLM may leave
    out what is too much (-1: what the model's context does not hold), and no count shows that it was short enough.
    """
    if "n" in facts.parameters:
        asked = values.integer(facts.parameters["n"])
        if asked is not None and facts.choices and len(facts.choices) < asked and facts.answer_known != "verbatim body":
            missing = f"answer[{len(facts.choices)}]"  # those that were recorded are as they were sampled
            yield Gap(kind="lossy recorder", field=missing, evidence=f"{len(facts.choices)} of {asked} choices")
    if _TRUNCATING in facts.parameters:
        allowed = values.integer(facts.parameters[_TRUNCATING])
        counted = None if facts.usage is None else facts.usage.input_tokens
        if allowed is None or counted is None or counted >= allowed:
            yield Gap(kind="compacted", field="prompt", evidence=f"{_TRUNCATING} {facts.parameters[_TRUNCATING]}")


def with_several_prompts(facts: CallFacts) -> CallFacts:
    """Add the gap of a request of Completions that had several prompts, so that its choices share none.

    They were recorded, or there are more choices than it asked of one prompt.
    """
    if facts.input_messages is not None or facts.prompt_token_ids is not None:
        return facts
    prompts, choices = values.items(facts.parameters.get("prompt")) or (), facts.choices or ()
    asked = values.integer(facts.parameters.get("n")) or 1
    if len(prompts) <= 1 and len(choices) <= asked:
        return facts
    evidence = f"{len(prompts)} prompts" if len(prompts) > 1 else f"{len(choices)} choices, {asked} of each prompt"
    return with_gap(facts, "several prompts", evidence, field="prompt")


def without_miscounted_ids(facts: CallFacts) -> CallFacts:
    """Leave out token ids that are not as many as the server counted; the gap says so.

    `facts` are those of one dialect: its count is the server's own, where another recorder may have estimated one.
    llama.cpp lists no token that ends inside a character. Where choices are missing, fewer ids are no sign; where the
    model reasoned, more are none: some servers do not count that.
    """
    counted = None if facts.usage is None else facts.usage.output_tokens
    ids = [choice.token_ids for choice in facts.choices or () if choice.token_ids is not None]
    if counted is None or not ids or values.flag(facts.parameters.get("echo")):
        return facts
    listed = sum(map(len, ids))
    messages = [choice.message for choice in facts.choices or ()]
    if listed > counted:
        is_explained = any(message.reasoning is not None for message in messages)
    else:
        is_explained = listed == counted or not _has_all_choices(facts, len(ids))
    if is_explained:
        return facts
    is_text_known = not any(message.is_unknown for message in messages)
    return with_gap(
        without_ids(facts),
        "miscounted",
        f"{listed} token ids of {counted} tokens",
        field="tokens" if is_text_known else "answer",
    )


def without_ids(facts: CallFacts) -> CallFacts:
    """Leave out the ids of the answers, and what is said of each token."""
    return msgspec.structs.replace(facts, choices=choices_without_ids(facts.choices)) if facts.choices else facts


def _has_all_choices(facts: CallFacts, count: int) -> bool:
    """Whether the server counted no other tokens than those of so many choices."""
    prompts = values.items(facts.parameters.get("prompt"))
    asked = (values.integer(facts.parameters.get("n")) or 1) * len(prompts or (None,))
    sampled = values.integer(facts.parameters.get("best_of")) or 1
    return count == len(facts.choices or ()) and count >= max(asked, sampled)


def _field_of_dropped(facts: CallFacts) -> str:
    """The field that dropped attributes may be of: none of the content where one attribute has it whole."""
    in_pieces = (None, "flattened attributes", "unknown")
    return "call" if facts.prompt_known in in_pieces or facts.answer_known in in_pieces else "parameters"


def _flags(recording: SpanRecording) -> Iterator[Gap]:
    """What a span or its events say by a flag `….truncated`."""
    span, logs = recording.span, recording.logs
    flagged = [(span.attributes, name) for name in recording.names.memo(_truncation_flags)]
    carriers: list[Attributes] = [*(event.attributes for event in span.events), *(log.attributes for log in logs)]
    flagged += [(attributes, name) for attributes in carriers for name in attributes if "truncated" in name]
    for attributes, name in flagged:
        if _FLAG.fullmatch(name) and (values.flag(attributes[name]) or values.integer(attributes[name])):
            yield Gap(kind="cut", field="call", evidence=name)


def _truncation_flags(names: AttributeNames) -> tuple[str, ...]:
    return tuple(name for name in names.starting("") if _FLAG.fullmatch(name))


class _Judged(NamedTuple):
    """The signs of gaps in a prompt, and whether one of its messages is a hash."""

    signs: tuple[_Sign, ...]
    has_hash: bool


_NOTHING_JUDGED: Final = _Judged((), has_hash=False)

_PROMPTS: Final[PrefixCache[tuple[Message, ...], _Judged]] = PrefixCache(
    lambda prompt, piece, position: prompt[position : position + len(piece)] == piece
)
"""What the prompts judged last showed."""


def _judge_prompt(prompt: tuple[Message, ...]) -> _Judged:
    """Judge a prompt; its messages that were judged before are not judged again."""
    earlier = _PROMPTS.find(prompt)
    if earlier is None:
        judged = _judge(prompt, _NOTHING_JUDGED)
    elif earlier.length == len(prompt):
        return earlier.value
    else:
        judged = _judge(prompt[earlier.length :], earlier.value)
    _PROMPTS.keep(prompt, judged, earlier=earlier)
    return judged


def _judge(messages: Iterable[Message], judged: _Judged) -> _Judged:
    """Add to what was judged the signs of gaps in further messages, most of which have nothing to judge."""
    for message in messages:
        text = message.content
        if text is None or text[-1:] in _LAST_CHARACTERS or message.role == UNKNOWN_ROLE or not is_plain(message):
            judged = _Judged(judged.signs + _signs_of(message), judged.has_hash or is_hash(message))
    return judged


def _signs_of(message: Message) -> tuple[_Sign, ...]:
    text = message.content
    signs: list[_Sign] = []
    if (mask := mask_of(message)) is not None:
        signs.append(("masked", mask.evidence))
    if message.role in _ASKING and message.is_unknown:
        signs.append(("off", f"a message of role {message.role} without content"))
    if message.role == UNKNOWN_ROLE:
        signs.append(("not understood", f"a message of role {UNKNOWN_ROLE}"))
    if message.parts is not None:
        signs.extend(_signs_of_parts(message.parts))
    if text is not None and (text == _REPLACED or (message.role in ("assistant", "system") and text.endswith(_MARKS))):
        signs.append(("cut", text[-40:]))
    return tuple(signs)


@lru_cache(maxsize=256)
def _signs_of_parts(json_text: str) -> tuple[_Sign, ...]:
    signs: list[_Sign] = []
    parts: list[dict[str, Value]] = msgspec.json.decode(json_text)
    for part in parts:
        kind = f"parts of type {part.get('type')}"
        if is_compaction(part):
            signs.append(("compacted", kind))
        elif not is_known_part(part):
            signs.append(("not understood", kind))
    return tuple(dict.fromkeys(signs))


_Judge: TypeAlias = Callable[[CallFacts], str | None]
"""Says which field of a call (see `calls.Gap`) its recorder lost or rewrote; None where it did not."""


def find_losses(span: Span, names: AttributeNames, facts: CallFacts) -> tuple[Gap, ...]:
    """The gaps of a call that its recorder's scope shows, and the names of the attributes that it wrote."""
    judges = list(_judges(span.scope, names))
    evidence = f"{span.scope.name} {span.scope.version}".strip()
    if names.memo(_has_nemo_relay_names) or (span.scope.name == _NEMO_RELAY_SCOPE and _is_of_rust(span)):
        judges, evidence = [_keeps_last_turn], "NeMo Relay"
    if not judges:
        return ()
    fields = [judge(facts) for judge in judges]
    return tuple(Gap(kind="lossy recorder", field=field, evidence=evidence) for field in fields if field)


def _judges(scope: Scope, names: AttributeNames) -> Iterator[_Judge]:
    if scope.name in _JUDGES:
        yield _JUDGES[scope.name]
    for first, mended, judge in _VERSIONS.get(scope.name, ()):
        if first <= values.version_numbers(scope.version) < mended:
            yield judge
    if scope.name in _BEFORE:
        later, judge = _BEFORE[scope.name]
        if later not in names:
            yield judge


_NEMO_RELAY_SCOPE: Final = "opentelemetry"
"""The scope of its spans, unless it is configured. Its export of GenAI's attributes has no other sign."""


def _has_nemo_relay_names(names: AttributeNames) -> bool:
    return bool(names.starting(nemo_relay.PREFIX))


def _is_of_rust(span: Span) -> bool:
    return span.resource.attributes.get("telemetry.sdk.language") == "rust"


def _keeps_last_turn(facts: CallFacts) -> str | None:
    """NeMo Relay keeps of a prompt its system messages and what begins with the last message of the user.

    No sign tells a prompt that lost its beginning from one that has no more.
    """
    asked = [message.role for message in facts.input_messages or ()].count("user")
    return "prompt" if facts.input_messages is not None and asked <= 1 else None


def is_error_unknown(scope: str, response_id: str | None) -> bool:
    """Whether a finish reason `error` means nothing: genai-langchain writes it for all answers of the Responses API."""
    return scope == "opentelemetry.instrumentation.genai.langchain" and is_responses_api_id(response_id)


def _loses_text_of_answers(facts: CallFacts) -> str | None:
    """Botocore writes the tool calls of an answer or its text, never both; genai-langchain before 1.3 does so, too."""
    answers = [choice.message for choice in facts.choices or ()]
    return "answer" if any(map(_is_tool_calls_only, answers)) else None


def _loses_text(facts: CallFacts) -> str | None:
    """Semantic Kernel does the same, in prompts too."""
    return "call" if any(map(_is_tool_calls_only, _assistant_messages(facts))) else None


def _loses_text_of_prompts(facts: CallFacts) -> str | None:
    """OpenLLMetry's LangChain left the text beside tool calls out of prompts before 0.46."""
    prompt = [one for one in facts.input_messages or () if one.role == "assistant"]
    return "prompt" if any(map(_is_tool_calls_only, prompt)) else None


def _loses_tool_calls(facts: CallFacts) -> str | None:
    """Instrumentors of frameworks may lose the tool calls of a prompt, of which the tools' answers are left."""
    if facts.previous_response_id is not None:
        return None
    called = True
    for message in facts.input_messages or ():
        if message.role != "tool":
            called = message.role != "assistant" or bool(message.tool_calls)
        elif not called and message.tool_call_id is not None:
            return "prompt"
    return None


def _loses_answers_of_tools(facts: CallFacts) -> str | None:
    """OpenInference's Bedrock kept the last of several answers of tools; the server asks for all."""
    unanswered = 0
    for message in facts.input_messages or ():
        if message.role == "assistant":
            unanswered = len(message.tool_calls)
        elif unanswered > 0 and message.tool_call_id is None:
            return "prompt"
        else:
            unanswered -= 1
    return "prompt" if unanswered > 0 else None


def _loses_arguments(facts: CallFacts) -> str | None:
    """OpenLLMetry's Bedrock gives `{}` for the arguments in a stream of InvokeModel, of which it records no tools.

    A whole answer of InvokeModel looks the same, so a tool that takes no arguments is doubted there, too.
    """
    calls = [call for choice in facts.choices or () for call in choice.message.tool_calls]
    is_lost = not facts.tools and any(canonical_arguments(call.arguments) == "{}" for call in calls)
    return "answer" if is_lost else None


def _is_tool_calls_only(message: Message) -> bool:
    return bool(message.tool_calls) and not message.content


def _shows_thoughts_as_text(facts: CallFacts) -> str | None:
    """ADK writes thoughts as text parts before the text, and says only by the usage that there were any.

    Its own request and response, where they are recorded, tell them apart.
    """
    if "google_adk" in facts.conventions:
        return None
    answers = [choice.message for choice in facts.choices or () if choice.message.reasoning is None]
    return _has_thoughts_in_texts(facts, answers)


def _has_thoughts_in_texts(facts: CallFacts, answers: Iterable[Message]) -> str | None:
    """Whether a message was recorded as several texts, or a text of these answers may be thoughts that were counted."""
    is_counted = facts.usage is not None and bool(facts.usage.reasoning_tokens)
    rewritten = any(
        message.reasoning is None and message.parts is not None and message.parts.count('"type":"text"') > 1
        for message in _assistant_messages(facts)
    ) or (is_counted and any(answer.tool_calls and answer.content for answer in answers))
    return "call" if rewritten else None


def _shows_texts(facts: CallFacts) -> str | None:
    """OTel's google-genai wrote thoughts as texts before 1.3, and says of none that it is one.

    Beside a tool call one text may be the thought alone, where tokens of thoughts were counted.
    """
    if facts.operation_name != "generate_content":
        return None
    return _has_thoughts_in_texts(facts, [choice.message for choice in facts.choices or ()])


def _shows_unfinished(facts: CallFacts) -> str | None:
    """OTel's google-genai writes an empty answer with `stop` for an interaction that goes on in the background."""
    messages = [choice.message for choice in facts.choices or ()]
    is_empty = not any(one.content or one.tool_calls or one.reasoning or one.parts for one in messages)
    return "answer" if messages and is_empty and facts.usage is None else None


def _joins_streams(facts: CallFacts) -> str | None:
    """OpenInference's google-genai made one part of all parts of a stream: with one tool call, texts as thoughts."""
    answers = [choice.message for choice in facts.choices or ()] if facts.stream else []
    return "answer" if any(one.tool_calls or one.reasoning is not None for one in answers) else None


def _loses_further_tool_calls(facts: CallFacts) -> str | None:
    """The openlit SDK kept the first tool call of Anthropic's answers before 1.45."""
    return "answer" if any(choice.message.tool_calls for choice in facts.choices or ()) else None


def _loses_items(facts: CallFacts) -> str | None:
    """OpenLLMetry left function calls and their answers out of the Responses API's prompts before 0.55."""
    return "prompt" if facts.tools and is_responses_api_id(facts.response_id) else None


def _loses_items_of_input(facts: CallFacts) -> str | None:
    """LiteLLM's callback writes all items of the Responses API's prompts as messages.

    One without a role or content (reasoning, a function call, its output) is a user's empty message.
    """
    is_lost = any(one.role == "user" and one.content == "" for one in facts.input_messages or ())
    return "prompt" if is_lost and is_responses_api_id(facts.response_id) else None


def _loses_response_instructions(facts: CallFacts) -> str | None:
    """LiteLLM's newer OTel leaves the instructions out of the Responses API's prompts."""
    prompt = facts.input_messages
    has_instructions = prompt is not None and any(one.role in ("system", "developer") for one in prompt[:1])
    return None if has_instructions or not is_responses_api_id(facts.response_id) else "prompt"


def _loses_items_of_history(facts: CallFacts) -> str | None:
    """OTel's genai-openai left function calls and their outputs out of the Responses API's prompts before 1.2.

    Only then is this its scope, whose version is another package's. A prompt without an answer may be a first one.
    """
    has_history = any(one.role == "assistant" for one in facts.input_messages or ())
    return "prompt" if has_history and is_responses_api_id(facts.response_id) else None


def _flattens_without_items(facts: CallFacts) -> str | None:
    """Laminar leaves the same out where it flattens a prompt; beside that it writes the items as they were sent."""
    return _loses_items_of_history(facts) if facts.prompt_known == "flattened attributes" else None


def _loses_parameters(facts: CallFacts) -> str | None:
    """LiveKit writes the definitions of functions without their parameters, which GenAI's conventions leave open."""
    return "tools" if facts.tools and not any(map(_has_parameters, facts.tools)) else None


def _has_parameters(tool: Value) -> bool:
    fields = values.mapping(tool) or {}
    return fields.get("type") != "function" or "parameters" in (values.mapping(fields.get("function")) or {})


def _loses_responses(facts: CallFacts) -> str | None:
    """OpenLLMetry's JavaScript writes the Responses API's input as one text of JSON, no instructions and no calls."""
    return "call" if is_responses_api_id(facts.response_id) else None


def _joins_tool_calls(facts: CallFacts) -> str | None:
    """OpenInference's JavaScript joins the tool calls of a stream: `look` and `now` are `looknow` with `{"x": 1}{}`."""
    calls = [call for choice in facts.choices or () for call in choice.message.tool_calls]
    return "answer" if any(_is_joined(call.arguments) for call in calls) else None


def _is_joined(arguments: str) -> bool:
    """Whether arguments are more than one JSON object."""
    try:
        _, end = _JSON.raw_decode(arguments.lstrip())
    except ValueError:
        return False
    return arguments.lstrip()[end:].lstrip().startswith("{")


def _keeps_unsent_text(facts: CallFacts) -> str | None:
    """In the Responses API (there, calls are `fc_…`), agno does not send the text beside calls, but records it."""
    prompt = facts.input_messages or ()
    is_of_responses = any((message.tool_call_id or "").startswith("fc_") for message in prompt)
    rewritten = any(message.role == "assistant" and message.tool_calls and message.content for message in prompt)
    return "prompt" if is_of_responses and rewritten else None


def _loses_functions(facts: CallFacts) -> str | None:
    """OpenLLMetry writes neither the calls nor the results of the older `functions`, nor a refusal in a prompt.

    What is left is an assistant's message that says nothing. In a traced app, the request itself tells what it said.
    """
    says_nothing = any(one.role == "assistant" and one.is_unknown for one in facts.input_messages or ())
    return "prompt" if says_nothing and "art" not in facts.conventions else None


def _keeps_reasoning_apart(facts: CallFacts) -> str | None:
    """pydantic-ai sends the reasoning of earlier answers as `<think>` in the text, and records it beside the text.

    Chat Completions have a field for it from 1.60 on; the Responses API has none where the model is not OpenAI's.
    """
    prompt = facts.input_messages or ()
    is_there = any(message.role == "assistant" and message.reasoning is not None for message in prompt)
    return "prompt" if is_there else None


def _keeps_reasoning_apart_of_responses(facts: CallFacts) -> str | None:
    return _keeps_reasoning_apart(facts) if is_responses_api_id(facts.response_id) else None


def _assistant_messages(facts: CallFacts) -> list[Message]:
    prompt = [message for message in facts.input_messages or () if message.role == "assistant"]
    return [*prompt, *(choice.message for choice in facts.choices or ())]


_JUDGES: Final[dict[str, _Judge]] = {
    "@arizeai/openinference-instrumentation-openai": _joins_tool_calls,
    "@traceloop/instrumentation-openai": _loses_responses,
    "gcp.vertex.agent": _shows_thoughts_as_text,
    "litellm": _loses_items_of_input,
    "livekit-agents": _loses_parameters,
    "lmnr.tracer": _flattens_without_items,
    "openinference.instrumentation.agno": _keeps_unsent_text,
    "openinference.instrumentation.bedrock": _loses_answers_of_tools,
    "openinference.instrumentation.crewai": _loses_tool_calls,
    "openinference.instrumentation.haystack": _loses_tool_calls,
    "openinference.instrumentation.langchain": _loses_tool_calls,
    "openinference.instrumentation.llama_index": _loses_tool_calls,
    "openlit.instrumentation.openai": _loses_tool_calls,
    "opentelemetry.instrumentation.bedrock": _loses_arguments,
    "opentelemetry.instrumentation.crewai": _loses_tool_calls,
    "opentelemetry.instrumentation.haystack": _loses_tool_calls,
    "opentelemetry.instrumentation.langchain": _loses_tool_calls,
    "opentelemetry.instrumentation.llamaindex": _loses_tool_calls,
    "opentelemetry.instrumentation.openai.v1": _loses_functions,
    "opentelemetry.instrumentation.botocore.bedrock-runtime": _loses_text_of_answers,
    "opentelemetry.util.genai.handler": _loses_items_of_history,
    "semantic_kernel.utils.telemetry.model_diagnostics.decorators": _loses_text,
}

_Version: TypeAlias = tuple[int, ...]

_VERSIONS: Final[dict[str, tuple[tuple[_Version, _Version, _Judge], ...]]] = {
    "litellm": (((0,), values.LATEST, _loses_response_instructions),),  # its callback, which has them, names no version
    "openinference.instrumentation.google_genai": (((0,), (1, 4), _joins_streams),),
    "opentelemetry.instrumentation.genai.langchain": (((0,), (1, 3), _loses_text_of_answers),),
    "opentelemetry.instrumentation.google_genai": (
        ((0,), (1, 3), _shows_texts),
        ((1, 3), values.LATEST, _shows_unfinished),
    ),
    "opentelemetry.instrumentation.langchain": (((0,), (0, 46), _loses_text_of_prompts),),
    "opentelemetry.instrumentation.openai.v1": (((0,), (0, 55), _loses_items),),
    "opentelemetry.util.genai.handler": (((0,), (1, 3), _shows_texts),),
    "pydantic-ai": (
        ((0, 8), (1, 60), _keeps_reasoning_apart),
        ((1, 60), values.LATEST, _keeps_reasoning_apart_of_responses),
    ),
}
"""Recorders of which some versions are doubted: the first, the first that is mended, and how they are judged."""

_BEFORE: Final[dict[str, tuple[str, _Judge]]] = {
    "openlit.instrumentation.anthropic": ("gen_ai.tool.call.arguments", _loses_further_tool_calls),
}
"""Recorders that name no version: an attribute that came with the mended one, and how those without it are judged."""

_JUDGED_SCOPES: Final = frozenset((*_JUDGES, *_VERSIONS, *_BEFORE, _NEMO_RELAY_SCOPE))
