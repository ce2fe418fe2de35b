"""Display: a trajectory, a group or a history in one line, and as HTML for a notebook. Texts are escaped and cut."""

from collections.abc import Iterable
from html import escape
from typing import Final, Protocol

from art_otel.calls import ToolCall
from art_otel.notebook import page_html
from art_otel.trajectories.model import Trajectory, TrajectoryGroup

_MAX_TEXT: Final = 500
_MAX_MESSAGES: Final = 50


class _Entry(Protocol):
    """A message of a history, with the fields that are shown."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str | None: ...
    @property
    def tool_calls(self) -> tuple[ToolCall, ...]: ...
    @property
    def turn(self) -> int | None: ...


def describe_trajectory(trajectory: Trajectory) -> str:
    """Describe the trajectory in one line: name, status, reward, size, reasons why it is incomplete, id."""
    parts = [f"{trajectory.name!r:.80}", trajectory.status]
    if trajectory.reward is not None:
        parts.append(f"reward={trajectory.reward:g}")
    parts.append(f"calls={len(trajectory.calls)}")
    if trajectory.tool_calls:
        parts.append(f"tool_calls={len(trajectory.tool_calls)}")
    if trajectory.children:
        parts.append(f"children={len(trajectory.children)}")
    if trajectory.group_id is not None:
        parts.append(f"group={trajectory.group_id!r:.40}")
    if not trajectory.complete:
        parts.append(f"incomplete ({', '.join(trajectory.incomplete_reasons)})")
    return " ".join([*parts, f"id={trajectory.rollout_id:.40}"])


def describe_group(group: TrajectoryGroup) -> str:
    """Describe the group in one line: its id, its size, and the range of its rewards."""
    rewards = [one.reward for one in group if one.reward is not None]
    reward_range = f", rewards {min(rewards):g} to {max(rewards):g}" if rewards else ", no final rewards"
    return f"{group.group_id!r:.80}: {len(group)} trajectories{reward_range}"


def trajectory_html(trajectory: Trajectory) -> str:
    """The one-line description, and the viewer's page of the trajectory."""
    return page_html(describe_trajectory(trajectory), [trajectory])


def group_html(group: TrajectoryGroup) -> str:
    """The one-line description, and the viewer's page of the group's trajectories."""
    return page_html(describe_group(group), group.trajectories)


def messages_html(entries: Iterable[_Entry]) -> str:
    """The messages as a table. Roles of sampled messages are bold."""
    listed = list(entries)
    rows: list[str] = []
    for entry in listed[:_MAX_MESSAGES]:
        calls = [f"{call.name}({call.arguments})" for call in entry.tool_calls]
        text = cut("\n".join([*([entry.content] if entry.content else []), *calls]))
        role = escape(entry.role) if entry.turn is None else f"<b>{escape(entry.role)}</b>"
        rows.append(f'<tr><td>{role}</td><td style="text-align:left;white-space:pre-wrap">{text}</td></tr>')
    more = len(listed) - len(rows)
    rest = f"<p>… and {more} more messages</p>" if more else ""
    return f"<table>{''.join(rows)}</table>{rest}"


def cut(text: str) -> str:
    """The text, cut to `_MAX_TEXT` characters and escaped."""
    return escape(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…")
