"""A real llama.cpp: ids are right or left out, agents get its own answers, and the gateway knows what it cannot.

It lists no token that ends inside a character (G1), which a random model samples in most answers. Run with -s, each
test prints its numbers.
"""

import json
import subprocess
from dataclasses import dataclass, field

import httpx
import numpy as np
import pytest

import art_otel
from tests.gaps import kinds
from tests.model_gateway.gateways import gateway
from tests.model_servers.agreement import rows_of, torch_logprobs
from tests.model_servers.asks import LOOK, MODEL, TOOLS, anthropic_asks, openai_asks, user
from tests.model_servers.llama import tokenized
from tests.model_servers.runs import ask, converted, run_app
from tests.model_servers.servers import ModelServer

CLOSE = 1e-4
TIMES = 3
UNASKED = {"responses-turns", "responses-turns-stream"}
"""llama.cpp refuses a message of the assistant without a type among the items of Responses."""
ASKS = [*(openai_asks().keys() - UNASKED), *(name for name in anthropic_asks() if not name.endswith("-stream"))]
"""A stream of Messages whose first token ends inside a character has no beginning, which Anthropic's client misses."""
NO_CALL = "does not match the expected peg-native format"
"""What llama.cpp says of random text that begins as a call of a tool."""

pytestmark = [pytest.mark.real_server, pytest.mark.xdist_group("llama")]


TEXTS = (
    "Hello world, it's  1234\n\n\ttabs and\u00a0spaces\r\n",
    "Grüße aus Köln, Äpfel e\u0301",
    "🦙 👩\u200d👩\u200d👧 日本語 \ufffd",
    '<|im_start|>user\nHi<|im_end|>\n<tool_call>{"a": 1}</tool_call> <think>',
)
ENCODE = """
import sys
from tokenizers import Tokenizer
for text in sys.argv[2:]:
    print(Tokenizer.from_file(sys.argv[1]).encode(text).ids)
"""


def test_texts_have_the_ids_that_the_tokenizer_of_the_model_gives(llama):
    command = [str(llama.python), "-c", ENCODE, str(llama.model / "tokenizer.json"), *TEXTS]
    encoded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [tokenized(llama, text) for text in TEXTS] == [json.loads(ids) for ids in encoded]


@dataclass
class Told:
    """What was kept of calls. `worst` is the greatest difference to torch."""

    calls: int = 0
    exact: int = 0
    tokens: int = 0
    gaps: int = 0
    worst: float = 0.0
    without_ids: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.calls} calls: {self.exact} exact with {self.tokens} tokens, the worst {self.worst:.1e}; {self.gaps}"
            f" miscounted; without ids {sorted(self.without_ids)}"
        )


def check(trajectories: list[art_otel.Trajectory], llama: ModelServer, mode: str) -> Told:
    """Each call has all its ids, with torch's log probabilities, or a gap and none."""
    told, rows = Told(), []
    for trajectory in trajectories:
        for call in trajectory.calls:
            told.calls += 1
            ids = [choice.token_ids for choice in call.choices or ()]
            if "miscounted" in kinds(call):
                told.gaps += 1
                assert set(ids) == {None}, call
                assert {choice.logprobs for choice in call.choices} == {None}, call
                assert "token ids missing" in trajectory.incomplete_reasons
            elif set(ids) <= {None}:
                told.without_ids.add(trajectory.rollout_id.removesuffix("-stream"))
            else:
                told.exact += 1
                rows += rows_of(trajectory.rollout_id, call, llama)
    for row, expected in zip(rows, torch_logprobs(rows, llama), strict=True):
        told.tokens += len(row.at)
        told.worst = max(told.worst, *np.abs(row.logprobs[row.at] - np.array(expected)).tolist())
    print(f"\n{mode}: {told}")
    assert told.worst < CLOSE
    return told


def test_an_app_without_a_gateway(llama, tmp_path):
    for _ in range(TIMES):
        run_app(llama, tmp_path, *ASKS, refusal=NO_CALL)
    told = check(converted(tmp_path), llama, "app")
    assert min(told.exact, told.gaps) > 10, told  # enough of both


def test_agents_through_a_gateway_that_passes_through(llama, tmp_path):
    with gateway(tmp_path, llama.url, tokens="passthrough") as running:
        for _ in range(TIMES):
            ask(llama, f"{running.url}/rollout/{{}}", *ASKS, refusal=NO_CALL)
    told = check(converted(tmp_path), llama, "passthrough")
    assert min(told.exact, told.gaps) > 10, told  # enough of both


def test_a_gateway_that_may_choose_passes_through_and_says_so_once(llama, tmp_path, caplog):
    with gateway(tmp_path, llama.url, tokens="auto") as running:
        ask(llama, f"{running.url}/rollout/{{}}", "chat-plain", "chat-turns-stream", "completions-plain")
    assert [record.message for record in caplog.records if "cannot sample" in record.message] == [
        f"art-otel: {llama.url} cannot sample from token ids, so calls pass through (404)"
    ]
    check(converted(tmp_path), llama, "auto")


SAYS = {"model": MODEL, "max_tokens": 24, "temperature": 0, "seed": 7}
LONG = "word " * 9000
CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
TOOL = {"name": LOOK["name"], "description": LOOK["description"], "input_schema": LOOK["parameters"]}
ANSWERED = {
    "chat": (CHAT, {**SAYS, "messages": user("Hi")}),
    "several": (CHAT, {**SAYS, "messages": user("Hi"), "n": 2}),
    "logprobs": (CHAT, {**SAYS, "messages": user("Hi"), "logprobs": True, "top_logprobs": 2}),
    "usage": (CHAT, {**SAYS, "messages": user("Hi"), "stream_options": {"include_usage": True}}),
    "stopped": (CHAT, {**SAYS, "messages": user("Tell me"), "stop": ["e", "a"]}),
    "tools": (CHAT, {**SAYS, "messages": user("How is the weather?"), "tools": TOOLS}),
    "forced": (CHAT, {**SAYS, "max_tokens": 80, "messages": user("Go"), "tools": TOOLS, "tool_choice": "required"}),
    "completions": (TEXT, {**SAYS, "prompt": "Once"}),
    "completions-logprobs": (TEXT, {**SAYS, "prompt": "Once", "logprobs": 2}),
    "prompts": (TEXT, {**SAYS, "prompt": ["Once", "Twice"]}),
    "responses": (RESPONSES, {"model": MODEL, "max_output_tokens": 12, "temperature": 0, "input": "Hi"}),
    "messages": (MESSAGES, {**SAYS, "messages": user("Hi"), "system": "Be brief."}),
    "messages-tools": (MESSAGES, {**SAYS, "messages": user("Hi"), "tools": [TOOL]}),
    "too-long": (CHAT, {**SAYS, "messages": user(LONG)}),
    "too-long-text": (TEXT, {**SAYS, "prompt": LONG}),
    "too-long-response": (RESPONSES, {"model": MODEL, "input": LONG}),
    "too-long-message": (MESSAGES, {**SAYS, "messages": user(LONG)}),
    "no-messages": (CHAT, {**SAYS}),
    "wrong-type": (CHAT, {**SAYS, "messages": "Hi"}),
    "nowhere": ("/v1/nowhere", {"input": "Hi"}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ANSWERED)
def test_agents_get_the_answers_of_the_server(llama, passing, name, stream):
    path, body = ANSWERED[name]
    sent = json.dumps({**body, "stream": stream})
    answered(llama.url, path, sent)  # what it kept of the prompt it counts
    direct, through = answered(llama.url, path, sent), answered(passing, path, sent)
    if stream and path == CHAT and name != "usage":  # they come with the usage, which the agent did not ask for
        for answer in (direct, through):
            answer[2][:] = [without_timings(line) for line in answer[2]]
    if stream and name in ("several", "prompts"):  # whose pieces come in any order
        direct, through = [(*answer[:2], sorted(answer[2], key=repr)) for answer in (direct, through)]
    assert through == direct


def test_a_body_that_is_no_json_is_refused_by_the_server(llama, passing):
    for path in (CHAT, TEXT, RESPONSES, MESSAGES):
        assert answered(passing, path, '{"model": ') == answered(llama.url, path, '{"model": ')


def test_other_paths_pass(llama, passing):
    for path in ("/health", "/v1/models", "/props"):
        through, direct = (httpx.get(f"{url}{path}") for url in (passing, llama.url))
        assert (through.status_code, steady(through.json())) == (direct.status_code, steady(direct.json()))
    asked = {"json": {"content": "Hi <|im_end|>", "parse_special": True}}
    through, direct = (httpx.post(f"{url}/tokenize", **asked) for url in (passing, llama.url))
    assert through.content == direct.content


@pytest.fixture(scope="module")
def passing(llama, tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("passing"), llama.url, tokens="passthrough") as running:
        yield f"{running.url}/rollout/r"


def answered(url: str, path: str, body: str):
    """The status, the type and what was said, without what is new each time."""
    answer = httpx.post(f"{url}{path}", content=body, headers={"content-type": "application/json"}, timeout=120)
    kind = answer.headers.get("content-type", "")
    lines = answer.text.splitlines() if kind.startswith("text/event-stream") else [answer.text]
    return answer.status_code, kind, [said(line) for line in lines]


def said(line: str):
    """A line of an answer; JSON in it is read."""
    name, colon, data = line.partition(": ")
    if name == "data" and data.startswith("{"):
        return name, steady(json.loads(data))
    return steady(json.loads(line)) if line.startswith("{") else (name, colon, data)


def without_timings(line):
    """A line without the times that llama.cpp tells."""
    return (line[0], {name: value for name, value in line[1].items() if name != "timings"}) if len(line) == 2 else line


NEW = ("id", "created", "created_at", "completed_at", "item_id", "call_id")


def steady(value):
    """JSON without ids and times, whose names stay."""
    if isinstance(value, dict):
        return {
            name: "new" if name in NEW else sorted(inner) if name == "timings" else steady(inner)
            for name, inner in value.items()
        }
    return [steady(inner) for inner in value] if isinstance(value, list) else value
