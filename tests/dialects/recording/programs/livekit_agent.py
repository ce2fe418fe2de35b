"""The model of a LiveKit agent, without a voice: `livekit_agent.py RECORDER`."""

import asyncio
import json
import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM, result_of


async def run() -> None:
    from livekit.agents import llm, telemetry
    from livekit.plugins import openai
    from opentelemetry import trace

    telemetry.set_tracer_provider(trace.get_tracer_provider())
    model = openai.LLM(model="fake-model", base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    tools = [llm.function_tool(function) for function in FUNCTIONS]
    context = llm.ChatContext.empty()
    context.add_message(role="system", content=SYSTEM)
    for question in QUESTIONS:
        context.add_message(role="user", content=question)
        while True:
            stream = model.chat(chat_ctx=context, tools=tools)
            deltas = [chunk.delta async for chunk in stream if chunk.delta]
            await stream.aclose()
            text = "".join(delta.content or "" for delta in deltas)
            calls = [call for delta in deltas for call in delta.tool_calls or ()]
            answer = f"item_{len(context.items)}"
            if text:
                context.add_message(role="assistant", content=text, id=answer)
            for at, call in enumerate(calls):  # named as AgentSession does, so that they are sent as one message
                said = {"call_id": call.call_id, "name": call.name}
                context.insert(llm.FunctionCall(**said, id=f"{answer}/fnc_{at}", arguments=call.arguments))
            for call in calls:
                result = result_of(call.name, json.loads(call.arguments))
                said = {"call_id": call.call_id, "name": call.name}
                context.insert(llm.FunctionCallOutput(**said, output=result, is_error=False))
            if not calls:
                break
    await asyncio.sleep(1)


with recorded(sys.argv[1]):
    asyncio.run(run())
