"""What passes is recorded: the calls that the live half records, in the rollouts that they belong to."""

import json
import re
import subprocess
import sys
import time
from collections import Counter

import httpx
import msgspec
import openai
import pytest
from opentelemetry import trace

import art_otel
from art_otel import attributes as names
from art_otel.calls import InferenceCall
from art_otel.model_gateway.addresses import RequestTarget, read_target
from art_otel.model_gateway.upstreams import Upstreams
from art_otel.tracing.openai import install
from art_otel.trajectories.lineage import recorded_call
from tests.examples import daily
from tests.gaps import kinds
from tests.model_gateway.gateways import HI, MODEL, TOOL, bodies, chat, gateway, recorded, spooled, user
from tests.receiver.consuming import next_rollouts
from tests.tracing.openai.instrumented import Instrumented, instrumented
from tests.tracing.server import ModelServer

ASKED = {"logprobs", "return_token_ids", "return_weight_versions", "enable_response_messages", "stream_options"}
KEY = "sk-ant-" + "api03-" + "k" * 93 + "AA"


def asked_as_the_live_half(client: openai.OpenAI) -> None:
    """The same calls of every kind that openai's client makes."""
    chats, texts, responses = client.chat.completions, client.completions, client.responses
    function = {"type": "function", **TOOL["function"]}
    for more in ({}, {"stream": True}):
        answers = (
            chats.create(model=MODEL, messages=user("Hi #think=1"), n=2, temperature=0.5, **more),
            chats.create(model=MODEL, messages=user("Look #calls=2"), tools=[TOOL], **more),
            texts.create(model=MODEL, prompt="Once", **more),
            responses.create(model=MODEL, input="Hi", instructions="Be brief.", **more),
            responses.create(model=MODEL, input="Look", tools=[function], **more),
        )
        for answer in answers:
            if more:
                list(answer)


def comparable(call: InferenceCall) -> InferenceCall:
    """A call without its ids and times, and without what was asked of the server beside what the agent asked."""
    response_id = re.sub(r"\d", "", call.response_id or "")
    parameters = {name: value for name, value in call.parameters.items() if name not in ASKED}
    without = {"trace_id": "", "span_id": "", "start_ns": 0, "end_ns": 0}
    without |= {"prompt_known": None, "answer_known": None}  # the live half has an instrumentor's messages
    if response_id.startswith("resp"):  # the live half asks for no ids of Responses
        choices = tuple(msgspec.structs.replace(choice, token_ids=None) for choice in call.choices or ())
        call = msgspec.structs.replace(call, choices=choices, prompt_token_ids=None)
    return msgspec.structs.replace(call, **without, response_id=response_id, parameters=parameters)


def test_calls_are_those_that_the_live_half_records(tmp_path, server, address, monkeypatch):
    live = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", live.provider)
    install(request_tokens=True, policy_version_header="x-policy-version")
    try:
        with instrumented(None, live.provider), live.client() as client, live.rollout():
            asked_as_the_live_half(client)
    finally:
        art_otel.tracing.openai.uninstall()  # pyright: ignore[reportAttributeAccessIssue]
    with (
        gateway(tmp_path, address) as running,
        openai.OpenAI(base_url=f"{running.url}/rollout/r/v1", api_key="k", max_retries=0) as client,
    ):
        asked_as_the_live_half(client)
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [comparable(recorded_call(call)) for call in trajectory.calls] == [
        comparable(recorded_call(call)) for call in live.calls()
    ]
    with_ids = [call for call in trajectory.calls if call.choices and call.choices[0].token_ids]
    assert len(with_ids) == 10
    assert {call.policy_version for call in trajectory.calls} == {"v7"}


@pytest.mark.long
def test_every_answer_is_recorded_as_the_server_gave_it(tmp_path, server, address):
    before = len(server.exchanges())
    with gateway(tmp_path, address) as running:
        for path, body in bodies():
            httpx.post(f"{running.url}/rollout/r{path}", json=body)
    (trajectory,) = recorded(tmp_path)
    exchanges = [one for one in server.exchanges()[before:] if not one.path.endswith(("nowhere", "/generate"))]
    exchanges = [one for one in exchanges if one.status != 400 or "return_token_ids" not in one.body]  # asked again
    assert len(trajectory.calls) == len(exchanges)
    for call, exchange in zip(trajectory.calls, exchanges, strict=True):
        answer = exchange.answer
        assert call.failed == (answer is None or answer.get("status") == "failed")
        if answer is not None and not call.failed:
            assert call.response_id == answer["id"]
            assert call.choices is not None
            sampled = [one["token_ids"] for one in answer.get("choices", ())]
            sampled += [one["tokens"] for one in answer.get("output_messages", ())]
            assert [choice.token_ids.tolist() for choice in call.choices if choice.token_ids is not None] == sampled
            assert call.prompt_token_ids is not None or not sampled
    assert [call.error_type for call in trajectory.calls if call.failed].count("429") == 2


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_prompt_is_what_was_sent_however_odd(tmp_path, address, path):
    """Agents leave tools without a result when they are interrupted, and results without a call when they compact."""
    if path == "/v1/messages":
        use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        called = {"role": "assistant", "content": [use]}
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sun"}]}
    else:
        function = {"name": "look", "arguments": "{}"}
        called = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "sun"}
    with gateway(tmp_path, address) as running:
        for messages in ([*user("q"), called, *user("never mind")], [result, *user("never mind")]):
            body = {"model": MODEL, "max_tokens": 9, "messages": messages}
            assert httpx.post(f"{running.url}/rollout/r{path}", json=body, timeout=30).status_code == 200
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [turn.tokens_untrained for turn in trajectory.turns] == [None, None]


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        ("Hi #finish=abort", "aborted"),
        ("Hi #finish=null", "aborted"),
        ("Hi #finish=abort stream", "aborted"),
        ("Hi #finish=null stream", "stream broke"),
    ],
)
def test_an_answer_that_the_server_broke_off_is_not_trained(tmp_path, address, asked, verdict):
    body = {"model": MODEL, "messages": user(asked), "stream": "stream" in asked}
    with gateway(tmp_path, address) as running:
        assert httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json=body, timeout=30).status_code == 200
    (trajectory,) = recorded(tmp_path)
    (turn,) = trajectory.turns
    assert (turn.tokens_untrained, turn.text_untrained) == (verdict, verdict)
    assert turn.token_ids


def test_a_message_put_into_a_thread_is_no_call(tmp_path, address):
    with gateway(tmp_path, address) as running:
        for path in ("/v1/threads/thread_1/messages", "/rollout/r/v1/threads/thread_1/messages"):
            httpx.post(f"{running.url}{path}", json=user("Hi")[0])
    assert recorded(tmp_path) == []


def test_a_message_of_anthropic_is_read_whole(tmp_path, address):
    tool = {"name": "look", "input_schema": TOOL["function"]["parameters"]}
    with gateway(tmp_path, address) as running:
        for stream in (False, True):
            body = {"model": MODEL, "max_tokens": 9, "system": "Be brief.", "tools": [tool], "stream": stream}
            httpx.post(f"{running.url}/rollout/r/v1/messages", json={**body, "messages": user("Look #think=1")})
    (trajectory,) = recorded(tmp_path)
    whole, streamed = trajectory.calls
    assert trajectory.complete, trajectory.incomplete_reasons
    assert whole.choices is not None
    assert streamed.choices is not None
    message, other = whole.choices[0].message, streamed.choices[0].message
    assert message.identity == other.identity
    assert message.reasoning == other.reasoning != ""
    assert other.tool_calls[0].exact
    assert [one.role for one in whole.input_messages or ()] == ["system", "user"]
    assert whole.choices[0].finish_reason == streamed.choices[0].finish_reason == "tool_calls"
    assert whole.usage == streamed.usage is not None
    assert whole.tools == streamed.tools


@pytest.mark.parametrize(
    ("path", "query", "for_server"),
    [
        ("/rollout/r/v1", "group_id=a%2Fb&split=val/chat/completions", "/v1/chat/completions"),
        ("/rollout/r/v1/", "group_id=a%2Fb&split=valchat/completions", "/v1/chat/completions"),
        ("/rollout/r/v1/", "group_id=a%2Fb&split=valmodels/m", "/v1/models/m"),
        ("/rollout/r", "group_id=a%2Fb&split=val/v1/messages?beta=true", "/v1/messages?beta=true"),
        ("/rollout/r/v1/messages", "beta=true&group_id=a%2Fb&split=val", "/v1/messages?beta=true"),
        ("/rollout/r;split=val/v1/models", "group_id=a%2Fb", "/v1/models"),
        # google-genai, with the base URL /rollout/r;group_id=a%2Fb;split=val
        ("/rollout/r/v1/models/m:generateContent;group_id=a%2Fb;split=val", "", "/v1/models/m:generateContent"),
        ("/rollout/r/v1/models/m", "alt=sse;group_id=a%2Fb;split=val", "/v1/models/m?alt=sse"),
    ],
)
def test_a_base_url_says_of_its_rollout_also_where_a_client_puts_it(path, query, for_server):
    target = read_target(path, query)
    assert target.rollout_id == "r"
    assert target.settings == {names.GROUP_ID: "a/b", names.SPLIT: "val"}
    assert f"{target.path}{target.query and '?'}{target.query}" == for_server


def test_rollouts_are_shared_out_between_idle_servers_and_stay():
    servers = Upstreams(["http://a", "http://b"])
    first = {rollout: servers.choose(rollout) for rollout in ("r1", "r2", "r3", "r4")}
    assert sorted(server.url for server in first.values()) == ["http://a", "http://a", "http://b", "http://b"]
    assert {rollout: servers.choose(rollout) for rollout in first} == first


def test_the_query_of_a_request_is_the_server_s():
    target = read_target("/rollout/r/v1/files", "after=a/b&name")
    assert target == RequestTarget("/v1/files", "after=a/b&name", plain="/v1/files", rollout_id="r")


USER = {"metadata": {"user_id": "user_0a_account__session_11111111-2222"}}
USER_JSON = {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s-json"})}}


NAMING = (
    ({"x-art-rollout-id": "named"}, {}, "named"),
    ({"authorization": "Bearer art-key"}, {}, "key"),
    ({"x-api-key": "art-key"}, {}, "key"),
    ({"x-goog-api-key": "art-key"}, {}, "key"),
    ({"x-api-key": "sk-secret", "authorization": "bearer art-key"}, {}, "key"),
    ({"x-session-affinity": "ses_1", "x-session-id": "ses_1"}, {}, "ses_1"),
    ({"x-session-affinity": "ses_2", "x-parent-session-id": "ses_1"}, {}, "ses_1"),
    ({"x-claude-code-session-id": "cc"}, USER, "cc"),
    ({}, USER, "11111111-2222"),
    ({}, USER_JSON, "s-json"),
    ({"session-id": "codex", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}, {}, "codex"),
)
"""Headers and fields of a body, and the rollout that they name."""


def test_agents_say_their_rollout(tmp_path, address):
    with gateway(tmp_path, address) as running:
        for headers, more, _ in NAMING:
            for _ in range(2):
                httpx.post(f"{running.url}/v1/messages", json={**HI, "max_tokens": 9, **more}, headers=headers)
    trajectories = recorded(tmp_path)
    named = Counter(rollout_id for _, _, rollout_id in NAMING)
    assert {one.rollout_id: len(one.calls) for one in trajectories} == {name: 2 * n for name, n in named.items()}
    assert all(one.complete for one in trajectories)


def test_conversations_are_told_apart_by_what_they_continue(tmp_path, address):
    with gateway(tmp_path, address) as running:
        histories = [user(f"Hi, {name}") for name in "abc"]
        for _ in range(3):
            for history in histories:
                message = chat(running.url, {"model": MODEL, "messages": history})["choices"][0]["message"]
                history += [message, {"role": "user", "content": "and then?"}]
        first = httpx.post(f"{running.url}/v1/responses", json={"model": MODEL, "input": "Hi"}).json()
        more = {"model": MODEL, "input": "More", "previous_response_id": first["id"]}
        httpx.post(f"{running.url}/v1/responses", json=more)
    trajectories = recorded(tmp_path)
    assert sorted(len(one.calls) for one in trajectories) == [2, 3, 3, 3]
    assert all(one.complete and one.metadata == {"inferred": True} for one in trajectories)


def test_a_stream_that_broke_is_not_trained_and_one_that_was_left_neither(tmp_path, address):
    with gateway(tmp_path, address) as running:
        broken = {**HI, "messages": user("Hi #break=4"), "stream": True}
        with pytest.raises(httpx.RemoteProtocolError):
            chat(f"{running.url}/rollout/r", broken)
        slow = {**HI, "messages": user("Hi #pace=0.2"), "stream": True}
        with httpx.stream("POST", f"{running.url}/rollout/r/v1/chat/completions", json=slow) as response:
            next(response.iter_bytes())
        chat(f"{running.url}/rollout/r")
    (trajectory,) = recorded(tmp_path)
    assert [turn.tokens_untrained for turn in trajectory.turns] == ["failed", "stream broke", None]
    assert [call.closed_by_app or call.error_type for call in trajectory.calls] == ["BrokenOffError", "left", None]


@pytest.mark.parametrize(
    ("path", "asked", "last"),
    [
        ("/v1/chat/completions", {"messages": user("Hi #pace=0.1")}, '"finish_reason":"stop"'),
        ("/v1/messages", {"messages": user("Hi #pace=0.1"), "max_tokens": 9}, '"stop_reason":"'),
    ],
)
def test_who_leaves_a_stream_once_it_says_why_it_ended_has_the_whole_answer(tmp_path, address, path, asked, last):
    """Many clients read no further: behind it come the usage and the mark of the end alone."""
    with gateway(tmp_path, address) as running:
        body = {"model": MODEL, "stream": True, **asked}
        with httpx.stream("POST", f"{running.url}/rollout/r{path}", json=body) as response:
            read = ""
            for text in response.iter_text():
                read += text.replace(" ", "")
                if last in read:
                    break
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    (call,) = trajectory.calls
    assert (call.closed_by_app, call.error_type) == (None, None)
    assert call.choices[0].finish_reason is not None


@pytest.mark.parametrize("events", daily([1, 2, 4], one_in=3))
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/messages", {"messages": user("Hi #pace=0.2"), "max_tokens": 9}),
        ("/v1/responses", {"input": "Hi #pace=0.2"}),
    ],
)
def test_a_stream_that_was_left_costs_the_rollout_that_turn_alone(tmp_path, address, path, asked, events):
    """However early: `message_start` counts no token that is sampled later, `response.created` is no answer."""
    with gateway(tmp_path, address) as running:
        body = {"model": MODEL, "stream": True, **asked}
        with httpx.stream("POST", f"{running.url}/rollout/r{path}", json=body) as response:
            read = response.iter_text()
            while events > 0:
                events -= next(read).count("data:")
        chat(f"{running.url}/rollout/r")
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [turn.tokens_untrained for turn in trajectory.turns][-1:] == [None]
    assert {turn.tokens_untrained for turn in trajectory.turns[:-1]} <= {"failed", "stream broke"}


def test_keys_are_never_written_and_secrets_in_content_are_scrubbed(tmp_path, address):
    with gateway(tmp_path, address) as running:
        chat(f"{running.url}/rollout/r", authorization="Bearer plain-key-of-the-agent", **{"x-api-key": "other-key"})
        chat(f"{running.url}/rollout/r", {"model": MODEL, "messages": user(f"My key is {KEY}")})
    written = spooled(tmp_path)
    assert "plain-key-of-the-agent" not in written
    assert "other-key" not in written
    assert KEY not in written
    (trajectory,) = recorded(tmp_path)
    assert [turn.tokens_untrained for turn in trajectory.turns] == [None, "scrubbed"]


@pytest.mark.parametrize(
    "more", daily([{"stream": True}, {}, {"stream": True, "stream_options": {"include_usage": True}}], one_in=3)
)
def test_ids_that_are_fewer_than_the_server_counted_are_left_out(tmp_path, more):
    """llama.cpp leaves out tokens that end inside a character (G1), older servers those that a parser held back."""
    with ModelServer(tmp_path, "--loses-a-token") as losing, gateway(tmp_path / "art", losing.url) as running:
        answered = httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json={**HI, **more})
        assert ("usage" in answered.text) == (more != {"stream": True})
    (trajectory,) = recorded(tmp_path / "art")
    (call,) = trajectory.calls
    assert call.choices is not None
    assert (call.choices[0].token_ids, call.choices[0].logprobs) == (None, None)
    assert call.choices[0].message.content
    assert kinds(call) == ("miscounted",)
    assert trajectory.incomplete_reasons == {"token ids missing": 1}
    verdicts = [(turn.tokens_untrained, turn.text_untrained) for turn in trajectory.turns]
    assert verdicts == [("ids doubtful", None)]


@pytest.mark.long
def test_a_gateway_needs_no_sdk():
    program = "import sys, art_otel.model_gateway.gateway; print([n for n in sys.modules if n.startswith(%r)])"
    said = subprocess.run([sys.executable, "-c", program % "opentelemetry.sdk"], capture_output=True, check=True)
    assert said.stdout.strip() == b"[]"


@pytest.mark.long
def test_what_the_disk_refuses_is_answered_and_missed_and_ends_are_written_later(tmp_path, address):
    """A call is not written again, an end is: by itself, or when it is sent again, and then once."""
    with gateway(tmp_path, address, grace=2.0) as running:
        chat(f"{running.url}/rollout/whole")
        chat(f"{running.url}/rollout/said")
        folder = running.receiver.spool.folder
        moved = folder.rename(folder.with_name("moved"))
        folder.write_text("no folder can be made here")
        time.sleep(1.1)  # the spool looks once a second whether its file is there
        chat(f"{running.url}/rollout/lost", {**HI, "messages": user("lost")})
        end = {"url": f"{running.url}/rollout/said/end", "json": {"reward": 1}}
        assert httpx.post(**end).status_code == 503
        time.sleep(2.6)  # all of them are quiet
        assert "art_otel_gateway_unrecorded_calls_total 1" in httpx.get(f"{running.url}/metrics").text
        folder.unlink()
        moved.rename(folder)
        time.sleep(1.1)
        assert httpx.post(**end).status_code == 200
        written: dict[str, art_otel.Trajectory] = {}
        while len(written) < 3 or not written["said"].rewards:  # whose end may come as a revision of what grace ended
            written |= {one.rollout_id: one for one in next_rollouts(running.url, 1)}
    assert {name: trajectory.incomplete_reasons for name, trajectory in written.items()} == {
        "whole": {},
        "said": {},
        "lost": {"spans missing": 1},
    }
    assert [reward.value for reward in written["said"].rewards] == [1.0]


def test_a_token_is_wanted_of_trainers_and_not_of_agents(tmp_path, address):
    with gateway(tmp_path, address, token="sesame") as running:
        chat(f"{running.url}/rollout/r")
        assert httpx.post(f"{running.url}/rollout/r/end", json={"reward": 1}).status_code == 401
        assert httpx.get(f"{running.url}/metrics").status_code == 401
        assert httpx.post(f"{running.url}/v1/rollouts/trainer/session").status_code == 401
        headers = {"authorization": "Bearer sesame"}
        assert httpx.post(f"{running.url}/rollout/r/end", json={"reward": 1}, headers=headers).status_code == 200
        page = {"origin": "http://evil.example"}
        assert httpx.post(f"{running.url}/v1/chat/completions", json=HI, headers=page).status_code == 403
    (trajectory,) = recorded(tmp_path)
    assert (trajectory.reward, len(trajectory.calls)) == (1.0, 1)


def test_versions_of_weights_are_asked_for_and_the_agent_does_not_see_them(tmp_path, address):
    with gateway(tmp_path, address) as running:
        answer = chat(f"{running.url}/rollout/r", {"model": MODEL, "messages": user("Hi #weights=7")})
    assert "weight_versions" not in answer["choices"][0]
    (call,) = recorded(tmp_path)[0].calls
    assert [one.version for one in call.choices[0].weight_versions] == ["7"]


@pytest.mark.parametrize("odd", [b'"user": "\\ud800"', b'"temperature": 1e999'])
def test_what_only_a_lenient_reader_takes_is_the_servers_to_judge(tmp_path, address, odd):
    body = b'{"model": "m", %b, "messages": [{"role": "user", "content": "Hi"}]}' % odd
    with gateway(tmp_path, address) as running:
        alone = httpx.post(f"{address}/v1/chat/completions", content=body)
        passed = httpx.post(f"{running.url}/rollout/r/v1/chat/completions", content=body)
    assert passed.status_code == alone.status_code


def test_processes_that_were_forked_make_other_ids():
    program = """
import os
from art_otel.model_gateway.rollouts import span_id
for _ in range(2):
    if os.fork() == 0:
        os.write(1, f"{span_id()}\\n".encode())
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len({*done.stdout.split()}) == 2, done.stdout
