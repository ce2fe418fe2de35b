"""A dataset in which each page has something to show: groups, drift, tools, what is unknown, and text that attacks."""

import json
from pathlib import Path

from art_otel import write_trajectories
from art_otel.calls import Choice, Logprobs, Message, TokenIds, ToolCall
from art_otel.testing import SpanBuilder
from art_otel.trajectories import Trajectory
from tests.viewer.told import only

HOSTILE = (
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'> [go](javascript:hit) \u202edetrever\u202c"
    " zero\u200bwidth ![remote](http://192.0.2.1/x.png)"
)
ASK = Message(role="user", content=f"Ask {HOSTILE}")
LOOK = Message(
    role="assistant",
    reasoning=f"think {HOSTILE}",
    tool_calls=(ToolCall(id=f"c {HOSTILE}", name=f"look {HOSTILE}", arguments=f'{{"a": "{HOSTILE}"}}'),),
)
FOUND = Message(role="tool", content=f"found {HOSTILE}", tool_call_id=LOOK.tool_calls[0].id)
PLAIN = 400
"""Rollouts beside the group, for the list."""


def write_dataset(folder: Path, *, plain: int = PLAIN) -> Path:
    members = [member(number, reward) for number, reward in enumerate((0.0, 1.0, None, 0.5))]
    write_trajectories([*members, *(small(number) for number in range(plain))], folder)
    return folder


def write_run(folder: Path) -> Path:
    """The folder of a training run of three steps, as ART and our run log leave it."""
    write_trajectories([small(90_000)], folder / "trajectories" / "train" / "0000.parquet")
    rows = [{"step": step, "train/reward": step / 2, "loss": 1.0 - step} for step in range(3)]
    (folder / "history.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def member(number: int, reward: float | None) -> Trajectory:
    """Two turns, the second of which drifts, a branch, and for all but the third member a reward."""
    spans = SpanBuilder(trace=number + 1)
    attributes = {"art.group.id": "group", "art.training.step": 3, "art.metadata.note": HOSTILE}
    root = spans.rollout(f"member-{number}", attributes=attributes)
    first = spans.chat(root, [ASK], [chosen(LOOK, [3, 4, 5])], prompt_token_ids=TokenIds.of([1, 2]))
    tool = spans.span(
        "execute_tool look",
        parent=root,
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look",
            "gen_ai.tool.call.id": LOOK.tool_calls[0].id or "",
            "gen_ai.tool.call.result": f"ran {HOSTILE}",
        },
    )
    said = Message(role="assistant", content=f"say {number} {HOSTILE}")
    second = spans.chat(root, [ASK, LOOK, FOUND], [chosen(said, [7, 8])], prompt_token_ids=TokenIds.of([1, 2, 3, 9, 6]))
    branch = spans.chat(root, [ASK], [chosen(said, [8, 8])], prompt_token_ids=TokenIds.of([1, 2]))
    built = [root, first, tool, second, branch]
    if reward is not None:
        built += [spans.reward(root, reward), spans.reward(root, 0.25, name=f"style {HOSTILE}", target=first)]
    return only(built)


def small(number: int) -> Trajectory:
    """One call without token ids."""
    spans = SpanBuilder(trace=number + 100)
    root = spans.rollout(f"small-{number:05}", attributes={"art.reward": number / 1000})
    said = Message(role="assistant", content=f"number {number}")
    return only([root, spans.chat(root, [ASK], [Choice(index=0, message=said, finish_reason="stop")])])


def chosen(message: Message, ids: list[int]) -> Choice:
    logprobs = Logprobs.of([-0.5 * at for at in range(len(ids))])
    return Choice(index=0, message=message, finish_reason="stop", token_ids=TokenIds.of(ids), logprobs=logprobs)
