"""What one call of a live app costs is counted: modules of ours that it enters, and Python calls in them.

`uv run python -m tests.tracing.test_entered whole` lists them in order, for whoever reads the code along a call.
"""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

MOST = {"whole": (11, 130), "streamed": (17, 850), "streamed around OpenLLMetry": (14, 480)}
"""Modules and Python calls; a streamed answer has a hundred chunks. The one in the middle has OpenLLMetry's span."""

PROGRAM = """
import json, sys, tempfile
import httpx, openai
import art_otel

IDS = [1000]
STREAMED = sys.argv[1].startswith("streamed")
INSTRUMENTOR = "openllmetry" if sys.argv[1] == "streamed" else "auto"

def choice(text, **more):
    entry = {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []}
    return {"index": 0, "finish_reason": None, "token_ids": IDS, "logprobs": {"content": [entry]}, **more}

def chunks():
    for number in range(100):
        delta = {"content": "a"} if number else {"role": "assistant", "content": "a"}
        made = {"id": "c", "model": "m", "choices": [choice("a", delta=delta)]}
        yield b"data: %b\\n\\n" % json.dumps(made).encode()
    yield b"data: [DONE]\\n\\n"

def answer(request):
    if STREAMED:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=chunks())
    message = {"role": "assistant", "content": "hello"}
    return httpx.Response(200, json={"id": "c", "model": "m", "prompt_token_ids": IDS, "choices": [
        choice("hello", finish_reason="stop", message=message)]})

def ask():
    reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=STREAMED)
    for _ in reply if STREAMED else ():
        pass

def count(frame, event, _):
    if event == "call" and "/art_otel/" in frame.f_code.co_filename.replace("\\\\", "/"):
        module = frame.f_code.co_filename.replace("\\\\", "/").rpartition("/art_otel/")[2]
        entered.append((module, frame.f_code.co_qualname))

art_otel.configure(dir=tempfile.mkdtemp(), request_tokens=True, instrumentor=INSTRUMENTOR)
transport = httpx.MockTransport(answer)
client = openai.OpenAI(base_url="http://x/v1", api_key="k", http_client=httpx.Client(transport=transport))
entered = []
with art_otel.rollout(name="agent") as trajectory:
    ask()
    sys.setprofile(count)
    ask()
    sys.setprofile(None)
    assert [call.choices[0].token_ids is not None for call in trajectory.calls] == [True, True]
print(json.dumps(entered))
"""


def entered_by_a_call(how: str) -> list[tuple[str, str]]:
    """The modules and functions of ours that a call enters, one entry a Python call."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return [(module, function) for module, function in json.loads(done.stdout)]


@pytest.mark.parametrize("how", MOST)
def test_a_call_enters_few_modules(how):
    entered = entered_by_a_call(how)
    most_modules, most_calls = MOST[how]
    assert len({module for module, _ in entered}) <= most_modules
    assert len(entered) <= most_calls


if __name__ == "__main__":
    found: dict[str, dict[str, None]] = {}
    for its_module, function in entered_by_a_call(sys.argv[1]):
        found.setdefault(its_module, {})[function] = None
    for its_module, functions in found.items():
        print(its_module, *functions, sep="\n    ")
