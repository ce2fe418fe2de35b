"""Documents: trajectories as ATIF documents, one file each.

Invariant: a trajectory is one document; if nothing was sampled, there is none, and the reason is counted. Its main
history is the document's own. Every other history is embedded as a complete trajectory with an id of its own. Over all
of them, each sampled message is in exactly one step that is not copied context (an `untrained` one is in none).
Every field of a trajectory and of a call is in a field of ATIF or in `extra`, but for what is unknown or empty, and
what only the process of a gathered rollout has.

Source: `harbor.models.trajectories` (`trajectory`, `subagent_trajectory_ref`, `agent`, `final_metrics`) of Harbor
0.25.0. It requires steps, and a name and a version of the agent.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from art_otel.exporting import ExportStats, JsonObject, ScoredTrajectory, Value, unrewarded
from art_otel.trajectories import Call, Trajectory, histories, main_history
from art_otel_atif.content import Media
from art_otel_atif.steps import DocumentDraft, call_facts, drop_empty, history_steps, record_facts

NULL_REWARD: Final = "unusable rewards written as null"
"""What JSON does not have: NaN and infinities, and what is not below 1e37."""
NOTHING_SAMPLED: Final = "nothing sampled"
OTHER_TOOLS: Final = "histories whose tools changed, written with the tools of all their calls"
NO_OBJECT: Final = "tool definitions that are not objects, put into extra"

_SCHEMA: Final = "ATIF-v1.8"
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]+")
_IN_FIELDS: Final = frozenset({"calls", "prompts", "turns", "tools", "tool_calls", "metrics", "rewards"})
"""The fields of a trajectory that steps, metrics and lists of `extra` hold."""
_IN_PROCESS: Final = frozenset({"result", "exception", "children", "_reward_origin"})
"""What only objects in a process have; no file has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AtifTrajectoriesConfig:
    """Options of `trajectories`."""

    prompt_token_ids: Annotated[
        bool,
        Meta(
            description="ATIF repeats the ids of the whole prompt in every step; false leaves them out, which makes"
            " documents of long rollouts much smaller"
        ),
    ] = True
    agent_version: Annotated[str, Meta(description="agent.version: ATIF requires it, and spans do not have it")] = (
        "unknown"
    )


def encode_trajectories(
    items: Iterator[ScoredTrajectory], config: AtifTrajectoriesConfig, stats: ExportStats
) -> Iterator[tuple[str, bytes]]:
    """Give (path below the export, bytes) of each document, after its images and audio."""
    taken: set[str] = set()
    for item in items:
        stem = _file_stem(item.trajectory, taken)
        draft = DocumentDraft(item=item, stats=stats, media=Media(stem=stem), prompt_token_ids=config.prompt_token_ids)
        document = _document(draft, stem, config.agent_version)
        if document is None:
            stats.trajectories_skipped[NOTHING_SAMPLED] += 1
            continue
        if unrewarded(item.trajectory) == "unusable reward":
            stats.changed[NULL_REWARD] += 1
        yield from draft.media.files.items()
        yield f"{stem}.json", msgspec.json.encode(document) + b"\n"


def _document(draft: DocumentDraft, trajectory_id: str, agent_version: str) -> JsonObject | None:
    """Make the document; None if nothing was sampled."""
    trajectory = draft.item.trajectory
    main = main_history(trajectory)
    if main is None:
        return None
    root = _history(draft, main.turns, trajectory_id, agent_version)
    root["extra"] = _trajectory_facts(trajectory)
    if trajectory.metrics:
        root["final_metrics"]["extra"] = dict(trajectory.metrics)
    others = [history.turns for history in histories(trajectory) if history.turns != main.turns]
    embedded: list[JsonObject] = []
    for number, turns in enumerate(others, 1):
        shared = [draft.first_steps[turn] for turn in turns if turn in draft.first_steps]
        history = _history(draft, turns, f"{trajectory_id}.{number}", agent_version)
        if shared:
            history["extra"] = {"continues": shared[-1]}
        else:
            _add_reference(root, history, trajectory.calls[trajectory.turns[turns[0]].call])
        embedded.append(history)
    return root | ({"subagent_trajectories": embedded} if embedded else {})


def _history(draft: DocumentDraft, turns: Sequence[int], trajectory_id: str, agent_version: str) -> JsonObject:
    """Make a whole ATIF trajectory of one history. Sums are over the calls that no earlier history has."""
    trajectory = draft.item.trajectory
    calls = list(dict.fromkeys(trajectory.turns[turn].call for turn in turns))
    new = [trajectory.calls[call] for call in calls if call not in draft.calls]
    steps = history_steps(draft, turns, trajectory_id)
    usages = [call.usage for call in new]
    return {
        "schema_version": _SCHEMA,
        "session_id": trajectory.rollout_id,
        "trajectory_id": trajectory_id,
        "agent": _agent(trajectory.name, agent_version, new or [trajectory.calls[call] for call in calls], draft.stats),
        "steps": steps,
        "final_metrics": drop_empty(
            {
                "total_prompt_tokens": _sum(usage and usage.input_tokens for usage in usages),
                "total_completion_tokens": _sum(usage and usage.output_tokens for usage in usages),
                "total_cached_tokens": _sum(usage and usage.cached_tokens for usage in usages),
                "total_steps": len(steps),
            }
        ),
    }


def _sum(counts: Iterable[int | None]) -> int | None:
    """Add up the counts; None if a call did not report its count."""
    total = None
    for count in counts:
        if count is None:
            return None
        total = count + (total or 0)
    return total


def _add_reference(root: JsonObject, history: JsonObject, first: Call) -> None:
    """Name the history of another agent at the last step of the main history that was over when it began.

    Spans say when it began, but not for which tool call, so the reference has no `source_call_id`.
    """
    if first.agent in (None, root["agent"]["name"]):
        return
    ends = ((step, step.get("extra", {}).get("end_ns")) for step in root["steps"])
    over = [step for step, end in ends if end is not None and end <= first.start_ns]
    if over:
        reference = {"trajectory_id": history["trajectory_id"], "session_id": root["session_id"]}
        results: list[JsonObject] = over[-1].setdefault("observation", {"results": []})["results"]
        results.append({"subagent_trajectory_ref": [reference]})


def _agent(name: str | None, version: str, calls: Sequence[Call], stats: ExportStats) -> JsonObject:
    """Say who made the calls: the agent of the first call that has one, else `name`, which is the rollout's."""
    definitions = _tool_definitions(calls, stats)
    other = [tool for tool in definitions or () if not isinstance(tool, dict)]
    stats.changed[NO_OBJECT] += len(other)
    agent = next((call.agent for call in calls if call.agent is not None), name)
    models = (call.response_model if call.request_model is None else call.request_model for call in calls)
    return drop_empty(
        {
            "name": "unknown" if agent is None else agent,
            "version": version,
            "model_name": next((model for model in models if model is not None), None),
            "tool_definitions": definitions and [tool for tool in definitions if isinstance(tool, dict)],
            "extra": {"tool_definitions": other} if other else None,
        }
    )


def _tool_definitions(calls: Sequence[Call], stats: ExportStats) -> list[Value] | None:
    """List every definition that a call had, once; None if no call says which tools it had."""
    toolsets: list[Sequence[Value]] = []
    for call in calls:
        if call.tools is not None and call.tools not in toolsets:
            toolsets.append(call.tools)
    stats.changed[OTHER_TOOLS] += len(toolsets) > 1
    definitions: list[Value] = []
    for tools in toolsets:
        definitions += [tool for tool in tools if tool not in definitions]
    return definitions if toolsets else None


def _trajectory_facts(trajectory: Trajectory) -> JsonObject:
    """Say what ATIF has no field for, by the names of our records. Times are nanoseconds since the epoch.

    A final reward that is not a usable number is left out; `rewards` has what was given.
    """
    skipped = _IN_FIELDS | _IN_PROCESS
    facts = {field.name: getattr(trajectory, field.name) for field in fields(Trajectory) if field.name not in skipped}
    if unrewarded(trajectory):
        del facts["reward"]
    if not trajectory.revision:
        del facts["revision"]
    answered = {turn.call for turn in trajectory.turns}
    silent = [call for position, call in enumerate(trajectory.calls) if position not in answered]
    lists = {
        "rewards": tuple(record_facts(reward) for reward in trajectory.rewards),
        "tool_calls": tuple(record_facts(execution) for execution in trajectory.tool_calls),
        "calls_without_completion": tuple(call_facts(call) for call in silent),
    }
    return drop_empty({**facts, "complete": trajectory.complete, **lists})


def _file_stem(trajectory: Trajectory, taken: set[str]) -> str:
    """Name the file of a trajectory, without its suffix. The name is the document's id too.

    It is safe on every file system and differs from every other name of the export, also where case does not count. It
    is the rollout id if that is safe, else the readable part of the id and a digest. Further attempts, and other
    trajectories with the same id, get a number.
    """
    first = trajectory.rollout_id
    if not _SAFE.fullmatch(first):
        readable = _UNSAFE.sub("-", first).strip("-")[:60] or "rollout"
        first = f"{readable}-{hashlib.sha256(first.encode()).hexdigest()[:12]}"
    if trajectory.attempt:
        first += f".attempt-{trajectory.attempt}"
    stem, count = first, 1
    while stem.casefold() in taken:
        count += 1
        stem = f"{first}-{count}"
    taken.add(stem.casefold())
    return stem
