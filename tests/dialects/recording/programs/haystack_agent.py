"""An agent of Haystack: `haystack_agent.py RECORDER`."""

import os
import sys

from recorder import recorded
from task import QUESTIONS, SYSTEM, TOOLS, result_of

with recorded(sys.argv[1]):
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool
    from haystack.utils import Secret

    generator = OpenAIChatGenerator(
        model="fake-model", api_base_url=f"{os.environ['MODEL_URL']}/v1", api_key=Secret.from_token("key")
    )
    tools = [Tool(**tool, function=lambda name=tool["name"], **arguments: result_of(name, arguments)) for tool in TOOLS]
    agent = Agent(chat_generator=generator, tools=tools, system_prompt=SYSTEM)
    messages = []
    for question in QUESTIONS:
        answered = agent.run(messages=[*messages, ChatMessage.from_user(question)])["messages"]
        messages = [message for message in answered if message.role != "system"]
