"""An app that spills secrets wherever it can: prompts, answers, tools, errors, headers, parameters, names.

`python leaky.py secrets.json`: each secret there goes everywhere. Nothing is printed.
"""

import contextlib
import json
import sys
from pathlib import Path

from openai import OpenAI, OpenAIError
from opentelemetry import trace


def spill(client: OpenAI, secret: str) -> None:
    """One secret, in every place."""
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": json.dumps({"text": secret})}}
    tool = {"name": "read", "description": secret, "parameters": {"type": "object", "properties": {}}}
    messages: list = [
        {"role": "system", "content": f"The key is {secret}"},
        {"role": "user", "content": [{"type": "text", "text": f"Use {secret}."}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": json.dumps({"inner": json.dumps({"key": secret})})},
        {"role": "user", "content": f"Say it #say={secret.split(maxsplit=1)[0]}"},
    ]
    chat = client.chat.completions
    chat.create(
        model="m",
        messages=messages,
        tools=[{"type": "function", "function": tool}],
        user=secret,
        extra_body={"note": secret},
        extra_headers={"x-api-key": secret.replace("\n", " ")},
    )
    for _ in chat.create(model="m", messages=messages, stream=True):
        pass
    with contextlib.suppress(OpenAIError):
        chat.create(model="m", messages=[{"role": "user", "content": f"{secret} #fail=400"}])
    client.responses.create(model="m", input=secret, instructions=secret)


def main() -> None:
    """Every secret, inside a span of the app that spills it too."""
    secrets = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    tracer = trace.get_tracer("leaky")
    with OpenAI() as client:
        for secret in secrets.values():
            with contextlib.suppress(RuntimeError), tracer.start_as_current_span(f"work with {secret}") as span:
                span.set_attribute("http.request.header.authorization", [f"Bearer {secret}"])
                span.set_attribute("settings", {"deep": [{"value": secret}]})
                span.add_event(f"saw {secret}", {"what": secret})
                spill(client, secret)
                raise RuntimeError(f"the app fails with {secret}")


if __name__ == "__main__":
    main()
