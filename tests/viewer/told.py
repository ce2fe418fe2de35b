"""One rollout with all that happens: a sub-agent, a failed call, its retry, a compaction, a cut answer, a judge."""

import json

from art_otel.calls import Choice, Logprobs, Message, TokenIds, ToolCall
from art_otel.spans import Span
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, Trajectory, build_trajectories
from tests.data.rollouts import answer, assistant

TOOLS = json.dumps([{"type": "function", "function": {"name": name}} for name in ("delegate", "run_tests")])
SYSTEM, TASK = Message(role="system", content="You are the lead."), Message(role="user", content="Fix the parser.")
PATCH = "--- a/parser.py\n+++ b/parser.py\n@@ -1 +1 @@\n-old\n+new\n"
SUMMARY = "The parser was changed and its tests pass."
ERROR = "CUDA out of memory"


def told(rollout_id: str = "told", *, crashes: bool = False) -> Trajectory:
    """The lead delegates to an explorer and fails; it ends there, or asks again and goes on."""
    spans = SpanBuilder(trace=7)
    root = spans.rollout(rollout_id, attributes={"art.rollout.name": "parser", "art.group.id": rollout_id})
    built = [root]
    numbers: dict[Message, int] = {}

    def ids(messages: list[Message]) -> list[int]:
        """Ten tokens of each message."""
        return [10 * numbers.setdefault(message, len(numbers) + 1) + at for message in messages for at in range(10)]

    def asked(parent: Span, prompt: list[Message], answer: Message | None, **attributes) -> None:
        finish = attributes.pop("finish", "tool_calls" if answer and answer.tool_calls else "stop")
        choices = []
        if answer is not None:
            sampled, logprobs = TokenIds.of(ids([answer])), Logprobs.of([-0.1 * at for at in range(10)])
            choices = [Choice(index=0, message=answer, finish_reason=finish, token_ids=sampled, logprobs=logprobs)]
        about = attributes if answer else {**attributes, "error.type": ERROR}
        tools = [] if attributes else [1]  # the template writes the tools first
        prompt_ids = TokenIds.of([*tools, *ids(prompt)])
        built.append(spans.chat(parent, prompt, choices, prompt_token_ids=prompt_ids, attributes=about))

    lead = {"gen_ai.tool.definitions": TOOLS}
    messages = [SYSTEM, TASK, calls("delegate", {"agent": "explorer", "order": "Look.\nThen say where."}, "c1")]
    asked(root, messages[:2], messages[2], **lead)
    explorer = spans.span(
        "invoke_agent explorer",
        parent=root,
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "explorer"},
    )
    built.append(explorer)
    looks = [Message(role="system", content="You explore."), TASK, calls("search", {"pattern": "def parse"}, "e1")]
    asked(explorer, looks[:2], looks[2])
    looks += [answer("parser.py:1", id="e1"), assistant("It is in parser.py.")]
    asked(explorer, looks[:4], looks[4])
    messages.append(answer("It is in parser.py.", id="c1"))
    asked(root, messages, None, **lead)
    if crashes:
        return only(built)
    messages.append(calls("run_tests", {"patch": PATCH}, "c2"))
    asked(root, messages[:4], messages[4], **lead)
    messages += [answer("13 passed", id="c2"), assistant(SUMMARY)]
    asked(root, [*messages[:6], Message(role="user", content="Summarize.")], messages[6])  # asked without the tools
    short = [SYSTEM, Message(role="user", content=f"So far: {SUMMARY} Go on.")]
    asked(root, short, assistant("| test | state |\n|---|---|\n| one | passes |"), finish="length", **lead)
    judged = [Message(role="system", content="Grade it."), Message(role="user", content="passes")]
    asked(root, judged, assistant("9"), **{"gen_ai.request.model": "judge-70b"})
    built.append(spans.reward(root, 1.0))
    return only(built)


def calls(name: str, arguments: dict[str, str], call_id: str) -> Message:
    tool = ToolCall(id=call_id, name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", reasoning="I think.", tool_calls=(tool,))


def only(spans: list[Span]) -> Trajectory:
    (trajectory,) = build_trajectories(SpanGroup(spans=spans)).trajectories
    return trajectory
