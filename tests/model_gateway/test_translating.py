"""Agents whose dialect their server lacks, or has without ids, through a gateway that asks it for Chat Completions."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.examples import daily
from tests.model_gateway.gateways import MODEL, TOOL, gateway, recorded, user
from tests.model_gateway.gemini_server import gemini_server
from tests.model_gateway.record_vllm import Reply, replayed, serving
from tests.tracing.server import ModelServer
from tests.trainers.environment import trainer_python

PROGRAM = Path(__file__).parent / "agents" / "translated.py"
FUNCTION = TOOL["function"]
LOOK = {"name": "look", "parametersJsonSchema": FUNCTION["parameters"]}
ASKS = {
    "messages": (
        "/v1/messages?beta=true",
        {
            "model": MODEL,
            "max_tokens": 9,
            "messages": user("Look #think=1"),
            "tools": [{"name": "look", "input_schema": FUNCTION["parameters"]}],
        },
    ),
    "responses": (
        "/v1/responses",
        {"model": MODEL, "input": "Look #think=1", "tools": [{"type": "function", **FUNCTION}]},
    ),
    "gemini": (
        f"/v1beta/models/{MODEL}:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "Look #think=1"}]}],
            "tools": [{"functionDeclarations": [LOOK]}],
        },
    ),
}

CHAT_ASK = ("/v1/chat/completions", {"model": MODEL, "messages": user("Look #think=1"), "tools": [TOOL]})


@pytest.fixture(scope="module")
def chat_only(tmp_path_factory) -> Iterator[ModelServer]:
    with ModelServer(tmp_path_factory.mktemp("chat"), "--chat-only") as running:
        yield running


def address_of(server: ModelServer) -> str:
    return server.url.removesuffix("/v1")


def ask(url: str, dialect: str, *, stream: bool = False, key: str = "k") -> httpx.Response:
    path, body = CHAT_ASK if dialect == "chat" else ASKS[dialect]
    if stream and dialect == "gemini":
        path = path.replace("generateContent", "streamGenerateContent?alt=sse")
    body = {**body, "stream": True} if stream and dialect != "gemini" else body
    return httpx.post(f"{url}{path}", json=body, headers={"x-api-key": key}, timeout=30)


@pytest.mark.parametrize("options", daily([(("--chat-only",),), (("--chat-only", "--sglang"),), ((),)], one_in=3))
def test_a_call_has_ids_and_logprobs_whatever_its_dialect(tmp_path, options):
    """Of a server with Chat Completions alone, and of one whose other dialects give no ids."""
    with ModelServer(tmp_path, *options) as server, gateway(tmp_path, address_of(server), translate="auto") as running:
        for dialect in ASKS:
            for stream in (False, True):
                assert ask(f"{running.url}/rollout/r", dialect, stream=stream).status_code == 200
        answered = [one for one in server.answered() if one.body["messages"] != user("Hi")]
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [call.extra["translated_from"] for call in trajectory.calls] == [one for one in ASKS for _ in range(2)]
    assert {exchange.headers["authorization"] for exchange in answered} == {"Bearer k"}
    for call, exchange in zip(trajectory.calls, answered, strict=True):
        assert exchange.answer is not None
        (choice,), (sampled,) = call.choices or (), exchange.answer["choices"]
        assert [*(choice.token_ids or ())] == sampled["token_ids"]
        assert choice.logprobs is not None
        assert [*(call.prompt_token_ids or ())] == exchange.answer["prompt_token_ids"]
        assert choice.message.reasoning is not None
        assert call.response_id == exchange.answer["id"]
    assert {turn.tokens_untrained for turn in trajectory.turns} == {None}


def test_a_server_of_the_dialect_gets_it_as_it_is(tmp_path, chat_only):
    with ModelServer(tmp_path) as server:
        for tokens, translate in (("off", "auto"), ("auto", "never")):
            with gateway(tmp_path / tokens, address_of(server), translate=translate, tokens=tokens) as running:
                for dialect in ("messages", "responses"):
                    assert ask(running.url, dialect).status_code == 200
        assert {one.path.partition("?")[0] for one in server.answered()} == {"/v1/messages", "/v1/responses"}
        with gateway(tmp_path / "stream", address_of(server), translate="auto") as running:
            assert ask(running.url, "chat", stream=True).status_code == 200
        assert server.answered()[-1].body["stream"]
    with gemini_server() as url, gateway(tmp_path / "gemini", url, translate="auto") as running:
        assert ask(running.url, "gemini").json()["modelVersion"] == "gemini-test-001"
    with gateway(tmp_path / "never", address_of(chat_only), translate="never") as running:
        assert ask(running.url, "messages").status_code == 404


def test_what_is_refused_says_why_in_the_dialect_and_is_a_failed_call(tmp_path, chat_only):
    body = {"model": MODEL, "input": "Hi", "background": True}
    with gateway(tmp_path, address_of(chat_only), translate="auto") as running:
        refused = httpx.post(f"{running.url}/rollout/r/v1/responses", json=body)
        ask(f"{running.url}/rollout/r", "responses")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "background"
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [call.error_type for call in trajectory.calls] == ["400", None]


@pytest.mark.parametrize("dialect", ASKS)
def test_a_stream_that_breaks_is_cut_for_the_agent_too(tmp_path, chat_only, dialect):
    path, body = ASKS[dialect]
    text = json.dumps({**body, "stream": dialect != "gemini"}).replace("Look #think=1", "Hi #break=2")
    path = path.replace("generateContent", "streamGenerateContent?alt=sse")
    with (
        gateway(tmp_path, address_of(chat_only), translate="auto") as running,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        httpx.post(f"{running.url}/rollout/r{path}", content=text)
    (trajectory,) = recorded(tmp_path)
    assert [call.error_type for call in trajectory.calls] == ["BrokenOffError"]


@pytest.mark.parametrize("dialect", daily(["chat", *ASKS], one_in=2))
def test_a_rollout_that_had_all_its_calls_ends_its_agent_s_loop(tmp_path, chat_only, dialect):
    chat = ("/v1/chat/completions", {"model": MODEL, "messages": user("Look"), "tools": [TOOL]})
    path, body = {**ASKS, "chat": chat}[dialect]
    with gateway(tmp_path, address_of(chat_only), translate="auto", max_calls=5) as running:
        url = f"{running.url}/rollout/r;max_calls=2"
        answers = [httpx.post(f"{url}{path}", json=body) for _ in range(4)]
        httpx.post(f"{running.url}/rollout/r/end", json={"reward": 1})
    assert ["it has used all of its 2 model calls" in answer.text for answer in answers] == [False, False, True, True]
    assert {answer.status_code for answer in answers} == {200}
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert len(trajectory.calls) == 2
    assert trajectory.metadata["max_calls_reached"] is True
    assert (trajectory.status, trajectory.reward) == ("ok", 1.0)


def test_rewards_come_at_any_time_for_a_rollout_and_for_an_answer(tmp_path, chat_only):
    with gateway(tmp_path, address_of(chat_only), translate="auto") as running:
        url = f"{running.url}/rollout/r"
        answers = [ask(url, dialect).json() for dialect in ("messages", "responses")]
        first = {"reward": 0.25, "name": "style", "response_id": answers[0]["id"]}
        assert httpx.post(f"{url}/reward", json=first).status_code == 200
        assert httpx.post(f"{url}/end").status_code == 200
        assert httpx.post(f"{url}/reward", json={"reward": {"reward": 1.0, "tests": 3.0}}).status_code == 200
        assert httpx.post(f"{url}/reward", json={"name": "x"}).status_code == 400
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert trajectory.reward == 1.0
    given = [(reward.name, reward.value, reward.target) for reward in trajectory.rewards]
    assert ("style", 0.25, trajectory.calls[0].span_id) in given
    assert {name for name, _, _ in given} == {"style", "reward", "tests"}


def test_tokens_of_a_prompt_are_counted_where_the_server_tokenizes(tmp_path):
    asked: list[dict] = []

    def answer(path: str, body: str) -> Reply:
        if path != "/tokenize":
            return (404, "application/json", "{}")
        asked.append(json.loads(body))
        return (200, "application/json", '{"count": 7}')

    with serving(answer) as url, gateway(tmp_path, url, translate="auto") as running:
        path, body = ASKS["messages"]
        counted = httpx.post(f"{running.url}/rollout/r{path.partition('?')[0]}/count_tokens", json=body)
        assert counted.json() == {"input_tokens": 7}
        path, body = ASKS["gemini"]
        body = {"generateContentRequest": {"model": f"models/{MODEL}", **body}}
        counted = httpx.post(f"{running.url}/rollout/r{path.replace('generateContent', 'countTokens')}", json=body)
        assert counted.json() == {"totalTokens": 7}
        assert httpx.post(f"{running.url}/rollout/r/v1/embeddings", json={"input": "Hi"}).status_code == 404
    assert [one["messages"] for one in asked] == [user("Look #think=1")] * 2
    assert {one["model"] for one in asked} == {MODEL}
    assert {one["tools"][0]["function"]["name"] for one in asked} == {"look"}


def test_agents_that_begin_together_ask_a_server_once_what_it_can(tmp_path):
    """Whatever their dialects are: each path once, and one token of each model."""
    probes: Counter[str] = Counter()

    def answer(path: str, body: str) -> Reply:
        asked = json.loads(body)
        if asked and asked.get("max_tokens") != 1:
            choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
            choice |= {"token_ids": [1], "logprobs": {"content": [{"token": "Hi", "logprob": -1.0}]}}
            usage = {"prompt_tokens": 3, "completion_tokens": 1}
            fields = {"id": "c", "model": asked["model"], "prompt_token_ids": [7, 8, 9], "usage": usage}
            return (200, "application/json", json.dumps({**fields, "choices": [choice]}))
        probes[f"{path} {asked.get('model')}"] += 1
        time.sleep(0.2)
        if not asked:
            return (404 if "generate" in path else 400, "application/json", "{}")
        return (200, "application/json", '{"id": "c", "choices": [{"index": 0, "message": {}, "token_ids": [1]}]}')

    def call(number: int) -> int:
        path, body = ASKS["messages" if number % 2 else "responses"]
        body = {**body, "model": f"m{number % 3}"}
        return httpx.post(f"{running.url}/rollout/{number}{path}", json=body, timeout=30).status_code

    with serving(answer) as url, gateway(tmp_path, url, translate="auto") as running, ThreadPoolExecutor(12) as pool:
        assert {*pool.map(call, range(24))} == {200}
    assert probes == {
        "/inference/v1/generate None": 1,
        "/v1/messages None": 1,
        "/v1/responses None": 1,
        **{f"/v1/chat/completions m{number}": 1 for number in range(3)},
    }
    assert {call.extra["translated_from"] for one in recorded(tmp_path) for call in one.calls} == {
        "messages",
        "responses",
    }


@pytest.mark.parametrize("dialect", [*ASKS, "chat"])
def test_a_stream_with_tools_has_ids_where_its_server_gives_them_for_whole_answers_only(tmp_path, dialect):
    """As llama.cpp, which refuses logprobs of streams with tools; its ids stand there.

    Its first token here is the beginning of an emoji, which it does not list.
    """
    asks: list[dict] = []

    def answer(path: str, body: str) -> Reply:
        if path == "/v1/models":
            return (200, "application/json", json.dumps({"data": [{"id": MODEL, "owned_by": "llamacpp"}]}))
        asked = json.loads(body)
        if not path.endswith("/chat/completions") or not asked:
            return (400 if path.endswith("/chat/completions") else 404, "application/json", "{}")
        asks.append(asked)
        if asked.get("stream") and asked.get("tools") and asked.get("logprobs"):
            said = {"error": {"code": 400, "message": "logprobs is not supported with tools + stream"}}
            return (400, "application/json", json.dumps(said))
        call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        content = [{"id": 7, "token": "Hi", "bytes": [72, 105], "logprob": -1.0, "top_logprobs": []}]
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hi", "tool_calls": [call]}}
        choice |= {"finish_reason": "tool_calls"} | ({"logprobs": {"content": content}} if len(asks) > 1 else {})
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        fields = {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL, "timings": {}}
        return (200, "application/json", json.dumps({**fields, "choices": [choice], "usage": usage}))

    with serving(answer) as url, gateway(tmp_path, url, translate="auto") as running:
        answers = [ask(f"{running.url}/rollout/r", dialect, stream=True) for _ in range(2)]
    for answered in answers:
        assert answered.headers["content-type"].startswith("text/event-stream")
        assert "look" in answered.text
        assert answered.text.count("data:") > 1
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [[*(call.choices or ())[0].token_ids] for call in trajectory.calls] == [[7], [7]]
    assert {call.extra.get("translated_from", "chat") for call in trajectory.calls} == {dialect}
    assert [(one["max_tokens"], bool(one.get("stream"))) for one in asks if one.get("max_tokens") == 1] == [
        (1, False),
        (1, False),
        (1, True),
    ]


@pytest.mark.parametrize("dialect", ASKS)
def test_a_server_that_is_gone_is_an_error_of_the_dialect(tmp_path, dialect):
    with gateway(tmp_path, "http://127.0.0.1:9", translate="auto") as running:
        answered = ask(f"{running.url}/rollout/r", dialect)
    assert answered.status_code == 502
    error = answered.json()["error"]
    assert "cannot be reached" in error.pop("message")
    assert (
        error
        == {
            "messages": {"type": "api_error"},
            "responses": {"type": "gateway_error", "param": None, "code": None},
            "gemini": {"code": 502, "status": "INTERNAL"},
        }[dialect]
    )


@pytest.mark.install
def test_the_clients_of_three_dialects_are_served_by_chat_alone(tmp_path, chat_only):
    clients = ("openai==3.57.0", "anthropic==2.14.0", "google-genai==3.6.1")
    command = [str(trainer_python("gateway-translated", *clients)), str(PROGRAM)]
    with gateway(tmp_path, address_of(chat_only), translate="auto") as running:
        said = subprocess.run([*command, f"{running.url}/rollout/r"], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("counted") == 12
    assert "uncounted" not in said.stdout
    assert said.stdout.count("RateLimitError") == 4
    assert said.stdout.count("429 RESOURCE_EXHAUSTED") == 2
    assert said.stdout.count("400 INVALID_ARGUMENT") == 2
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [turn.parent for turn in trajectory.turns] == [None, 0, None, 2, None, 4, None, 6, None, 8, None, 10]
    assert {turn.tokens_untrained for turn in trajectory.turns} == {None}


def test_a_conversation_that_is_translated_is_one_rollout(tmp_path, address):
    """It is found by what the agent asks, in the agent's dialect, before a server is chosen."""
    anthropic = {"name": TOOL["function"]["name"], "input_schema": TOOL["function"]["parameters"]}
    history: list[dict] = [{"role": "user", "content": "Look #calls=2 #think=1"}]
    with gateway(tmp_path, address, address.replace("127.0.0.1", "localhost"), translate="auto") as running:
        for _ in range(3):
            body = {"model": MODEL, "max_tokens": 50, "messages": history, "tools": [anthropic]}
            said = httpx.post(f"{running.url}/v1/messages", json=body).json()["content"]
            results = [
                {"type": "tool_result", "tool_use_id": part["id"], "content": "x"}
                for part in said
                if part["type"] == "tool_use"
            ]
            history += [{"role": "assistant", "content": said}, {"role": "user", "content": results or "more"}]
    (trajectory,) = recorded(tmp_path)
    assert [call.extra["translated_from"] for call in trajectory.calls] == ["messages"] * 3
    lines = (tmp_path / "spool").rglob("*.jsonl")
    servers = {"localhost" in line for file in lines for line in file.read_text().splitlines() if '"chat m"' in line}
    assert len(servers) == 1


def test_a_translated_call_is_sampled_from_ids_where_its_server_can(tmp_path):
    """Gemini's, of which vLLM has nothing, over its recorded answers to the same request in Chat Completions."""

    def has_chat(path: str, reply: Reply) -> Reply:
        return (400, "application/json", "{}") if reply[0] == 404 and path == "/v1/chat/completions" else reply

    config = {"maxOutputTokens": 16, "temperature": 0.0, "seed": 7, "thinkingConfig": {"includeThoughts": True}}
    body = {"contents": [{"role": "user", "parts": [{"text": "Say hello"}]}], "generationConfig": config}
    with replayed(has_chat) as url, gateway(tmp_path, url, tokens="exact", translate="auto") as running:
        models = f"{running.url}/rollout/r/v1beta/models/tiny"
        whole, streamed = (
            httpx.post(f"{models}:{way}", json=body, timeout=30).json()
            for way in ("generateContent", "streamGenerateContent")  # in this order it was recorded
        )
    assert len(streamed) > 1
    (trajectory,) = recorded(tmp_path)
    for call, responses in zip(trajectory.calls, ([whole], streamed), strict=True):
        assert (call.extra["translated_from"], call.extra["prompt"]) == ("gemini", "not_needed")
        (choice,) = call.choices or ()
        assert responses[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
        assert len(choice.token_ids or ()) == responses[-1]["usageMetadata"]["candidatesTokenCount"] == 16
        parts = [part for one in responses for part in one["candidates"][0]["content"]["parts"]]
        said = ["".join(part["text"] for part in parts if bool(part.get("thought")) is kind) for kind in (True, False)]
        assert said == [choice.message.reasoning or "", choice.message.content or ""]
