"""A pipeline of Haystack with a model and tools: `haystack_agent.py RECORDER`."""

import os
import sys

from recorder import recorded
from task import QUESTIONS, SYSTEM, TOOLS, result_of

with recorded(sys.argv[1]):
    from haystack import Pipeline
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool
    from haystack.utils import Secret

    tools = [Tool(**tool, function=lambda name=tool["name"], **arguments: result_of(name, arguments)) for tool in TOOLS]
    server = {"api_base_url": f"{os.environ['MODEL_URL']}/v1", "api_key": Secret.from_token("key")}
    pipeline = Pipeline()
    pipeline.add_component("llm", OpenAIChatGenerator(model="fake-model", tools=tools, **server))
    messages = [ChatMessage.from_system(SYSTEM)]
    for question in QUESTIONS:
        messages = [*messages, ChatMessage.from_user(question)]
        while True:
            said = pipeline.run({"llm": {"messages": messages}})["llm"]["replies"][0]
            results = [
                ChatMessage.from_tool(result_of(call.tool_name, call.arguments), origin=call)
                for call in said.tool_calls
            ]
            messages = [*messages, said, *results]
            if not results:
                break
