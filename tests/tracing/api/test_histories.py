"""Histories of completions: while a rollout runs, when it has ended, and read from files."""

import json

import pytest
from hypothesis import given, settings

from art_otel import read_trajectories, rollout, write_trajectories
from art_otel.errors import UsageError
from art_otel.testing import trajectories
from tests.examples import examples


@settings(max_examples=examples(200))
@given(trajectories())
def test_a_history_is_what_the_call_was_asked_and_the_completion(trajectory):
    calls = trajectory.calls
    completions = [
        (calls[turn.call].response_id, calls[turn.call].choices[turn.choice].index) for turn in trajectory.turns
    ]
    for position, turn in enumerate(trajectory.turns):
        call = calls[turn.call]
        if call.response_id is None or call.input_messages is None or turn.message is None:
            continue
        if completions[position] in completions[position + 1 :]:  # another call of this id came later
            continue
        history = trajectory.get_history(*completions[position])
        assert history.turns[-1] == position
        added = [one.message for one in trajectory.added_messages if one.turn == position]
        assert [entry.message for entry in history] == [*call.input_messages, turn.message, *added]
        sampled = [entry for entry in history if entry.turn is not None]
        for entry in sampled:
            assert entry.message.identity == trajectory.turns[entry.turn].message.identity
            assert entry.completion_id == trajectory.calls[trajectory.turns[entry.turn].call].response_id
        assert sampled[-1].turn == position
        assert json.loads(json.dumps(history.to_openai())) == history.to_openai()


def test_a_trailing_tool_result_survives(app, tmp_path):
    with rollout(name="agent") as trajectory:
        app.ask("one", "first", "r1")
        history = trajectory.get_history("r1")
        history.append({"role": "tool", "tool_call_id": "c", "content": "sunny"})
        assert [entry.role for entry in trajectory.get_history("r1")] == ["user", "assistant", "tool"]
        assert [entry.completion_id for entry in history] == [None, "r1", None]
        for wrong in (
            "text",
            {"content": "no role"},
            {"role": "tool", "content": object()},
            {"role": "tool", "content": {"sky": "blue"}},
            None,
        ):
            with pytest.raises(UsageError, match=r"history\.append\(\)"):
                history.append(wrong)
    history.append({"role": "user", "content": "too late"})
    stored = app.stored()["agent"]
    write_trajectories([stored], tmp_path / "one.parquet")
    (read,) = read_trajectories(tmp_path / "one.parquet")
    for found in (stored, read):
        (kept,) = found.histories
        assert kept.to_openai() == [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "first"},
            {"role": "tool", "content": "sunny", "tool_call_id": "c"},
        ]
        assert found.get_history("r1").to_openai() == kept.to_openai()
        assert found.get_history("unknown") is None


def test_the_images_of_a_message_are_sent_again(app):
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
    with rollout(name="agent") as trajectory:
        app.ask("one", "first", "r1")
        history = trajectory.get_history("r1")
        history.append({"role": "user", "content": [{"type": "text", "text": "look"}, image]})
        assert history.to_openai()[-1]["content"] == [{"type": "text", "text": "look"}, image]


def test_calls_cost_what_is_new(app, monkeypatch):
    from art_otel.live import buffer  # noqa: PLC0415 # to count what it reads

    lines, built = [], []
    read, build = buffer.read_spans, buffer._calls_of
    monkeypatch.setattr(buffer, "read_spans", lambda new: lines.extend(new) or read(new))
    monkeypatch.setattr(buffer, "_calls_of", lambda one, spans: built.extend(spans) or build(one, spans))
    with rollout(name="agent") as trajectory:
        for number in range(30):
            app.ask(f"{number}", "a", f"r{number}")
            assert len(trajectory.calls) == number + 1
    assert len(lines) <= 3 * 30
    assert len(built) <= 3 * 30
    assert app.stored()["agent"].calls == trajectory.calls


def test_what_is_shown_is_small(app):
    with rollout(name="agent", group_id="<g>") as trajectory:
        app.ask("<b>" * 10_000, "first", "r1")
        trajectory.reward = 0.5
    found = app.stored()["agent"]
    assert repr(found).startswith("<Trajectory 'agent' ok reward=0.5 calls=1 group='<g>' id=")
    assert repr(found.histories[0]) == "<History 2 messages, 1 sampled>"
    shown = found.histories[0]._repr_html_()
    assert len(shown) < 4000
    assert "<b>" not in shown.replace("<b>assistant</b>", "")
