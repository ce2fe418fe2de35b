"""What the model servers of the agents truly received and sent, and the checks that a log says it."""

import json
import re
from pathlib import Path

from art_otel.calls import canonical_arguments
from art_otel.trajectories import Trajectory

HERE = Path(__file__).parent
CLAUDE = (HERE / "claude_code.jsonl", HERE / "claude_code_subagent.jsonl")
BILLING = re.compile(r"^x-anthropic-billing-header: cc_version=[^;]*; cc_entrypoint=[^;]*;( cc_is_subagent=true;)?")


def truth_of(name: str) -> list[dict]:
    return json.loads((HERE / f"{name}.truth.json").read_text(encoding="utf-8"))


def said(message) -> tuple:
    calls = tuple((call.id, call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)
    content = BILLING.sub("", message.content or "") if message.role == "system" else message.content
    return (message.role, content or None, message.tool_call_id, calls)


def true_message(message: dict) -> tuple:
    calls = tuple((call_id, name, canonical_arguments(text)) for call_id, name, text in message.get("tool_calls") or ())
    content = message.get("content") or None
    if message["role"] == "system" and content is not None:
        content = BILLING.sub("", content)
    return (message["role"], content, message.get("tool_call_id"), calls)


def calls_of(trajectories: list[Trajectory]) -> list:
    return sorted((call for one in trajectories for call in one.calls), key=lambda call: call.start_ns)


def check_answers(calls, truth) -> None:
    assert len(calls) == len(truth)
    for call, entry in zip(calls, truth, strict=True):
        answer = {"role": "assistant", **entry["answer"]}
        assert said(call.choices[0].message) == true_message(answer)
        assert call.choices[0].message.reasoning == answer["reasoning"]
        assert call.choices[0].finish_reason == answer["finish"]
        assert call.usage.output_tokens == entry["usage"]["output"]


def check_prompts(calls, truth, skip: int = 0) -> None:
    for call, entry in zip(calls, truth, strict=True):
        assert list(map(said, call.input_messages)) == list(map(true_message, entry["messages"][skip:]))


def rewritten(path: Path, source: Path, change) -> Path:
    lines = [change(json.loads(line)) for line in source.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if line is not None), encoding="utf-8")
    return path
