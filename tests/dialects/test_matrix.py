"""Every dialect, with every mask, limit, doubled export and lost history: right, or not trained and said.

Generated from the recordings and the tables of masks and limits. A new dialect joins by being in `DIALECTS`, with a
recording in one of `FOLDERS`; a new mask or limit by being in its table.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

import msgspec
import pytest

from art_otel.calls import InferenceCall, Message, canonical_arguments
from art_otel.conventions.dialects import DIALECTS
from art_otel.conventions.masks import COLLECTOR_REDACTION, HASH, MASKS, Mask
from art_otel.conventions.value_limits import LIMITS, ValueLimit
from art_otel.trajectories import Trajectory, Turn
from tests.conversions import built, read_records, with_logs
from tests.dialects import mutations
from tests.dialects.expected import UNTRAINED as NOT_TRAINED
from tests.dialects.mutations import Record

TESTS = Path(__file__).parent.parent
UNTRAINED = ("mastra", "nemo_relay")
"""Dialects whose recorders lose something of every call (see `expected.py`)."""

FOLDERS = (
    *("dialects", "recordings/*", "conventions/recorded", "conventions/hidden_histories"),
    *("trajectories/frameworks", "agents"),
)
LARGEST = 100_000
"""Larger recordings are conversations of 402 messages: they are in shorter ones, too."""

HARDER = {
    path.name.partition(".")[0]: path.with_name(path.name.removesuffix(".gz"))
    for path in sorted((TESTS / "dialects").glob("harder_*.jsonl.gz"))
    if ".logs." not in path.name
}
"""The harder conversation, by the newest release of each recorder. Others have the same dialects, and are faster."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a file, what is trained of them, the texts that they say, and the dialects that read them.

    `lost` are complete calls that did not fail, of which something is not trained, or failed ones of which it is.
    `parsed` says that no prompt is a body as it was sent: such a body names the response that it continues.
    """

    name: str
    records: tuple[Record, ...]
    known: Counter
    texts: frozenset[str]
    dialects: frozenset[str]
    lost: tuple[str, ...]
    parsed: bool


Mutation = Callable[[Recorded], tuple[Sequence[Record], Counter]]
"""Gives the records of a recording as something on their way left them, and what there is to train in them."""


FILES = {
    f"{path.parent.name}/{path.stem}": path
    for folder in FOLDERS
    for path in sorted(TESTS.glob(f"{folder}/*.jsonl"))
    if ".logs." not in path.name and path.stat().st_size < LARGEST
}
"""The recordings by name. Each is read when its first test runs, not when tests are collected."""


@cache
def recordings() -> Mapping[str, Recorded]:
    """The recordings of calls, by name."""
    return {name: one for name in FILES if (one := recording(name)).dialects}


@cache
def recording(name: str) -> Recorded:
    """One of these, or a harder one."""
    return recorded(HARDER[name] if name in HARDER else FILES[name])


def recorded(path: Path) -> Recorded:
    records = tuple(read_records(*with_logs(path)))
    trajectories = built(records)
    calls = [call for trajectory in trajectories for call in trajectory.calls]
    messages = [
        message
        for call in calls
        for message in (*(call.input_messages or ()), *[choice.message for choice in call.choices or ()])
    ]
    return Recorded(
        name=path.stem if path.stem in HARDER else f"{path.parent.name}/{path.stem}",
        records=records,
        known=known_of(trajectories),
        texts=frozenset(message.content for message in messages if message.content),
        dialects=frozenset(convention for call in calls for convention in call.conventions),
        lost=tuple(
            trajectory.calls[turn.call].span_id
            for trajectory in trajectories
            for turn in (trajectory.turns if trajectory.complete else ())
            for expected in ("failed" if trajectory.calls[turn.call].failed else None,)
            if (turn.tokens_untrained, turn.text_untrained) != (expected, expected)
        ),
        parsed=all(call.prompt_known != "verbatim body" for call in calls),
    )


def trained_turns(trajectories: Iterable[Trajectory]) -> list[tuple[Turn, InferenceCall]]:
    return [
        (turn, trajectory.calls[turn.call])
        for trajectory in trajectories
        for turn in (trajectory.turns if trajectory.complete else ())
        if turn.text_untrained is None
    ]


def known_of(trajectories: Iterable[Trajectory]) -> Counter:
    """What is trained, in every form in which it may come back: as messages, and as token ids."""
    return Counter(form for turn, call in trained_turns(trajectories) for form in forms_of(turn, call))


def trained_of(trajectories: Iterable[Trajectory]) -> Counter:
    """What is trained, each turn in its first form."""
    return Counter(forms_of(turn, call)[0] for turn, call in trained_turns(trajectories))


def forms_of(turn: Turn, call: InferenceCall) -> list[object]:
    """A turn with its prompt: as messages unless only ids are known, and as ids if these are."""
    has_ids = turn.token_ids is not None and call.prompt_token_ids is not None
    ids = [(call.prompt_token_ids, turn.token_ids)] if has_ids else []
    if has_ids and (call.input_messages is None or turn.message.is_unknown):
        return ids
    prompt = None if call.input_messages is None else tuple(map(said, call.input_messages))
    return [(prompt, said(turn.message)), *ids]


def said(message: Message) -> tuple:
    calls = tuple((call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)
    return message.role, message.content or None, message.refusal, calls


def mask_ways(mask: Mask) -> dict[str, Mutation]:
    """What a mask does to a recording, in the ways that its writer has."""
    text = mask.examples[0]
    ways: dict[str, Mutation] = {
        "texts": lambda one: (mutations.with_texts_masked(one.records, one.texts, text, answers_only=False), one.known),
        "answers": lambda one: (
            mutations.with_texts_masked(one.records, one.texts, text, answers_only=True),
            one.known,
        ),
        "attributes": lambda one: (mutations.with_attributes_masked(one.records, one.texts, text), one.known),
    }
    if mask is HASH:
        del ways["answers"]  # one hash alone is what a model may have been asked for
        each = ways["texts"]
        # It takes whole attributes, so no block of a body.
        ways["texts"] = lambda one: ((), one.known) if not one.parsed and asks_in_blocks(one) else each(one)
    if mask.inside is not None:
        inside = mask.examples[-1]
        sign = {"redaction.masked.count": 1} if mask.writer == COLLECTOR_REDACTION else {"user.email": inside}
        ways["words"] = lambda one: (mutations.with_words_masked(one.records, word_of(one), inside, sign), one.known)
    return {f"{mask.writer}: {way}": mutation for way, mutation in ways.items()}


def asks_in_blocks(one: Recorded) -> bool:
    """Whether every system's and user's message is joined of blocks, so that none stands whole in the recording."""
    texts: set[str] = set()
    mutations.rewritten(one.records, lambda _, value: mutations.each_text(value, lambda text: texts.add(text) or text))
    calls = [call for trajectory in built(one.records) for call in trajectory.calls]
    messages = [message for call in calls for message in call.input_messages or ()]
    return texts.isdisjoint(message.content for message in messages if message.role in ("system", "developer", "user"))


def word_of(one: Recorded) -> str:
    """A word that is said most often, and is no name of anything."""
    words = Counter(word for text in one.texts for word in text.split() if len(word) > 3 and word.isalpha())
    return max(words, key=lambda word: (word.istitle(), words[word], word), default="nobody")


def with_roles_masked(one: Recorded, roles: Collection[str]) -> Sequence[Record]:
    """A recording in which the messages of some roles alone are masked, wherever they stand."""
    calls = [call for trajectory in built(one.records) for call in trajectory.calls]
    messages = [message for call in calls for message in call.input_messages or ()]
    others = {message.content for message in messages if message.role not in roles}
    texts = {message.content for message in messages if message.role in roles and message.content} - others
    return mutations.with_texts_masked(one.records, texts, MASKS[0].examples[0], answers_only=False) if texts else ()


ANY_LENGTH = (1000, 512, 777)
"""Limits that people set where a limit may be any number. An odd one shows itself by three texts."""


def limit_ways(limit: ValueLimit) -> dict[str, Mutation]:
    """What a limit does to a recording of longer texts: if all are longer, and if an answer alone is."""
    ways: dict[str, Mutation] = {}
    for length in ANY_LENGTH if limit.length is None else (limit.length,):
        ways[f"{length}: all"] = lambda one, length=length: cut(one.name, limit, length, answers_only=False)
        if limit.length is not None and length >= 1024:
            ways[f"{length}: answers"] = lambda one, length=length: cut(one.name, limit, length, answers_only=True)
    return {f"{limit.setter}: {way}": mutation for way, mutation in ways.items()}


def cut(name: str, limit: ValueLimit, length: int, *, answers_only: bool) -> tuple[Sequence[Record], Counter]:
    kept = length - len(limit.ending)

    def of(text: str) -> str:
        if limit.unit == "bytes":
            data = text.encode()
            return text if len(data) <= length else data[:kept].decode(errors="ignore") + limit.ending
        return text if len(text) <= length else text[:kept] + limit.ending

    records, known = longer(name, length, answers_only)
    return mutations.cut_at(records, of), known


@lru_cache(maxsize=64)  # all lengths of one recording, which is cut in every way before the next one
def longer(name: str, length: int, answers_only: bool) -> tuple[Sequence[Record], Counter]:
    """A recording as if longer texts had been said, and what is trained of it before it is cut."""
    one = recording(name)
    texts = one.texts
    if answers_only:
        answers = [turn.message.content for turn, _ in trained_turns(built(one.records))]
        texts = frozenset(answer for answer in answers if answer)
    records = mutations.lengthened(one.records, texts, length)
    return records, known_of(built(records))


WAYS: Mapping[str, Mapping[str, Mutation]] = {
    "masks": {
        "left out": lambda one: (mutations.with_attributes_masked(one.records, one.texts, None), one.known),
        "empty objects": lambda one: (
            # LangSmith and ADK hide bodies like that; OpenInference has a mask.
            one.records
            if "openinference.flattened" in one.dialects
            else mutations.with_attributes_masked(one.records, one.texts, "{}", only_json=True),
            one.known,
        ),
        "system prompts": lambda one: (with_roles_masked(one, ("system", "developer")), one.known),
        "answers of tools": lambda one: (with_roles_masked(one, ("tool",)), one.known),
        **{way: mutation for mask in (*MASKS, HASH) for way, mutation in mask_ways(mask).items()},
    },
    "limits": {way: mutation for limit in LIMITS for way, mutation in limit_ways(limit).items()},
    "deliveries": {
        "doubled": lambda one: (mutations.doubled(one.records), one.known),
        "written twice": lambda one: (mutations.written_twice(one.records), one.known),
        "history on the server": lambda one: (mutations.without_history(one.records) if one.parsed else (), one.known),
    },
}


def silent(name: str, ways: Mapping[str, Mutation]) -> list[str]:
    """The ways in which something is trained that was not said, or too often, or in which no reason is given."""
    found: list[str] = []
    for way, mutation in ways.items():
        records, known = mutation(recording(name))
        trajectories = built(records)
        is_explained = all(trajectory.complete or trajectory.incomplete_reasons for trajectory in trajectories)
        if trained_of(trajectories) - known or not is_explained:
            found.append(way)
    return found


@pytest.mark.parametrize("name", FILES)
def test_what_is_complete_is_trained(name):
    """What nobody doubts and nothing trains would be lost in silence."""
    one = recording(name)
    assert name.rpartition("/")[2] in NOT_TRAINED or not one.lost


def test_the_product_changes_what_is_trained_of_every_dialect():
    """Otherwise everything would be right, because nothing was changed, or nothing trained before."""
    trained = [one for one in recordings().values() if one.known]
    masked = {one.name: WAYS["masks"]["LiteLLM: texts"](one)[0] for one in trained}
    assert [one.name for one in trained if list(one.records) == masked[one.name]] == []
    for dialect in {dialect.convention for dialect in DIALECTS} - {*UNTRAINED}:
        of_dialect = [one for one in trained if dialect in one.dialects]
        assert any(longer(one.name, 2048, answers_only=False)[1] for one in of_dialect), dialect
    assert {*UNTRAINED} <= {name for one in recordings().values() for name in one.dialects}


DAILY = 4 * len(WAYS)
"""Every day one of four recordings is changed, in one kind of way; all of them in all ways in CI."""

EVERY_DAY = {
    (name, kind)
    for number, name in enumerate(name for name in FILES if not name.endswith("/long100"))
    for at, kind in enumerate(WAYS)
    if (number + at) % DAILY == 0
}
"""A hundred turns, each changed in every way, and the harder ones take longer."""

EACH_IN_EACH = [
    pytest.param(name, kind, id=f"{name}-{kind}", marks=[pytest.mark.long] * ((name, kind) not in EVERY_DAY))
    for name in (*FILES, *HARDER)
    for kind in WAYS
]


@pytest.mark.parametrize(("name", "kind"), EACH_IN_EACH)
def test_what_is_trained_was_said(name, kind):
    assert silent(name, WAYS[kind]) == []
