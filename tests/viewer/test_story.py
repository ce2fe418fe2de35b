"""A rollout is told in the order of time: messages once, sub-agents in their tool calls, failures in their place."""

import pytest

from art_otel.calls import Choice, Message
from art_otel.testing import SpanBuilder
from art_otel.trajectories import ToolExecution, main_history
from art_otel.viewer.conversation import failure_in, show_execution
from art_otel.viewer.story import tell_story
from art_otel.viewer.tree import show_turns
from tests.data.rollouts import assistant
from tests.viewer.told import ERROR, only, told


def outline(story, entries=None):
    """The entries in short: what each is, and what stands in it."""
    for entry in story["story"] if entries is None else entries:
        match entry["kind"]:
            case "message":
                message = story["messages"][entry["message"]]
                yield f"{message['role']}: {message['parts'][0]['text']}"
            case "turn":
                yield f"turn {entry['turn']}"
                for tool in entry["tools"]:
                    for block in tool["blocks"]:
                        yield [block["agent"], *outline(story, block["entries"])]
                    if tool["result"] is not None:
                        yield f"= {story['messages'][tool['result']]['parts'][0]['text']}"
            case "agent":
                yield [entry["agent"], *outline(story, entry["entries"])]
            case "compaction":
                before, after = (story["calls"][entry[name]] for name in ("before", "after"))
                yield [
                    "compaction",
                    *(one[name] for name in ("promptMessages", "promptTokens") for one in (before, after)),
                ]
            case "failed":
                call = story["calls"][entry["call"]]
                yield ["failed", call["error"], entry["results"], entry["next"], entry["again"]]
            case kind:
                yield kind


EXPLORER = ["explorer", "system: You explore.", "user: Fix the parser.", "turn 1", "= parser.py:1", "turn 2"]
BEGINNING = ["system: You are the lead.", "user: Fix the parser.", "turn 0", EXPLORER, "= It is in parser.py."]


def test_everything_stands_where_it_happened():
    story = tell_story(told())
    assert list(outline(story)) == [
        *BEGINNING,
        ["failed", ERROR, ["delegate"], 4, True],
        "turn 3",
        "= 13 passed",
        "user: Summarize.",
        "turn 4",
        ["compaction", 7, 2, 71, 20],
        "user: So far: The parser was changed and its tests pass. Go on.",
        "turn 5",
        [None, "system: Grade it.", "user: passes", "turn 6"],
    ]


def test_a_crash_stands_at_the_end_and_the_lead_is_the_main_history():
    trajectory = told(crashes=True)
    story = tell_story(trajectory)
    assert list(outline(story)) == [*BEGINNING, ["failed", ERROR, ["delegate"], None, False]]
    main = main_history(trajectory)
    assert main is not None
    assert main.turns == (0,)


def test_relations_are_judged_by_agent_and_tools_first():
    relations = [turn["relation"] for turn in show_turns(told(), [None] * 7, None)]
    assert relations == ["root", "sub-agent", "continue", "retry", "other tools", "compaction", "root"]


def test_a_sub_agent_that_is_asked_the_same_is_no_retry():
    spans = SpanBuilder()
    root, question = spans.rollout("r"), [Message(role="user", content="temperature in Rome")]
    lead = spans.chat(
        root, question, [Choice(index=0, message=assistant("I ask the archivist."), finish_reason="stop")]
    )
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "archivist"}
    agent = spans.span("invoke_agent archivist", parent=root, attributes=attributes)
    answer = spans.chat(agent, question, [Choice(index=0, message=assistant("Lima"), finish_reason="stop")])
    trajectory = only([root, lead, agent, answer])
    assert [turn["relation"] for turn in show_turns(trajectory, [None] * 2, None)] == ["root", "sub-agent"]
    assert list(outline(tell_story(trajectory)))[-1] == ["archivist", "user: temperature in Rome", "turn 1"]


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("..F\n1 failed, 12 passed in 0.1s", "1 failed, 12 passed in 0.1s"),
        ("FileNotFoundError: src/parsre.py", "FileNotFoundError: src/parsre.py"),
        ('{"status": "error", "code": 2}', '"status": "error", "code": 2}'),
        ('{"ok": false}', '"ok": false}'),
        ("13 passed, 0 failed", None),
        ('{"error": null, "exit_code": 0}', None),
        ("class ParseError(Exception):\n    pass", None),
        ("", None),
    ],
)
def test_a_result_that_says_that_the_tool_failed_is_marked(result, failed):
    assert failure_in(result) == failed


def test_what_the_span_of_a_tool_says_is_shown_where_the_model_was_given_something_else():
    message = Message(role="tool", content='{"files": 2}', tool_call_id="c")
    for came, shown in (({"files": 2}, None), ("ok", "ok")):
        ran = ToolExecution(span_id="s", name="ls", result=came, start_ns=0)
        assert show_execution(ran, message)["result"] == shown


@pytest.mark.parametrize("crashes", [False, True])
def test_each_prompt_is_known_as_it_was_sent(crashes):
    trajectory = told(crashes=crashes)
    story = tell_story(trajectory)
    for call, shown in zip(trajectory.calls, story["calls"], strict=True):
        node, prompt = shown["prompt"], []
        while node != -1:
            node, message = story["nodes"][node]
            prompt.append(story["messages"][message]["role"])
        assert prompt[::-1] == [message.role for message in call.input_messages]
        assert shown["promptMessages"] == len(prompt)
