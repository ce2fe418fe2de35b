"""Agent: who made the calls of a history, with which model and tools.

Source: `harbor.models.trajectories.agent` of Harbor 0.25.0, which requires a name and a version.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from art_otel.calls import InferenceCall
from art_otel.exporting import ExportStats, Value
from art_otel_atif.metrics import without_none

JsonObject: TypeAlias = dict[str, Any]

OTHER_TOOLS: Final = "histories whose tools changed, written with those of all their calls"
NO_OBJECT: Final = "tool definitions that are no object put into extra"


def atif_agent(name: str | None, version: str, calls: Sequence[InferenceCall], stats: ExportStats) -> JsonObject:
    """The agent of the first call that tells one, else `name`, that of the rollout."""
    definitions = _definitions(calls, stats)
    other = None if definitions is None else [tool for tool in definitions if not isinstance(tool, dict)]
    stats.changed[NO_OBJECT] += len(other or ())
    agent = next((call.agent for call in calls if call.agent is not None), name)
    models = (call.response_model if call.request_model is None else call.request_model for call in calls)
    return without_none(
        {
            "name": "unknown" if agent is None else agent,
            "version": version,
            "model_name": next((model for model in models if model is not None), None),
            "tool_definitions": definitions and [tool for tool in definitions if isinstance(tool, dict)],
            "extra": {"tool_definitions": other} if other else None,
        }
    )


def _definitions(calls: Sequence[InferenceCall], stats: ExportStats) -> list[Value] | None:
    """Every definition that a call had, once; None where nobody recorded any."""
    toolsets: list[tuple[Value, ...]] = []
    for call in calls:
        if call.tools is not None and call.tools not in toolsets:
            toolsets.append(call.tools)
    stats.changed[OTHER_TOOLS] += len(toolsets) > 1
    definitions: list[Value] = []
    for tools in toolsets:
        definitions += [tool for tool in tools if tool not in definitions]
    return definitions if toolsets else None
