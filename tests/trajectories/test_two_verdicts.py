"""Ids are doubted by ids, and text by text: whatever an agent does, exact ids are trained, and nothing doubtful is.

What ordinary agents do looks like a loss to whoever sees texts alone, and says nothing of the ids that a server gave.
"""

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.calls import CONTENT_GAPS, Gap, GapKind, InferenceCall, Message, ToolCall
from art_otel.data import message_batches
from art_otel.data.retokenize import histories_without_ids
from art_otel.trajectories import Trajectory, histories, token_histories
from tests.conversions import built, read_records
from tests.data.rollouts import user
from tests.trajectories.agents import agent_calls
from tests.trajectories.calls import trajectory_of
from tests.trajectories.exchanges import RECORDERS, Exchange, Rollouts


def said(content: str | None = None, *tools: ToolCall) -> Message:
    return Message(role="assistant", content=content, tool_calls=tools)


def tool(number: int = 0) -> ToolCall:
    return ToolCall(id=f"c{number}", name="look", arguments='{"city": "Paris"}')


def result(number: int = 0) -> Message:
    return Message(role="tool", content="sun", tool_call_id=f"c{number}")


def talk(*messages: Message, **told) -> list[Exchange]:
    """A conversation: each message of the assistant is sampled from all before it, of three tokens."""
    exchanges: list[Exchange] = []
    ids: list[int] = []
    for at, message in enumerate(messages):
        if message.role == "assistant":
            sampled = [10 * len(exchanges) + token for token in (1, 2, 3)]
            finish = {"finish": "tool_calls" if message.tool_calls else "stop", **told}
            exchanges.append(Exchange(messages[:at], message, list(ids), sampled, **finish))
            ids += sampled
        else:
            ids += [500 + at, 600 + at]
    return exchanges


Q = user("q")
CALLED = said("Let me look.", tool())
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

HABITS = {
    "tools that all answer": talk(Q, CALLED, result(), said("sun")),
    "two parallel calls, of which one runs": talk(Q, said(None, tool(), tool(1)), result(), said("sun")),
    "another ask with a call pending": talk(Q, CALLED, said("I stop here.")),
    "a call that the user answers": talk(Q, CALLED, user("yes"), said(None, tool(1)), user("ok"), said("done")),
    "results of calls that are read from the text": talk(
        Q, said("<look>Paris</look>"), result(7), said("<look>Tokyo</look>"), result(8), said("sun")
    ),
    "finish reason tool_calls and no parsed call": talk(Q, said("<tool_call>{bad"), finish="tool_calls"),
    "the answer is [REDACTED]": talk(Q, said("[REDACTED]")),
    "the answer is [EMAIL_ADDRESS]": talk(Q, said("[EMAIL_ADDRESS]")),
    "the answer ends in [truncated]": talk(Q, said("see the log [truncated]")),
    "an empty answer of several tokens": talk(Q, said("")),
    "an answer that is a hash": talk(Q, said(HASH)),
    "a system prompt of 4096 characters": talk(Message(role="system", content="s" * 4096), Q, said("x")),
}
"""What agents and policies ordinarily do."""

BODIES = {"gateway", "OpenInference", "live, OpenInference body", "verifiers", "ATIF"}
"""Recorders that keep the prompt as it was sent: it is what it is, however it looks."""

DOUBTED_PROMPT = {
    "two parallel calls, of which one runs": {1},
    "another ask with a call pending": {1},
    "a call that the user answers": {1, 2},
    "results of calls that are read from the text": {1, 2},
}
"""Turns whose prompt looks as if a recorder had lost some of it."""

DOUBTED_ANSWER = {
    "finish reason tool_calls and no parsed call": set(RECORDERS) - BODIES - {"LiteLLM"},  # of answers a body, too
    "the answer is [REDACTED]": set(RECORDERS),
    "the answer is [EMAIL_ADDRESS]": set(RECORDERS),
    "the answer ends in [truncated]": set(RECORDERS),
    "an empty answer of several tokens": {"Langfuse", "MLflow", "LangSmith"},  # they parse it, and know usage
    "a system prompt of 4096 characters": {"live, OpenInference flattened", "live, OpenLLMetry", "Agent Lightning"},
}
"""Recorders whose text of the only turn looks masked, cut or lost."""


def doubted(habit: str, recorder: str) -> set[int]:
    """The turns whose text is not trained."""
    if habit in DOUBTED_PROMPT:
        return set() if recorder in BODIES else DOUBTED_PROMPT[habit]
    return {0} if recorder in DOUBTED_ANSWER.get(habit, ()) else set()


def recorded(folder: Path, recorder: str, rollouts: Rollouts, *, with_ids: bool = True) -> dict[str, Trajectory]:
    """The trajectories by their ids."""
    return {one.rollout_id: one for one in built(read_records(*RECORDERS[recorder](folder, rollouts, with_ids)))}


def trained_ids(found: dict[str, Trajectory], **options) -> dict[str, list[list[int]]]:
    """The ids of each completion that batches train, by rollout."""
    batches = art_otel.batches(found.values(), advantage=None, **options)
    trained: dict[str, list[list[int]]] = {}
    for sequences in batches.sequences_by_trajectory():
        for one in sequences:
            spans = [one.input_ids[span.start : span.end].tolist() for span in one.completions]
            trained.setdefault(one.rollout_id, []).extend(spans)
    return trained


def trained_texts(found: dict[str, Trajectory]) -> Counter[str]:
    """How many messages are fine-tuned on, by rollout."""
    examples = message_batches(found.values(), allow_incomplete=True, length="keep", status=None).examples()
    return Counter(example.rollout_id for example in examples for _ in filter(None, example.train))


@pytest.mark.parametrize("recorder", RECORDERS)
def test_exact_ids_are_trained_whatever_the_agent_does(tmp_path, recorder):
    found = recorded(tmp_path, recorder, HABITS)
    verdicts = {habit: [turn.tokens_untrained for turn in one.turns] for habit, one in found.items()}
    assert verdicts == {habit: [None] * len(exchanges) for habit, exchanges in HABITS.items()}
    assert trained_ids(found) == {habit: [one.ids for one in exchanges] for habit, exchanges in HABITS.items()}


@pytest.mark.parametrize("recorder", RECORDERS)
def test_text_is_doubted_by_its_looks(tmp_path, recorder):
    found = recorded(tmp_path, recorder, HABITS, with_ids=False)
    untrained = {
        habit: {at for at, turn in enumerate(one.turns) if turn.text_untrained == "content uncertain"}
        for habit, one in found.items()
    }
    assert untrained == {habit: doubted(habit, recorder) for habit in HABITS}
    wanted = {habit: len(exchanges) - len(untrained[habit]) for habit, exchanges in HABITS.items()}
    assert trained_texts(found) == Counter(wanted)
    assert trained_ids(found) == {}


LOGS = ("verifiers", "ATIF")
"""Logs of answers that came: what failed or broke is not in them, or without ids."""

DOUBTFUL = {
    "failed": ({"error": True}, LOGS),
    "stream broke": ({"stream": True, "finish": None}, LOGS),
    "aborted": ({"finish": "abort"}, ()),
    "scrubbed": ({"scrubbed": True}, LOGS),
    # Who counted the tokens is another recorder than who listed them: its count may be an estimate.
    "ids doubtful": ({"counted": 7}, (*LOGS, "Agent Lightning")),
}
"""What makes ids doubtful by the verdict, and the recorders that cannot tell it."""


@pytest.mark.parametrize("recorder", RECORDERS)
def test_doubtful_ids_are_not_trained(tmp_path, recorder):
    rollouts = {
        verdict: talk(Q, said("sun"), **told) for verdict, (told, silent) in DOUBTFUL.items() if recorder not in silent
    }
    found = recorded(tmp_path, recorder, rollouts)
    assert {one.turns[0].tokens_untrained: one.rollout_id for one in found.values()} == {one: one for one in rollouts}
    assert trained_ids(found, allow_incomplete=True, status=None) == {}
    assert set(trained_texts(found)) <= {"ids doubtful"}


@pytest.mark.parametrize("word", ["abort", "cancelled", "insufficient_system_resource", "network_error"])
def test_an_answer_that_its_server_did_not_finish_is_trained_nowhere(tmp_path, word):
    found = recorded(tmp_path, "OpenInference", {"r": talk(Q, said("sun"), finish=word)})
    (turn,) = found["r"].turns
    assert (turn.tokens_untrained, turn.text_untrained) == ("aborted", "aborted")
    assert trained_ids(found) == {}
    assert trained_texts(found) == Counter()


WITH_BODIES = ("gateway", "OpenInference", "LiteLLM", "MLflow", "LangSmith")
"""Recorders that write the choices as the server gave them: null is its own word."""


@pytest.mark.parametrize("recorder", ["live, GenAI", "live, events", "live, OpenLLMetry", *WITH_BODIES, *LOGS])
def test_a_whole_answer_that_its_server_gave_no_finish_reason_was_aborted(tmp_path, recorder):
    """A recorder that tells none says nothing of how sampling ended."""
    exchanges = talk(Q, said("sun"), finish=None)
    found = recorded(tmp_path, recorder, {"r": exchanges})
    is_aborted = recorder in WITH_BODIES
    assert [turn.tokens_untrained for turn in found["r"].turns] == ["aborted" if is_aborted else None]
    assert trained_ids(found) == ({} if is_aborted else {"r": [exchanges[0].ids]})
    assert trained_texts(found) == Counter({} if is_aborted else {"r": 1})


# Laws of generated agents with any gaps.

FIELDS = ["prompt", "answer", "answer[0]", "answer[1]", "call", "messages", "tools", "tokens", "parameters"]


@st.composite
def doubtful_calls(draw) -> list[InferenceCall]:
    """Calls of agents, of which any have gaps of any kind and place, and other finish reasons."""
    calls: list[InferenceCall] = []
    gaps = st.builds(
        Gap, kind=st.sampled_from(get_args(GapKind)), field=st.sampled_from(FIELDS), evidence=st.just("a test")
    )
    for call in draw(agent_calls()):
        reasons = st.sampled_from(["stop", "stop", "length", "abort", None])
        choices = [structs.replace(one, finish_reason=draw(reasons)) for one in call.choices or ()]
        more = draw(st.lists(gaps, max_size=2))
        calls.append(structs.replace(call, choices=tuple(choices) or None, gaps=(*call.gaps, *more)))
    return calls


def lacks_messages(found: Trajectory, at: int) -> bool:
    turn = found.turns[at]
    return found.calls[turn.call].input_messages is None or (bool(turn.token_ids) and turn.message.is_unknown)


@given(doubtful_calls())
def test_each_tree_trains_exactly_what_its_own_verdict_allows(calls):
    found = trajectory_of(calls)
    turns = enumerate(found.turns)
    spans = [span for history in token_histories(found) for span in history.spans]
    assert Counter(span.turn for span in spans if span.trained) == Counter(
        at for at, turn in turns if turn.has_tokens and turn.tokens_untrained is None
    )
    text = {at for at, turn in enumerate(found.turns) if turn.text_untrained is None}
    held = {turn for history in histories(found) if history.messages is not None for turn in history.turns}
    assert held >= {turn for turn in text if found.turns[turn].parent is None and not lacks_messages(found, turn)}
    for views, wanted in (
        (histories(found), text & held),
        (histories_without_ids(found), {at for at in text & held if not found.turns[at].has_tokens}),
    ):
        trained = [entry.turn for one in views for entry in one.messages or () if entry.trained]
        assert Counter(trained) == Counter(wanted)


@given(doubtful_calls())
def test_no_text_vetoes_ids_and_no_count_of_ids_vetoes_text(calls):
    whole = [structs.replace(one, gaps=tuple(gap for gap in one.gaps if gap.kind not in CONTENT_GAPS)) for one in calls]
    found, of_whole = trajectory_of(calls), trajectory_of(whole)
    assert [turn.tokens_untrained for turn in found.turns] == [turn.tokens_untrained for turn in of_whole.turns]
    counted = [
        structs.replace(one, gaps=tuple(gap for gap in one.gaps if (gap.kind, gap.field) != ("miscounted", "tokens")))
        for one in calls
    ]
    of_counted = trajectory_of(counted)
    assert [turn.text_untrained for turn in found.turns] == [turn.text_untrained for turn in of_counted.turns]
