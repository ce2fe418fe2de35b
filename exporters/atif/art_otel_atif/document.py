"""Document: a trajectory as one ATIF document.

Invariant: the main history is the document's own, every other one is embedded as a complete trajectory of its own id.
Over all of them each sampled message is a step that is not copied context exactly once (what is `untrained` never).

Source: `harbor.models.trajectories` (`trajectory`, `subagent_trajectory_ref`) of Harbor 0.25.0.
"""

from typing import Any, Final, TypeAlias

from art_otel.trajectories import Trajectory, histories, main_history
from art_otel_atif.agent import atif_agent
from art_otel_atif.facts import trajectory_facts
from art_otel_atif.metrics import final_metrics
from art_otel_atif.steps import Path, Subject, Written

JsonObject: TypeAlias = dict[str, Any]

SCHEMA: Final = "ATIF-v1.8"


def document(subject: Subject, trajectory_id: str) -> JsonObject | None:
    """The document; None where nothing was sampled."""
    trajectory = subject.trajectory
    main = main_history(trajectory)
    if main is None:
        return None
    others = [history.turns for history in histories(trajectory) if history.turns != main.turns]
    written = Written()
    root = _history(subject, main.turns, trajectory_id, written)
    root["extra"] = trajectory_facts(trajectory)
    if trajectory.metrics:
        root["final_metrics"]["extra"] = dict(trajectory.metrics)
    embedded = [
        _embedded(subject, turns, f"{trajectory_id}.{number}", written) for number, turns in enumerate(others, 1)
    ]
    for turns, history in zip(others, embedded, strict=True):
        _refer(trajectory, root, history, turns)
    return root | ({"subagent_trajectories": embedded} if embedded else {})


def _embedded(subject: Subject, turns: tuple[int, ...], trajectory_id: str, written: Written) -> JsonObject:
    """A further history; `extra.continues` names the step of an earlier one that it goes on from."""
    shared = [written.turns[turn] for turn in turns if turn in written.turns]
    history = _history(subject, turns, trajectory_id, written)
    if shared:
        of, step = shared[-1]
        history["extra"] = {"continues": {"trajectory_id": of, "step_id": step}}
    return history


def _history(subject: Subject, turns: tuple[int, ...], trajectory_id: str, written: Written) -> JsonObject:
    trajectory = subject.trajectory
    calls = list(dict.fromkeys(trajectory.turns[turn].call for turn in turns))
    new = [trajectory.calls[call] for call in calls if call not in written.calls]
    path = Path(subject, written, trajectory_id)
    for turn in turns:
        path.add(turn)
    callers = new or [trajectory.calls[call] for call in calls]
    return {
        "schema_version": SCHEMA,
        "session_id": trajectory.rollout_id,
        "trajectory_id": trajectory_id,
        "agent": atif_agent(trajectory.name, subject.config.agent_version, callers, subject.stats),
        "steps": path.steps,
        "final_metrics": final_metrics(new, len(path.steps)),
    }


def _refer(trajectory: Trajectory, root: JsonObject, history: JsonObject, turns: tuple[int, ...]) -> None:
    """Where the history is another agent's, name it at the last step of the main one that was over when it began.

    Spans tell when and by whom, but not for which tool call; so the reference has no `source_call_id`.
    """
    first = trajectory.calls[trajectory.turns[turns[0]].call]
    if "extra" in history or first.agent in (None, root["agent"]["name"]):
        return
    ends = ((step, step.get("extra", {}).get("end_ns")) for step in root["steps"])
    over = [step for step, end in ends if end is not None and end <= first.start_ns]
    if over:
        reference = {"trajectory_id": history["trajectory_id"], "session_id": trajectory.rollout_id}
        results: list[JsonObject] = over[-1].setdefault("observation", {"results": []})["results"]
        results.append({"subagent_trajectory_ref": [reference]})
