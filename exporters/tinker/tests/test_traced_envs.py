"""Traced environments: what each was asked, given and worth. tinker-cookbook's own run in test_with_tinker.py."""

import asyncio
import logging
import math
from fractions import Fraction
from pathlib import PurePosixPath
from types import SimpleNamespace

import numpy as np
import pytest

from art_otel.trajectories import token_histories
from art_otel_tinker.tracing import trace_env, trace_policy
from art_otel_tinker.tracing.calls import chat_messages
from art_otel_tinker.tracing.wrapping import handle_tinker_errors
from exporters.tinker.tests.plain_envs import (
    Answer,
    Prompt,
    Renderer,
    Talk,
    asked,
    play,
    sample,
    stored,
)


def test_an_environment_is_a_rollout(app):
    env = trace_env(Talk(), name="talk", group_id="g", split="val", training_step=3, model="m", policy_version="v1")
    asyncio.run(play(env, trace_policy(sample)))
    (one,) = stored(app)
    assert (one.name, one.group_id, one.split, one.training_step, one.reward) == ("talk", "g", "val", 3, 0.2)
    # Prompts as they were asked, whatever the environment did to its history since.
    assert asked(one) == [["first"], ["first!", "next"]]
    assert [call.prompt_token_ids.tolist() for call in one.calls] == [[5], [6, 4]]
    assert [call.choices[0].token_ids.tolist() for call in one.calls] == [[1, 7], [2, 7]]
    assert [call.choices[0].logprobs.tolist() for call in one.calls] == [[-0.5, -0.25]] * 2
    assert [call.choices[0].message.content for call in one.calls] == ["said [1, 7]", "said [2, 7]"]
    assert [call.response_id for call in one.calls] == ["sequence-1", "sequence-2"]
    assert [(call.step, call.request_model, call.policy_version) for call in one.calls] == [
        (0, "m", "v1"),
        (1, "m", "v1"),
    ]
    assert [call.choices[0].finish_reason for call in one.calls] == ["stop", "stop"]
    assert [call.extra for call in one.calls] == [{"termination": "stop_sequence"}] * 2
    assert [call.env_state["metrics"] for call in one.calls] == [{"turn": 1}, {"stop/done": 1.0}]
    assert [call.env_state["episode_done"] for call in one.calls] == [False, True]
    assert [(given.step, given.value) for given in one.rewards] == [(0, 0.1), (1, 0.1), (None, 0.2)]
    assert one.metadata["stop_reason"] == "done"
    assert [call.usage.output_tokens for call in one.calls] == [2, 2]
    assert len({turn.parent for turn in one.turns}) == 1


def test_sampling_stands_between_question_and_step(app):
    asyncio.run(play(trace_env(Talk()), trace_policy(sample)))
    (one,) = stored(app)
    assert one.name == "Talk"
    assert all(call.start_ns <= call.end_ns for call in one.calls)
    assert one.calls[0].end_ns <= one.calls[1].start_ns


def test_without_a_traced_policy_an_environment_has_no_logprobs(app):
    asyncio.run(play(trace_env(Talk())))
    (one,) = stored(app)
    assert [call.choices[0].logprobs for call in one.calls] == [None, None]
    assert [call.response_id for call in one.calls] == [None, None]


def test_a_policy_whose_logprobs_do_not_fit_has_none(app):
    async def odd(prompt, stop):  # noqa: ARG001 # as TokenCompleter
        return Answer([1, 2], [-0.5])

    asyncio.run(play(trace_env(Talk()), trace_policy(odd)))
    (one,) = stored(app)
    assert [call.choices[0].token_ids.tolist() for call in one.calls] == [[1, 2]] * 2
    assert [call.choices[0].logprobs for call in one.calls] == [None, None]


@pytest.mark.parametrize("error", [RuntimeError("broken"), asyncio.CancelledError()])
def test_what_the_environment_raises_goes_on(app, error):
    env = trace_env(Talk(raises=error))
    with pytest.raises(type(error)):
        asyncio.run(play(env))
    (one,) = stored(app)
    assert one.status == ("cancelled" if isinstance(error, asyncio.CancelledError) else "error")
    assert one.reward is None
    assert asked(one) == [["first"]]
    assert one.calls[0].choices[0].message.content == "said [1, 7]"


def test_a_prompt_with_an_image_has_messages_and_no_ids(app):
    class Pictures(Renderer):
        def build_generation_prompt(self, messages, **options):
            return Prompt(super().build_generation_prompt(messages, **options).ids, image=True)

    env = Talk(1)
    env.renderer, env.history[0]["content"] = Pictures(), [{"type": "image", "image": "https://x/y.png"}]
    env.step = Talk(1).step
    asyncio.run(play(trace_env(env), trace_policy(sample)))
    (one,) = stored(app)
    assert one.calls[0].prompt_token_ids is None
    assert "https://x/y.png" in one.calls[0].input_messages[0].parts
    assert one.calls[0].choices[0].token_ids.tolist() == [1, 7]


def test_an_environment_without_a_renderer_has_ids_alone(app):
    env = Talk(first=(Prompt([1]), []), next=Prompt([1, 1, 7, 2]))
    env.renderer = None
    asyncio.run(play(trace_env(env), trace_policy(sample)))
    (one,) = stored(app)
    assert [call.input_messages for call in one.calls] == [None, None]
    assert [call.choices[0].message.content for call in one.calls] == [None, None]
    (history,) = token_histories(one)
    assert history.token_ids.tolist() == [1, 1, 7, 2, 4, 7]
    assert list(history.loss_mask) == [0, 1, 1, 0, 1, 1]


def test_messages_that_a_hook_adds_are_asked(app):
    class Injectable(Talk):
        async def inject_messages(self, messages):
            self.history.extend(messages)
            return self.renderer.build_generation_prompt(self.history), []

    async def run():
        env = trace_env(Injectable(1))
        await env.initial_observation()
        prompt, _ = await env.inject_messages([{"role": "user", "content": "Really?"}])
        await env.step((await sample(prompt, [])).tokens)

    asyncio.run(run())
    (one,) = stored(app)
    assert asked(one) == [["first", "Really?"]]
    assert not hasattr(trace_env(Talk()), "inject_messages")


def test_an_environment_that_begins_anew(app):
    async def twice():
        env = trace_env(Talk(1))
        await env.initial_observation()
        await play(env)
        assert (await env.step([1])).reward == 0.1

    asyncio.run(twice())
    first, second = stored(app)
    assert (first.error, second.status) == ("EpisodeError: the environment was reset", "ok")
    assert len(second.calls) == 1


def test_what_cannot_be_parsed_is_recorded_by_its_tokens(app, caplog):
    async def unlucky(prompt, stop):  # noqa: ARG001 # as TokenCompleter
        return Answer([13], [-0.5])

    faults = handle_tinker_errors.faults
    with caplog.at_level(logging.CRITICAL):
        asyncio.run(play(trace_env(Talk(1)), trace_policy(unlucky)))
    assert handle_tinker_errors.faults == faults + 1
    handle_tinker_errors.faults = faults
    (one,) = stored(app)
    assert one.calls[0].choices[0].token_ids.tolist() == [13]
    assert one.calls[0].choices[0].message.content is None


def test_tools_and_the_right_answer(app):
    class Problem(Talk):
        def get_reference_answer(self):
            return Fraction(1, 2)

    class Tool:
        def to_spec(self):
            return {"name": "look", "description": "Look.", "parameters": {}}

    def call(place, arguments):
        return SimpleNamespace(id=f"c{place}", function=SimpleNamespace(name="look", arguments=arguments))

    class Calling(Renderer):
        def parse_response(self, response):  # noqa: ARG002 # as Renderer
            content = [{"type": "thinking", "thinking": "So"}, {"type": "text", "text": "Look."}]
            wrong = SimpleNamespace(raw_text="<tool_call>{no", error="Invalid JSON")
            calls = {"tool_calls": [call(0, '{"city":"Zürich" }')], "unparsed_tool_calls": [wrong]}
            return {"role": "assistant", "content": content, **calls}, "stop_sequence"

    env = Problem(1)
    env.renderer, env.message_env = Calling(), SimpleNamespace(tools=[Tool()])
    asyncio.run(play(trace_env(env), trace_policy(sample)))
    (one,) = stored(app)
    (found,) = one.calls
    assert found.tools == (
        {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}},
    )
    assert (found.choices[0].message.content, found.choices[0].message.reasoning) == ("Look.", "So")
    assert [(one.id, one.arguments, one.exact) for one in found.choices[0].message.tool_calls] == [
        ("c0", '{"city":"Zürich" }', True)
    ]
    assert found.extra["unparsed_tool_calls"] == [{"raw_text": "<tool_call>{no", "error": "Invalid JSON"}]
    assert found.env_state["reference_answer"] == "1/2"


def test_a_version_that_nobody_knows_costs_nothing(app, caplog):
    def unknown():
        raise LookupError

    faults = handle_tinker_errors.faults
    with caplog.at_level(logging.CRITICAL):
        asyncio.run(play(trace_env(Talk(1), policy_version=unknown)))
    assert handle_tinker_errors.faults == faults + 2
    handle_tinker_errors.faults = faults
    (one,) = stored(app)
    assert (one.policy_version, len(one.calls)) == (None, 1)


def test_an_answer_that_cannot_be_told_costs_nothing(app, caplog):
    class Problem(Talk):
        tools = (object(),)

        def get_reference_answer(self):
            raise NotImplementedError

    faults = handle_tinker_errors.faults
    with caplog.at_level(logging.CRITICAL):
        asyncio.run(play(trace_env(Problem(1)), trace_policy(sample)))
    assert handle_tinker_errors.faults == faults + 2
    handle_tinker_errors.faults = faults
    (one,) = stored(app)
    assert (one.reward, one.calls[0].tools) == (0.1, None)


def test_numbers_of_other_libraries_are_numbers(app):
    class Scored(Talk):
        async def step(self, action, *, extra=None):
            result = await super().step(action, extra=extra)
            metrics = {"score": np.float32(0.5), "at": PurePosixPath("a"), "nan": math.nan}
            return result._replace(reward=np.float64(0.25), metrics=metrics)

    asyncio.run(play(trace_env(Scored(1)), trace_policy(sample)))
    (one,) = stored(app)
    assert (one.reward, one.rewards[0].value) == (0.25, 0.25)
    assert one.calls[0].env_state["metrics"] == {"score": 0.5, "at": "a", "nan": None}


def test_media_in_messages():
    parts = [
        {"type": "image", "image": object()},
        {"type": "audio", "audio": b"RIFF"},
        {"type": "audio", "audio": "a.wav", "format": "wav"},
    ]
    (said,) = chat_messages([{"role": "tool", "content": parts, "tool_call_id": "c", "name": None}])
    assert said == {
        "role": "tool",
        "content": [
            {"type": "image_url", "image_url": {"url": "<object>"}},
            {"type": "audio", "audio": "<bytes>"},
            {"type": "audio", "audio": "a.wav"},
        ],
        "tool_call_id": "c",
    }


def test_many_at_once(app):
    async def run():
        envs = [trace_env(Talk(turns), name=f"{turns}") for turns in range(1, 9)]
        await asyncio.gather(*(play(env, trace_policy(sample)) for env in envs))

    asyncio.run(run())
    assert {one.name: len(one.calls) for one in stored(app)} == {f"{turns}": turns for turns in range(1, 9)}


def test_where_nothing_records_the_environment_is_as_it_was(monkeypatch):
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)
    env = Talk()
    renderer = env.renderer
    played = asyncio.run(play(trace_env(env)))
    assert (len(played.transitions), env.renderer) == (2, renderer)
