"""Story: a rollout in the order of time, each message once, and each sub-agent in the tool call that began it.

    message      system, user
    turn 0       calls delegate and read_file
                    delegate    agent explorer: message, turn 1, turn 2, and its result
                    read_file   its result
    failed       call 4: the messages that were new in it, its error, and what followed
    compaction   41 messages, 1,882 tokens before; 3, 607 after
    message      user: what was said so far
    turn 5

Invariant: every completion and every failed call stands once, every message once in its thread. The nodes of the
message tree come along, so that the page can show the prompt of each call exactly as it was sent. Milliseconds count
from the first start that is known.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from art_otel.trajectories import Reward, Trajectory
from art_otel.trajectories.model import message_ends
from art_otel.trajectories.trees import MessageNode, numbered, position_of
from art_otel.viewer.conversation import failure_in, message_parts, message_text, show_execution
from art_otel.viewer.tree import Thread, find_hosts, find_threads

if TYPE_CHECKING:
    from art_otel.calls import Message

_MS: Final = 1e6


def tell_story(trajectory: Trajectory) -> dict[str, Any]:
    """The `story`, and what it names by position: `messages`, `calls`, and `nodes`, each `[parent, message]`."""
    story = _Story(trajectory)
    return {
        "story": story.entries(),
        "messages": [
            {"role": message.role, "name": message.name, "parts": list(message_parts(message))}
            for message in story.messages
        ],
        "nodes": story.nodes,
        "calls": story.calls(),
    }


def begin_of(trajectory: Trajectory) -> int:
    """The first start that is known, in nanoseconds; 0 where none is."""
    starts = [one.start_ns for one in (*trajectory.calls, *trajectory.tool_calls)]
    return min(starts if trajectory.started_at is None else [*starts, trajectory.started_at], default=0)


class _Story:
    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        nodes, self._positions = numbered(message_ends(trajectory.calls))
        of_messages: dict[Message, int] = {}
        self._message_of = {id(node): of_messages.setdefault(node.message, len(of_messages)) for node in nodes}
        self.nodes = [[position_of(node.parent, self._positions), self._message_of[id(node)]] for node in nodes]
        self._turns_of: dict[int, list[int]] = defaultdict(list)
        for at, turn in enumerate(trajectory.turns):
            self._turns_of[turn.call].append(at)
        self._added: dict[int, list[tuple[str | None, int]]] = defaultdict(list)
        for one in trajectory.added_messages:
            message = of_messages.setdefault(one.message, len(of_messages))
            self._added[one.turn].append((one.message.tool_call_id, message))
        self.messages = list(of_messages)
        self._results: dict[tuple[int, int], int] = {}
        self._threads = find_threads(trajectory)
        self._new: dict[int, list[int]] = {}  # messages by their call
        self._brought: dict[int, list[str]] = defaultdict(list)  # tools by the call that had their results first
        self._behind: dict[int, list[int]] = {}  # messages by the turn after which the app put them
        for thread in self._threads:
            self._find_new(thread)
        results = {key: self.messages[at] for key, at in self._results.items()}
        self._executions = find_hosts(trajectory, self._threads, results)
        self._hosted: dict[int, list[Thread]] = defaultdict(list)
        for thread in self._threads:
            if thread.host is not None:
                self._hosted[thread.host[0]].append(thread)

    def _find_new(self, thread: Thread) -> None:
        """Find what each call of a thread says that the thread had not said; results stand with their tool calls."""
        turns, calls = self._trajectory.turns, self._trajectory.calls
        own = set(thread.calls)
        said: dict[tuple[int, object], int] = {}  # message paths are one where all their messages are
        paths: dict[int, int] = {}  # of nodes
        identities: set[object] = set()
        asked: dict[str, tuple[int, int]] = {}
        tool_names: dict[tuple[int, int], str] = {}
        for position in thread.calls:
            new = self._new[position] = []
            for node in _unseen(calls[position].prompt_node, paths):
                message = node.first.message
                key = (paths.get(id(node.parent), -1), message.identity)
                is_new = key not in said and not (position in thread.compacted and message.identity in identities)
                paths[id(node)] = said.setdefault(key, len(said))
                sampled = node.first.turn
                if not is_new or (sampled is not None and turns[sampled].call in own):
                    continue
                identities.add(message.identity)
                tool = asked.get(message.tool_call_id or "")
                if tool is not None and tool not in self._results:
                    self._results[tool] = self._message_of[id(node.first)]
                    self._brought[position].append(tool_names[tool])
                else:
                    new.append(self._message_of[id(node.first)])
            for at in self._turns_of[position]:
                message = turns[at].message
                identities.update([message.identity] if message else [])
                tools = message.tool_calls if message else ()
                asked |= {tool.id: (at, index) for index, tool in enumerate(tools) if tool.id is not None}
                tool_names |= {(at, index): tool.name for index, tool in enumerate(tools)}
                self._behind[at] = [
                    added
                    for call_id, added in self._added[at]
                    if call_id not in asked or self._results.setdefault(asked[call_id], added) != added
                ]

    def calls(self) -> list[dict[str, Any]]:
        """Each call: when it ran, how large its prompt was, and how it failed."""
        begin, depths = begin_of(self._trajectory), [0]  # the last is that of the root
        for parent, _ in self.nodes:
            depths.insert(-1, 1 + (0 if parent is None else depths[parent]))
        shown: list[dict[str, Any]] = []
        for call in self._trajectory.calls:
            prompt = position_of(call.prompt_node, self._positions)
            tokens = None if call.prompt_token_node is None else call.prompt_token_node.end
            shown.append(
                {
                    "agent": call.agent,
                    "model": call.response_model or call.request_model,
                    "startMs": (call.start_ns - begin) / _MS,
                    "endMs": None if call.end_ns is None else (call.end_ns - begin) / _MS,
                    "error": (call.error or call.error_type) if call.failed else None,
                    "prompt": prompt,
                    "promptMessages": None if prompt is None else depths[prompt],
                    "promptTokens": call.usage.input_tokens if tokens is None and call.usage is not None else tokens,
                }
            )
        return shown

    def entries(self) -> list[dict[str, Any]]:
        """The first thread, with those beside it in their time; the others stand in their tool calls."""
        timed: list[tuple[int, dict[str, Any]]] = []
        for thread in self._threads:
            if thread.host is None:
                start = self._trajectory.calls[thread.calls[0]].start_ns
                timed += self._tell(thread) if not timed else [(start, self._block(thread))]
        return [entry for _, entry in sorted(timed, key=lambda one: one[0])]

    def _block(self, thread: Thread) -> dict[str, Any]:
        entries = [entry for _, entry in self._tell(thread)]
        return {"kind": "agent", "agent": thread.agent, "calls": thread.calls, "entries": entries}

    def _tell(self, thread: Thread) -> list[tuple[int, dict[str, Any]]]:
        """The entries of a thread, each with the time of its call."""
        calls, last = self._trajectory.calls, -1
        timed: list[tuple[int, dict[str, Any]]] = []
        for number, position in enumerate(thread.calls):
            call, told = calls[position], list[dict[str, Any]]()
            turns = self._turns_of[position]
            if position in thread.compacted:
                told.append({"kind": "compaction", "before": self._largest(thread.calls[:number]), "after": position})
            elif turns and (parent := self._trajectory.turns[turns[0]].parent) is not None and parent < last:
                told.append({"kind": "branch", "after": parent})
            told += [{"kind": "message", "message": message} for message in self._new[position]]
            if not turns:
                after = next(iter(thread.calls[number + 1 :]), None)
                is_again = after is not None and None is not call.prompt_node == calls[after].prompt_node
                failed = {"call": position, "results": self._brought[position], "next": after, "again": is_again}
                told.append({"kind": "failed", **failed})
            for at in turns:
                told.append(self._turn(at))
                told += [{"kind": "message", "message": message} for message in self._behind[at]]
                last = at
            timed += [(call.start_ns, entry) for entry in told]
        return timed

    def _largest(self, before: list[int]) -> int:
        """The call with the longest prompt of the last two: a summary is often asked for without the tools."""
        calls = self._trajectory.calls
        return max(before[-2:], key=lambda at: getattr(calls[at].prompt_token_node, "end", 0))

    def _turn(self, at: int) -> dict[str, Any]:
        turn = self._trajectory.turns[at]
        blocks = [(thread.host, self._block(thread)) for thread in self._hosted[at]]
        tools: list[dict[str, Any]] = []
        for index in range(len(turn.message.tool_calls) if turn.message else 0):
            result, execution = self._results.get((at, index)), self._executions.get((at, index))
            message = None if result is None else self.messages[result]
            ran = None if execution is None else show_execution(execution, message)
            inside = [block for host, block in blocks if host == (at, index)]
            said = "" if message is None else message_text(message)
            failed: str | None = (ran["error"] or failure_in(said or ran["result"] or "")) if ran else failure_in(said)
            tools.append({"result": result, "execution": ran, "failed": failed, "blocks": inside})
        return {
            "kind": "turn",
            "turn": at,
            "message": None if turn.message_node is None else self._message_of[id(turn.message_node)],
            "rewards": _rewards_of(self._trajectory, at),
            "tools": tools,
            "blocks": [block for host, block in blocks if host == (at, None)],
        }


def _unseen(node: MessageNode | None, seen: dict[int, int]) -> list[MessageNode]:
    """The last nodes of a path, from the first that was not seen."""
    nodes: list[MessageNode] = []
    while node is not None and not node.is_root and id(node) not in seen:
        nodes.append(node)
        node = node.parent
    return nodes[::-1]


def _rewards_of(trajectory: Trajectory, turn: int) -> list[int]:
    """The positions of the rewards that judge a completion, a part of it, or its call."""
    sampled = trajectory.turns[turn]
    span_id = trajectory.calls[sampled.call].span_id
    return [
        position
        for position, reward in enumerate(trajectory.rewards)
        if reward.target == span_id and _judges(reward, sampled.choice)
    ]


def _judges(reward: Reward, choice: int) -> bool:
    """Whether a reward of the call judges this choice of it; one of tokens without a choice judges the first."""
    of = 0 if reward.choice is None and reward.token_start is not None else reward.choice
    return of is None or of == choice
