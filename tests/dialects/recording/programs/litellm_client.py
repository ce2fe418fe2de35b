"""An agent of LiteLLM: `litellm_client.py sync|stream RECORDER`; `callback` as recorder is LiteLLM's own."""

import json
import os
import sys

from openai_client import FUNCTION
from recorder import recorded
from task import QUESTION, SYSTEM, get_weather


def run(completion, *, is_stream: bool) -> None:
    from litellm import stream_chunk_builder

    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    server = {"api_base": f"{os.environ['MODEL_URL']}/v1", "api_key": "key"}
    asked = {"model": "openai/fake-model", "tools": [{"type": "function", "function": FUNCTION}], **server}
    while True:
        answer = completion(**asked, messages=messages, stream=is_stream)
        whole = stream_chunk_builder(list(answer)) if is_stream else answer
        said = whole.choices[0].message.model_dump(include=None if is_stream else {"role", "content", "tool_calls"})
        if not said.get("tool_calls"):
            return
        results = [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": get_weather(**json.loads(call["function"]["arguments"])),
            }
            for call in said["tool_calls"]
        ]
        messages = [*messages, said, *results]


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how.replace("callback", "own")):
        import litellm

        litellm.callbacks = ["otel"] if how == "callback" else []
        run(litellm.completion, is_stream=mode == "stream")
