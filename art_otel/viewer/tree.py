"""Tree: which calls of a trajectory are one thread, where each thread began, and how each turn came about.

A **thread** is what one agent asks, one call after the other. Agent and tools are judged before prompts: two agents may
be asked the same question.

    lead       call 0 ─── call 4 (fails) ─── call 5 ── compaction ── call 9
                 └ delegate                                 (begins anew with the summary of what was before)
    explorer          call 1 ─── call 2
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from art_otel.calls import Message, TokenIds, ToolCall
from art_otel.trajectories import Call, ToolExecution, Trajectory, Turn
from art_otel.trajectories.trees import last_turn, path_to
from art_otel.viewer.tokens import Tokenizer

_AROUND: Final = 8
"""Ids before a drift."""

_AFTER: Final = 24
"""Ids from a drift on."""

_LABEL: Final = 80

_SUMMARY: Final = 12
"""Characters of an answer at least, so that it says something to find it in a prompt."""


@dataclass(kw_only=True, slots=True)
class Thread:
    """The positions of its calls; `compacted` are those that began anew with a summary, or without older messages.

    `host` is the turn in which it began, and the position of the tool call of it, where that is known.
    """

    agent: str | None
    calls: list[int]
    compacted: set[int] = field(default_factory=set[int])
    host: tuple[int, int | None] | None = None


def find_threads(trajectory: Trajectory) -> list[Thread]:
    """The threads in the order in which they began."""
    calls, turns = trajectory.calls, trajectory.turns
    threads: list[Thread] = []
    thread_of: dict[int, Thread] = {}
    agents_after: dict[int, set[str | None]] = defaultdict(set)
    for call in calls:
        if (link := _link(call)) is not None:
            agents_after[link].add(call.agent)
    prompts: dict[int, list[tuple[object, ...]]] = {}  # of calls that continue no turn
    for position, call in enumerate(calls):
        link = _link(call)
        thread = None
        if link is not None:
            before = turns[link].call
            # One agent takes over from another; where both go on, one of them was forked off.
            is_fork = call.agent != calls[before].agent and len(agents_after[link]) > 1
            thread = None if is_fork else thread_of[before]
        else:
            path = path_to(call.prompt_node)
            prompts[position] = [node.message.identity for node in path]
            thread = _asked_again(calls, prompts, thread_of, position)
            if thread is None and (compacted := _compacted(trajectory, threads, prompts, position)) is not None:
                thread = compacted
                thread.compacted.add(position)
        if thread is None:
            thread = Thread(agent=call.agent, calls=[])
            threads.append(thread)
        thread.calls.append(position)
        thread_of[position] = thread
    return threads


def _link(call: Call) -> int | None:
    """The turn whose messages the prompt of a call continues, or else its ids; also of a failed call."""
    by_messages = last_turn(call.prompt_node)
    return last_turn(call.prompt_token_node) if by_messages is None else by_messages


def _asked_again(
    calls: Sequence[Call],
    prompts: dict[int, list[tuple[object, ...]]],
    thread_of: dict[int, Thread],
    position: int,
) -> Thread | None:
    """The thread of an earlier call of this agent with this prompt, or of a failed one with a beginning of it."""
    call, prompt = calls[position], prompts[position]
    for earlier, its_prompt in prompts.items():
        other = calls[earlier]
        if earlier == position or other.agent != call.agent or other.tools != call.tools:
            continue
        begins_alike = prompt == its_prompt or (other.failed and prompt[: len(its_prompt)] == its_prompt)
        is_unknown = call.failed and not prompt
        # One that was answered before this one left is another conversation, which began with the same words.
        is_again = call.failed or other.failed or call.start_ns < _ended(other)
        if (begins_alike or is_unknown) and is_again:
            return thread_of[earlier]
    return None


def _compacted(
    trajectory: Trajectory, threads: list[Thread], prompts: dict[int, list[tuple[object, ...]]], position: int
) -> Thread | None:
    """The thread of this agent that goes on with a shorter prompt, because the new one has its last answer or messages.

    A judge is asked about the last answer as well; it has another system prompt, and no tools.
    """
    call, prompt = trajectory.calls[position], prompts[position]
    given = "\n".join(node.message.content or "" for node in path_to(call.prompt_node))
    for thread in reversed(threads):
        first, last = trajectory.calls[thread.calls[0]], trajectory.calls[thread.calls[-1]]
        if thread.agent != call.agent or _ended(last) > call.start_ns or not prompt:
            continue
        messages = [turn.message for at in thread.calls for turn in trajectory.calls[at].choices or ()]
        sampled = [message for message in messages if message is not None]
        begins_alike = [node.message.identity for node in path_to(first.prompt_node)[:1]] == prompt[:1]
        if not sampled or not (begins_alike or (call.tools and call.tools == first.tools)):
            continue
        summary = (sampled[-1].content or "").strip()
        kept = {message.identity for message in sampled}.intersection(prompt)
        if kept or (len(summary) >= _SUMMARY and summary in given):
            return thread
    return None


def _ended(call: Call) -> int:
    return call.start_ns if call.end_ns is None else call.end_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class _AskedTool:
    """A tool call: where it stands, and the time in which it ran: from the answer to the next call of its thread."""

    turn: int
    index: int
    tool: ToolCall
    thread: Thread
    start: int
    end: int | None


def find_hosts(
    trajectory: Trajectory, threads: Sequence[Thread], results: dict[tuple[int, int], Message]
) -> dict[tuple[int, int], ToolExecution]:
    """Set the host of each thread that began in a tool call; return what ran for each tool call (turn, position)."""
    calls = trajectory.calls
    asked: list[_AskedTool] = []
    thread_of = {call: thread for thread in threads for call in thread.calls}
    after = {call: calls[next_].start_ns for thread in threads for call, next_ in pairwise(thread.calls)}
    for at, turn in enumerate(trajectory.turns):
        thread, start, end = thread_of[turn.call], _ended(calls[turn.call]), after.get(turn.call)
        for index, tool in enumerate(turn.message.tool_calls if turn.message else ()):
            asked.append(_AskedTool(turn=at, index=index, tool=tool, thread=thread, start=start, end=end))
    executions = _executions(trajectory, asked)
    for thread in threads[1:]:
        start = trajectory.calls[thread.calls[0]].start_ns
        ranked: list[tuple[int, int, int, _AskedTool]] = []
        for one in asked:
            if one.thread is thread or one.start > start or (one.end is not None and one.end < start):
                continue
            score = _evidence(trajectory, thread, one, executions.get((one.turn, one.index)), results)
            is_within = one.end is not None and _ended(trajectory.calls[thread.calls[-1]]) <= one.end
            if score > 0 or (score == 0 and (is_within or (one.end is not None and thread.agent != one.thread.agent))):
                ranked.append((score, one.start, -one.index, one))
        if ranked:
            score, _, _, host = max(ranked, key=lambda entry: entry[:3])
            alone = sum(one.turn == host.turn for one in asked) == 1
            thread.host = (host.turn, host.index if score > 0 or alone else None)
    return executions


def _evidence(
    trajectory: Trajectory,
    thread: Thread,
    asked: _AskedTool,
    execution: ToolExecution | None,
    results: dict[tuple[int, int], Message],
) -> int:
    """How much shows that a thread ran for a tool call: its time, its name, what it answered."""
    tool = asked.tool
    start = trajectory.calls[thread.calls[0]].start_ns
    score = 0
    if execution is not None:
        inside = execution.start_ns <= start <= (execution.end_ns or start)
        score += 2 if inside else -2
    if thread.agent and thread.agent.lower() in f"{tool.name} {tool.arguments}".lower():
        score += 2
    last = [turn.message for turn in trajectory.calls[thread.calls[-1]].choices or ()]
    answer = ((last[0].content if last and last[0] else None) or "").strip()
    result = results.get((asked.turn, asked.index))
    if result is not None and answer and answer in (result.content or ""):
        score += 2
    return score


def _executions(trajectory: Trajectory, asked: Sequence[_AskedTool]) -> dict[tuple[int, int], ToolExecution]:
    """What ran for each tool call: by its id, else the next of its name in the time of the innermost thread."""
    by_key: dict[str, list[_AskedTool]] = defaultdict(list)
    for one in asked:
        by_key[one.tool.name].append(one)
        if one.tool.id is not None:
            by_key[one.tool.id].append(one)
    matched: dict[tuple[int, int], ToolExecution] = {}
    for execution in trajectory.tool_calls:
        by_id, start = execution.call_id is not None, execution.start_ns
        candidates = [
            one
            for one in by_key[execution.name if execution.call_id is None else execution.call_id]
            if (one.turn, one.index) not in matched
            and (
                one.tool.id == execution.call_id and execution.turn in (None, one.turn)
                if by_id
                else one.tool.name == execution.name and one.start <= start and (one.end is None or start <= one.end)
            )
        ]
        if candidates:
            one = max(candidates, key=lambda one: (one.start, -one.index))
            matched[one.turn, one.index] = execution
    return matched


def show_turns(
    trajectory: Trajectory, verdicts: Sequence[str | None], tokenizer: Tokenizer | None
) -> list[dict[str, Any]]:
    """The turns in their order. `verdicts` say why they are not trained."""
    threads = find_threads(trajectory)
    find_hosts(trajectory, threads, {})
    relations = _relations(trajectory, {call: thread for thread in threads for call in thread.calls})
    return [
        _turn(trajectory, position, tokenizer) | {"relation": relations[position], "verdict": verdicts[position]}
        for position in range(len(trajectory.turns))
    ]


def _turn(trajectory: Trajectory, position: int, tokenizer: Tokenizer | None) -> dict[str, Any]:
    turn = trajectory.turns[position]
    call = trajectory.calls[turn.call]
    return {
        "turn": position,
        "call": turn.call,
        "agent": call.agent,
        "step": call.step,
        "finishReason": turn.finish_reason,
        "completionTokens": None if turn.token_ids is None else len(turn.token_ids),
        "tokensUntrained": turn.tokens_untrained,
        "textUntrained": turn.text_untrained,
        "markedUntrained": call.marked_untrained,
        "label": _label(turn),
        "drift": _drift(trajectory, turn, tokenizer),
    }


def _relations(trajectory: Trajectory, thread_of: Mapping[int, Thread]) -> list[str]:
    """Say how each turn came about: first whether agent and tools are others, then how its prompt goes on."""
    calls, turns = trajectory.calls, trajectory.turns
    asked: set[tuple[int, int]] = set()
    continued: dict[int | None, set[int]] = defaultdict(set)
    is_again: set[int] = set()
    for position, call in enumerate(calls):
        prompt = (id(thread_of[position]), id(call.prompt_node))
        if call.prompt_node is not None and prompt in asked:
            is_again.add(position)
        asked.add(prompt)

    def relation(turn: Turn) -> str:  # one line a relation
        call = calls[turn.call]
        link = turn.parent if turn.parent is not None else turn.token_parent
        if turn.choice > 0:
            return "n>1"
        thread = thread_of[turn.call]
        if turn.call in thread.compacted:
            return "compaction"
        if link is None:
            is_other = thread.host is not None or call.agent != calls[0].agent
            return "retry" if turn.call in is_again else "sub-agent" if is_other else "root"
        before = calls[turns[link].call]
        if before.agent != call.agent:
            return "sub-agent"
        if before.tools != call.tools:
            return "other tools"
        if call.drifted_at is not None:
            return "drift"
        if call.rewritten_at is not None:
            return "rewritten"
        return "retry" if turn.call in is_again else "branch" if continued[turn.parent] - {turn.call} else "continue"

    relations: list[str] = []
    for turn in turns:
        relations.append(relation(turn))
        continued[turn.parent].add(turn.call)
    return relations


def _label(turn: Turn) -> str | None:
    """The completion in a few words: the tools it calls, else how its text begins."""
    if turn.message is None:
        return None
    if turn.message.tool_calls:
        return ", ".join(call.name for call in turn.message.tool_calls)[:_LABEL]
    text = turn.message.content or turn.message.refusal or turn.message.reasoning
    return None if text is None else text[:_LABEL]


def _drift(trajectory: Trajectory, turn: Turn, tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    """Show both id sequences from where the prompt's ids differ from those of the turn that its messages continue."""
    call = trajectory.calls[turn.call]
    at, prompt = call.drifted_at, call.prompt_token_ids
    if at is None or prompt is None or turn.parent is None:
        return None
    parent = trajectory.turns[turn.parent]
    path = trajectory.calls[parent.call].prompt_token_ids or TokenIds()
    path += parent.token_ids or TokenIds()
    expected, actual = path[at : at + _AFTER].tolist(), prompt[at : at + _AFTER].tolist()
    return {
        "at": at,
        "before": prompt[max(0, at - _AROUND) : at].tolist(),
        "expected": expected,
        "actual": actual,
        "expectedText": None if tokenizer is None else tokenizer.text(expected),
        "actualText": None if tokenizer is None else tokenizer.text(actual),
    }
